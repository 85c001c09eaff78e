package study

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/seed621a2839/reweight/examples/learn/train"
	"github.com/seed621a2839/reweight/internal/atomicfile"
	"github.com/seed621a2839/reweight/internal/printable"
)

// A Store keeps the results of runs, each in a file of its own, named after the
// settings and the run: 286be905/frozenlake4-grpo-useful-aem-03.json.
type Store struct {
	Dir      string // is made if it does not exist
	Settings string // train.Settings.Fingerprint: results of others stand beside these
}

// A Trainer does a run. If ctx ends, so does the Trainer, with an error.
type Trainer func(ctx context.Context, run train.Run) (train.Result, error)

// record is what a file holds.
type record struct {
	Settings string `json:"settings"`
	train.Result
}

// Do returns the results of the runs, in their order. It reads those that the
// store has with the same settings, and trains the others with as many at a time
// as there are CPUs. If ctx ends, or a run fails, it returns the results that are
// there with the error; each of them is in the store.
func (s Store) Do(ctx context.Context, runs []train.Run, do Trainer, progress *Progress) ([]train.Result, error) {
	if err := os.MkdirAll(filepath.Join(s.Dir, s.Settings), 0o777); err != nil {
		return nil, fmt.Errorf("%s: %w", printable.Text(s.Dir), atomicfile.Cause(err))
	}
	results := make([]*train.Result, len(runs))
	var missing []int
	for i, run := range runs {
		var err error
		if results[i], err = s.read(run); err != nil {
			return nil, err
		}
		if results[i] == nil {
			missing = append(missing, i)
		}
	}
	err := s.train(ctx, runs, missing, results, do, progress)
	var done []train.Result
	for _, r := range results {
		if r != nil {
			done = append(done, *r)
		}
	}
	return done, err
}

// train does the missing ones of the runs.
func (s Store) train(ctx context.Context, runs []train.Run, missing []int, results []*train.Result, do Trainer, progress *Progress) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int, len(missing))
	for _, i := range missing {
		next <- i
	}
	close(next)
	progress.begin(len(runs)-len(missing), len(runs))
	defer progress.end()
	var mu sync.Mutex // of left and progress
	left := len(missing)
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(missing)) {
		workers.Go(func() {
			for i := range next {
				if ctx.Err() != nil {
					return
				}
				result, err := do(ctx, runs[i])
				if err == nil {
					err = s.write(runs[i], result)
				}
				if err != nil {
					cancel(fmt.Errorf("%s: %w", key(runs[i]), err)) // only the first error counts
					return
				}
				mu.Lock()
				results[i] = &result
				left--
				progress.add()
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	if left == 0 {
		return nil
	}
	return context.Cause(ctx)
}

func (s Store) path(run train.Run) string { return filepath.Join(s.Dir, s.Settings, key(run)+".json") }

// write stores the result of a run.
func (s Store) write(run train.Run, result train.Result) error {
	if result.Run != run {
		return fmt.Errorf("the result is that of %s", key(result.Run))
	}
	if err := check(result); err != nil {
		return err
	}
	text, err := json.MarshalIndent(record{s.Settings, result}, "", "\t")
	if err != nil {
		return err
	}
	return atomicfile.Write(s.path(run), func(w io.Writer) error {
		_, err := w.Write(append(text, '\n'))
		return err
	})
}

// read returns the stored result of a run, or nil if there is none.
func (s Store) read(run train.Run) (*train.Result, error) {
	path := s.path(run)
	text, err := atomicfile.Read(path, 1<<20) // a hundred times what a result has
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var r record
	err = json.Unmarshal(text, &r)
	switch {
	case err != nil:
	case r.Run != run || r.Settings != s.Settings:
		err = errors.New("it holds something else")
	default:
		err = check(r.Result)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: not the result of this run: %w; delete the file to train it again", printable.Text(path), err)
	}
	return &r.Result, nil
}
