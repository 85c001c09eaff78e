package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/internal/must"
	"github.com/seed621a2839/reweight/studies/learn/study"
	"github.com/seed621a2839/reweight/studies/learn/train"
)

// TestRun does whole studies that are too short to learn from, and finds their files, which a second
// run leaves as they are.
func TestRun(t *testing.T) {
	settings := train.Default
	settings.Hidden, settings.Demonstrations, settings.Iterations, settings.Groups, settings.Minibatches, settings.Evaluation = 8, 16, 3, 2, 2, 4
	folder := filepath.Join(t.TempDir(), "out")
	lines := map[string]int{"runs.csv": 1 + 24, "effects.csv": 1 + 4, "arms.csv": 1 + 16, "arms-effects.csv": 1 + 6}
	if err := doArms(study.SmokeArms, folder, settings); err == nil || !strings.Contains(err.Error(), "not finished: it lacks") {
		t.Errorf("arms without a map: %v", err)
	}
	before := map[string]string{}
	for range 2 {
		must.Do(doMap(study.SmokeMap, folder, settings))
		must.Do(doArms(study.SmokeArms, folder, settings))
		for name, want := range lines {
			text := string(must.Get(os.ReadFile(filepath.Join(folder, name))))
			if got := strings.Count(text, "\n"); got != want {
				t.Errorf("%s: %d lines, want %d", name, got, want)
			}
			if before[name] != "" && before[name] != text {
				t.Errorf("%s is another after the second run", name)
			}
			before[name] = text
		}
		if text := string(must.Get(os.ReadFile(filepath.Join(folder, "map.svg")))); !strings.Contains(text, "ActFocus") {
			t.Error("the figure has no ActFocus")
		}
	}
}
