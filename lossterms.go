package reweight

import "math"

// What the losses other than PPO's clipped surrogate compute for each token, in plain Go:
// the terms of the policies, log-ratios, importance ratios, the divergence from the
// reference, the value loss. kernels_portable.go has the order of the sums.
//
// Only the exponentials are assembly: a loop takes a block of tokens at a time, whose
// exponentials expScale has computed before. What depends on a token's role or on the
// sign of its advantage has no branch, because a CPU cannot predict it.

// A tokenBlock holds what is computed for the tokens of a block before it is used.
type tokenBlock struct {
	logRatio, ratio [tokenBlockSize]float32 // clamped log-ratios, or 0 where masked; e to their power
	a, b            [tokenBlockSize]float32 // further exponentials
	loss, slope     [tokenBlockSize]float32 // of each token, and its derivative by the new log-probability
}

const tokenBlockSize = 2 * groupSize // tokens: whole groups, few enough for the first cache

// exps sets dst[i] = 2^(x[i] * k), with the exponent kept between minY and maxY. dst may
// be x.
func (isa ISA) exps(dst, x []float32, k float32) {
	var sum laneSum // of no use here
	isa.expScale(dst, x, 0, k, &sum)
}

// masked returns x, or 0 if the role is RoleMasked.
func masked(r Role, x float32) float32 {
	return math.Float32frombits(math.Float32bits(x) & uint32(-int32(r)>>31))
}

// masked64 is masked for float64.
func masked64(r Role, x float64) float64 {
	return math.Float64frombits(math.Float64bits(x) & uint64(-int64(r)>>63))
}

// choose returns x if ok, and y if not. The compiler makes a conditional move of it.
func choose(ok bool, x, y float32) float32 {
	n, m := math.Float32bits(x), math.Float32bits(y)
	if ok {
		m = n
	}
	return math.Float32frombits(m)
}

// oneIf returns 1 if ok, and 0 if not.
func oneIf(ok bool) int64 {
	n := int64(0)
	if ok {
		n = 1
	}
	return n
}

// setLogRatios sets the log-ratios a - b of the block's tokens, kept between -20 and 20.
func (block *tokenBlock) setLogRatios(a, b []float32, role []Role) {
	a, b = a[:len(role)], b[:len(role)]
	x := block.logRatio[:len(role)]
	for i, r := range role {
		x[i] = masked(r, atMost(20, atLeast(-20, a[i]-b[i])))
	}
}

// setRatios sets the ratios too.
func (block *tokenBlock) setRatios(isa ISA, a, b []float32, role []Role) {
	block.setLogRatios(a, b, role)
	isa.exps(block.ratio[:len(role)], block.logRatio[:len(role)], log2E32)
}

// sequenceFactors are the factors of the tokens of a sequence. Element 1 of a pair is for
// negative advantages, element 0 for the others.
type sequenceFactors struct {
	value, linear, slope [2]float32 // l = -A (value + linear*logprob), of which one is 0; dl = -A slope
	clips                [2]int64   // 1 if such tokens count as clipped, or 0
	tokenRatio           bool       // slope is also times the token's own ratio
}

// policyLoss adds the weighted loss of each response token to the sums and sets grad to its
// derivative by the new log-probability, times scale; 0 for masked tokens, whose other inputs
// do not matter. f is read by the policies that have factors of a sequence, and by PolicyPG.
// The tokens begin groups of the sums, and what comes next begins one.
func (ws *Workspace) policyLoss(isa ISA, x *lossTokens, scale float32, f *sequenceFactors, opt *LossOptions) {
	sums, block := &ws.kernels.surrogate, &ws.kernels.block
	for from := 0; from < len(x.role); from += tokenBlockSize {
		y := x.slice(from, min(from+tokenBlockSize, len(x.role)))
		switch opt.Policy {
		case PolicyGSPO, PolicyPG, PolicyVESPO, PolicyDRO: // which have no ratios of tokens
			block.setLogRatios(y.logprobs, y.old, y.role)
		default:
			block.setRatios(isa, y.logprobs, y.old, y.role)
		}
		switch opt.Policy {
		case PolicyCISPO:
			sums.clipped += block.cispo(&y, opt)
		case PolicySAPO:
			block.sapo(isa, &y, opt)
		case PolicyDPPOTV:
			sums.clipped += block.dppo(isa, &y, opt)
		case PolicyDPPOKL:
			sums.clipped += block.dppoKL(&y, opt)
		case PolicyDRO:
			block.dro(&y, opt)
		default:
			sums.clipped += block.sequence(&y, f)
		}
		n := len(y.role)
		loss, slope, grad := block.loss[:n], block.slope[:n], y.grad[:n]
		for i, r := range y.role {
			w := float32(1)
			if y.weights != nil {
				w = y.weights[i]
			}
			loss[i] = masked(r, w*loss[i])
			grad[i] = masked(r, float32(w*slope[i])*scale)
		}
		sums.loss.addAll(loss)
		sums.logRatio.addAll(block.logRatio[:n])
	}
	sums.loss.flush()
	sums.logRatio.flush()
	sums.tokens += int64(responses(x.role))
}

