package reference

import "math"

// EMPGOptions are the parameters of EMPG.
type EMPGOptions struct {
	K       float64 // k: how fast the scale of a span falls with its entropy
	KFuture float64 // k': how fast the bonus falls with the next span's entropy
	Zeta    float64 // of the bonus
}

// EMPG returns the advantages of EMPG (arXiv:2509.09265), [T]: of the mean entropies H of all
// N spans of the batch, with the self-calibrating scale g, which apart from the two constants
// is that of AEMFactors without the guard, and the future clarity bonus f,
//
//	x_s = (H_s - min) / (max - min + 1e-8)
//	g_s = exp(-k x_s) / (mean exp(-k x) + 1e-8)     f_s = exp(-k' x_next(s))
//	M_t = A_t g_s(t) + zeta f_s(t)
//	A_t = M_t - (1/N) sum_s mean_{t in s} M_t
//
// where next(s) is the next span of the same trajectory; without one there is no bonus.
// Where the advantage varies inside a span, the mean over the span counts in the last
// line. Every response token is in a span, and every span has one.
func EMPG(b *Batch, opt EMPGOptions) []float64 {
	b.perToken(b.Advantages)
	x, trajectory := SpanEntropies(b), b.trajectoryOfSpans()
	least, largest := MinMax(x)
	g, f := make([]float64, len(x)), make([]float64, len(x))
	for s, h := range x {
		x[s] = (h - least) / (largest - least + 1e-8)
		g[s] = math.Exp(-opt.K * x[s])
		if s > 0 && trajectory[s-1] == trajectory[s] {
			f[s-1] = math.Exp(-opt.KFuture * x[s])
		}
	}
	calibration := mean(g) + 1e-8
	a := make([]float64, len(b.Role))
	var means []float64
	for s, tokens := range b.spans() {
		for _, t := range tokens {
			a[t] = b.Advantages[t]*g[s]/calibration + opt.Zeta*f[s]
		}
		means = append(means, mean(pick(a, tokens)))
	}
	m := mean(means)
	for _, t := range b.responses() {
		a[t] -= m
	}
	return a
}
