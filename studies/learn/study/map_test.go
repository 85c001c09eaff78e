package study

import (
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
	s := train.OfMap
	s.Hidden, s.Demonstrations, s.Iterations, s.Groups, s.Minibatches, s.Evaluation = 8, 16, 2, 2, 2, 4
	return s
}()

// A map that was cut into pieces has the runs of one that was not, each once.
func TestMapGoesOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs.csv")
	draw := func(path string) error {
		return SmokeMap.Do(path, tiny, func(done, of int) {
			if of != 4*2+4*2 || done > of {
				t.Errorf("%d of %d runs", done, of)
			}
		})
	}
	must.Do(draw(path))
	whole := must.Get(ReadMap(path))
	text := must.Get(os.ReadFile(path))
	lines := slices.Collect(strings.Lines(string(text)))
	if len(lines) != 1+16 || len(whole) != 16 {
		t.Fatalf("%d lines, %d runs", len(lines), len(whole))
	}
	for _, keep := range []int{0, 1, 5, 9, 12, 16} {
		must.Do(os.WriteFile(path, []byte(strings.Join(lines[:keep], "")), 0o666))
		must.Do(draw(path))
		again := must.Get(ReadMap(path))
		for run, want := range whole {
			if got := again[run]; got.Weights != want.Weights || got.Success != want.Success || got.Decided != want.Decided && want.Decided == want.Decided {
				t.Errorf("after %d lines: %+v is %+v, want %+v", keep, run, got, want)
			}
		}
		if len(again) != 16 {
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
	done := map[train.Run]MapRun{}
	for _, run := range m.Choosing() {
		success := 0.5
		if better := run.Scheme == "actfocus" == (run.Fluent == 4); better == (run.Rate == 3e-3) {
			success = []float64{0.4, 0.7}[run.Seed-101] // the mean decides
		}
		done[run] = MapRun{Run: run, Success: success}
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
