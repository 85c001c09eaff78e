package study

import (
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/internal/must"
	"github.com/seed621a2839/reweight/studies/learn/train"
)

// tiny are settings with which nothing is learned, but all is done.
var tiny = func() train.Settings {
	s := train.Default
	s.Hidden, s.Demonstrations, s.Iterations, s.Groups, s.Minibatches, s.Evaluation = 8, 16, 2, 2, 2, 4
	return s
}()

// A map that was cut into pieces has the runs of one that was not, each once.
func TestMapGoesOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs.csv")
	draw := func(path string) error {
		_, err := SmokeMap.Do(path, tiny, func(done, of int) {
			if of != 6*2+6*2 || done > of {
				t.Errorf("%d of %d runs", done, of)
			}
		})
		return err
	}
	must.Do(draw(path))
	whole := must.Get(Read(path))
	text := must.Get(os.ReadFile(path))
	lines := slices.Collect(strings.Lines(string(text)))
	if len(lines) != 1+24 || len(whole) != 24 {
		t.Fatalf("%d lines, %d runs", len(lines), len(whole))
	}
	for _, keep := range []int{0, 1, 5, 13, 18, 24} {
		must.Do(os.WriteFile(path, []byte(strings.Join(lines[:keep], "")), 0o666))
		must.Do(draw(path))
		again := must.Get(Read(path))
		for run, want := range whole {
			if got := again[run]; got.Weights != want.Weights || got.Success != want.Success || got.Decided != want.Decided && want.Decided == want.Decided {
				t.Errorf("after %d lines: %+v is %+v, want %+v", keep, run, got, want)
			}
		}
		if len(again) != 24 {
			t.Errorf("after %d lines: %d runs", keep, len(again))
		}
	}
	must.Do(os.WriteFile(path, text[:len(text)-3], 0o666))
	if err := draw(path); err == nil || !strings.HasSuffix(err.Error(), "the last line has no end: delete it, and its run is done again") {
		t.Errorf("a cut line: %v", err)
	}
	must.Do(os.WriteFile(path, []byte(lines[0]+strings.Replace(lines[1], "0.001", "x", 1)), 0o666))
	if err := draw(path); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("a line without a rate: %v", err)
	}
}

// Each scheme is compared at the rate that was best for it, in each cell by itself.
func TestMapRates(t *testing.T) {
	m := SmokeMap
	m.Tuning = []int{101, 102}
	done := Table{}
	for _, run := range m.Choosing() {
		success := 0.5
		if better := run.Scheme == "actfocus" == (run.Fluent == 4); better == (run.Rate == 3e-3) {
			success = []float64{0.7, 0.4}[run.Seed-101] // the mean decides
		}
		done[run] = Row{Run: run, Success: success}
	}
	for _, run := range m.Comparing(done) {
		want := 1e-3
		if run.Scheme == "actfocus" == (run.Fluent == 4) {
			want = 3e-3
		}
		if run.Rate != want {
			t.Errorf("%+v has the rate %v, want %v", run, run.Rate, want)
		}
	}
	if choosing, comparing := len(TheMap.Choosing()), len(TheMap.Comparing(done)); choosing != 540 || comparing != 720 {
		t.Errorf("%d and %d runs, docs/plan.md says 540 and 720", choosing, comparing)
	}
	for _, seed := range TheMap.Seeds {
		if slices.Contains(TheMap.Tuning, seed) {
			t.Errorf("seed %d chooses rates and compares schemes", seed)
		}
	}
}

// planted is a finished map in which the schemes differ from uniform weights by effect, each at its best
// rate, the seeds by luck that both sides share, and the pairs a little.
func planted(effect func(run train.Run) float64) Table {
	done := Table{}
	add := func(runs []train.Run) {
		for _, run := range runs {
			success := 0.3 + 0.01*float64(run.Seed%5)
			if run.Rate == 3e-3 == (run.Scheme != Uniform) && run.Rate != 1e-2 {
				success += 0.1
			}
			if run.Scheme != Uniform {
				success += effect(run) + 0.002*float64(run.Seed%3-1)
			}
			done[run] = Row{Run: run, Success: success, Start: 0.1, Actions: 0.2, Decided: run.Errors / 2}
		}
	}
	add(TheMap.Choosing())
	add(TheMap.Comparing(done))
	return done
}

