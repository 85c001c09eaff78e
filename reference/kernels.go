package reference

import (
	"math"
	"slices"
)

// The formulas of single kernels, of which the schemes are made.

// MaskedMoments returns the number n of tokens whose role is one of roles, the
// sum of x - shift over them, and the sum of its square. role and x are [T].
func MaskedMoments(role []Role, x []float64, shift float64, roles ...Role) (n int, total, squares float64, err error) {
	if err := first(checkRoles(role), checkLen("x", len(x), len(role), "tokens")); err != nil {
		return 0, 0, 0, err
	}
	var d, dd []float64
	for t, r := range role {
		if slices.Contains(roles, r) {
			d = append(d, x[t]-shift)
			dd = append(dd, (x[t]-shift)*(x[t]-shift))
		}
	}
	return len(d), sum(d), sum(dd), nil
}

// SpanMeans returns the mean of each span of x, [spans], NaN for an empty one.
// Span s is elements offsets[s] to offsets[s+1]; offsets is [spans+1], begins
// with 0 and ends with len(x).
func SpanMeans(x []float64, offsets []int64) ([]float64, error) {
	if err := checkOffsets(offsets, len(x)); err != nil {
		return nil, err
	}
	means := make([]float64, len(offsets)-1)
	for s := range means {
		means[s] = mean(x[offsets[s]:offsets[s+1]])
	}
	return means, nil
}

// MinMax returns the least and the largest element of x: +Inf and -Inf for an
// empty x, and NaN for both if an element is NaN.
func MinMax(x []float64) (least, largest float64) {
	least, largest = math.Inf(1), math.Inf(-1)
	for _, v := range x {
		least, largest = min(least, v), max(largest, v)
	}
	return least, largest
}

// ExpScale returns a factor for every element of x: exp(-rate (x_i - origin)) divided
// by the mean of these over all elements. So the mean of the factors is 1, and the
// least element gets the largest one. rate >= 0.
func ExpScale(x []float64, origin, rate float64) ([]float64, error) {
	if err := checkAtLeast("rate", rate, 0); err != nil {
		return nil, err
	}
	e := make([]float64, len(x))
	for i, v := range x {
		e[i] = math.Exp(-rate * (v - origin))
	}
	m := mean(e)
	for i := range e {
		e[i] /= m
	}
	return e, nil
}
