package reference

import (
	"math"
	"slices"
)

// EntropyMask returns 1 at the response tokens with the highest entropies and 0
// elsewhere, [T] (arXiv:2506.01939), and the smallest entropy that is kept. Of n
// response tokens
//
//	K = min(n, max(1, floor(rho n + 0.9999)))
//
// are kept, and all that have the same entropy as the K-th largest. The paper's rho is
// 0.2. Without response tokens the threshold is 0.
func EntropyMask(b *Batch, rho float64) (mask []float64, threshold float64) {
	b.perToken(b.Entropy)
	mask = make([]float64, len(b.Role))
	responses := b.responses()
	n := len(responses)
	if n == 0 {
		return mask, 0
	}
	sorted := slices.Sorted(slices.Values(pick(b.Entropy, responses)))
	K := min(n, max(1, int(math.Floor(rho*float64(n)+0.9999))))
	threshold = sorted[n-K]
	for _, t := range responses {
		if b.Entropy[t] >= threshold {
			mask[t] = 1
		}
	}
	return mask, threshold
}
