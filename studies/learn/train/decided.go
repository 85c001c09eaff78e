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
func (s Settings) Decided(agent *policy.Policy, run Run) float64 {
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
	return decided(s.of(run).rules(run).firstAnswer().play(agent, all))
}

// decided is D of the episodes.
func decided(episodes []*episode) float64 {
	var within, between float64 // sums of variances
	for p := range decidedPrompts {
		var sum, squares float64 // of the means of the reasonings
		for m := range decidedReasonings {
			mean := success(episodes[(p*decidedReasonings+m)*decidedAnswers:][:decidedAnswers])
			within += mean * (1 - mean) * decidedAnswers / (decidedAnswers - 1)
			sum, squares = sum+mean, squares+float64(mean*mean)
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

// firstAnswer lets each episode end with its first answer, which succeeds if it is the best one.
func (r rules) firstAnswer() rules {
	begin := r.newGame
	r.newGame = func() env.Environment { return firstAnswer{begin()} }
	return r
}

type firstAnswer struct{ env.Environment }

func (g firstAnswer) Act(answer int) (done, success bool) { return true, answer == g.Best() }
