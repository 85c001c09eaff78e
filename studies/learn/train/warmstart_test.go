package train

import (
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/studies/learn/env"
	"github.com/seed621a2839/reweight/studies/learn/policy"
)

// tiny are settings with which a warm start takes no time.
var tiny = func() Settings {
	s := Default
	s.Hidden, s.Demonstrations, s.Starts = 4, 32, 2
	return s
}()

func newChoice() env.Environment { return choice{} }

// Of the demonstrations, a share has a mistake: half of these in the plan and the answer, half in the
// answer alone, and half of either is the best answer by luck. None has a good answer to a bad plan.
func TestDemonstrate(t *testing.T) {
	const mistakes, n = 0.3, 20000
	random := rand.New(rand.NewPCG(1, 2))
	share := map[string]float64{}
	for range n {
		e := rules{newGame: newChoice}.begin(start{})
		e.demonstrate(random, mistakes, 0.5)
		var said []string
		for _, token := range e.tokens {
			said = append(said, env.Words[token])
		}
		share[strings.Join(said, " ")] += 1. / n
	}
	want := map[string]float64{
		"want <agent> to 1 <answer> 1 </answer>":          1 - mistakes/2,
		"want <agent> to 0 here not <answer> 0 </answer>": mistakes / 4,
		"want <agent> to 1 <answer> 0 </answer>":          mistakes / 4,
	}
	for said, got := range share {
		if p := want[said]; !(math.Abs(got-p) < 4*math.Sqrt(p*(1-p)/n)) {
			t.Errorf("%s: %.4f of the demonstrations, want %.4f", said, got, p)
		}
	}
}

// A tracer is a choice that writes down the luck of its episodes.
type tracer struct {
	choice
	luck *[]uint64
}

func (tr tracer) Reset(_, luck uint64) { *tr.luck = append(*tr.luck, luck) }

// The number of a warm start decides the weights that it begins with and its
// episodes.
func TestWarmStartNumber(t *testing.T) {
	start := func(number, demonstrations int) (string, []uint64) {
		var luck []uint64
		add(t, "tracer", 0.4, func() env.Environment { return tracer{luck: &luck} })
		settings := tiny
		settings.Demonstrations = demonstrations
		return fingerprint(must.Get(settings.WarmStart(Run{Game: "tracer", Seed: number, Errors: 0.5})).Parameters),
			luck
	}
	first, luck := start(1, 32)
	if again, same := start(1, 32); again != first || !slices.Equal(luck, same) {
		t.Error("the same number gives another start")
	}
	if other, others := start(2, 32); other == first || slices.Equal(luck, others) {
		t.Error("another number gives the same end or the same episodes")
	}
	begin, _ := start(1, 0)
	if other, _ := start(2, 0); other == begin || begin == first {
		t.Error("another number begins with the same weights, or nothing is learned")
	}
}

// Runs at the same time that need the same warm start make it once. Runs of other seeds take another,
// and so do those of an arm that changes it.
func TestStartsShared(t *testing.T) {
	var games atomic.Int64
	add(t, "counted", 0.5, func() env.Environment {
		games.Add(1)
		return choice{}
	})
	starts := Starts{Settings: tiny}
	var agents [4]*policy.Policy
	var group sync.WaitGroup
	for seed := range agents {
		group.Go(func() { agents[seed] = must.Get(starts.For(Run{Game: "counted", Seed: seed})) })
	}
	group.Wait()
	if made := int(games.Load()) / tiny.Demonstrations; made != 2 {
		t.Errorf("%d warm starts, want 2", made)
	}
	if agents[0] != agents[2] || agents[1] != agents[3] || slices.Equal(agents[0].Parameters, agents[1].Parameters) {
		t.Error("the seeds do not take the starts in turn")
	}
	for name, arm := range arms {
		own := must.Get(starts.For(Run{Game: "counted", Arm: name}))
		if shared := own == agents[0]; shared == arm.start || (own.Hidden == 64) != (name == "wide") {
			t.Errorf("%s: the warm start of the map is taken: %v", name, shared)
		}
	}
}

// A response to a game is never cut off.
func TestGamesDemonstrated(t *testing.T) {
	whole := regexp.MustCompile("^r+a+r$")
	for name, game := range env.Games {
		for _, errors := range []float64{0, 0.5} {
			random := rand.New(rand.NewPCG(1, 2))
			for _, s := range starts(1, 3, forDemonstrations, 0, 0) {
				e := rules{newGame: game.New, formatRole: reweight.RoleReasoning}.begin(s)
				for !e.done {
					begin := len(e.tokens)
					e.demonstrate(random, 0.5, errors)
					if roles := strings.TrimRight(letters(e.role[begin:]), "m"); !whole.MatchString(roles) {
						t.Fatalf("%s, %v: a response has the roles %s", name, errors, roles)
					}
				}
			}
		}
	}
}

// Fluent words follow from the two before: three of 36 do, with the chances 0.6, 0.25 and 0.15.
func TestFluent(t *testing.T) {
	words := fluent(rand.New(rand.NewPCG(1, 2)), 400000)
	after := map[[2]int32]map[int32]int{}
	for i := 2; i < len(words); i++ {
		two := [2]int32{words[i-2], words[i-1]}
		if after[two] == nil {
			after[two] = map[int32]int{}
		}
		after[two][words[i]]++
		if words[i] < int32(len(env.Words)-env.Fillers) {
			t.Fatalf("%q means something", env.Words[words[i]])
		}
	}
	entropy := 0.0
	for two, next := range after {
		n := 0
		for _, count := range next {
			n += count
		}
		if len(next) > 3 {
			t.Fatalf("%d words follow %v", len(next), two)
		}
		for _, count := range next {
			entropy -= float64(count) / float64(len(words)) * math.Log(float64(count)/float64(n))
		}
	}
	// 0.938 nats, less where two of the three are the same word.
	if entropy < 0.85 || entropy > 0.94 {
		t.Errorf("%.3f nats a word", entropy)
	}
}
