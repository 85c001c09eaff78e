package reweight

import (
	"cmp"
	"math"

	"github.com/seed621a2839/reweight/internal/problem"
)

// PassAtKOptions are the options of [Workspace.PassAtK]. The zero value divides by nothing.
type PassAtKOptions struct {
	Eps         float64 // added to the standard deviation, at least 0
	DivideByStd bool    // false: the difference itself, to which Eps does not matter
}

// DefaultPassAtK divides by the standard deviation plus 1e-6, as verl does.
var DefaultPassAtK = PassAtKOptions{Eps: 1e-6, DivideByStd: true}

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
	err := cmp.Or(b.checkOutput("advantages", advantages), checkNotNegative("Eps", opt.Eps), b.checkRewards())
	if err != nil {
		return err
	}
	groups, err := ws.compared(b, ScopeGroup)
	if err != nil {
		return err
	}
	lonely := len(b.GroupIDs) // the first trajectory that is alone in its group
	for group := range groups.each {
		if len(group) == 1 {
			lonely = min(lonely, group[0])
		}
	}
	if lonely < len(b.GroupIDs) {
		return badElement("GroupIDs", lonely, problem.Lonely, b.GroupIDs[lonely])
	}
	for group := range groups.each {
		first, second := group[0], float32(math.Inf(-1))
		for _, q := range group[1:] {
			if r := b.Rewards[q]; r > b.Rewards[first] {
				first, second = q, b.Rewards[first]
			} else {
				second = max(second, r)
			}
		}
		a := float64(b.Rewards[first]) - float64(second)
		if opt.DivideByStd && a != 0 {
			g := b.sumRewards(group, nil)
			a /= math.Sqrt(g.squares/(g.n-1)) + opt.Eps
		}
		for _, q := range group {
			b.fill(advantages, q, 0, 0)
		}
		b.fill(advantages, first, float32(a), 0)
	}
	return nil
}
