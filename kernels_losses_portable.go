package reweight

// The policy losses besides the clipped surrogate, in plain Go: the readable twin
// whose bits the assembly must equal. kernels_portable.go has the order of the sums.

// A lossKernel is one of the loops over tokens that policyLoss runs.
type lossKernel uint8

const (
	lossSequence lossKernel = iota // GSPO, GRPO-S, PG, VESPO: the factor is that of a sequence
	lossCISPO
	lossSAPO
	lossDPPO
)

// lossConsts are the constants of a policy loss; each kernel reads those that its
// method of lossConsts names. Element 1 of a pair is for negative advantages, element
// 0 for the others. The assembly knows its layout.
type lossConsts struct {
	scale float32 // of the gradient

	lo, hi float32 // clip range: of the ratio, or of the difference of probabilities
	cap    float32 // of the ratio

	value, linear, slope [2]float32 // l = -A (value + linear*logprob), dl = -A slope
	clips                [2]int32   // 1 if such tokens count as clipped, or 0
	tokenRatio           int32      // 1: slope is also times the token's own ratio; or 0

	rate, height [2]float32 // sigmoid = 1 / (1 + 2^((ratio-1) * rate)), times height
}

// policyLossPortable adds the weighted loss of each response token to sums and sets
// grad to its derivative by the new log-probability, times scale; 0 for masked
// tokens, whose other inputs do not matter. weights nil stands for ones. grad may be
// any of the float inputs.
func policyLossPortable(kernel lossKernel, grad, logprobs, old, adv, weights []float32, role []Role, q *lossConsts, sums *surrogateSums) {
	for i, r := range role {
		var wl, dc, g float32 // what a masked token adds
		if r != RoleMasked {
			w := float32(1)
			if weights != nil {
				w = weights[i]
			}
			d := logprobs[i] - old[i]
			dc = atMost(20, atLeast(-20, d))
			var l float32
			var clipped bool
			switch kernel {
			case lossSequence:
				l, g, clipped = q.sequence(d, dc, logprobs[i], -adv[i])
			case lossCISPO:
				l, g, clipped = q.cispo(dc, logprobs[i], -adv[i])
			case lossSAPO:
				l, g = q.sapo(d, dc, -adv[i])
			case lossDPPO:
				l, g, clipped = q.dppo(dc, logprobs[i], old[i], -adv[i])
			}
			if clipped {
				sums.clipped++
			}
			wl = float32(w * l)
			g = float32(w*g) * q.scale
			sums.tokens++
		}
		grad[i] = g
		sums.loss.add(i, wl)
		sums.logRatio.add(i, dc)
	}
}

// sequence returns the loss and its derivative where the factor of a token is that
// of its sequence, for each sign of the advantage. neg is -A, here and below.
func (q *lossConsts) sequence(d, dc, logprob, neg float32) (l, g float32, clipped bool) {
	j := 0
	if neg > 0 {
		j = 1
	}
	slope := q.slope[j]
	if q.tokenRatio != 0 {
		slope *= exp2(float32(dc * log2E32))
		if d < -20 || d > 20 {
			slope = 0
		}
	}
	l = neg * fma32(q.linear[j], logprob, q.value[j])
	g = neg * slope
	return l, g, neg > 0 && q.clips[1] != 0 || neg < 0 && q.clips[0] != 0
}

// cispo returns CISPO's loss and derivative: the clipped ratio is a constant factor.
func (q *lossConsts) cispo(dc, logprob, neg float32) (l, g float32, clipped bool) {
	rho := exp2(float32(dc * log2E32))
	c := atMost(q.hi, atLeast(q.lo, rho))
	g = neg * c
	return g * logprob, g, c < rho || c > rho
}

// sapo returns SAPO's loss and derivative, a sigmoid of the ratio.
func (q *lossConsts) sapo(d, dc, neg float32) (l, g float32) {
	j := 0
	if neg > 0 {
		j = 1
	}
	rho := exp2(float32(dc * log2E32))
	y := float32(float32(rho-1) * q.rate[j])
	e := exp2(atMost(maxY, atLeast(minY, y)))
	if y < minY {
		e = 0 // so that the derivative vanishes
	}
	s := 1 / (1 + e)
	l = float32(neg*s) * q.height[j]
	g = float32(float32(float32(4*neg)*s)*float32(e*s)) * rho
	if d < -20 || d > 20 {
		g = 0
	}
	return l, g
}

// dppo returns DPPO-TV's loss and derivative: the capped ratio is a constant factor,
// 0 where the probability has moved too far in the advantage's direction.
func (q *lossConsts) dppo(dc, logprob, old, neg float32) (l, g float32, clipped bool) {
	c := atMost(q.cap, exp2(float32(dc*log2E32)))
	moved := probability(logprob) - probability(old)
	if neg < 0 {
		clipped = moved > q.hi
	} else {
		clipped = moved < -q.lo
	}
	if clipped {
		c = 0
	}
	g = neg * c
	return g * logprob, g, clipped
}

// probability returns e^l, kept between 2^minY and 2^maxY.
func probability(l float32) float32 {
	return exp2(atMost(maxY, atLeast(minY, float32(l*log2E32))))
}
