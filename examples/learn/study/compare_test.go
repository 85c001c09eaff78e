package study

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/examples/learn/train"
)

// sampleCell and another are cells of small studies in tests.
var (
	sampleCell = Cell{"frozenlake4", "grpo", "useful"}
	another    = Cell{"shop", "ppo", "none"}
)

// sample returns a result of a perfect player's success of 0.5.
func sample(run train.Run, final float64, success ...float64) train.Result {
	zeros := make([]float64, len(success))
	return train.Result{
		Run: run, Perfect: 0.5, Start: 0.1, Final: final, Success: success,
		Entropy: zeros, ActionEntropy: zeros, Drift: zeros, ClipFraction: zeros, KL: zeros,
		Bottleneck: make([]train.Correlations, 3), Weights: "00", Seconds: 2,
	}
}

func TestMeasures(t *testing.T) {
	for _, c := range []struct {
		name        string
		success     []float64
		area, iters float64
		censored    bool
	}{
		// 60% of 0.5 is 0.3, and five of them are 1.5.
		{"at the first five", []float64{0.1, 0.2, 0.3, 0.4, 0.5, 0}, 0.5, 5, false},
		{"just below", []float64{0.1, 0.2, 0.3, 0.4, 0.49, 0.01}, 0.5, 6, true},
		{"later", []float64{0, 0, 0, 0, 0.5, 0.5, 0.5, 0.5, 0, 0}, 0.4, 7, false},
		{"at the last", []float64{0, 0, 0.5, 0.5, 0.5}, 0.6, 5, false},
		{"never", []float64{0.2, 0.2, 0.2, 0.2, 0.2, 0.2}, 0.4, 6, true},
		{"too short", []float64{0.5, 0.5, 0.5}, 1, 3, true},
	} {
		r := sample(sampleCell.run("aem", 1), 0.3, c.success...)
		if got, censored := Final.of(r); !near(got, 0.6) || censored {
			t.Errorf("%s: final %v, %v, want 0.6", c.name, got, censored)
		}
		if got, censored := Area.of(r); !near(got, c.area) || censored {
			t.Errorf("%s: area %v, %v, want %v", c.name, got, censored, c.area)
		}
		if got, censored := Updates.of(r); got != c.iters || censored != c.censored {
			t.Errorf("%s: updates %v, %v, want %v, %v", c.name, got, censored, c.iters, c.censored)
		}
	}
}

