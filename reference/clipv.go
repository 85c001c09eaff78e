package reference

import (
	"cmp"
	"math"
	"slices"
)

// ClipV returns 1 at response tokens and 0 elsewhere, [T], but for some of the response tokens
// with A < 0 and D above mu standard deviations, which have 0 too (arXiv:2602.03392):
//
//	D = EntropyDrop - p (entropy + log p),  p = e^old
//
// with the standard deviation (n) over all n response tokens. Where that is below 1e-12, all have
// 1. At most max(1, floor(share n)) have 0: those whose D is largest, of equal ones the first.
// (Trinity-RFT: ClipVAdvantageFn.)
func ClipV(b *Batch, mu, share float64) []float64 {
	b.perToken(b.OldLogprobs, b.Entropy, b.EntropyDrop, b.Advantages)
	weights, D, responses := make([]float64, len(b.Role)), make([]float64, len(b.Role)), b.responses()
	if len(responses) == 0 {
		return weights
	}
	for _, t := range responses {
		weights[t] = 1
		D[t] = b.EntropyDrop[t] - math.Exp(b.OldLogprobs[t])*(b.Entropy[t]+b.OldLogprobs[t])
	}
	m, squares := mean(pick(D, responses)), 0.0
	for _, t := range responses {
		squares += (D[t] - m) * (D[t] - m)
	}
	std := math.Sqrt(squares / float64(len(responses)))
	var beyond []int
	for _, t := range responses {
		if std >= 1e-12 && b.Advantages[t] < 0 && D[t] > mu*std {
			beyond = append(beyond, t)
		}
	}
	slices.SortStableFunc(beyond, func(t, u int) int { return cmp.Compare(D[u], D[t]) })
	for t, out := range b.first(beyond, share) {
		if out {
			weights[t] = 0
		}
	}
	return weights
}
