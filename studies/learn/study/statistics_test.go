package study

import (
	"math"
	"slices"
	"testing"

	"gonum.org/v1/gonum/floats"
)

func TestIntervalByHand(t *testing.T) {
	// The quantiles of Student's t are those of a printed table.
	for _, c := range []struct {
		x        []float64
		mean, se float64
		quantile float64
	}{
		{[]float64{1, 3}, 2, 1, 12.706},
		{[]float64{1, 2, 3, 4, 5}, 3, math.Sqrt(2.5 / 5), 2.776},
		{[]float64{0, 0, 0, 0, 1, 1, 1, 1}, 0.5, math.Sqrt(2. / 7 / 8), 2.365},
		{[]float64{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1}, 0.5, math.Sqrt(4. / 15 / 16), 2.131},
		{[]float64{7, 7, 7}, 7, 0, 4.303},
	} {
		low, high := interval(c.x)
		if half := c.quantile * c.se; math.Abs(low-(c.mean-half)) > 5e-4*c.se ||
			math.Abs(high-(c.mean+half)) > 5e-4*c.se {
			t.Errorf("interval(%v) = %v, %v, want %v +- %v", c.x, low, high, c.mean, half)
		}
	}
}

func TestPermutationByHand(t *testing.T) {
	for _, c := range []struct {
		x    []float64
		want float64
	}{
		{nil, 1},
		{[]float64{5}, 1},
		{[]float64{1, 2, 3}, 2. / 8},                   // +++ and ---
		{[]float64{-1, -2, -3}, 2. / 8},                // the other direction
		{[]float64{3, -1, 1}, 6. / 8},                  // all but +-- and -++
		{[]float64{1, -1}, 1},                          // the sum is 0
		{[]float64{0, 0, 0, 0}, 1},                     // nothing differs
		{[]float64{0, 0, 1, 1}, 2. / 4},                // the signs of zeros do not matter
		{[]float64{0.1, 0.2, 0.3, -0.6, 0.7}, 9. / 16}, // as {1, 2, 3, -6, 7}, though 0.1+0.2+0.3-0.6 is not 0 in binary
		{slices.Repeat([]float64{0.1}, 16), math.Exp2(-15)},
		{slices.Repeat([]float64{0.1}, 20), math.Exp2(-19)},
	} {
		if got := permutation(c.x); got != c.want {
			t.Errorf("permutation(%v) = %v, want %v", c.x, got, c.want)
		}
	}
}

func TestHolmByHand(t *testing.T) {
	for _, c := range []struct{ p, want []float64 }{
		{nil, []float64{}},
		{[]float64{0.04}, []float64{0.04}},
		// In order: 4 x 0.005, 3 x 0.01, 2 x 0.03, and 1 x 0.04, which is less than the one before it.
		{[]float64{0.01, 0.04, 0.03, 0.005}, []float64{0.03, 0.06, 0.06, 0.02}},
		{[]float64{0.9, 0.6, 0.5}, []float64{1, 1, 1}},
		{[]float64{0.02, 0.02, 0.02}, []float64{0.06, 0.06, 0.06}},
	} {
		if got := holm(c.p); !floats.EqualApprox(got, c.want, 1e-9) {
			t.Errorf("holm(%v) = %v, want %v", c.p, got, c.want)
		}
	}
}

func TestPoints(t *testing.T) {
	for x, want := range map[float64]string{0.0204: "+2.0", -0.1: "−10.0", 0: "0.0", 0.0004: "0.0", -0.0004: "0.0"} {
		if got := points(x); got != want {
			t.Errorf("%v is %q, want %q", x, got, want)
		}
	}
}