// TestSummarizeByHand: three seeds with finals that differ by 0.1, 0.2 and 0.3 of
// 0.5, and one seed that only the scheme has.
func TestSummarizeByHand(t *testing.T) {
	var results []train.Result
	for seed := 1; seed <= 3; seed++ {
		shift := float64(seed) / 10
		results = append(results,
			sample(sampleCell.run("uniform", seed), 0.1, 0, 0, 0, 0, 0, 0),
			sample(sampleCell.run("aem", seed), 0.1+shift, 0.3, 0.3, 0.3, 0.3, 0.3, shift))
	}
	results = append(results, sample(sampleCell.run("aem", 4), 0.5, 0.1, 0, 0, 0, 0, 0))
	for i := range results {
		r := &results[i]
		r.Bottleneck = []train.Correlations{{All: 0.5}, {Action: bench.Number(math.NaN())}, {Reasoning: bench.Number(math.NaN())}}
		if r.Seed == 1 {
			r.Bottleneck[1].Action = -0.25
		}
		r.Entropy = []float64{float64(r.Seed), 0, 0, 0, 0, 1}
		r.ActionEntropy = []float64{3, 0, 0, 0, 0, float64(r.Seed)}
		r.Drift = []float64{0, 0, 6, 0, 0, -3}
	}
	s, err := Summarize([]Cell{sampleCell, another}, DefaultSchemes, 5, results)
	if err != nil {
		t.Fatal(err)
	}
	if s.Runs != 7 || s.Planned != 2*4*5 || s.Seeds != 5 || s.Seconds != 14 || len(s.Cells) != 2 {
		t.Errorf("%d of %d runs, %d seeds, %v s, %d cells", s.Runs, s.Planned, s.Seeds, s.Seconds, len(s.Cells))
	}
	if len(s.Curves) != 2 || len(s.Explanations) != 2 || len(s.Comparisons) != 3 {
		t.Fatalf("%d curves, %d explanations, %d comparisons, want 2, 2, 3", len(s.Curves), len(s.Explanations), len(s.Comparisons))
	}

	// The differences are 0.2, 0.4 and 0.6 of a perfect player: mean 0.4, deviation
	// 0.2. Student's t of 2 degrees is 4.302653. Only +++ and --- are as far.
	half := 4.30265273 * 0.2 / math.Sqrt(3)
	want := Comparison{
		Cell: sampleCell, Scheme: "aem", Measure: Final, Pairs: 3, Uniform: 0.2, Reweighted: 0.6, Difference: 0.4,
		Low: 0.4 - half, High: 0.4 + half, P: 0.25, Adjusted: 0.75,
	}
	expectComparison(t, s.Comparisons[0], want)
	// Iterations 1 to 5 have a mean of 0.3 of 0.5, which is the level.
	want = Comparison{
		Cell: sampleCell, Scheme: "aem", Measure: Updates, Pairs: 3, Uniform: 6, Reweighted: 5, Difference: -1,
		Low: -1, High: -1, P: 0.25, Adjusted: 0.75, UniformCensored: 3,
	}
	expectComparison(t, s.Comparisons[2], want)
	if s.Attainable != 0.75 {
		t.Errorf("attainable %v, want 3 x 2/8", s.Attainable)
	}

	c := s.Curves[1]
	if c.Cell != sampleCell || c.Scheme != "aem" || len(c.Mean) != 6 {
		t.Fatalf("curve of %v %s, %d iterations", c.Cell, c.Scheme, len(c.Mean))
	}
	// The first iteration has 0.6, 0.6, 0.6 and 0.2: mean 0.5, deviation 0.2.
	half = 3.18244631 * 0.2 / 2
	if !near(c.Mean[0], 0.5) || math.Abs(c.Low[0]-(0.5-half)) > 1e-7 || math.Abs(c.High[0]-(0.5+half)) > 1e-7 {
		t.Errorf("curve begins at %v (%v to %v), want 0.5 +- %v", c.Mean[0], c.Low[0], c.High[0], half)
	}

	e := s.Explanations[1]
	if !near(e.Start, 0.2) || !near(e.Final, 0.7) || !near(e.EntropyStart, 2.5) || e.EntropyEnd != 1 ||
		e.ActionEntropyStart != 3 || !near(e.ActionEntropyEnd, 2.5) || !near(e.Drift, 0.5) {
		t.Errorf("explanation %+v", e)
	}
	if b := e.Bottleneck; b[0].All != 0.5 || b[1].Action != -0.25 || !math.IsNaN(float64(b[2].Reasoning)) {
		t.Errorf("correlations %v", b)
	}
}

func expectComparison(t *testing.T, got, want Comparison) {
	t.Helper()
	for _, f := range []struct{ got, want *float64 }{
		{&got.Uniform, &want.Uniform}, {&got.Reweighted, &want.Reweighted}, {&got.Difference, &want.Difference},
		{&got.Low, &want.Low}, {&got.High, &want.High}, {&got.P, &want.P}, {&got.Adjusted, &want.Adjusted},
	} {
		if math.Abs(*f.got-*f.want) < 1e-7 {
			*f.got = *f.want
		}
	}
	if got != want {
		t.Errorf("comparison\n %+v, want\n %+v", got, want)
	}
}

// TestSummarizeAll: a whole study has everything, in order. No run reaches Level, so
// that a third of the comparisons says nothing, and does not count.
func TestSummarizeAll(t *testing.T) {
	cells := []Cell{another, sampleCell}
	var results []train.Result
	for _, run := range Runs(cells, DefaultSchemes, 8) {
		final := 0.1
		if run.Scheme == "aem" && run.Game == "shop" {
			final = 0.2
		}
		results = append(results, sample(run, final, 0.1, 0.2, 0.3, 0.3, 0.2))
	}
	slices.Reverse(results) // the order does not matter
	s, err := Summarize(cells, DefaultSchemes, 8, results)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Curves) != 8 || len(s.Explanations) != 8 || len(s.Comparisons) != 2*3*3 {
		t.Fatalf("%d curves, %d explanations, %d comparisons", len(s.Curves), len(s.Explanations), len(s.Comparisons))
	}
	i := 0
	for _, cell := range cells {
		for _, scheme := range DefaultSchemes[1:] {
			for _, measure := range Measures {
				c := s.Comparisons[i]
				if c.Cell != cell || c.Scheme != scheme || c.Measure != measure || c.Pairs != 8 {
					t.Errorf("comparison %d is of %v %s %s", i, c.Cell, c.Scheme, c.Measure)
				}
				p, adjusted := 1.0, 1.0
				if cell == another && scheme == "aem" && measure == Final {
					p, adjusted = 2./256, 12*2./256
				}
				if measure == Updates {
					if !math.IsNaN(c.P) || !math.IsNaN(c.Adjusted) || !math.IsNaN(c.Low) || !math.IsNaN(c.High) {
						t.Errorf("%v %s %s: p %v, adjusted %v, interval %v to %v, want NaN", cell, scheme, measure, c.P, c.Adjusted, c.Low, c.High)
					}
				} else if c.P != p || c.Adjusted != adjusted {
					t.Errorf("%v %s %s: p %v, adjusted %v, want %v, %v", cell, scheme, measure, c.P, c.Adjusted, p, adjusted)
				}
				i++
			}
		}
	}
	if s.Attainable != 12*2./256 || s.Runs != s.Planned {
		t.Errorf("attainable %v, %d of %d runs", s.Attainable, s.Runs, s.Planned)
	}
}

