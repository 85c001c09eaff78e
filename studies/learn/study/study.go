// Package study plans many training runs, does them, and compares the schemes with
// uniform weights by paired statistics.
package study

import (
	"fmt"
	"runtime"
	"sync"

	"github.com/seed621a2839/reweight/studies/learn/env"
	"github.com/seed621a2839/reweight/studies/learn/train"
)

// Uniform is the scheme that each other one is compared with. Schemes are those of the
// papers, which are compared unless others are asked for.
const Uniform = "uniform"

var Schemes = []string{"actfocus", "aem", "actfocus+aem"}

// The number of seeds of each cell and scheme. At about 6 seconds a run on each of
// two cores, the quick study takes 5 minutes and the full one an hour. With 10 seeds,
// the smallest p value of the quick study is 0.035 after the correction; with 8 it
// would be 0.14, and no comparison could show anything.
const (
	QuickSeeds = 10
	FullSeeds  = 16
)

// A Cell is what runs have in common that are compared with each other.
type Cell struct {
	Game      string // Name of one of env.Games
	Algorithm string // grpo or ppo
	Reasoning string // none, useful or noise
}

// Quick has the cells of the study of a few minutes.
var Quick = []Cell{{"frozenlake4", "grpo", "useful"}, {"sudoku4", "grpo", "useful"}}

// Full returns the cells of the whole study: all games with both algorithms, and the
// games of the quick one with no reasoning and with reasoning that is noise.
func Full() []Cell {
	var cells []Cell
	for _, game := range env.Games {
		cells = append(cells, Cell{game.Name, "grpo", "useful"}, Cell{game.Name, "ppo", "useful"})
	}
	for _, cell := range Quick {
		cells = append(cells, Cell{cell.Game, "grpo", "none"}, Cell{cell.Game, "grpo", "noise"})
	}
	return cells
}

// Runs returns the runs of a study: each cell with uniform weights and with each scheme,
// for the seeds 1 to seeds. Neighbors are of different cells, so that workers do not wait
// for the same warm start.
func Runs(cells []Cell, schemes []string, seeds int) []train.Run {
	var runs []train.Run
	for seed := 1; seed <= seeds; seed++ {
		for _, scheme := range append([]string{Uniform}, schemes...) {
			for _, cell := range cells {
				runs = append(runs, cell.run(scheme, seed))
			}
		}
	}
	return runs
}

func (c Cell) run(scheme string, seed int) train.Run {
	return train.Run{Game: c.Game, Algorithm: c.Algorithm, Reasoning: c.Reasoning, Scheme: scheme, Seed: seed, Errors: 0.5}
}

// Do does the runs, as many at a time as there are CPUs, and hands each result to save,
// one at a time and in the order of their ends. The first error ends it.
func Do(runs []train.Run, do func(train.Run) (train.Result, error), save func(train.Result) error) error {
	next := make(chan train.Run, len(runs))
	for _, run := range runs {
		next <- run
	}
	close(next)
	var lock sync.Mutex // of save and first
	var first error
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for run := range next {
				result, err := do(run)
				lock.Lock()
				if err == nil && first == nil {
					err = save(result)
				}
				if err != nil && first == nil {
					first = fmt.Errorf("%v: %w", run, err)
				}
				ended := first != nil
				lock.Unlock()
				if ended {
					return
				}
			}
		})
	}
	workers.Wait()
	return first
}
