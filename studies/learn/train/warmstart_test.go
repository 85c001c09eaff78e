package train

import (
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/internal/must"
	"github.com/seed621a2839/reweight/studies/learn/env"
)

func newChoice() env.Environment { return choice{} }

// Of the demonstrations, a share has a mistake: half of these in the plan and the answer, half in the
// answer alone, and half of either is the best answer by luck. None has a good answer to a bad plan.
func TestDemonstrate(t *testing.T) {
	const mistakes, n = 0.3, 20000
	random := rand.New(rand.NewPCG(1, 2))
	share := map[string]float64{}
	e := episode{game: choice{}}
	for range n {
		e.begin(0, 0)
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
		agent := must.Get(settings.WarmStart(Run{Game: "tracer", Seed: number, Errors: 0.5}))
		return fingerprint(agent.Parameters), luck
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

// A response to a game is never cut off.
func TestGamesDemonstrated(t *testing.T) {
	whole := regexp.MustCompile("^r+a+r$")
	for name, game := range env.Games {
		for _, errors := range []float64{0, 0.5} {
			random := rand.New(rand.NewPCG(1, 2))
			var seats table
			seats.seat(game, starts(1, 3, forDemonstrations, 0, 0))
			for _, e := range seats.episodes {
				for !e.done {
					e.demonstrate(random, 0.5, errors)
					last := int(e.turns) - 1
					begin := slices.Index(e.turn, int32(last))
					if roles := strings.TrimRight(letters(e.role[begin:]), "m"); !whole.MatchString(roles) {
						t.Fatalf("%s, %v: a response has the roles %s", name, errors, roles)
					}
				}
			}
		}
	}
}

// Names that are none give errors of one line that say which names there are.
func TestUnknownNames(t *testing.T) {
	add(t, "bandit", 1, newBandit)
	good := Run{Game: "bandit", Algorithm: "grpo", Scheme: "uniform"}
	const no = "a\nb"
	do := func(change func(*Run)) error {
		run := good
		change(&run)
		_, err := small.Do(run, talker())
		return err
	}
	_, start := small.WarmStart(Run{Game: "bandit", Arm: no})
	for want, err := range map[string]error{
		`no arm is named "a\nb": want easy, epochs, filter, no_penalty, tags_act, wide`: start,
		`no algorithm is named "a\nb": want grpo, ppo`:                                  do(func(r *Run) { r.Algorithm = no }),
		`"nothing": no scheme has the name`:                                             do(func(r *Run) { r.Scheme = "nothing" }),
	} {
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("the error is %v, want %s", err, want)
		}
	}
}
