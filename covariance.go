package reweight

import (
	"cmp"
	"math"
	"slices"
)

// Clip-Cov and KL-Cov of PolicyLoss: tokens whose advantage and log-probability have the
// highest covariance are those that lower the entropy of the policy most (arXiv 2505.22617).

// A choice is a token that may be chosen. The lowest keys are.
type choice struct {
	key   uint64
	token int
}

// choose returns, for each token of the batch, for Clip-Cov 0 where the token is chosen and
// 1 elsewhere, for KL-Cov CovCoef where it is chosen and 0 elsewhere.
func (ws *Workspace) choose(isa ISA, x *lossTokens, opt *LossOptions) []float32 {
	n := responses(x.role)
	k := max(1, int(opt.CovShare*float64(n)))
	advantage := ws.moments(isa, x.advantages, x.role, Responses, 0).Sum / float64(n)
	logprob := ws.moments(isa, x.logprobs, x.role, Responses, 0).Sum / float64(n)
	best, last := take[choice](ws, 2*k)[:0], uint64(math.MaxUint64) // the key of the k-th of those before
	lo, hi := float32(1-opt.ClipLow), float32(1+opt.ClipHigh)
	block := &ws.kernels.block
	for from := 0; from < len(x.role); from += tokenBlockSize {
		y := x.slice(from, min(from+tokenBlockSize, len(x.role)))
		if opt.Policy == PolicyClipCov {
			block.setRatios(isa, y.logprobs, y.old, y.role)
		}
		for i, r := range y.role {
			if r == RoleMasked {
				continue
			}
			c := float64((float64(y.advantages[i])-advantage)*(float64(y.logprobs[i])-logprob)) + 0 // no -0
			key := ^orderedBits64(c)
			if opt.Policy == PolicyClipCov {
				neg, rho := -y.advantages[i], block.ratio[i]
				if float32(neg*atMost(hi, atLeast(lo, rho))) > float32(neg*rho) || !(c > opt.CovLow && c < opt.CovHigh) {
					continue
				}
				key = splitMix(opt.Seed, from+i)
			}
			if key > last {
				continue
			}
			if best = append(best, choice{key, from + i}); len(best) == 2*k {
				best = first(best, k)
				last = best[k-1].key
			}
		}
	}
	others, here := float32(1), float32(0)
	if opt.Policy == PolicyKLCov {
		others, here = 0, float32(opt.CovCoef)
	}
	chosen := take[float32](ws, len(x.role))
	for t := range chosen {
		chosen[t] = others
	}
	for _, c := range first(best, k) {
		chosen[c.token] = here
	}
	return chosen
}

// first returns the k choices with the lowest keys, in order, or all if there are fewer.
// Among equal keys those of the first tokens come first.
func first(all []choice, k int) []choice {
	slices.SortFunc(all, func(a, b choice) int { return cmp.Or(cmp.Compare(a.key, b.key), a.token-b.token) })
	return all[:min(k, len(all))]
}

// orderedBits64 returns a key that is ordered as the numbers are.
func orderedBits64(x float64) uint64 {
	b := math.Float64bits(x)
	if b>>63 != 0 {
		return ^b
	}
	return b | 1<<63
}

// splitMix returns number t, from 0 on, of the generator SplitMix64 whose state is seed.
func splitMix(seed uint64, t int) uint64 {
	z := seed + uint64(t+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// clipCov adds the terms of Clip-Cov to the sums.
func (ws *Workspace) clipCov(isa ISA, x *lossTokens, scale float64, opt *LossOptions) {
	y, clip := *x, *opt
	y.weights, clip.DualClip = x.chosen, 0
	ws.clippedSurrogate(isa, &y, scale, &clip)
	for _, c := range x.chosen {
		ws.kernels.surrogate.clipped += oneIf(c == 0)
	}
}

// klCov adds the terms of KL-Cov to the sums. Those of chosen tokens are in float64: the
// advantage and the penalty may cancel.
func (ws *Workspace) klCov(isa ISA, x *lossTokens, scale float64, opt *LossOptions) {
	sums, block := &ws.kernels.surrogate, &ws.kernels.block
	q := surrogateConsts{hi: float32(inf), dual: float32(inf), scale: float32(scale)} // no clip
	for from := 0; from < len(x.role); from += tokenBlockSize {
		y := x.slice(from, min(from+tokenBlockSize, len(x.role)))
		for i, c := range y.chosen {
			if c != 0 { // before the gradient is in place of one of them
				block.a[i], block.b[i] = y.logprobs[i]-y.old[i], y.advantages[i]
			}
		}
		isa.surrogate(y.grad, y.logprobs, y.old, y.advantages, nil, y.role, &q, sums)
		for i, c := range y.chosen {
			if c == 0 {
				continue
			}
			d, g := float64(block.a[i]), 0.0
			if !outside(block.a[i]) {
				g = float64(-float64(block.b[i]) * exp64(d))
			}
			switch {
			case d > 0:
				g += float64(c)
			case d < 0:
				g -= float64(c)
			}
			y.grad[i] = float32(g) * q.scale
			sums.loss.total[i%lanes] += float64(float64(c) * math.Abs(d))
		}
	}
}
