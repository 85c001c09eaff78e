package reference

import (
	"math"
	"slices"
)

// The formulas of single kernels, of which the schemes are made.

// MaskedMoments returns the number n of tokens whose role is one of roles, the
// sum of x - shift over them, and the sum of its square. role and x are [T].
func MaskedMoments(role []Role, x []float64, shift float64, roles ...Role) (n int, total, squares float64) {
	fit(len(x), len(role), "token")
	var d, dd []float64
	for t, r := range role {
		if slices.Contains(roles, r) {
			d = append(d, x[t]-shift)
			dd = append(dd, (x[t]-shift)*(x[t]-shift))
		}
	}
	return len(d), sum(d), sum(dd)
}

// SpanMeans returns the mean of each span of x, [spans], NaN for an empty one.
// Span s is elements offsets[s] to offsets[s+1]; offsets is [spans+1].
func SpanMeans(x []float64, offsets []int32) []float64 {
	var means []float64
	for s := range offsets[1:] {
		means = append(means, mean(x[offsets[s]:offsets[s+1]]))
	}
	return means
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
// least element gets the largest one.
func ExpScale(x []float64, origin, rate float64) []float64 {
	e := make([]float64, len(x))
	for i, v := range x {
		e[i] = math.Exp(-rate * (v - origin))
	}
	m := mean(e)
	for i := range e {
		e[i] /= m
	}
	return e
}

// Multiply returns the products of the elements of x and y, equally long: how a factor
// scales advantages.
func Multiply(x, y []float64) []float64 {
	fit(len(y), len(x), "element")
	z := make([]float64, len(x))
	for i := range z {
		z[i] = x[i] * y[i]
	}
	return z
}

// Floats returns the elements of x as float64.
func Floats(x []float32) []float64 {
	wide := make([]float64, len(x))
	for i, v := range x {
		wide[i] = float64(v)
	}
	return wide
}

// Roles returns the roles of another type, with the same numbers.
func Roles[R ~uint8](role []R) []Role {
	same := make([]Role, len(role))
	for t, r := range role {
		same[t] = Role(r)
	}
	return same
}
