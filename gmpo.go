package reweight

// GMPO of PolicyLoss: one ratio for each trajectory, the geometric mean of those of its
// tokens, each of which is clipped (arXiv 2507.20673).

// maxGMPOLogRatio is the largest mean log-ratio that GMPO takes the exponential of. Where A < 0
// nothing else bounds it, and e to its power would be beyond float32 from 89 on.
const maxGMPOLogRatio = 20

// geometricMean adds the loss of the tokens, which are those of a trajectory, to the sums,
// and sets their gradient.
func (ws *Workspace) geometricMean(x *lossTokens, scale float64, opt *LossOptions) {
	sums := &ws.kernels.surrogate
	var m, advantages [lanes]float64
	n := 0
	for i, r := range x.role {
		if r != RoleMasked {
			c, free := x.clampedLogRatio(i, opt)
			m[i%lanes] += c
			advantages[i%lanes] += float64(x.advantages[i])
			sums.clipped += oneIf(!free && x.advantages[i] != 0)
			n++
		}
	}
	sums.tokens += int64(n)
	logRatio, _ := sumLogRatios(x.logprobs, x.old, x.role, true)
	sums.logRatio.total[0] += logRatio
	count := float64(n) + 1e-8
	mean := tree(&m) / count
	loss := -tree(&advantages) / count * exp64(min(mean, maxGMPOLogRatio))
	sums.loss.total[0] += loss
	slope := float32(loss / count * scale)
	if mean > maxGMPOLogRatio {
		slope = 0
	}
	for i, r := range x.role {
		g := float32(0)
		if r != RoleMasked {
			if _, free := x.clampedLogRatio(i, opt); free {
				g = slope
			}
		}
		x.grad[i] = g
	}
}

// clampedLogRatio returns the log-ratio of token i as its advantage has it clamped, and
// whether it is not.
func (x *lossTokens) clampedLogRatio(i int, opt *LossOptions) (m float64, free bool) {
	d, a := float64(x.logprobs[i])-float64(x.old[i]), x.advantages[i]
	switch {
	case a == 0:
		return 0, false
	case a > 0 && d > opt.ClipHigh:
		return opt.ClipHigh, false
	case a < 0 && d < -opt.ClipLow:
		return -opt.ClipLow, false
	}
	return d, true
}
