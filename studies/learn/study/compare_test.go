package study

import (
	"bytes"
	"encoding/csv"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/internal/must"
	"github.com/seed621a2839/reweight/studies/learn/train"
)

var cell = Cell{"frozenlake4", "grpo", "useful"}

// sample returns a result where a perfect player has a success of 0.5.
func sample(run train.Run, final float64, success ...float64) train.Result {
	zeros := make([]float64, len(success))
	return train.Result{Run: run, Perfect: 0.5, Start: 0.1, Final: final, Success: success,
		Entropy: zeros, ActionEntropy: zeros, Drift: zeros, ClipFraction: zeros, KL: zeros, Weights: "00", Seconds: 2}
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
		{"too short", []float64{0.5, 0.5, 0.5}, 1, 3, true},
	} {
		r := sample(cell.run("aem", 1), 0.3, c.success...)
		if got, censored := Final.of(&r); !near(got, 0.6) || censored {
			t.Errorf("%s: final %v, %v, want 0.6", c.name, got, censored)
		}
		if got, censored := Area.of(&r); !near(got, c.area) || censored {
			t.Errorf("%s: area %v, %v, want %v", c.name, got, censored, c.area)
		}
		if got, censored := Updates.of(&r); got != c.iters || censored != c.censored {
			t.Errorf("%s: updates %v, %v, want %v, %v", c.name, got, censored, c.iters, c.censored)
		}
	}
}

// TestCompareByHand: three seeds with finals that differ by 0.1, 0.2 and 0.3 of 0.5, and
// one seed that only the scheme has. The order of the results does not matter.
func TestCompareByHand(t *testing.T) {
	var results []train.Result
	for seed := 1; seed <= 3; seed++ {
		shift := float64(seed) / 10
		results = append(results,
			sample(cell.run(Uniform, seed), 0.1, 0, 0, 0, 0, 0, 0),
			sample(cell.run("aem", seed), 0.1+shift, 0.3, 0.3, 0.3, 0.3, 0.3, shift),
			sample(cell.run("gtpo", seed), 0.1, 0, 0, 0, 0, 0, 0))
	}
	results = append(results, sample(cell.run("aem", 4), 0.5, 0.1, 0, 0, 0, 0, 0))
	slices.Reverse(results)
	all := Compare([]Cell{cell}, []string{"gtpo", "aem"}, results)
	if len(all) != 2*3 {
		t.Fatalf("%d comparisons", len(all))
	}
	// The differences are 0.2, 0.4 and 0.6 of a perfect player: mean 0.4, deviation
	// 0.2. Student's t of 2 degrees is 4.302653. Only +++ and --- are as far. The
	// comparison of runs that never reach Level is no test, so that there are five.
	half := 4.30265273 * 0.2 / math.Sqrt(3)
	for i, want := range map[int]Comparison{
		3: {Cell: cell, Scheme: "aem", Measure: Final, Pairs: 3, Uniform: 0.2, Reweighted: 0.6, Difference: 0.4,
			Low: 0.4 - half, High: 0.4 + half, P: 0.25, Adjusted: 1},
		5: {Cell: cell, Scheme: "aem", Measure: Updates, Pairs: 3, Uniform: 6, Reweighted: 5, Difference: -1,
			Low: -1, High: -1, P: 0.25, Adjusted: 1, UniformCensored: 3},
	} {
		got := all[i]
		for _, f := range []struct{ got, want *float64 }{
			{&got.Uniform, &want.Uniform}, {&got.Reweighted, &want.Reweighted}, {&got.Difference, &want.Difference},
			{&got.Low, &want.Low}, {&got.High, &want.High},
		} {
			if math.Abs(*f.got-*f.want) < 1e-7 {
				*f.got = *f.want
			}
		}
		if got != want {
			t.Errorf("comparison\n %+v, want\n %+v", got, want)
		}
	}
	if c := all[2]; c.Measure != Updates || c.UniformCensored != 3 || !math.IsNaN(c.P) || !math.IsNaN(c.Adjusted) || !math.IsNaN(c.Low) || c.Verdict() != "" {
		t.Errorf("of runs that never get there: %+v", c)
	}
	if c := all[0]; c.P != 1 || c.Difference != 0 {
		t.Errorf("of equal runs: %+v", c)
	}
}