// Each of the methods sequence to dro sets the loss and the slope of each token of the block,
// anything where it is masked, and returns how many response tokens are clipped.

// negative returns 1 if the sign of x is negative, and 0 if not.
func negative(x float32) uint32 { return math.Float32bits(x) >> 31 }

// outside reports whether a log-ratio is clamped.
func outside(d float32) bool { return d < -20 || d > 20 }

// sequence is for the policies where the factor of a token is that of its sequence, for
// each sign of the advantage.
func (block *tokenBlock) sequence(x *lossTokens, f *sequenceFactors) (clipped int64) {
	n := len(x.role)
	logprobs, old, adv := x.logprobs[:n], x.old[:n], x.advantages[:n]
	ratio, loss, slope := block.ratio[:n], block.loss[:n], block.slope[:n]
	if f.clips != [2]int64{} {
		for i, r := range x.role {
			a := masked(r, adv[i])
			clipped += oneIf(a > 0)&f.clips[0] | oneIf(a < 0)&f.clips[1]
		}
	}
	for i, a := range adv {
		j := negative(a)
		loss[i] = -a * (f.value[j] + float32(f.linear[j]*logprobs[i]))
		g := f.slope[j]
		if f.tokenRatio {
			g *= ratio[i]
			if outside(logprobs[i] - old[i]) {
				g = 0
			}
		}
		slope[i] = -a * g
	}
	return clipped
}

// cispo is for CISPO: the clipped ratio is a constant factor.
func (block *tokenBlock) cispo(x *lossTokens, opt *LossOptions) (clipped int64) {
	n := len(x.role)
	logprobs, adv := x.logprobs[:n], x.advantages[:n]
	ratio, loss, slope := block.ratio[:n], block.loss[:n], block.slope[:n]
	lo, hi := float32(1-opt.ClipLow), float32(1+opt.ClipHigh)
	for i, r := range x.role {
		c := atMost(hi, atLeast(lo, ratio[i]))
		if c != ratio[i] && r != RoleMasked {
			clipped++
		}
		g := -adv[i] * c
		loss[i], slope[i] = g*logprobs[i], g
	}
	return clipped
}

// sapo is for SAPO, whose factor is a sigmoid of the ratio: 1 / (1 + 2^((ratio-1) * rate)),
// times height. Element 1 of both is for negative advantages.
func (block *tokenBlock) sapo(isa ISA, x *lossTokens, opt *LossOptions) {
	n := len(x.role)
	logprobs, old, adv := x.logprobs[:n], x.old[:n], x.advantages[:n]
	ratio, loss, slope := block.ratio[:n], block.loss[:n], block.slope[:n]
	rate := [2]float32{float32(-opt.TauPos * log2E), float32(-opt.TauNeg * log2E)}
	height := [2]float32{float32(4 / opt.TauPos), float32(4 / opt.TauNeg)}
	y, e := block.a[:n], block.b[:n]
	for i, rho := range ratio {
		y[i] = float32(rho-1) * rate[negative(adv[i])]
	}
	isa.exps(e, y, 1)
	for i, a := range adv {
		e, neg := e[i], -a
		if y[i] < minY {
			e = 0 // so that the derivative vanishes
		}
		s := 1 / (1 + e)
		loss[i] = float32(neg*s) * height[negative(a)]
		slope[i] = float32(float32(float32(4*neg)*s)*float32(e*s)) * ratio[i]
		if outside(logprobs[i] - old[i]) {
			slope[i] = 0
		}
	}
}

