package reweight

import (
	"cmp"
	"math"
)

// FIPOOptions are the options of [Workspace.FIPO]. Numbers of 0 are an error: nobody has set them.
type FIPOOptions struct {
	HalfLife float64 // tokens after which a later token counts half, above 0
	Filter   float64 // a ratio above this does not count for the tokens before it, above 0; infinite: all count
	Clip     float64 // factors are at most 1 + Clip; above 0
	HighOnly bool    // factors are at least 1, and not 1 - Clip
	Safety   float64 // a ratio above which a token with A < 0 has a factor from 0.8 to 1, above 0; infinite: none
}

// DefaultFIPO holds the constants of ms-swift, and a filter of 10.
var DefaultFIPO = FIPOOptions{HalfLife: 32, Filter: 10, Clip: 0.2, HighOnly: true, Safety: 4}

// FIPO sets factors[t] by what the policy has done to the tokens after t since the rollout:
// above 1 where they have become likelier (future-KL influenced policy optimization, arXiv
// 2603.19835). With d_t = Logprobs[t] - OldLogprobs[t], which is 0 at masked tokens and
// where e^d_t is above Filter, backwards from the trajectory's last response token,
//
//	K_t = d_t + 2^(-1/HalfLife) K_t+1    f_t = clamp(e^K_t, 1, 1 + Clip)
//
// or clamp(e^K_t, 1 - Clip, 1 + Clip) without HighOnly. Where A_t < 0 and e^d_t is above
// Safety, f_t is then clamped to [0.8, 1]. Masked tokens count as distance, as every other
// position. K is in float64, and its exponential is taken of -20 to 20. Masked tokens get 1.
//
// The factors multiply the advantages before the loss, to whose derivative they are
// constants. They follow the current policy: compute them for every minibatch. On the first
// pass over a rollout Logprobs are OldLogprobs, and all factors are 1.
//
// factors, Role, Logprobs, OldLogprobs and Advantages have one element per token, and
// SeqOffsets must be set; factors may be any of those three float arrays. A wrong shape or
// option, or a value of a response token that is not finite, is an error, and factors is not
// written.
func (ws *Workspace) FIPO(factors []float32, b *Batch, opt FIPOOptions) error {
	defer ws.release(ws.taken)
	isa, err := ws.ISA.resolve()
	if err = cmp.Or(
		err,
		b.checkOutput("factors", factors),
		checkSet("HalfLife", opt.HalfLife, "DefaultFIPO"), checkPositive("HalfLife", opt.HalfLife, math.MaxFloat64),
		checkSet("Filter", opt.Filter, "DefaultFIPO"), checkPositive("Filter", opt.Filter, inf),
		checkSet("Clip", opt.Clip, "DefaultFIPO"), checkPositive("Clip", opt.Clip, math.MaxFloat32),
		checkSet("Safety", opt.Safety, "DefaultFIPO"), checkPositive("Safety", opt.Safety, inf),
	); err != nil {
		return err
	}
	if err := ws.checkPolicies(isa, b); err != nil {
		return err
	}
	gamma := exp64(-math.Ln2 / opt.HalfLife)
	low, high := 1-opt.Clip, 1+opt.Clip
	if opt.HighOnly {
		low = 1
	}
	for q := range b.Trajectories() {
		k := 0.0
		for t := b.SeqOffsets[q+1] - 1; t >= b.SeqOffsets[q]; t-- {
			k *= gamma
			f := 1.0
			if b.Role[t] != RoleMasked {
				d := float64(b.Logprobs[t]) - float64(b.OldLogprobs[t])
				ratio := exp64(d)
				if ratio <= opt.Filter {
					k += d
				}
				f = min(high, max(low, exp64(min(20, max(-20, k)))))
				if b.Advantages[t] < 0 && ratio > opt.Safety {
					f = min(1, max(0.8, f))
				}
			}
			factors[t] = float32(f)
		}
	}
	return nil
}