func TestEffects(t *testing.T) {
	asPredicted := planted(func(run train.Run) float64 {
		switch {
		case run.Scheme == "aem":
			return 0
		case run.Errors == 1:
			return -0.08
		}
		return 0.01 * float64(run.Fluent-4) * (0.5 - run.Errors)
	})
	all := must.Get(TheMap.Effects(asPredicted))
	if len(all) != 4*12 {
		t.Fatalf("%d effects", len(all))
	}
	for _, e := range all {
		want := map[bool]float64{true: 0}[e.Scheme == "aem"]
		if e.Scheme != "aem" {
			if want = -0.08; e.Errors < 1 {
				want = 0.01 * float64(e.Fluent-4) * (0.5 - e.Errors)
			}
		}
		if math.Abs(e.Difference-want) > 1e-12 || !(e.Low < want && want < e.High) || e.Shown() != (want != 0) {
			t.Errorf("%+v, want a difference of %v", e, want)
		}
		if math.Abs(e.Reweighted-e.Uniform-want) > 1e-12 || e.UniformRate != 1e-3 || e.Rate != 3e-3 || math.Abs(e.Decided-e.Errors/2) > 1e-12 {
			t.Errorf("%+v", e)
		}
		if e.Shown() && (e.P != 2.0/4096 || math.Abs(e.Adjusted-12*e.P) > 1e-12) { // the least p of 12 pairs, of a family of 12
			t.Errorf("p %v, corrected %v", e.P, e.Adjusted)
		}
	}
	for i, p := range Predictions(all) {
		if p.Refuted {
			t.Errorf("prediction %d: %s", i+1, p.Verdict())
		}
	}
	// Each prediction is refuted by what the plan says, and the others are not.
	for number, effect := range []func(run train.Run) float64{
		func(run train.Run) float64 { return 0.001*float64(run.Fluent) - 0.05 }, // 1: grows, but below 0
		func(run train.Run) float64 { return 0.02 + 0.001*float64(run.Fluent) },
		func(run train.Run) float64 { return 0.09 - 0.002*float64(run.Fluent) - 0.2*run.Errors },
		func(run train.Run) float64 {
			beta := 0.0
			if run.Scheme == train.ActFocusWithoutBeta {
				beta = 0.031
			}
			return beta + 0.001*float64(run.Fluent) - 0.1*run.Errors
		},
		func(run train.Run) float64 {
			if run.Scheme == "aem" {
				return -0.031
			}
			return 0.001*float64(run.Fluent) - 0.1*run.Errors
		},
	} {
		refuted := Predictions(must.Get(TheMap.Effects(planted(func(run train.Run) float64 {
			if run.Scheme == "aem" && number < 4 {
				return 0
			}
			return effect(run)
		}))))
		for i, p := range refuted {
			if p.Refuted != (i == number) {
				t.Errorf("what refutes prediction %d: prediction %d is %s", number+1, i+1, p.Verdict())
			}
		}
	}
	delete(asPredicted, TheMap.Choosing()[7])
	if _, err := TheMap.Effects(asPredicted); err == nil || !strings.Contains(err.Error(), "the study is not finished") {
		t.Errorf("a map that lacks a run: %v", err)
	}
}

// The arms take the rates of the map, alphas that of ActFocus, and uniform weights without a change are the map's.
func TestArmsRates(t *testing.T) {
	done := planted(func(train.Run) float64 { return 0 })
	distinct := map[train.Run]bool{}
	for _, run := range TheArms.runs(done) {
		if want := map[bool]float64{true: 1e-3, false: 3e-3}[run.Scheme == Uniform]; run.Rate != want {
			t.Errorf("%+v has the rate %v, want %v", run, run.Rate, want)
		}
		if _, ok := done[run]; ok != (run.Scheme == Uniform && run.Arm == "" && run.Game == "sudoku4" && run.Algorithm == "grpo") {
			t.Errorf("%+v is a run of the map: %v", run, ok)
		}
		distinct[run] = true
	}
	if len(distinct) != 720+48+24 {
		t.Errorf("%d runs, docs/plan-arms.md says 720 and 48, and 24 are the map's", len(distinct))
	}
}

// Each prediction of the arms is refuted by what docs/plan-arms.md says, and the others are not.
func TestArmsPredictions(t *testing.T) {
	as := func(run train.Run) float64 { return 0.1 - 0.2*run.Errors }
	of := planted(as)
	for number, effect := range []func(run train.Run) float64{
		func(run train.Run) float64 { // two arms of ten may differ from the map
			if run.Arm == "wide" || run.Arm == "filter" && run.Errors == 1 {
				return 0.1*run.Errors - 0.05
			}
			return as(run)
		},
		func(run train.Run) float64 {
			if run.Arm == "wide" || run.Game == "shop" || run.Algorithm == "ppo" && run.Errors == 0 {
				return -as(run)
			}
			return as(run)
		},
		func(run train.Run) float64 {
			if run.Scheme == train.ActFocusAlpha03 && run.Errors == 1 {
				return 2 * as(run)
			}
			return as(run)
		},
		as,
	} {
		all := maps.Clone(of)
		for _, run := range TheArms.runs(of) {
			row := Row{Run: run, Success: 0.5}
			switch run.Scheme {
			case Uniform:
			case "aem":
				row.Success += 0.031 * float64(number/3)
			default:
				row.Success += effect(run)
			}
			all[run] = row
		}
		for i, p := range TheArms.Predictions(must.Get(TheMap.Effects(of)), must.Get(TheArms.Effects(all))) {
			if p.Refuted != (i == number-1) {
				t.Errorf("what refutes prediction %d: prediction %d is %s", number, i+1, p.Verdict())
			}
		}
	}
}