// TestSummarizeOneSeed: means without intervals.
func TestSummarizeOneSeed(t *testing.T) {
	s, err := Summarize([]Cell{sampleCell}, DefaultSchemes, 1, []train.Result{
		sample(sampleCell.run("uniform", 1), 0.1, 0.2), sample(sampleCell.run("aem", 1), 0.2, 0.4)})
	if err != nil {
		t.Fatal(err)
	}
	c := s.Comparisons[0]
	if !near(c.Difference, 0.2) || !math.IsNaN(c.Low) || !math.IsNaN(c.High) || c.P != 1 || c.Adjusted != 1 || s.Attainable != 1 {
		t.Errorf("comparison %+v, attainable %v", c, s.Attainable)
	}
	if c := s.Curves[0]; !near(c.Mean[0], 0.4) || !math.IsNaN(c.Low[0]) || !math.IsNaN(c.High[0]) {
		t.Errorf("curve %+v", c)
	}
}

func TestSummarizeErrors(t *testing.T) {
	good := func() train.Result { return sample(sampleCell.run("aem", 1), 0.1, 0.1, 0.2) }
	if err := check(good()); err != nil {
		t.Fatal(err)
	}
	nan := math.NaN()
	for want, spoil := range map[string]func(*train.Result){
		"no iterations":                        func(r *train.Result) { r.Success = nil },
		"curves of 2 and 1 iterations":         func(r *train.Result) { r.Drift = r.Drift[:1] },
		"curves of 2 and 0 iterations":         func(r *train.Result) { r.ActionEntropy = nil },
		"correlations of 2 parts":              func(r *train.Result) { r.Bottleneck = r.Bottleneck[:2] },
		"a perfect player's success is 0":      func(r *train.Result) { r.Perfect = 0 },
		"a success of NaN":                     func(r *train.Result) { r.Success[1] = nan },
		"a success of -1":                      func(r *train.Result) { r.Start = -1 },
		"a success of 1.5":                     func(r *train.Result) { r.Final = 1.5 },
		"a perfect player's success is 1e-300": func(r *train.Result) { r.Perfect = 1e-300 },
		"curves of 2 and 3 iterations":         func(r *train.Result) { r.KL = make([]float64, 3) },
		"a perfect player's success is NaN":    func(r *train.Result) { r.Perfect = nan },
		"a perfect player's success is 1.0001": func(r *train.Result) { r.Perfect = 1.0001 },
	} {
		r := good()
		spoil(&r)
		_, err := Summarize([]Cell{sampleCell}, DefaultSchemes, 1, []train.Result{r})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), key(r.Run)) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	longer := sample(sampleCell.run("uniform", 2), 0.1, 0.1, 0.2, 0.3)
	if _, err := Summarize([]Cell{sampleCell}, DefaultSchemes, 2, []train.Result{good(), longer}); err == nil {
		t.Error("runs of different lengths are compared")
	}
	easier := sample(sampleCell.run("uniform", 2), 0.1, 0.1, 0.2)
	easier.Perfect = 0.6
	if _, err := Summarize([]Cell{sampleCell}, DefaultSchemes, 2, []train.Result{good(), easier}); err == nil || !strings.Contains(err.Error(), "is 0.5, in others 0.6") {
		t.Errorf("runs of different games are compared: error %v", err)
	}
	if _, err := Summarize([]Cell{sampleCell}, DefaultSchemes, MaxSeeds+1, nil); err == nil {
		t.Error("too many seeds are taken")
	}
	if s, err := Summarize([]Cell{sampleCell}, DefaultSchemes, MaxSeeds, nil); err != nil || len(s.Curves)+len(s.Comparisons) != 0 {
		t.Errorf("an empty study: %+v, %v", s, err)
	}
}
