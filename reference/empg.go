package reference

import "math"

// EMPGOptions are the parameters of EMPG.
type EMPGOptions struct {
	K       float64 // k: how fast the scale of a span falls with its entropy
	KFuture float64 // k': how fast the bonus falls with the next span's entropy
	Zeta    float64 // of the bonus
}

// EMPG returns the advantages of EMPG (arXiv:2509.09265), [T]: of the entropies H of all N
// spans of the batch, with the self-calibrating scale g of EMPGScales and the future
// clarity bonus f of EMPGBonuses,
//
//	M_t = A_t g_s(t) + zeta f_s(t)
//	A_t = M_t - (1/N) sum_s mean_{t in s} M_t
//
// Where the advantage varies inside a span, the mean over the span counts in the last
// line. Every response token is in a span, and every span has one.
func EMPG(b *Batch, opt EMPGOptions) []float64 {
	b.perToken(b.Advantages)
	hbar := SpanEntropies(b)
	g, f := EMPGScales(hbar, opt.K), EMPGBonuses(hbar, b.trajectoryOfSpans(), opt.KFuture)
	a := make([]float64, len(b.Role))
	var means []float64
	for s, tokens := range b.spans() {
		for _, t := range tokens {
			a[t] = b.Advantages[t]*g[s] + opt.Zeta*f[s]
		}
		means = append(means, mean(pick(a, tokens)))
	}
	m := mean(means)
	for t, r := range b.Role {
		if r != RoleMasked {
			a[t] -= m
		}
	}
	return a
}

// EMPGScales returns the self-calibrating scale g of EMPG for the mean entropies of
// all spans of a batch:
//
//	x_s = (H_s - min) / (max - min + 1e-8)
//	g_s = exp(-k x_s) / (mean exp(-k x) + 1e-8)
//
// Apart from the two constants it is AEMFactors without the guard, and a test
// compares the two.
func EMPGScales(hbar []float64, k float64) []float64 {
	g := empgPlaces(hbar)
	for s, x := range g {
		g[s] = math.Exp(-k * x)
	}
	m := mean(g)
	for s := range g {
		g[s] /= m + 1e-8
	}
	return g
}

// EMPGBonuses returns the future clarity bonus of every span, without zeta:
//
//	f_s = exp(-k' x_next(s))
//
// with x of EMPGScales. next(s) is the next span of the same trajectory, one element per
// span; without one there is no bonus.
func EMPGBonuses(hbar []float64, trajectory []int, kFuture float64) []float64 {
	x := empgPlaces(hbar)
	f := make([]float64, len(x))
	for s := range f {
		if s+1 < len(f) && trajectory[s+1] == trajectory[s] {
			f[s] = math.Exp(-kFuture * x[s+1])
		}
	}
	return f
}

// empgPlaces returns where each entropy lies between the least and the largest.
func empgPlaces(hbar []float64) []float64 {
	least, largest := MinMax(hbar)
	x := make([]float64, len(hbar))
	for s, h := range hbar {
		x[s] = (h - least) / (largest - least + 1e-8)
	}
	return x
}
