package study

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// interval returns the 95% interval of the mean of what x was drawn from, by
// Student's t.
func interval(x []float64) (low, high float64) {
	mean, deviation := stat.MeanStdDev(x, nil)
	n := float64(len(x))
	half := distuv.StudentsT{Sigma: 1, Nu: n - 1}.Quantile(0.975) * deviation / math.Sqrt(n)
	return mean - half, mean + half
}

// median returns the mean of the two in the middle where x has an even number of them.
func median(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	return (x[(len(x)-1)/2] + x[len(x)/2]) / 2
}

// permutation returns the two-sided p value of a mean difference of 0: the share of
// all ways to flip the signs of the differences after which their sum is at least
// as far from 0. If the scheme makes no difference, each sign is as likely as the
// other, whatever the distribution of the numbers is.
func permutation(differences []float64) float64 {
	// Sums that are equal but for rounding must count as equal.
	far := math.Abs(floats.Sum(differences)) - 1e-12*floats.Norm(differences, 1)
	return float64(farSums(0, differences, far)) / math.Exp2(float64(len(differences)))
}

// farSums returns how many of the sums of sum and the differences, with each sign
// of each, are at least far from 0.
func farSums(sum float64, differences []float64, far float64) int {
	if len(differences) == 0 {
		if math.Abs(sum) >= far {
			return 1
		}
		return 0
	}
	rest := differences[1:]
	return farSums(sum+differences[0], rest, far) + farSums(sum-differences[0], rest, far)
}

// holm returns p values corrected for their number by Holm's method: the chance of
// any false finding among those below a limit is at most that limit.
func holm(p []float64) []float64 {
	adjusted, sorted, order := make([]float64, len(p)), slices.Clone(p), make([]int, len(p))
	floats.Argsort(sorted, order)
	least := 0.0
	for rank, i := range order {
		least = max(least, min(1, float64(len(p)-rank)*p[i]))
		adjusted[i] = least
	}
	return adjusted
}
