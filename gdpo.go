package reweight

import (
	"cmp"
	"math"

	"github.com/seed621a2839/reweight/internal/problem"
)

// GDPOOptions are the options of [Workspace.GDPO]. The zero value divides by nothing.
type GDPOOptions struct {
	Eps           float64   // added to the standard deviation, at least 0
	DivideByStd   bool      // false: the differences themselves, to which Eps does not matter
	RewardWeights []float64 // of the parts, one each; nil stands for ones
}

// DefaultGDPO divides by the standard deviation plus 1e-6, as verl does.
var DefaultGDPO = GDPOOptions{Eps: 1e-6, DivideByStd: true}

// GDPO sets advantages to what GRPO makes of each part of the reward alone, added up and
// whitened over response tokens, so that no part drowns another one (group
// reward-decoupled normalization, arXiv 2601.05242; verl, compute_gdpo_outcome_advantage):
//
//	a_q = sum_k RewardWeights[k] (r_qk - mean_gk) / (std_gk + Eps)
//	A_t = (a_q(t) - mean) / sqrt(var + 1e-8)
//
// with r_qk the part k of the reward of trajectory q, and n-1 in the variance of a part in
// a group; a group of one has mean 0 and std 1. Every trajectory of a group counts, also one
// without response tokens. The last mean and the variance (n-1) are over the response
// tokens of the batch, so that long trajectories count more. Masked tokens get 0, and so
// does a response token that is the only one of the batch.
//
// advantages has one element per token, GroupIDs one per trajectory, and RewardParts as
// many for each trajectory, one trajectory after another; advantages may be any array
// of b that is one float32 per token: none is read. A wrong shape or option, or a part
// that is not finite, is an error, and advantages is not written.
func (ws *Workspace) GDPO(advantages []float32, b *Batch, opt GDPOOptions) error {
	defer ws.release(ws.taken)
	if err := cmp.Or(b.checkOutput("advantages", advantages), checkNotNegative("Eps", opt.Eps)); err != nil {
		return err
	}
	if err := b.checkParts(); err != nil {
		return err
	}
	S, K := b.Trajectories(), b.parts()
	if opt.RewardWeights != nil {
		if err := checkLen("RewardWeights", len(opt.RewardWeights), K, "part"); err != nil {
			return err
		}
	}
	for k, w := range opt.RewardWeights {
		if !(math.Abs(w) <= math.MaxFloat32) {
			return badElement("RewardWeights", k, problem.Finite32, w)
		}
	}
	relative, part := take[float64](ws, S), *b
	clear(relative)
	part.Rewards = take[float32](ws, S)
	taken := ws.taken
	for k := range K {
		for q := range part.Rewards {
			part.Rewards[q] = b.RewardParts[q*K+k]
		}
		weight := 1.0
		if opt.RewardWeights != nil {
			weight = opt.RewardWeights[k]
		}
		if err := ws.eachReward(&part, nil, func(q int, g groupReward) {
			relative[q] += float64(weight * g.relative(part.Rewards[q], opt.DivideByStd, opt.Eps))
		}); err != nil {
			return err
		}
		ws.release(taken)
	}
	ws.whitenOutcomes(advantages, b, relative)
	return nil
}
