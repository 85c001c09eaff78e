package diagnostics

import (
	"math"
	"testing"

	"gonum.org/v1/gonum/stat"
)

// near fails unless got is want to a relative error; NaN is NaN.
func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if math.IsNaN(got) != math.IsNaN(want) || math.Abs(got-want) > tolerance*max(1, math.Abs(want)) {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

func TestRewardVariance(t *testing.T) {
	near(t, "variance", RewardVariance([]float64{1, 2, 3, 6}), 3.5, 1e-15)
	near(t, "variance of one", RewardVariance([]float64{4}), 0, 0)
	lost := float64(float32(-0.1))
	r := []float64{lost, lost, 0, .3, 1, 1, 1.7}
	sorted := RewardVariance(r)
	for range r {
		r = append(r[3:], r[:3]...)
		if got := RewardVariance(r); got != sorted {
			t.Errorf("variance of %v = %v, want %v as in any order", r, got, sorted)
		}
	}
	if x, y := RewardVariance([]float64{1, 1, 1, 0, 0, 0, 0, 0, 0, 0}), RewardVariance([]float64{0, 0, 0, 1, 1, 1, 1, 1, 1, 1}); x != y {
		t.Errorf("3 and 7 successes of 10: variance %v and %v", x, y)
	}
}

// TestPartial holds the formula to the correlation of residuals.
func TestPartial(t *testing.T) {
	x, y, z := []float64{1, 5, 2, 8, 3, 9, 4}, []float64{2, 6, 6, 1, 3, 8, 0}, []float64{1, 2, 2, 4, 3, 6, 6}
	residuals := func(y []float64) []float64 {
		alpha, beta := stat.LinearRegression(ranks(z), ranks(y), nil, false)
		left := ranks(y)
		for i, r := range ranks(z) {
			left[i] -= alpha + beta*r
		}
		return left
	}
	near(t, "rho", Partial(x, y, z).Rho, stat.Correlation(residuals(x), residuals(y), nil), 1e-14)
	near(t, "rho, z constant", Partial(x, y, make([]float64, 7)).Rho, Spearman(x, y).Rho, 0)
	near(t, "rho, z is x", Partial(x, y, x).Rho, math.NaN(), 0)
}
