package train

import (
	"math"
	"math/rand/v2"

	"github.com/seed621a2839/reweight/studies/learn/env"
	"github.com/seed621a2839/reweight/studies/learn/policy"
)

// How much is drawn for Decided.
const (
	decidedPrompts    = 96
	decidedReasonings = 6
	decidedAnswers    = 6
)

// Decided estimates how much of the success of the first answer is decided by the reasoning
// before it:
//
//	D = Var over reasonings of E[R | prompt, reasoning] / Var(R | prompt)
//
// R is 1 if the answer is the best one, and 0 if not. For each prompt some reasonings are drawn, and
// for each of these some answers. Both variances are unbiased, so that D may be a little below 0.
// It is NaN for a policy that answers always in the same way.
func (s Settings) Decided(agent *policy.Policy, run Run) (float64, error) {
	s, err := s.of(run)
	if err != nil {
		return 0, err
	}
	game := env.Games[run.Game]
	begin := game.New
	game.New = func() env.Environment { return firstAnswer{begin()} }
	random := rand.New(rand.NewPCG(forDecided<<32|uint64(run.Seed), 0))
	var all []start
	for range decidedPrompts {
		state := random.Uint64()
		for range decidedReasonings {
			draws := random.Uint64()
			for range decidedAnswers {
				all = append(all, start{0, state, 0, draws, random.Uint64() | 1})
			}
		}
	}
	t := table{rules: s.rules(run)}
	t.play(agent.Clone(), game, all)
	return decided(t.episodes), nil
}

// decided is D of the episodes.
func decided(episodes []*episode) float64 {
	var within, between float64 // sums of variances
	for p := range decidedPrompts {
		var means []float64
		for m := range decidedReasonings {
			wins := 0
			for k := range decidedAnswers {
				if episodes[(p*decidedReasonings+m)*decidedAnswers+k].success {
					wins++
				}
			}
			mean := float64(wins) / decidedAnswers
			means = append(means, mean)
			within += mean * (1 - mean) * decidedAnswers / (decidedAnswers - 1)
		}
		var sum, squares float64
		for _, x := range means {
			sum, squares = sum+x, squares+float64(x*x)
		}
		between += (squares - float64(sum*sum)/decidedReasonings) / (decidedReasonings - 1)
	}
	within /= decidedPrompts * decidedReasonings
	between = between/decidedPrompts - within/decidedAnswers
	if within+between == 0 {
		return math.NaN()
	}
	return between / (within + between)
}

// A firstAnswer is a game that ends with the first answer, which succeeds if it is the best one.
type firstAnswer struct{ env.Environment }

func (g firstAnswer) Act(answer int) (done, success bool) { return true, answer == g.Best() }
