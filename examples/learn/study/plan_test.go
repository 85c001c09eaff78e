package study

import (
	"slices"
	"testing"

	"github.com/seed621a2839/reweight/examples/learn/train"
)

var allGames = []string{"frozenlake4", "frozenlake6", "sokoban", "sudoku4", "shop"}

func TestPlanCounts(t *testing.T) {
	for _, c := range []struct {
		name        string
		cells       []Cell
		seeds, want int
	}{
		{"quick", Quick(), QuickSeeds, 2 * 4 * 10},
		{"full", Full(allGames), FullSeeds, (5*2 + 2*2) * 4 * 16},
	} {
		runs := Runs(c.cells, DefaultSchemes, c.seeds)
		distinct := make(map[train.Run]bool)
		files := make(map[string]bool)
		for _, run := range runs {
			distinct[run] = true
			files[key(run)] = true
		}
		if len(runs) != c.want || len(distinct) != c.want || len(files) != c.want {
			t.Errorf("%s: %d runs, %d distinct, %d files, want %d", c.name, len(runs), len(distinct), len(files), c.want)
		}
	}
}

// TestQuickIsPartOfFull: the full study goes on from the quick one.
func TestQuickIsPartOfFull(t *testing.T) {
	full := Runs(Full(allGames), DefaultSchemes, FullSeeds)
	for _, run := range Runs(Quick(), DefaultSchemes, QuickSeeds) {
		if !slices.Contains(full, run) {
			t.Errorf("%s is not in the full study", key(run))
		}
	}
}

// TestPlanOrder: wherever a study is interrupted, all cells and schemes have the
// same seeds, but for the last seed.
func TestPlanOrder(t *testing.T) {
	cells := Full(allGames)
	schemes := []string{"uniform", "aem"}
	runs := Runs(cells, schemes, 3)
	each := len(cells) * len(schemes)
	for i, run := range runs {
		if want := i/each + 1; run.Seed != want {
			t.Fatalf("run %d has seed %d, want %d", i, run.Seed, want)
		}
	}
}

// TestPlanSchemes: the default schemes are the first of train.Schemes.
func TestPlanSchemes(t *testing.T) {
	for i, name := range DefaultSchemes {
		if name != train.Schemes[i].Name {
			t.Errorf("scheme %d is %s, want %s", i, name, train.Schemes[i].Name)
		}
	}
}

// TestEnoughSeeds: the numbers of seeds are such that a comparison can be shown to
// differ, and QuickSeeds is not two more than that takes.
func TestEnoughSeeds(t *testing.T) {
	for _, c := range []struct {
		cells  []Cell
		seeds  int
		enough bool
	}{{Quick(), QuickSeeds, true}, {Quick(), QuickSeeds - 2, false}, {Full(allGames), FullSeeds, true}} {
		var results []train.Result
		for _, run := range Runs(c.cells, DefaultSchemes, c.seeds) {
			results = append(results, sample(run, 0.1, 0.1))
		}
		s, err := Summarize(c.cells, DefaultSchemes, c.seeds, results)
		if err != nil {
			t.Fatal(err)
		}
		if enough := s.Attainable <= 0.05; enough != c.enough {
			t.Errorf("%d cells, %d seeds: the smallest adjusted p value is %v", len(c.cells), c.seeds, s.Attainable)
		}
	}
}

func TestKey(t *testing.T) {
	run := train.Run{Game: "frozenlake4", Algorithm: "grpo", Reasoning: "useful", Scheme: "actfocus+aem", Seed: 3}
	if got, want := key(run), "frozenlake4-grpo-useful-actfocus+aem-03"; got != want {
		t.Errorf("key %s, want %s", got, want)
	}
}
