package policy

import "math"

const (
	log2e = 1.4426950408889634
	ln2Hi = 0.693359375 // ln 2 = ln2Hi + ln2Lo; ln2Hi times an exponent is exact
	ln2Lo = -2.1219444005469057e-4

	// A float32 between 1.5 * 2^23 and 2^24 has no fraction: to add round
	// rounds to an integer, which then stands in the lowest bits.
	round = 1.5 * (1 << 23)

	// (e^r - 1 - r) / r^2, a polynomial through its values at the Chebyshev nodes of |r| < 0.3466.
	exp2 = 0.5
	exp3 = 0.16666576998242924
	exp4 = 0.041666554627878084
	exp5 = 0.008363177629994445
	exp6 = 0.0013926181810489343
)

// split returns the bits of k, below those of round, and r, where x = k ln 2 + r and
// |r| is at most half of ln 2. |x| is at most 87.
func split(x float32) (k uint32, r float32) {
	t := float32(x*log2e) + round
	n := t - round
	return math.Float32bits(t), x - float32(n*ln2Hi) - float32(n*ln2Lo)
}

// power returns 2^k for the bits of k.
func power(k uint32) float32 { return math.Float32frombits((k + 127) << 23) }

// expm1 returns e^r - 1.
func expm1(r float32) float32 {
	q := exp5 + float32(exp6*r)
	q = exp4 + float32(q*r)
	q = exp3 + float32(q*r)
	q = exp2 + float32(q*r)
	return r + float32(float32(r*r)*q)
}

// exp returns e^x for x up to 87, and 0 for x below -87. Its error is at most 1.1 units
// in the last place.
func exp(x float32) float32 {
	if x < -87 {
		return 0
	}
	k, r := split(x)
	scale := power(k)
	return scale + float32(scale*expm1(r))
}

// addSigmoid sets each x to 1 / (1 + e^-(x+y)). The error is at most 2.6 units in the
// last place.
func addSigmoid(x, y []float32) {
	y = y[:len(x)]
	for i, s := range x {
		s += y[i]
		if s > 87 {
			x[i] = 1
			continue
		}
		if s < -87 {
			x[i] = 0
			continue
		}
		k, r := split(-s)
		scale := power(k)
		x[i] = 1 / (1 + scale + float32(scale*expm1(r)))
	}
}

// tanhs sets each x to (e^2x - 1) / (e^2x + 1). The error is at most 2.6 units in the
// last place.
func tanhs(x []float32) {
	for i, s := range x {
		if s > 10 {
			x[i] = 1
			continue
		}
		if s < -10 {
			x[i] = -1
			continue
		}
		k, r := split(float32(2 * s))
		scale := power(k)
		e := scale - 1 + float32(scale*expm1(r))
		x[i] = e / (e + 2)
	}
}
