package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/studies/learn/study"
	"github.com/seed621a2839/reweight/studies/learn/train"
)

// TestRun does whole studies that are too short to learn from. Those that were ended in between have in
// the end the files of those that were not, but for the order of the runs and their seconds.
func TestRun(t *testing.T) {
	settings := train.Default
	settings.Hidden, settings.Demonstrations, settings.Iterations = 8, 16, 3
	settings.Groups, settings.Minibatches, settings.Evaluation = 2, 2, 4
	folder := filepath.Join(t.TempDir(), "out")
	path := func(name string) string { return filepath.Join(folder, name) }
	lines := map[string]int{"runs.csv": 1 + 24, "effects.csv": 1 + 4, "arms.csv": 1 + 16, "arms-effects.csv": 1 + 6,
		"tags.csv": 1 + 4, "tags-effects.csv": 1 + 1, "rates.csv": 1 + 24, "rates-points.csv": 1 + 18, "rates-effects.csv": 1 + 4}
	err := doArms(study.SmokeArms, folder, settings)
	if err == nil || !strings.Contains(err.Error(), "not finished: it lacks") {
		t.Errorf("arms without a map: %v", err)
	}
	before := map[string][]string{}
	for _, keep := range []int{0, 9} {
		for _, name := range []string{"runs.csv", "arms.csv", "tags.csv", "rates.csv"} {
			if text, err := os.ReadFile(path(name)); err == nil {
				kept := strings.Join(slices.Collect(strings.Lines(string(text)))[:min(keep, lines[name])], "")
				must.Do(os.WriteFile(path(name), []byte(kept), 0o666))
			}
		}
		must.Do(doMap(study.SmokeMap, folder, settings))
		must.Do(doArms(study.SmokeArms, folder, settings))
		must.Do(doTags(study.SmokeTags, folder, settings))
		must.Do(doRates(study.SmokeRates, folder, settings))
		for name, want := range lines {
			var got []string
			for line := range strings.Lines(string(must.Get(os.ReadFile(path(name))))) {
				if fields := strings.Split(line, ","); len(fields) == 16 {
					line = strings.Join(slices.Delete(fields, 14, 15), ",")
				}
				got = append(got, line)
			}
			slices.Sort(got)
			if len(got) != want || before[name] != nil && !slices.Equal(got, before[name]) {
				t.Errorf("%s after %d lines: %q, want %d lines, and %q", name, keep, got, want, before[name])
			}
			before[name] = got
		}
		if text := string(must.Get(os.ReadFile(path("map.svg")))); !strings.Contains(text, "ActFocus") {
			t.Error("the figure has no ActFocus")
		}
	}
}
