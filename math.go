package reweight

import "math"

var inf = math.Inf(1)

// The logarithm and the exponential in float64, in plain Go: the ones of
// package math are assembly on some architectures and not on others, and their
// last bits differ. Every product that meets a sum is wrapped in float64(),
// which forbids the compiler to fuse the two.

const (
	ln2Hi = 0x1.62e42fefap-1                        // ln 2, upper 37 bits: k*ln2Hi is exact
	ln2Lo = 0x1.cf79abc9e3b39803f2f6af40f343267p-40 // ln 2 - ln2Hi
	log2E = 1.44269504088896340735992468100189214   // 1 / ln 2
)

// log64 returns the natural logarithm of a positive, finite x, within 1 ulp.
func log64(x float64) float64 {
	m, e := math.Frexp(x) // m in [1/2, 1)
	if m < math.Sqrt2/2 {
		m, e = 2*m, e-1
	}
	// log m = 2 atanh(s) with s = (m-1) / (m+1), |s| < 0.1716.
	f := m - 1
	s := f / (m + 1)
	z := float64(s * s)
	p := 1.0 / 25
	for _, c := range [...]float64{1.0 / 23, 1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11, 1.0 / 9,
		1.0 / 7, 1.0 / 5, 1.0 / 3} {
		p = float64(p*z) + c
	}
	// 2s = f - s*f, so log m = f - s*(f - 2 z p): the large term is exact.
	r := float64(2 * float64(z*p))
	k := float64(e)
	return float64(k*ln2Hi) + (f - (float64(s*(f-r)) - float64(k*ln2Lo)))
}

// exp64 returns e^x, within 1 ulp; 0 and +Inf beyond the range, NaN for NaN.
func exp64(x float64) float64 {
	switch {
	case x != x:
		return x
	case x > 709.782712893384:
		return math.Inf(1)
	case x < -745.1332191019412:
		return 0
	}
	k := math.RoundToEven(float64(x * log2E))
	hi := x - float64(k*ln2Hi)
	lo := float64(k * ln2Lo)
	r := hi - lo
	// The part above 1 + r, so that its rounding does not touch them.
	p := 1.0 / 6227020800
	for _, c := range [...]float64{1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320,
		1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 1.0 / 2} {
		p = float64(p*r) + c
	}
	tail := float64(float64(r*r)*p) + ((hi - r) - lo)
	return math.Ldexp(1+(r+tail), int(k))
}

// k3 returns e^x - 1 - x without cancellation.
func k3(x float64) float64 {
	if x < -0.5 || x > 0.5 {
		return exp64(x) - 1 - x
	}
	p, term := 0.0, float64(x*x)/2
	for n := 3.0; n <= 18; n++ {
		p += term
		term = float64(term*x) / n
	}
	return p
}
