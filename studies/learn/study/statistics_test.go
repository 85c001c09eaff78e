package study

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1, math.Abs(b)) }

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
		if half := c.quantile * c.se; math.Abs(low-(c.mean-half)) > 5e-4*c.se || math.Abs(high-(c.mean+half)) > 5e-4*c.se {
			t.Errorf("interval(%v) = %v, %v, want %v +- %v", c.x, low, high, c.mean, half)
		}
	}
	for _, x := range [][]float64{nil, {1}, {1, math.NaN()}, {1, 2, math.Inf(1)}} {
		if low, high := interval(x); !math.IsNaN(low) || !math.IsNaN(high) {
			t.Errorf("interval(%v) = %v, %v, want NaN", x, low, high)
		}
	}
}

func TestPermutationByHand(t *testing.T) {
	nan := math.NaN()
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
		{[]float64{1, nan, 2}, nan},
		{[]float64{1, math.Inf(1)}, nan},
		{[]float64{math.Inf(-1), math.Inf(1)}, nan},
	} {
		if got := permutation(c.x); got != c.want && !(math.IsNaN(got) && math.IsNaN(c.want)) {
			t.Errorf("permutation(%v) = %v, want %v", c.x, got, c.want)
		}
	}
}

// TestPermutationExact: tenths and thirds, whose sums are rounded, give the p value
// that whole numbers give, counted here mask by mask.
func TestPermutationExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole := rapid.SliceOfN(rapid.IntRange(-9, 9), 1, 10).Draw(t, "differences")
		unit := rapid.SampledFrom([]float64{1, 0.1, 1. / 3, 1e-12, 1e12}).Draw(t, "unit")
		x := make([]float64, len(whole))
		observed := 0
		for i, d := range whole {
			x[i] = float64(d) * unit
			observed += d
		}
		far, all := 0, 1<<len(whole)
		for mask := range all {
			sum := 0
			for i, d := range whole {
				if mask>>i&1 == 1 {
					d = -d
				}
				sum += d
			}
			if max(sum, -sum) >= max(observed, -observed) {
				far++
			}
		}
		if got, want := permutation(x), float64(far)/float64(all); got != want {
			t.Fatalf("permutation(%v) = %v, want %v", x, got, want)
		}
	})
}

func TestHolmByHand(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct{ p, want []float64 }{
		{nil, []float64{}},
		{[]float64{0.04}, []float64{0.04}},
		// In order: 4 x 0.005, 3 x 0.01, 2 x 0.03, and 1 x 0.04, which is less than the one before it.
		{[]float64{0.01, 0.04, 0.03, 0.005}, []float64{0.03, 0.06, 0.06, 0.02}},
		{[]float64{0.01, nan, 0.04, 0.03, 0.005, nan}, []float64{0.03, nan, 0.06, 0.06, 0.02, nan}},
		{[]float64{0.9, 0.6, 0.5}, []float64{1, 1, 1}},
		{[]float64{0.02, 0.02, 0.02}, []float64{0.06, 0.06, 0.06}},
	} {
		got := holm(c.p)
		if !slices.EqualFunc(got, c.want, func(a, b float64) bool { return near(a, b) || math.IsNaN(a) && math.IsNaN(b) }) {
			t.Errorf("holm(%v) = %v, want %v", c.p, got, c.want)
		}
	}
}

// TestHolmRejects: the adjusted p values that are at most alpha are those of the
// hypotheses that the procedure as Holm wrote it rejects: step by step from the
// smallest p, until one is above alpha / (hypotheses that are left).
func TestHolmRejects(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.SliceOfN(rapid.Float64Range(0, 0.2), 1, 12).Draw(t, "p")
		alpha := rapid.SampledFrom([]float64{0.01, 0.05, 0.3}).Draw(t, "alpha")
		rejected := make([]bool, len(p))
		for left := len(p); left > 0; left-- {
			smallest := -1
			for i := range p {
				if !rejected[i] && (smallest < 0 || p[i] < p[smallest]) {
					smallest = i
				}
			}
			if p[smallest]*float64(left) > alpha {
				break
			}
			rejected[smallest] = true
		}
		for i, adjusted := range holm(p) {
			if (adjusted <= alpha) != rejected[i] {
				t.Fatalf("holm(%v)[%d] = %v, rejected at %v: %v", p, i, adjusted, alpha, rejected[i])
			}
		}
	})
}

func TestPoints(t *testing.T) {
	for x, want := range map[float64]string{0.0204: "+2.0", -0.1: "−10.0", 0: "0.0", 0.0004: "0.0", -0.0004: "0.0"} {
		if got := points(x); got != want {
			t.Errorf("%v is %q, want %q", x, got, want)
		}
	}
}
