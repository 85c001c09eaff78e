package reweight

import (
	"cmp"
	"math"

	"github.com/seed621a2839/reweight/internal/problem"
)

// PassAtKOptions are the options of PassAtK. The zero value divides by nothing.
type PassAtKOptions struct {
	Eps         float64 // added to the standard deviation, at least 0
	DivideByStd bool    // false: the difference itself, to which Eps does not matter
}

// DefaultPassAtK divides by the standard deviation plus 1e-6, as verl does.
var DefaultPassAtK = PassAtKOptions{Eps: 1e-6, DivideByStd: true}

// A topTwo is the trajectory with the highest reward of a group, the first of several, that
// reward, and the next one.
type topTwo struct {
	first           int
	highest, second float32
}

// PassAtK sets advantages to how far the highest reward of each group is above the second
// highest, at the response tokens of the trajectory that has it (the gradient of the
// expected maximum, arXiv 2503.19595; verl, compute_grpo_passk_outcome_advantage):
//
//	A = (r_first - r_second) / (std_g + Eps)
//
// with n-1 in the variance of the group's rewards, or without that divisor. All other
// tokens get 0. Where several have the highest reward, A is 0.
//
// advantages has one element per token, Rewards and GroupIDs one per trajectory;
// advantages may be any array of b that is one float32 per token: none is read. A wrong
// shape or option, a reward that is not finite, or a group of one trajectory, is an error,
// and advantages is not written.
func (ws *Workspace) PassAtK(advantages []float32, b *Batch, opt PassAtKOptions) error {
	defer ws.release(ws.taken)
	if err := cmp.Or(b.checkOutput("advantages", advantages), checkNotNegative("Eps", opt.Eps)); err != nil {
		return err
	}
	groups, rewards, err := ws.groupRewards(b, nil)
	if err != nil {
		return err
	}
	best := take[topTwo](ws, len(groups))
	for i := range best {
		best[i] = topTwo{-1, float32(math.Inf(-1)), float32(math.Inf(-1))}
	}
	for q, r := range b.Rewards {
		g := groups.of(b.GroupIDs[q])
		if rewards[g].n < 2 {
			return badElement("GroupIDs", q, problem.Lonely, b.GroupIDs[q])
		}
		if top := &best[g]; r > top.highest {
			*top = topTwo{q, r, top.highest}
		} else {
			top.second = max(top.second, r)
		}
	}
	for q := range b.Rewards {
		g := groups.of(b.GroupIDs[q])
		a := 0.0
		if top := best[g]; top.first == q {
			a = float64(top.highest) - float64(top.second)
			if opt.DivideByStd && a != 0 {
				a /= math.Sqrt(rewards[g].squares/(rewards[g].n-1)) + opt.Eps
			}
		}
		b.fill(advantages, q, float32(a), 0)
	}
	return nil
}
