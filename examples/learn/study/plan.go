// Package study plans many training runs, does them so that an interruption loses
// nothing, and compares the schemes with uniform weights by paired statistics.
package study

import (
	"fmt"

	"github.com/seed621a2839/reweight/examples/learn/train"
)

// DefaultSchemes are those of train.Schemes that are studied unless others are asked
// for. The first scheme of a study is what each other one is compared with.
var DefaultSchemes = []string{"uniform", "actfocus", "aem", "actfocus+aem"}

// The number of seeds of each cell and scheme. At about 6 seconds a run on each of
// two cores, the quick study takes 5 minutes and the full one an hour. With 10 seeds,
// the smallest p value of the quick study is 0.035 after the correction; with 8 it
// would be 0.14, and no comparison could show anything.
const (
	QuickSeeds = 10
	FullSeeds  = 16
)

// quickGames are those of the quick study, and of what the full one says about
// reasoning.
var quickGames = []string{"frozenlake4", "sudoku4"}

// Quick returns the cells of the study of a few minutes.
func Quick() []Cell {
	var cells []Cell
	for _, game := range quickGames {
		cells = append(cells, Cell{game, "grpo", "useful"})
	}
	return cells
}

// Full returns the cells of the whole study: all games with both algorithms, and
// two games with no reasoning and with reasoning that is noise.
func Full(games []string) []Cell {
	var cells []Cell
	for _, game := range games {
		for _, algorithm := range []string{"grpo", "ppo"} {
			cells = append(cells, Cell{game, algorithm, "useful"})
		}
	}
	for _, game := range quickGames {
		for _, reasoning := range []string{"none", "noise"} {
			cells = append(cells, Cell{game, "grpo", reasoning})
		}
	}
	return cells
}

// Runs returns the runs of a study: each cell with each scheme and the seeds 1 to
// seeds. All runs of a seed come before those of the next, so that an
// interrupted study has whole pairs. Neighbors are of different cells, so that
// workers do not wait for the same warm start.
func Runs(cells []Cell, schemes []string, seeds int) []train.Run {
	var runs []train.Run
	for seed := 1; seed <= seeds; seed++ {
		for _, scheme := range schemes {
			for _, cell := range cells {
				runs = append(runs, cell.run(scheme, seed))
			}
		}
	}
	return runs
}

func (c Cell) run(scheme string, seed int) train.Run {
	return train.Run{Game: c.Game, Algorithm: c.Algorithm, Reasoning: c.Reasoning, Scheme: scheme, Seed: seed}
}

// key names a run, on the screen and in the name of its file.
func key(r train.Run) string {
	return fmt.Sprintf("%s-%s-%s-%s-%02d", r.Game, r.Algorithm, r.Reasoning, r.Scheme, r.Seed)
}