// dppo is for DPPO-TV: the capped ratio is a constant factor, 0 where the probability
// has moved too far in the advantage's direction.
func (block *tokenBlock) dppo(isa ISA, x *lossTokens, opt *LossOptions) (clipped int64) {
	n := len(x.role)
	logprobs, adv := x.logprobs[:n], x.advantages[:n]
	ratio, loss, slope := block.ratio[:n], block.loss[:n], block.slope[:n]
	now, then := block.a[:n], block.b[:n]
	isa.exps(now, logprobs, log2E32)
	isa.exps(then, x.old, log2E32)
	up, down, most := float32(opt.ClipHigh), -float32(opt.ClipLow), float32(opt.RatioCap)
	for i, r := range x.role {
		moved := now[i] - then[i]
		clip := oneIf(adv[i] > 0)&oneIf(moved > up) | oneIf(!(adv[i] > 0))&oneIf(moved < down)
		clipped += clip & oneIf(r != RoleMasked)
		g := -adv[i] * choose(clip != 0, 0, atMost(most, ratio[i]))
		loss[i], slope[i] = g*logprobs[i], g
	}
	return clipped
}

// dppoKL is for DPPO-KL: the same with the divergence of two outcomes, the token and any
// other, in float64, because 1 minus a probability near 1 cancels.
func (block *tokenBlock) dppoKL(x *lossTokens, opt *LossOptions) (clipped int64) {
	for i, r := range x.role {
		if r == RoleMasked {
			continue
		}
		new, old, a := float64(x.logprobs[i]), float64(x.old[i]), x.advantages[i]
		limit, away := opt.ClipHigh, new > old
		if !(a > 0) {
			limit, away = opt.ClipLow, new < old
		}
		g := float32(0)
		if away && !(binaryKL(old, new) <= limit) {
			clipped++
		} else {
			g = -a * atMost(float32(opt.RatioCap), block.ratio[i])
		}
		block.loss[i], block.slope[i] = g*x.logprobs[i], g
	}
	return clipped
}

// binaryKL returns the divergence of two outcomes, one of which has the log-probability new
// in place of old. It is NaN where float64 has none.
func binaryKL(old, new float64) float64 {
	p, q := exp64(new), exp64(old)
	rest := (1 - q + 1e-8) / (1 - p + 1e-8)
	if !(rest > 0 && rest <= math.MaxFloat64) {
		return math.NaN()
	}
	return float64(q*(old-new)) + float64((1-q)*log64(rest))
}

// dro is for DRO, in float64: the advantage and the penalty may cancel.
func (block *tokenBlock) dro(x *lossTokens, opt *LossOptions) {
	for i, l := range x.logprobs {
		new, a := float64(l), float64(x.advantages[i])
		d := new - float64(x.old[i])
		pull := float64(opt.Beta * d)
		block.loss[i] = float32(float64(pull*d)/2 - float64(a*new))
		block.slope[i] = float32(pull - a)
	}
}

// sumLogRatios returns the sum of a - b over the response tokens, in float64, and their
// number. With clamp, each a - b is kept between -20 and 20.
func sumLogRatios(a, b []float32, role []Role, clamp bool) (sum float64, n int) {
	low, high := -inf, inf
	if clamp {
		low, high = -20, 20
	}
	var l [lanes]float64
	a, b = a[:len(role)], b[:len(role)]
	for i, r := range role {
		d := masked64(r, float64(a[i])-float64(b[i]))
		if d < low {
			d = low
		}
		if d > high {
			d = high
		}
		l[uint(i)%lanes] += d
	}
	return tree(&l), responses(role)
}

// importance sets dst to e^(a-b), with a - b kept between -20 and 20, within the bounds of
// the options or masked by them, and returns its sum; to 1 for masked tokens, which add
// nothing and whose other inputs do not matter. dst may be a or b, or nil for the sum alone.
func (ws *Workspace) importance(isa ISA, dst, a, b []float32, role []Role, opt *RolloutCorrectionOptions) float64 {
	var sum laneSum
	lo, hi, block := float32(opt.Low), float32(opt.High), &ws.kernels.block
	for from := 0; from < len(role); from += tokenBlockSize {
		to := min(from+tokenBlockSize, len(role))
		block.setRatios(isa, a[from:to], b[from:to], role[from:to])
		n := to - from
		ratio, kept := block.ratio[:n], block.loss[:n]
		for i, r := range role[from:to] {
			c := atMost(hi, atLeast(lo, ratio[i]))
			if opt.Mask {
				c = choose(c == ratio[i], c, 0)
			}
			kept[i] = masked(r, c)
		}
		sum.addAll(kept)
		if dst == nil {
			continue
		}
		for i, r := range role[from:to] {
			dst[from+i] = kept[i] + (1 - masked(r, 1)) // 1 if it is masked
		}
	}
	return sum.sum()
}

