package study

import (
	"math"
	"sort"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// MaxSeeds is the largest number of seeds whose signs permutation can flip in all
// ways in a moment.
const MaxSeeds = 20

// interval returns the 95% interval of the mean of what x was drawn from, by
// Student's t. One number has no interval: NaN.
func interval(x []float64) (low, high float64) {
	mean, deviation := stat.MeanStdDev(x, nil)
	degrees := float64(len(x) - 1)
	if degrees < 1 || math.IsNaN(mean) {
		return math.NaN(), math.NaN()
	}
	half := distuv.StudentsT{Sigma: 1, Nu: degrees}.Quantile(0.975) * deviation / math.Sqrt(float64(len(x)))
	return mean - half, mean + half
}

// permutation returns the two-sided p value of a mean difference of 0: the share of
// all ways to flip the signs of the differences after which their sum is at least
// as far from 0. If the scheme makes no difference, each sign is as likely as the
// other, whatever the distribution of the numbers is.
func permutation(differences []float64) float64 {
	sum, scale := 0.0, 0.0
	for _, d := range differences {
		sum += d
		scale += math.Abs(d)
	}
	if math.IsNaN(sum) || math.IsInf(scale, 0) {
		return math.NaN()
	}
	// Sums that are equal but for rounding must count as equal.
	far := math.Abs(sum) - 1e-12*scale
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
// any false finding among those below a limit is at most that limit. A NaN is no
// test: it stays and is not counted.
func holm(p []float64) []float64 {
	adjusted := make([]float64, len(p))
	var order []int
	for i := range p {
		adjusted[i] = math.NaN()
		if !math.IsNaN(p[i]) {
			order = append(order, i)
		}
	}
	sort.Slice(order, func(i, j int) bool { return p[order[i]] < p[order[j]] })
	least := 0.0
	for rank, i := range order {
		least = max(least, min(1, float64(len(order)-rank)*p[i]))
		adjusted[i] = least
	}
	return adjusted
}
