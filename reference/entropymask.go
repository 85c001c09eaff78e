package reference

import (
	"fmt"
	"math"
	"slices"
)

// EntropyMask returns 1 at the response tokens with the highest entropies and 0
// elsewhere, [T] (arXiv:2506.01939), and the smallest entropy that is kept. Of n
// response tokens
//
//	K = min(n, max(1, floor(rho n + 0.9999)))
//
// are kept, and all that have the same entropy as the K-th largest. role and entropy
// are [T], rho is in (0, 1]; the paper's is 0.2. Without response tokens the
// threshold is 0.
func EntropyMask(role []Role, entropy []float64, rho float64) (mask []float64, threshold float64, err error) {
	if err := first(checkRoles(role), checkResponse("entropy", entropy, role)); err != nil {
		return nil, 0, err
	}
	if !(rho > 0 && rho <= 1) {
		return nil, 0, fmt.Errorf("reference: rho = %v, want above 0, up to 1", rho)
	}
	var sorted []float64
	for t, r := range role {
		if r != RoleMasked {
			sorted = append(sorted, entropy[t])
		}
	}
	mask = make([]float64, len(role))
	n := len(sorted)
	if n == 0 {
		return mask, 0, nil
	}
	slices.Sort(sorted)
	K := min(n, max(1, int(math.Floor(rho*float64(n)+0.9999))))
	threshold = sorted[n-K]
	for t, r := range role {
		if r != RoleMasked && entropy[t] >= threshold {
			mask[t] = 1
		}
	}
	return mask, threshold, nil
}
