package reweight

import "math"

// What the losses are made of besides the policy's term, in plain Go: log-ratios,
// importance ratios, the divergence from the reference, the value loss. The assembly
// must equal their bits.

// logRatioSums are the lanes of the sums of log-ratios. The assembly knows its layout.
type logRatioSums struct {
	raw, clamped [lanes]float64 // of a - b, and of the same kept between -20 and 20
	count        int64
}

// logRatiosPortable adds a - b, in float64, for the response tokens.
func logRatiosPortable(a, b []float32, role []Role, sums *logRatioSums) {
	for i, r := range role {
		if r == RoleMasked {
			continue
		}
		d := float64(a[i]) - float64(b[i])
		sums.raw[i%lanes] += d
		sums.clamped[i%lanes] += max(-20, min(20, d))
		sums.count++
	}
}

// ratioConsts are the bounds of importance ratios. The assembly knows its layout.
type ratioConsts struct {
	lo, hi float32
	mask   int32 // 1: a ratio out of bounds becomes 0; 0: the nearer bound
}

// ratiosPortable sets dst to e^(a-b), with a - b kept between -20 and 20, within the
// bounds, and adds it to sum; to 1 for masked tokens, which add nothing and whose
// other inputs do not matter. dst may be a or b.
func ratiosPortable(dst, a, b []float32, role []Role, q *ratioConsts, sum *laneSum) {
	for i, r := range role {
		c, term := float32(1), float32(0)
		if r != RoleMasked {
			u := exp2(float32(atMost(20, atLeast(-20, a[i]-b[i])) * log2E32))
			c = atMost(q.hi, atLeast(q.lo, u))
			if q.mask != 0 && (c < u || c > u) {
				c = 0
			}
			term = c
		}
		dst[i] = c
		sum.add(i, term)
	}
}

// A klKernel is the value whose derivative and sum kl computes.
type klKernel int32

const (
	klK1  klKernel = iota // x
	klAbs                 // |x|
	klK2                  // x^2 / 2
	klK3                  // e^-x + x - 1
)

// klConsts are the divergence's constants. The assembly knows its layout.
type klConsts struct {
	kernel   klKernel
	straight int32   // 1: the derivative is that of k2; 0: the value's own
	scale    float32 // of the derivative
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

// klPortable adds the divergence's estimate of each response token to sum, and its
// derivative by the log-probability, times scale, to grad. x is logprobs - ref.
func klPortable(grad, logprobs, ref []float32, role []Role, q *klConsts, sum *laneSum) {
	for i, r := range role {
		var k, g float32 // what a masked token adds
		if r != RoleMasked {
			x := logprobs[i] - ref[i]
			switch q.kernel {
			case klK1:
				k, g = x, 1
			case klAbs:
				k = float32(math.Abs(float64(x)))
				if x > 0 {
					g = 1
				}
				if x < 0 {
					g = -1
				}
			case klK2:
				k, g = float32(0.5*x)*x, x
			case klK3:
				k, g = k3Term(x)
			}
			if q.straight != 0 {
				g = x
			}
			grad[i] += float32(g * q.scale)
		}
		sum.add(i, k)
	}
}

// k3Term returns min(10, e^y - y - 1) with y = -x kept between -20 and 20, and its
// derivative by x, which is 0 where the value was cut: also wherever y was.
func k3Term(x float32) (k, g float32) {
	y := atMost(20, atLeast(-20, -x))
	p := fma32(klC8, y, klC7)
	p = fma32(p, y, klC6)
	p = fma32(p, y, klC5)
	p = fma32(p, y, klC4)
	p = fma32(p, y, klC3)
	p = fma32(p, y, klC2)
	square := float32(y * y)
	k = float32(p * square)
	g = -fma32(p, square, y)
	if y < -0.5 || y > 0.5 {
		e := exp2(float32(y * log2E32))
		g = 1 - e
		k = float32(e-1) - y
	}
	if k > 10 {
		k, g = 10, 0
	}
	return k, g
}

// valueConsts are the value loss's constants. The assembly knows its layout.
type valueConsts struct {
	clip  float32
	scale float32 // of the gradient
}

// valueSums are its sums over response tokens. The assembly knows its layout.
type valueSums struct {
	loss    laneSum
	clipped int64
}

// valueLossPortable adds the clipped value loss of each response token to sums and
// sets grad to its derivative by the new value, times scale; 0 for masked tokens,
// whose other inputs do not matter. grad may be any of the float inputs.
func valueLossPortable(grad, values, old, returns []float32, role []Role, q *valueConsts, sums *valueSums) {
	for i, r := range role {
		var l, g float32 // what a masked token adds
		if r != RoleMasked {
			v := values[i]
			c := atMost(float32(old[i]+q.clip), atLeast(float32(old[i]-q.clip), v))
			d, dc := v-returns[i], c-returns[i]
			square, clipped := float32(d*d), float32(dc*dc)
			l = float32(0.5 * square)
			g = d * q.scale
			if clipped > square {
				l, g = float32(0.5*clipped), 0
				sums.clipped++
			}
		}
		grad[i] = g
		sums.loss.add(i, l)
	}
}
