package bench

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestEstimateOfFewRounds(t *testing.T) {
	for _, estimate := range []func([]float64) Estimate{medianOf, bootstrapOf} {
		if e := estimate(nil); e.N != 0 || !math.IsNaN(e.Median) || !math.IsNaN(e.Lo) || !math.IsNaN(e.Hi) {
			t.Errorf("of nothing: %+v", e)
		}
		if e, want := estimate([]float64{3}), (Estimate{3, 3, 3, 1, 0}); e != want {
			t.Errorf("of one: %+v, want %+v", e, want)
		}
		if e, want := estimate([]float64{9, 1, 4, 2}), (Estimate{3, 1, 9, 4, 0}); e != want {
			t.Errorf("of four: %+v, want %+v", e, want)
		}
		if e, want := estimate([]float64{5, 5, 5, 5, 5, 5, 5, 5}), (Estimate{5, 5, 5, 8, 0}); e != want {
			t.Errorf("of equals: %+v, want %+v", e, want)
		}
	}
}

// TestEstimateCountsOutliers: outliers are counted, and are not left out.
func TestEstimateCountsOutliers(t *testing.T) {
	x := []float64{1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 50, -50}
	for _, e := range []Estimate{medianOf(slices.Clone(x)), bootstrapOf(slices.Clone(x))} {
		if e.Outliers != 2 || e.N != len(x) || e.Median != 1.4 {
			t.Errorf("%+v, want 2 outliers of %d and a median of 1.4", e, len(x))
		}
	}
}

// TestEstimateCovers: intervals contain the true median about as often as they say,
// of values as skewed as times are.
func TestEstimateCovers(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, n := range []int{6, 15, 40, 200} {
		const runs = 500
		contained := map[string]int{}
		for range runs {
			x := make([]float64, n)
			for i := range x {
				x[i] = math.Exp(0.1 * r.NormFloat64()) // of median 1
				if r.IntN(20) == 0 {
					x[i] *= 3
				}
			}
			slices.Sort(x)
			for name, e := range map[string]Estimate{"order statistics": medianOf(slices.Clone(x)),
				"bootstrap": bootstrapOf(slices.Clone(x))} {
				if e.Median != quantile(x, 0.5) || e.Lo > e.Median || e.Hi < e.Median {
					t.Fatalf("%s of %v: %+v", name, x, e)
				}
				truth := math.Exp(0.1 * 0.066) // the median, which the values that are three times as large move
				if e.Lo <= truth && truth <= e.Hi {
					contained[name]++
				}
			}
		}
		for name, k := range contained {
			if p := float64(k) / runs; p < 0.88 || p > 0.995 {
				t.Errorf("intervals by %s of %d values contain %v of medians, want about 0.95", name, n, p)
			}
		}
	}
}

func TestEstimateJSON(t *testing.T) {
	text, err := json.Marshal([]Estimate{{1.5, 1, 2, 7, 1}, medianOf(nil)})
	want := `[{"median":1.5,"lo":1,"hi":2,"n":7,"outliers":1},{"median":null,"lo":null,"hi":null,"n":0,"outliers":0}]`
	if err != nil || string(text) != want {
		t.Errorf("%s, %v, want %s", text, err, want)
	}
	var back []Estimate
	if err := json.Unmarshal(text, &back); err != nil || back[0] != (Estimate{1.5, 1, 2, 7, 1}) ||
		!math.IsNaN(back[1].Median) {
		t.Errorf("read again: %+v, %v", back, err)
	}
	if err := json.Unmarshal([]byte(`{"median":1,"mean":2}`), &back[0]); err == nil {
		t.Error("an unknown field was read")
	}
}

func TestEstimateTimes(t *testing.T) {
	e := Estimate{2, 1, 4, 9, 1}
	if got, want := e.Times(10), (Estimate{20, 10, 40, 9, 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := e.HalfWidth(); got != 0.75 {
		t.Errorf("half width %v, want 0.75", got)
	}
}

func TestNumberJSON(t *testing.T) {
	text, err := json.Marshal([]Number{1.5, Number(math.NaN()), Number(math.Inf(1)), Number(math.Inf(-1)), 0})
	if err != nil || string(text) != "[1.5,null,null,null,0]" {
		t.Errorf("%s, %v", text, err)
	}
}
