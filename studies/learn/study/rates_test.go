package study

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/diagnose"
	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/studies/learn/train"
)

// made is the study of the rates with the success of each run by f, before what the seeds add.
func made(f func(run train.Run) train.Result) Table {
	done := Table{}
	for _, run := range TheRates.Runs() {
		row := f(run)
		row.Run = run
		row.Success += []float64{-0.3, 0, 0.001, -0.001, 0.002, 0.1}[run.Seed-101] // has the median 0.0005
		done[run] = row
	}
	return done
}

// Medians choose, of equal ones the smallest rate, and lost runs are counted.
func TestRates(t *testing.T) {
	runs := TheRates.Runs()
	added := map[train.Run]bool{}
	for _, run := range runs {
		added[run] = true
	}
	for _, run := range TheMap.Choosing() {
		delete(added, run)
	}
	if len(runs) != 12*5*6*6 || len(added) != 1620 || runs[0].Rate != 6e-3 {
		t.Errorf("%d runs, %d more than the map has, not 1620; the first is %+v", len(runs), len(added), runs[0])
	}
	done := made(func(run train.Run) train.Result {
		row := train.Result{Success: 0.5, Final: 0.9}
		if run.Scheme == "aem" && (run.Rate == 6e-3 || run.Rate == 2e-2) {
			row.Success = 0.6
		}
		if run.Scheme == "actfocus" && run.Rate == 3e-2 {
			row.Success = 0.55
			if run.Seed >= 105 {
				row.Final = 0.09
			}
		}
		return row
	})
	all := must.Get(TheRates.Points(done))
	if len(all) != 12*5*6 {
		t.Errorf("%d points", len(all))
	}
	for _, c := range TheRates.Cells() {
		for scheme, want := range map[string]struct {
			rate, success float64
			lost          int
		}{
			Uniform:    {1e-3, 0.5005, 0},
			"aem":      {6e-3, 0.6005, 0},
			"actfocus": {3e-2, 0.5505, 2},
		} {
			rate := TheRates.Best(all, c, scheme)
			p := all.at(c, scheme, rate)
			if rate != want.rate || math.Abs(p.Success-want.success) > 1e-12 || p.Final != 0.9 || p.Lost != want.lost {
				t.Errorf("%+v, %s: %v at %v, want %v", c, scheme, p, rate, want)
			}
		}
	}
	for _, e := range must.Get(TheRates.Effects(done, all)) {
		want := map[string][2]float64{"aem": {6e-3, 0.1}, "actfocus": {3e-2, 0.05}}[e.Scheme]
		if e.UniformRate != 1e-3 || want[0] > 0 && e.Rate != want[0] || math.Abs(e.Difference-want[1]) > 1e-12 {
			t.Errorf("%+v, want %v", e, want)
		}
	}
	text := string(TheRates.CSV(all))
	if !strings.Contains(text, "\n36,0.5,actfocus,0.03,0.5505,0.9,2\n") || strings.Count(text, "\n") != 1+12*5*6 {
		t.Error(text)
	}
	const title = "ActFocus at 0.03: 55.0, at the end 90.0, 2 lost"
	if text := string(TheRates.Figure(all)); strings.Count(text, title) != 12 {
		t.Error(text)
	}
	delete(done, runs[100])
	if _, err := TheRates.Points(done); err == nil || !strings.Contains(err.Error(), "the study is not finished") {
		t.Errorf("rates that lack a run: %v", err)
	}
}

