package reweight

import "cmp"

// OTBOptions are the options of [Workspace.OTB]. The zero value is OTB without the rule of the tail.
type OTBOptions struct {
	Turns    bool // positions count response tokens alone, not all tokens of the trajectory
	ZeroTail bool // no baseline where the longest trajectory of its group is alone
}

// DefaultOTB is verl's optimal_token_baseline, DefaultOTBTurns its form over turns,
// tir_optimal_token_baseline.
var (
	DefaultOTB      = OTBOptions{ZeroTail: true}
	DefaultOTBTurns = OTBOptions{Turns: true, ZeroTail: true}
)

// OTB sets advantages to the rewards to come of each response token, less a baseline of its
// position that makes the variance of the gradient small (optimal token baseline; verl,
// compute_optimal_token_baseline_advantage and, with Turns,
// compute_multi_turn_optimal_token_baseline_advantage):
//
//	G_t = sum of TokenRewards from t on              W_t = sum of w up to t
//	w_t = 1 - 2 e^OldLogprobs[t] + SumSqProbs[t]     A_t = G_t - B of the position of t
//	B   = sum G W / (sum W + 1e-8)
//
// The first two sums are over the response tokens of a trajectory. Those of B are over the
// trajectories of a group that have a response token at that position: its place in the
// trajectory, masked tokens counted, or, with Turns, among its response tokens. w estimates
// the squared norm of the gradient of the token's log-probability with respect to the logits.
//
// A group of one trajectory has B = 0; every trajectory counts, also one without response
// tokens. With ZeroTail, a trajectory with more response tokens than any other of its group
// has B = 0 from the position on that is the second largest number of them. The reward of
// an outcome belongs at the trajectory's last response token. verl multiplies w by the
// squared weight of its rollout correction where it has one; this does not. Masked tokens
// get 0.
//
// advantages, TokenRewards, OldLogprobs and SumSqProbs have one element per token, GroupIDs
// one per trajectory; advantages may be any array of b that is one float32 per token: all
// are read before it is written. A wrong shape, or a value of a response token that is not
// finite, is an error, and advantages is not written.
func (ws *Workspace) OTB(advantages []float32, b *Batch, opt OTBOptions) error {
	defer ws.release(ws.taken)
	isa, err := ws.ISA.resolve()
	T := b.Tokens()
	read := [...]array{{"TokenRewards", b.TokenRewards}, {"OldLogprobs", b.OldLogprobs}, {"SumSqProbs", b.SumSqProbs}}
	if err = cmp.Or(
		err,
		checkLen("advantages", len(advantages), T, "token"),
		checkLens(T, "token", read[:]...),
		b.checkLayout(),
	); err != nil {
		return err
	}
	groups, err := ws.compared(b, ScopeGroup)
	if err != nil {
		return err
	}
	if err := ws.checkFinite(isa, b.Role, read[:]...); err != nil {
		return err
	}
	returns, positions := take[float64](ws, T), take[otbPosition](ws, T)
	for group := range groups.each {
		longest, second := 0, 0 // response tokens of the two trajectories that have the most
		size := int64(0)        // tokens of the longest
		for _, q := range group {
			n := b.responses(q)
			longest, second = max(longest, n), max(second, min(longest, n))
			size = max(size, b.SeqOffsets[q+1]-b.SeqOffsets[q])
		}
		at := positions[:size]
		clear(at)
		for _, q := range group {
			next, weight, p := 0.0, 0.0, 0
			for t := b.SeqOffsets[q+1] - 1; t >= b.SeqOffsets[q]; t-- {
				if b.Role[t] != RoleMasked {
					next += float64(b.TokenRewards[t])
					returns[t] = next
				}
			}
			for t := b.SeqOffsets[q]; t < b.SeqOffsets[q+1]; t++ {
				if b.Role[t] != RoleMasked {
					weight += 1 - 2*exp64(float64(b.OldLogprobs[t])) + float64(b.SumSqProbs[t])
					at[p].returns += float64(returns[t] * weight)
					at[p].weight += weight
				}
				if b.Role[t] != RoleMasked || !opt.Turns {
					p++
				}
			}
		}
		for _, q := range group {
			end := len(at) // of the positions where B is not 0
			switch n := b.responses(q); {
			case len(group) == 1:
				end = 0
			case opt.ZeroTail && n == longest && n > second:
				end = second
			}
			p := 0
			for t := b.SeqOffsets[q]; t < b.SeqOffsets[q+1]; t++ {
				response := b.Role[t] != RoleMasked
				a := 0.0
				if response {
					a = returns[t]
					if p < end {
						a -= at[p].returns / (at[p].weight + 1e-8)
					}
				}
				advantages[t] = float32(a)
				if response || !opt.Turns {
					p++
				}
			}
		}
	}
	return nil
}

// An otbPosition holds sums over the trajectories of a group that have a response token there.
type otbPosition struct {
	returns float64 // of G W
	weight  float64 // of W
}
