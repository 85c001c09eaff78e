package main

import (
	"encoding/csv"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/studies/learn/study"
	"github.com/seed621a2839/reweight/studies/learn/train"
)

// TestRun does a whole study that is too short to learn from, and finds its files.
func TestRun(t *testing.T) {
	settings := train.Default
	settings.Hidden, settings.Demonstrations, settings.Iterations, settings.Groups, settings.Minibatches, settings.Evaluation = 8, 16, 3, 2, 2, 4
	folder := filepath.Join(t.TempDir(), "out")
	if err := run(study.Quick[1:], []string{"actfocus", "gspo"}, 2, settings, folder); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"runs.csv": 1 + 3*2, "comparisons.csv": 1 + 2*3} {
		f, err := os.Open(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if rows, err := csv.NewReader(f).ReadAll(); err != nil || len(rows) != want {
			t.Errorf("%s: %d rows, %v, want %d", name, len(rows), err, want)
		}
	}
	for _, measure := range study.Measures {
		if text, err := os.ReadFile(filepath.Join(folder, string(measure)+".svg")); err != nil || !strings.Contains(string(text), "sudoku4 grpo useful") {
			t.Errorf("%s.svg: %v", measure, err)
		}
	}
	// A scheme that needs what the games do not have is an error that says so.
	err := run(study.Quick[1:], []string{"gigpo"}, 1, settings, folder)
	if err == nil || !strings.Contains(err.Error(), "gigpo needs anchors and span_rewards") {
		t.Errorf("gigpo: %v", err)
	}
}