// TestEnoughSeeds: the numbers of seeds are such that a comparison can be shown to
// differ, in its direction, and QuickSeeds is not more than that takes.
func TestEnoughSeeds(t *testing.T) {
	for _, c := range []struct {
		cells  []Cell
		seeds  int
		enough bool
	}{{Quick, QuickSeeds, true}, {Quick, QuickSeeds - 1, false}, {Full(), FullSeeds, true}} {
		runs := Runs(c.cells, Schemes, c.seeds)
		distinct := map[train.Run]bool{}
		var results []train.Result
		for _, run := range runs {
			distinct[run] = true
			r := sample(run, 0.1, 0, 0, 0, 0.5, 0.5, 0.5, 0.5)
			if run.Scheme == "aem" { // earlier, and more
				r = sample(run, 0.2, 0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5)
			} else if run.Scheme == "actfocus" {
				r = sample(run, 0, 0, 0, 0, 0, 0, 0, 0)
			}
			results = append(results, r)
		}
		if want := len(c.cells) * 4 * c.seeds; len(runs) != want || len(distinct) != want {
			t.Errorf("%d runs, %d distinct, want %d", len(runs), len(distinct), want)
		}
		for _, q := range Compare(c.cells, Schemes, results) {
			want := map[string]string{"aem": "better", "actfocus": "worse"}[q.Scheme]
			if !c.enough {
				want = ""
			}
			if got := q.Verdict(); got != want {
				t.Errorf("%d cells, %d seeds, %s %s: %q, want %q (p %v)", len(c.cells), c.seeds, q.Scheme, q.Measure, got, want, q.Adjusted)
			}
		}
	}
}

// TestFiles: the tables have as many columns as their first lines, numbers that cannot be
// computed are empty, and the figure has what can be shown.
func TestFiles(t *testing.T) {
	var results []train.Result
	var runs, comparisons, figure bytes.Buffer
	lines := NewRunWriter(&runs)
	err := Do(Runs([]Cell{cell}, Schemes, 2), func(run train.Run) (train.Result, error) {
		r := sample(run, 0.1*float64(run.Seed*len(run.Scheme)%7), 0.1, 0.2, 0.3, 0.3, 0.2)
		r.Bottleneck[2].Action = math.NaN()
		return r, nil
	}, func(r train.Result) error {
		results = append(results, r)
		return lines.Write(r)
	})
	if err != nil {
		t.Fatal(err)
	}
	all := Compare([]Cell{cell}, Schemes, results)
	must.Do(WriteComparisons(&comparisons, all))
	must.Do(WriteFigure(&figure, Final, all))
	for _, c := range []struct {
		text, column, want string
		rows               int
	}{{runs.String(), "bottleneck_action_3", "", 1 + 8}, {runs.String(), "updates", "5", 1 + 8}, {comparisons.String(), "pairs", "2", 1 + 9}} {
		rows, err := csv.NewReader(strings.NewReader(c.text)).ReadAll() // which wants equal numbers of columns
		if err != nil || len(rows) != c.rows {
			t.Fatalf("%d rows, %v, want %d", len(rows), err, c.rows)
		}
		if got := rows[1][slices.Index(rows[0], c.column)]; got != c.want {
			t.Errorf("%s is %q, want %q", c.column, got, c.want)
		}
	}
	for _, want := range []string{"<svg", "frozenlake4 grpo useful", "actfocus+aem", "hundredths"} {
		if !strings.Contains(figure.String(), want) {
			t.Errorf("the figure has no %q", want)
		}
	}
}