// Each prediction of the rates is refuted by what plan-rates.md says, and the others are not.
func TestRatesPredictions(t *testing.T) {
	order := map[float64]float64{}
	for i, rate := range TheRates.All() {
		order[rate] = float64(i)
	}
	number := func(run train.Run) int { // of the cell, 0 to 11
		return map[int]int{0: 0, 4: 3, 12: 6, 36: 9}[run.Fluent] + int(2*run.Errors)
	}
	for refuted := range 6 {
		// Not refuted just so, and refuted by one more.
		high, above, rise, gone, aem := 6, 3, 0.0099, 2, 0.0299
		switch refuted {
		case 1:
			high = 7
		case 2:
			above = 4
		case 3:
			rise = 0.0101
		case 4:
			gone = 3
		case 5:
			aem = -0.0301
		}
		done := made(func(run train.Run) train.Result {
			best := 3.0 // at 0.01
			if number(run) >= 12-high {
				best = 4
			}
			if run.Scheme == "actfocus" {
				best-- // below that of uniform weights
				if slices.Contains([]int{0, 1, 2, 4}[:above], number(run)) {
					best += 2
				}
			}
			long := run.Errors == 0 && run.Fluent >= 4 // of these the third prediction is
			if run.Scheme == "actfocus" && long {
				best++
			}
			row := train.Result{Success: 0.6 - 0.05*math.Abs(order[run.Rate]-best), Final: 0.9}
			if run.Scheme == "actfocus" && long {
				row.Success += []float64{0, 0.016, 0.008, 0.008, 0.008 + rise, 0}[int(order[run.Rate])]
			}
			if run.Scheme == "aem" && run.Rate == 2e-2 {
				row.Success += aem
			}
			switch { // of the runs at 0.03, gone with uniform weights and 5 with ActFocus; others do not count
			case run.Rate == 3e-2 && run.Seed == 101 && (run.Scheme == Uniform && number(run) < gone ||
				run.Scheme == "actfocus" && number(run) < 5):
				row.Final = 0
			case run.Rate == 1e-2 && run.Scheme == Uniform, run.Scheme == "aem":
				row.Final = 0
			}
			return row
		})
		for i, p := range TheRates.Predictions(must.Get(TheRates.Points(done))) {
			if p.Refuted != (i == refuted-1) {
				t.Errorf("what refutes prediction %d: prediction %d is %s", refuted, i+1, p.Verdict())
			}
		}
	}
}

// The weights are those of the audits at the start, and what counts is the difference to the better of the two others.
func TestMeasured(t *testing.T) {
	of := Audited{}
	for _, c := range TheRates.Cells() {
		for i, part := range train.Parts {
			weight := []float64{1, 0.5, 0.0004}[i]
			of[Figure{c.Fluent, c.Errors, 0, "weight of " + part}] = diagnose.Interval{Value: weight}
			of[Figure{c.Fluent, c.Errors, -1, "weight of " + part}] = diagnose.Interval{Value: 0.3}
		}
	}
	seeds := TheRates.Seeds
	runs := must.Get(TheAudits.MeasuredRuns(of, seeds))
	if len(runs) != 12*6*3 {
		t.Errorf("%d runs", len(runs))
	}
	for _, c := range []struct {
		behind  int
		refuted bool
	}{{1, false}, {2, true}} {
		done := Table{}
		number := -1
		for i, run := range runs {
			if i%(6*3) == 0 {
				number++
			}
			spread := 0.01 * float64(run.Seed%2) // of the differences: 0.005477 and its standard error 0.002236
			row := train.Result{Run: run, Success: 0.5, Final: 0.1}
			if run.Scheme == "actfocus" && run.Seed > 104 {
				row.Final = 0.09
			}
			switch {
			case run.Scheme == "measured:1.000:0.500:0.000":
				row.Success = 0.6 - 0.005 - 0.0022 + spread
				if number < c.behind {
					row.Success -= 0.0001
				}
			case run.Scheme == Uniform == (number%2 == 0): // the better one
				row.Success = 0.6
			}
			done[run] = row
		}
		all := must.Get(TheAudits.Compare(of, seeds, done))
		if p := MeasuredPrediction(all); p.Refuted != c.refuted {
			t.Errorf("behind in %d cells: %s", c.behind, p.Verdict())
		}
		if e := all[11].Error; math.Abs(e-0.01*math.Sqrt(0.3)/math.Sqrt(6)) > 1e-12 || all[11].Uniform != 0.5 ||
			math.Abs(all[11].ActFocus-0.6) > 1e-12 || all[11].Lost != [3]int{0, 0, 2} {
			t.Errorf("%+v", all[11])
		}
		delete(done, runs[5])
		if _, err := TheAudits.Compare(of, seeds, done); err == nil || !strings.Contains(err.Error(), "not finished") {
			t.Errorf("runs that lack one: %v", err)
		}
	}
	delete(of, Figure{4, 1, 0, "weight of tags"})
	if _, err := TheAudits.MeasuredRuns(of, seeds); err == nil || !strings.Contains(err.Error(), "tags at L 4, q 1") {
		t.Errorf("an audit without a weight: %v", err)
	}
}
