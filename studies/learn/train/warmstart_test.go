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

// A choice is a game of one turn in which 1 is best and mistakes say 0. So a
// demonstration shows what was planned and what was answered.
type choice struct{}

var choiceReasons = [2][]int32{sentence("to 0 here not"), sentence("to 1")}

func (choice) Reset(_, _ uint64)           {}
func (choice) Observe(dst []int32) []int32 { return append(dst, env.Token("want")) }
func (choice) Act(answer []int32) (done, success bool) {
	return true, slices.Equal(answer, sentence("1"))
}
func (choice) Best() []int32                 { return sentence("1") }
func (choice) Random(*rand.Rand) []int32     { return sentence("0") }
func (choice) Reason(answer []int32) []int32 { return choiceReasons[answer[0]-arm(0)] }

var choices = env.Game{Name: "choice", New: func() env.Environment { return choice{} }}

// addNoise sets the share of mistakes of a test's game.
func addNoise(t *testing.T, name string, share float64) {
	noise[name] = share
	t.Cleanup(func() { delete(noise, name) })
}

// count returns the shares of the episodes with each plan (0 for "to 0", 1 for
// "to 1") and each answer.
func count(episodes [][]int32) (share [2][2]float64) {
	for _, tokens := range episodes {
		for plan := range 2 {
			for answer := range 2 {
				words := append(sentence("want <agent>"), choiceReasons[plan]...)
				words = append(words, env.AnswerStart, arm(answer), env.AnswerEnd)
				if slices.Equal(tokens, words) {
					share[plan][answer] += 1 / float64(len(episodes))
				}
			}
		}
	}
	return share
}

// Of the demonstrations, a share has a mistake: half of these in the plan and
// the answer, half in the answer alone. None has a good answer to a bad plan.
func TestDemonstrate(t *testing.T) {
	const mistakes, n = 0.3, 20000
	random := rand.New(rand.NewPCG(1, 2))
	e := episode{game: choice{}}
	var episodes [][]int32
	for range n {
		e.begin(0, 0)
		e.demonstrate(random, mistakes, 0.5)
		episodes = append(episodes, slices.Clone(e.tokens))
	}
	share := count(episodes)
	for _, c := range []struct {
		plan, answer int
		want         float64
	}{{1, 1, 1 - mistakes}, {0, 0, mistakes / 2}, {1, 0, mistakes / 2}, {0, 1, 0}} {
		if got := share[c.plan][c.answer]; math.Abs(got-c.want) > 4*math.Sqrt(c.want*(1-c.want)/n) {
			t.Errorf("plan %d and answer %d: %.4f of the demonstrations, want %.4f", c.plan, c.answer, got, c.want)
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
	addNoise(t, "choice", 0.4)
	start := func(number, demonstrations int) (string, []uint64) {
		var luck []uint64
		game := env.Game{Name: "choice", New: func() env.Environment { return tracer{luck: &luck} }}
		settings := tiny
		settings.Demonstrations = demonstrations
		agent := must.Get(settings.WarmStart(game, Run{Seed: number, Errors: 0.5}))
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

// Each game has its share of mistakes, and a response to it is never cut off.
func TestGamesDemonstrated(t *testing.T) {
	whole := regexp.MustCompile("^r+a+r$")
	for _, game := range env.Games {
		share, ok := noise[game.Name]
		if !ok || !(share > 0 && share < 1) {
			t.Errorf("%s: the share of mistakes is %v", game.Name, share)
		}
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
						t.Fatalf("%s, %v: a response has the roles %s", game.Name, errors, roles)
					}
				}
			}
		}
	}
}

// Names that are none give errors of one line that say which names there are.
func TestUnknownNames(t *testing.T) {
	addBandit(t)
	good := Run{Game: "bandit", Algorithm: "grpo", Scheme: "uniform"}
	const no = "a\nb"
	do := func(change func(*Run)) error {
		run := good
		change(&run)
		_, err := small.Do(run, talker())
		return err
	}
	_, start := small.WarmStart(choices, Run{Arm: no})
	_, game := (&Starts{Settings: small}).For(Run{Game: no})
	for want, err := range map[string]error{
		`no arm is named "a\nb": want easy, epochs, filter, no_penalty, tags_act, wide`: start,
		`no algorithm is named "a\nb": want grpo, ppo`:                                  do(func(r *Run) { r.Algorithm = no }),
		`"nothing": no scheme has the name`:                                             do(func(r *Run) { r.Scheme = "nothing" }),
		`no game is named "a\nb": want frozenlake4, sokoban, sudoku4, shop, bandit`:     do(func(r *Run) { r.Game = no }),
	} {
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("the error is %v, want %s", err, want)
		}
	}
	if game == nil || strings.Contains(game.Error(), "\n") || !strings.Contains(game.Error(), "frozenlake4") {
		t.Errorf("a warm start of no game: %v", game)
	}
}
