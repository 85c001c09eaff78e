package reference

import "math"

// EMPGOptions are the parameters of EMPG.
type EMPGOptions struct {
	K       float64 // k: how fast the scale of a span falls with its entropy
	KFuture float64 // k': how fast the bonus falls with the next span's entropy
	Zeta    float64 // of the bonus
}

// DefaultEMPG has the paper's constants, and the public code's zeta.
var DefaultEMPG = EMPGOptions{K: 1, KFuture: 1, Zeta: 0.05}

// EMPG returns the advantages of EMPG (arXiv:2509.09265), and the scale g and the
// bonus of every span. With x of EMPGScales over all N spans of the batch:
//
//	M_t = A_t g_s(t) + zeta exp(-k' x_next(s))
//	A_t = M_t - (1/N) sum_s mean_{t in s} M_t
//
// next(s) is the next span of the same trajectory; without one there is no bonus.
// role, spanIDs, entropy and advantages are [T], offsets [S+1]; scaled is [T], and
// 0 at masked tokens, scales and bonuses are [spans]. Where the advantage varies
// inside a span, the mean over the span counts in the last line.
func EMPG(role []Role, spanIDs []int32, offsets []int64, entropy, advantages []float64, opt EMPGOptions) (scaled, scales, bonuses []float64, err error) {
	trajectory, err := responseSpans(role, spanIDs, offsets)
	if err != nil {
		return nil, nil, nil, err
	}
	if err := first(
		checkResponse("entropy", entropy, role),
		checkResponse("advantages", advantages, role),
		checkAtLeast("opt.KFuture", opt.KFuture, 0),
		checkAtLeast("opt.Zeta", opt.Zeta, 0),
	); err != nil {
		return nil, nil, nil, err
	}
	hbar, count, err := SpanEntropies(role, spanIDs, masked(entropy, role))
	if err != nil {
		return nil, nil, nil, err
	}
	scales, err = EMPGScales(hbar, opt.K)
	if err != nil {
		return nil, nil, nil, err
	}
	x := empgPlaces(hbar)
	spans := len(hbar)
	bonuses = make([]float64, spans)
	for s := range spans {
		if s+1 < spans && trajectory[s+1] == trajectory[s] {
			bonuses[s] = opt.Zeta * math.Exp(-opt.KFuture*x[s+1])
		}
	}

	scaled = make([]float64, len(role))
	means := make([]float64, spans)
	for t, s := range spanIDs {
		if role[t] != RoleMasked {
			scaled[t] = advantages[t]*scales[s] + bonuses[s]
			means[s] += scaled[t] / float64(count[s])
		}
	}
	m := mean(means)
	for t, r := range role {
		if r != RoleMasked {
			scaled[t] -= m
		}
	}
	return scaled, scales, bonuses, nil
}

// EMPGScales returns the self-calibrating scale g of EMPG for the mean entropies of
// all spans of a batch:
//
//	x_s = (H_s - min) / (max - min + 1e-8)
//	g_s = exp(-k x_s) / (mean exp(-k x) + 1e-8)
//
// Apart from the two constants it is AEMFactors without the guard, and a test
// compares the two.
func EMPGScales(hbar []float64, k float64) ([]float64, error) {
	if err := checkAtLeast("k", k, 0); err != nil {
		return nil, err
	}
	g := empgPlaces(hbar)
	for s, x := range g {
		g[s] = math.Exp(-k * x)
	}
	m := mean(g)
	for s := range g {
		g[s] /= m + 1e-8
	}
	return g, nil
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
