package reference

import "math"

// TurnReturns returns the advantage of every response token, [T], from the rewards of the turns,
// which are the spans. With K turns in a trajectory whose reward is R,
//
//	G_k = r_k + gamma G_k+1        G_K = r_K + R
//	A_k = G_k - mean over the other trajectories p of the group of G_min(k, K_p) of p
//
// A trajectory without turns counts by R, and a group of one has A = G. With divideByStd, A is
// divided by the standard deviation (n-1) of G over all turns of the group, plus 1e-6, if these are
// more than one. Without it, the policy gradient is unbiased.
func TurnReturns(b *Batch, gamma float64, divideByStd bool) []float64 {
	turns := b.turns()
	returns := make([][]float64, len(turns)) // of each turn, or R alone
	for q, spans := range turns {
		next := b.Rewards[q]
		if len(spans) == 0 {
			returns[q] = []float64{next}
		}
		for i := len(spans) - 1; i >= 0; i-- {
			if i < len(spans)-1 {
				next *= gamma
			}
			next += b.SpanRewards[spans[i]]
			returns[q] = append([]float64{next}, returns[q]...)
		}
	}
	advantages := make([]float64, len(b.SpanRewards))
	for _, group := range b.groups() {
		var all []float64
		for _, q := range group {
			if len(turns[q]) > 0 {
				all = append(all, returns[q]...)
			}
		}
		f := 1.0
		if least, largest := MinMax(all); divideByStd && least < largest {
			f = math.Sqrt(variance(all)) + 1e-6
		}
		for _, q := range group {
			for k, s := range turns[q] {
				var others []float64
				for _, p := range group {
					if p != q {
						others = append(others, returns[p][min(k, len(returns[p])-1)])
					}
				}
				a := returns[q][k]
				if least, largest := MinMax(others); least == largest && len(others) > 0 {
					a -= least // whose mean may differ from it by rounding
				} else if len(others) > 0 {
					a -= mean(others)
				}
				advantages[s] = a / f
			}
		}
	}
	return b.ofSpans(advantages)
}

// MTGRPO returns the advantage of every response token, [T], from the rewards of the turns, which
// are the spans (after arXiv:2505.11821). With K turns in a trajectory whose reward is R,
//
//	B_k = (r_k - mean) / F        over the turns k of the group
//	E   = (R + r_K - mean) / F    over the trajectories of the group
//	A_k = B_k + lambda E where k < K, E where k = K
//
// F is the standard deviation (n-1) plus 1e-6, or 1. What is alone has 0, and so have equal rewards.
func MTGRPO(b *Batch, lambda float64, divideByStd bool) []float64 {
	turns := b.turns()
	normalised := func(x []float64) []float64 {
		a := make([]float64, len(x))
		if least, largest := MinMax(x); least < largest { // else the mean may differ from them by rounding
			m, f := meanAndDivisor(x, divideByStd)
			for i := range x {
				a[i] = (x[i] - m) / f
			}
		}
		return a
	}
	advantages := make([]float64, len(b.SpanRewards))
	for _, group := range b.groups() {
		ends, longest := pick(b.Rewards, group), 0
		for i, q := range group {
			if n := len(turns[q]); n > 0 {
				ends[i] += b.SpanRewards[turns[q][n-1]]
				longest = max(longest, n)
			}
		}
		ends = normalised(ends)
		for k := range longest {
			var spans []int
			for _, q := range group {
				if k < len(turns[q]) {
					spans = append(spans, turns[q][k])
				}
			}
			for i, a := range normalised(pick(b.SpanRewards, spans)) {
				advantages[spans[i]] = a
			}
		}
		for i, q := range group {
			for k, s := range turns[q] {
				if k == len(turns[q])-1 {
					advantages[s] = ends[i]
				} else {
					advantages[s] += lambda * ends[i]
				}
			}
		}
	}
	return b.ofSpans(advantages)
}

// turns returns the spans of each trajectory.
func (b *Batch) turns() [][]int {
	b.perTrajectory(b.Rewards)
	of := b.trajectoryOfSpans()
	fit(len(b.SpanRewards), len(of), "span")
	turns := make([][]int, len(b.Rewards))
	for s, q := range of {
		turns[q] = append(turns[q], s)
	}
	return turns
}

// ofSpans gives every response token the value of its span, and masked tokens 0.
func (b *Batch) ofSpans(x []float64) []float64 {
	tokens := make([]float64, len(b.Role))
	for s, all := range b.spans() {
		for _, t := range all {
			tokens[t] = x[s]
		}
	}
	return tokens
}
