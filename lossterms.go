package reweight

import "math"

// What the losses compute for each token in plain Go, besides the terms of the policies, which
// are beside their types: log-ratios, importance ratios, the divergence from the reference, the
// value loss. kernels_portable.go has the order of the sums.
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
