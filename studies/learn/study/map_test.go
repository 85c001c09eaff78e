package study

import (
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/studies/learn/train"
)

// What is no line of a study is an error that says which.
func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs.csv")
	text := strings.Join(columns, ",") + "\n" +
		strings.Join(line(train.Result{Run: SmokeMap.Choosing()[0]}), ",") + "\n"
	for _, c := range []struct{ text, want string }{
		{text[:len(text)-3], "the last line has no end: delete it, and its run is done again"},
		{strings.Replace(text, "0.001", "x", 1), "line 2"},
		{strings.Replace(text, "0.001", "1,1", 1), "wrong number of fields"},
	} {
		must.Do(os.WriteFile(path, []byte(c.text), 0o666))
		if _, err := Read(path); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("the error is %v, want %s", err, c.want)
		}
	}
}

// A run that cannot be done is an error that names it, and no line of the file.
func TestDoFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs.csv")
	settings := train.Default
	settings.Hidden, settings.Demonstrations, settings.Iterations, settings.Evaluation = 4, 8, 1, 1
	run := SmokeMap.Choosing()[0]
	run.Scheme = "nothing"
	err := Table{}.Do(path, settings, []train.Run{run}, func(done, of int) { t.Errorf("%d of %d are done", done, of) })
	if err == nil || !strings.Contains(err.Error(), "Scheme:nothing") || !strings.Contains(err.Error(), `"nothing"`) {
		t.Errorf("error %v", err)
	}
	if rows := must.Get(Read(path)); len(rows) != 0 {
		t.Errorf("the file has %d runs", len(rows))
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
		done[run] = train.Result{Run: run, Success: success}
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
		t.Errorf("%d and %d runs, plan.md says 540 and 720", choosing, comparing)
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
			done[run] = train.Result{Run: run, Success: success, Start: 0.1, Actions: 0.2, Decided: run.Errors / 2}
		}
	}
	add(TheMap.Choosing())
	add(TheMap.Comparing(done))
	return done
}

// The effects are those that were planted. As plan.md predicts, they refute nothing; each other
// kind refutes one prediction, and not the others.
func TestEffects(t *testing.T) {
	for number, c := range []struct{ every, word, decided, beta, aem float64 }{
		{0, 0.001, -0.1, 0, 0},
		{-0.026, 0.001, -0.1, 0, 0}, // gains where L is 36, but not in the mean of 12 and 36
		{0.02, 0.001, 0, 0, 0},
		{0.09, -0.002, -0.2, 0, 0},
		{0, 0.001, -0.1, 0.031, 0},
		{0, 0.001, -0.1, 0, -0.031},
	} {
		effect := func(run train.Run) float64 {
			of := c.every + c.word*float64(run.Fluent) + c.decided*run.Errors
			switch run.Scheme {
			case "aem":
				return c.aem
			case train.ActFocusWithoutBeta:
				return of + c.beta
			}
			return of
		}
		all := must.Get(TheMap.Effects(planted(effect)))
		if len(all) != 4*12 {
			t.Fatalf("%d effects", len(all))
		}
		for _, e := range all {
			want := effect(e.Run)
			if math.Abs(e.Difference-want) > 1e-12 || !(e.Low < want && want < e.High) || e.Shown() != (want != 0) {
				t.Errorf("%+v, want a difference of %v", e, want)
			}
			if math.Abs(e.Reweighted-e.Uniform-want) > 1e-12 || e.UniformRate != 1e-3 || e.Rate != 3e-3 {
				t.Errorf("%+v", e)
			}
			if math.Abs(e.Decided-e.Errors/2) > 1e-12 || math.Abs(e.Start-0.1) > 1e-12 ||
				math.Abs(e.Actions-0.2) > 1e-12 {
				t.Errorf("%+v", e)
			}
			// The least p of 12 pairs, of a family of 12.
			if e.Shown() && (e.P != 2.0/4096 || math.Abs(e.Adjusted-12*e.P) > 1e-12) {
				t.Errorf("p %v, corrected %v", e.P, e.Adjusted)
			}
		}
		for i, p := range must.Get(Predictions(all)) {
			if p.Refuted != (i == number-1) {
				t.Errorf("what refutes prediction %d: prediction %d is %s", number, i+1, p.Verdict())
			}
		}
	}
	done := planted(func(train.Run) float64 { return 0 })
	delete(done, TheMap.Comparing(done)[7])
	if _, err := TheMap.Effects(done); err == nil || !strings.Contains(err.Error(), "the study is not finished") {
		t.Errorf("a map that lacks a run: %v", err)
	}
}

// The arms take the rates of the map, alphas that of ActFocus, and uniform weights without a change are the map's.
func TestArmsRates(t *testing.T) {
	done := planted(func(train.Run) float64 { return 0 })
	distinct := map[train.Run]bool{}
	for _, run := range TheArms.Runs(done) {
		if want := map[bool]float64{true: 1e-3, false: 3e-3}[run.Scheme == Uniform]; run.Rate != want {
			t.Errorf("%+v has the rate %v, want %v", run, run.Rate, want)
		}
		ofMap := cell(run.Fluent, run.Errors)
		ofMap.Scheme, ofMap.Rate, ofMap.Seed = Uniform, run.Rate, run.Seed
		if _, ok := done[run]; ok != (run == ofMap) {
			t.Errorf("%+v is a run of the map: %v", run, ok)
		}
		distinct[run] = true
	}
	if len(distinct) != 720+48+24 {
		t.Errorf("%d runs, plan-arms.md says 720 and 48, and 24 are the map's", len(distinct))
	}
}

// Each prediction of the arms is refuted by what plan-arms.md says, and the others are not.
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
		for _, run := range TheArms.Runs(of) {
			row := train.Result{Run: run, Success: 0.5}
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