// e^y - 1 - y = y^2 (1/2 + y/6 + ...) for |y| <= 1/2, where the difference would
// lose its last places: relative error at most 5e-8 before rounding.
const (
	klC2 = 0.5
	klC3 = 0x1.555556p-3
	klC4 = 0x1.555556p-5
	klC5 = 0x1.111112p-7
	klC6 = 0x1.6c16c2p-10
	klC7 = 0x1.a01a02p-13
	klC8 = 0x1.a01a02p-16
)

// divergence returns the sum of the estimates of the response tokens, and adds their
// derivatives by the log-probabilities, times scale, to grad. x is logprobs - ref.
func (ws *Workspace) divergence(
	isa ISA, grad, logprobs, ref []float32, role []Role, form KLForm, scale float32,
) float64 {
	var sum laneSum
	block := &ws.kernels.block
	for from := 0; from < len(role); from += tokenBlockSize {
		to := min(from+tokenBlockSize, len(role))
		if form == KLK3 || form == KLK3Plus {
			block.setRatios(isa, ref[from:to], logprobs[from:to], role[from:to])
		}
		for i, r := range role[from:to] {
			x := masked(r, logprobs[from+i]-ref[from+i])
			var k, g float32
			switch form {
			case KLK1, KLK1Plus:
				k, g = x, 1
			case KLAbs, KLAbsPlus:
				k = float32(math.Abs(float64(x)))
				if x > 0 {
					g = 1
				}
				if x < 0 {
					g = -1
				}
			case KLK2:
				k, g = float32(0.5*x)*x, x
			case KLK3, KLK3Plus:
				k, g = k3Term(block.logRatio[i], block.ratio[i])
			}
			if form >= KLK3Plus { // the three that have the derivative of KLK2
				g = x
			}
			grad[from+i] += masked(r, float32(g*scale))
			sum.add(i, k)
		}
	}
	return sum.sum()
}

// k3Term returns min(10, e - y - 1) with e = e^y, for y between -20 and 20, and its
// derivative by -y, which is 0 where the value was cut: also wherever y was clamped to 20.
func k3Term(y, e float32) (k, g float32) {
	switch {
	case y == 0: // every masked token, for which fma32 would be slow
		return 0, float32(math.Copysign(0, -1))
	case y < -0.5 || y > 0.5:
		k, g = float32(e-1)-y, 1-e
	default:
		p := fma32(klC8, y, klC7)
		p = fma32(p, y, klC6)
		p = fma32(p, y, klC5)
		p = fma32(p, y, klC4)
		p = fma32(p, y, klC3)
		p = fma32(p, y, klC2)
		square := float32(y * y)
		k, g = float32(p*square), -fma32(p, square, y)
	}
	if k > 10 {
		k, g = 10, 0
	}
	return k, g
}

// valueLoss returns the sum of the clipped value losses of the response tokens and how many
// are clipped, and sets grad to the derivatives by the new values, times scale; 0 for masked
// tokens, whose other inputs do not matter. grad may be any of the float inputs.
func (ws *Workspace) valueLoss(
	grad, values, old, returns []float32, role []Role, clip, scale float32,
) (total float64, count int64) {
	var sum laneSum
	for from := 0; from < len(role); from += tokenBlockSize {
		n := min(tokenBlockSize, len(role)-from)
		loss := ws.kernels.block.loss[:n]
		g, v, o, want := grad[from:][:n], values[from:][:n], old[from:][:n], returns[from:][:n]
		for i, r := range role[from:][:n] {
			d := v[i] - want[i]
			low, high := o[i]-clip, o[i]+clip
			c := choose(v[i] < low, low, v[i])
			c = choose(c > high, high, c)
			dc := c - want[i]
			square, clipped := float32(d*d), float32(dc*dc)
			loss[i] = masked(r, 0.5*choose(clipped > square, clipped, square))
			g[i] = masked(r, choose(clipped > square, 0, d*scale))
			count += oneIf(clipped > square) & oneIf(r != RoleMasked)
		}
		sum.addAll(loss)
	}
	return sum.sum(), count
}
