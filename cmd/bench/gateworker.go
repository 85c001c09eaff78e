package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/kernels"
)

// A worker is a bench that another one runs to compare two builds: it says what
// it has, and then answers one request after the other, each a line of JSON,
// until its input ends. Workers of different builds talk to one gate: what they
// say stays as it is, or workerProtocol changes.

const (
	workerCommand  = "gate-worker"
	workerProtocol = 1
)

// A greeting is what a worker says first.
type greeting struct {
	Protocol int            `json:"protocol"`
	Best     string         `json:"best"` // path
	Paths    []string       `json:"paths"`
	Kernels  []workerKernel `json:"kernels"`
}

type workerKernel struct {
	Name  string   `json:"name"`
	Types []string `json:"types"`
	Rows  bool     `json:"rows"`
}

// A request names a workload and wants it checked, counted (how many calls take
// as long as Block) or timed: Blocks blocks of Calls calls.
type request struct {
	Do     string        `json:"do"` // check, count or time
	Kernel string        `json:"kernel"`
	Type   string        `json:"dtype"`
	Path   string        `json:"path"` // empty: what callers get who leave the choice to the library
	Rows   int           `json:"rows"`
	Vocab  int           `json:"vocab"`
	Block  time.Duration `json:"block_ns,omitempty"`
	Calls  int           `json:"calls,omitempty"`
	Blocks int           `json:"blocks,omitempty"`
}

// An answer has what was asked for, or an error.
type answer struct {
	Error   string    `json:"error,omitempty"`
	Failure string    `json:"failure,omitempty"` // the first thing that is wrong with the kernel
	Calls   int       `json:"calls,omitempty"`
	Ns      []float64 `json:"ns,omitempty"` // per call, a block each
}

func gateWorker(args []string, in io.Reader, out io.Writer) error {
	if err := noOperands(args); err != nil {
		return err
	}
	best, err := reweight.Best()
	if err != nil {
		return trimmed(err)
	}
	hello := greeting{Protocol: workerProtocol, Best: best.String(), Paths: pathNames()}
	for _, k := range kernels.All() {
		hello.Kernels = append(hello.Kernels, workerKernel{k.Name, k.Types, k.Rows})
	}
	encoder, decoder := json.NewEncoder(out), json.NewDecoder(in)
	if err := encoder.Encode(hello); err != nil {
		return err
	}
	debug.SetGCPercent(-1) // it lives for a moment, and collects between the requests
	w := worker{workloads: map[request]func() error{}, parity: bench.Check}
	for {
		var q request
		if err := decoder.Decode(&q); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("a request: %w", err)
		}
		a, err := w.answer(q)
		if err != nil {
			a = answer{Error: err.Error()}
		}
		if err := encoder.Encode(a); err != nil {
			return err
		}
	}
}

type worker struct {
	workloads map[request]func() error // by what makes them
	parity    parityCheck
}

// A parityCheck is bench.Check.
type parityCheck func(ctx context.Context, k kernels.Kernel, typ string, sizes []int, paths []reweight.ISA) ([]bench.Parity, error)

func (w worker) answer(q request) (answer, error) {
	k, err := kernels.Find(q.Kernel)
	if err != nil {
		return answer{}, err
	}
	path := reweight.Auto
	if q.Path != "" {
		if path, err = reweight.ParseISA(q.Path); err != nil {
			return answer{}, err
		}
	}
	if q.Do == "check" {
		failure, err := w.check(k, q, path)
		return answer{Failure: failure}, err
	}
	key := request{Kernel: q.Kernel, Type: q.Type, Path: q.Path, Rows: q.Rows, Vocab: q.Vocab}
	f := w.workloads[key]
	if f == nil {
		c, err := k.New(kernels.Spec{Rows: q.Rows, Vocab: q.Vocab, Type: q.Type})
		if err != nil {
			return answer{}, err
		}
		ws := &reweight.Workspace{Path: path, Workers: 1}
		f = func() error { return c.Run(ws) }
		w.workloads[key] = f
		runtime.GC()
	}
	switch q.Do {
	case "count":
		n, err := countCalls(f, q.Block)
		return answer{Calls: n}, err
	case "time":
		if q.Calls < 1 || q.Blocks < 1 || q.Blocks > 1000 {
			return answer{}, fmt.Errorf("%d blocks of %d calls", q.Blocks, q.Calls)
		}
		ns, err := timeBlocks(f, q.Calls, q.Blocks)
		return answer{Ns: ns}, err
	}
	return answer{}, fmt.Errorf("unknown request %q", q.Do)
}

// check holds the kernel against the reference and its paths against each
// other, and counts what it allocates. The failure is the first that it finds.
func (w worker) check(k kernels.Kernel, q request, path reweight.ISA) (failure string, err error) {
	paths := reweight.Available()
	if path != reweight.Auto {
		paths = []reweight.ISA{reweight.Portable, path}
	}
	size := q.Rows
	if k.Rows {
		size = q.Vocab
	}
	parities, err := w.parity(context.Background(), k, q.Type, append(checkSizes[:], size), append(paths, reweight.Auto))
	if err != nil {
		return "", err
	}
	if failures := failuresOf(parities); len(failures) > 0 {
		return failures[0], nil
	}
	c, err := k.New(kernels.Spec{Rows: q.Rows, Vocab: q.Vocab, Type: q.Type})
	if err != nil {
		return "", err
	}
	ws := &reweight.Workspace{Path: path, Workers: 1}
	return allocates(func() error { return c.Run(ws) })
}

// allocates says what f allocates on the heap, or nothing if that is nothing.
func allocates(f func() error) (failure string, err error) {
	objects, bytes, err := bench.Allocs(f)
	if err == nil && objects > 0 {
		failure = allocated(objects, bytes)
	}
	return failure, err
}

func allocated(objects, bytes uint64) string {
	return fmt.Sprintf("%d heap allocations of %d bytes per call, want none", objects, bytes)
}

// checkSizes are what the gate checks parity at besides the size that it times;
// tests and bench do it at more.
var checkSizes = [...]int{1, 17, 300, 2049}

// countCalls returns how many calls of f take at least about as long as block.
func countCalls(f func() error, block time.Duration) (int, error) {
	for n := 1; ; n *= 2 {
		ns, err := timeBlocks(f, n, 3)
		if err != nil {
			return 0, err
		}
		if least := slices.Min(ns); least*float64(n) >= float64(block)/2 || n >= 1<<30 {
			return max(1, int(float64(block)/max(1, least))), nil
		}
	}
}

// timeBlocks returns the nanoseconds per call of blocks of calls of f, after one
// that is not timed.
func timeBlocks(f func() error, calls, blocks int) ([]float64, error) {
	ns := make([]float64, 0, blocks)
	for block := range blocks + 1 {
		begin := time.Now()
		for range calls {
			if err := f(); err != nil {
				return nil, err
			}
		}
		if t := time.Since(begin); block > 0 {
			ns = append(ns, float64(t)/float64(calls))
		}
	}
	return ns, nil
}
