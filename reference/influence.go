package reference

import "math"

// FIPOOptions are the parameters of FIPO.
type FIPOOptions struct {
	HalfLife float64 // in tokens
	Filter   float64 // a ratio above it does not count for the tokens before
	Clip     float64
	HighOnly bool
	Safety   float64 // a ratio above it bounds the factor of a token with A < 0
}

// FIPO returns factors of the advantage, [T], 1 at masked tokens (arXiv:2603.19835). With
// d = new - old at response tokens whose ratio e^d is at most Filter, and 0 elsewhere,
//
//	K_t = sum over u >= t of the trajectory of 2^(-(u - t) / HalfLife) d_u
//	f_t = clamp(e^clamp(K_t, -20, 20), 1 - Clip, 1 + Clip)
//
// with 1 in the place of 1 - Clip if HighOnly is set; where A < 0 and e^d_t is above Safety,
// f_t is then clamped to [0.8, 1]. (ms-swift: _compute_fipo_influence.)
func FIPO(b *Batch, opt FIPOOptions) []float64 {
	b.perToken(b.Logprobs, b.OldLogprobs, b.Advantages)
	factors, low := ones(len(b.Role)), 1-opt.Clip
	if opt.HighOnly {
		low = 1
	}
	for _, tokens := range b.trajectories() {
		for i, t := range tokens {
			k := 0.0
			for _, u := range tokens[i:] {
				if d := b.Logprobs[u] - b.OldLogprobs[u]; math.Exp(d) <= opt.Filter {
					k += math.Exp2(-float64(u-t)/opt.HalfLife) * d
				}
			}
			f := clamp(math.Exp(clamp(k, -logRatioLimit, logRatioLimit)), low, 1+opt.Clip)
			if b.Advantages[t] < 0 && math.Exp(b.Logprobs[t]-b.OldLogprobs[t]) > opt.Safety {
				f = clamp(f, 0.8, 1)
			}
			factors[t] = f
		}
	}
	return factors
}

// RLSD returns factors of the advantage, [T], 1 at masked tokens (arXiv:2604.03128):
//
//	w = e^(sgn(A) (teacher - old))     f = (1 - lambda) + lambda clamp(w, 1 - clip, 1 + clip)
//
// A trajectory whose TeacherLogprobs are NaN has factors 1, and so has, if negativeOnly is
// set, a token with A > 0. (ms-swift: apply_rlsd_reweight.)
func RLSD(b *Batch, lambda, clip float64, negativeOnly bool) []float64 {
	b.perToken(b.TeacherLogprobs, b.OldLogprobs, b.Advantages)
	factors := ones(len(b.Role))
	for t, r := range b.Role {
		teacher, s := b.TeacherLogprobs[t], sign(b.Advantages[t])
		if r == RoleMasked || math.IsNaN(teacher) || negativeOnly && s > 0 {
			continue
		}
		w := math.Exp(s * (teacher - b.OldLogprobs[t]))
		factors[t] = 1 - lambda + lambda*clamp(w, 1-clip, 1+clip)
	}
	return factors
}
