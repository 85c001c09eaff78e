// Package study plans many training runs, does them, and compares the schemes with
// uniform weights by paired statistics.
package study

import (
	"fmt"
	"runtime"
	"sync"

	"github.com/seed621a2839/reweight/studies/learn/train"
)

// Uniform is the scheme that each other one is compared with.
const Uniform = "uniform"

// each does the runs, as many at a time as there are CPUs, and hands each result to save,
// one at a time and in the order of their ends. The first error ends it.
func each(runs []train.Run, do func(train.Run) (train.Result, error), save func(train.Result) error) error {
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
