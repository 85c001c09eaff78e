package gate

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
	"github.com/seed621a2839/reweight/cmd/bench/internal/cli"
	"github.com/seed621a2839/reweight/cmd/bench/internal/measure"
	"github.com/seed621a2839/reweight/gpu"
	"github.com/seed621a2839/reweight/kernels"
)

// WorkerCommand is the command of bench that runs Worker. The gate runs it in the
// two builds that it compares.
const WorkerCommand = "gate-worker"

// workerProtocol is the version of what gate and worker say to each other. The
// two may be of different builds, so every change needs another version.
const workerProtocol = 2

// A greeting is what a worker says first.
type greeting struct {
	Protocol int            `json:"protocol"`
	Best     string         `json:"best"` // instruction set that callers get
	ISAs     []string       `json:"isas"`
	NoGPU    string         `json:"no_gpu,omitempty"` // why a GPU that was asked for is not among them
	Kernels  []workerKernel `json:"kernels"`
}

type workerKernel struct {
	Name   string   `json:"name"`
	DTypes []string `json:"dtypes"`
	Rows   bool     `json:"rows"`
	OnlyGo bool     `json:"only_go,omitempty"` // not for a GPU
}

// A request names a workload and wants it checked, counted (how many calls take
// as long as Block) or timed: Blocks blocks of Calls calls.
type request struct {
	Do     string        `json:"do"` // check, count or time
	Kernel string        `json:"kernel"`
	DType  string        `json:"dtype"`
	ISA    string        `json:"isa"` // empty: the one that callers get who leave the choice to the library
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

// Worker serves a gate that compares two builds. It says what this build has, and
// then answers one request after the other, each a line of JSON, until its input
// ends. With the argument cuda it opens the GPU; a build that knows nothing of GPUs
// ignores it.
func Worker(args []string, in io.Reader, out io.Writer, g *cli.GPU) error {
	best, err := reweight.BestISA()
	if err != nil {
		return err
	}
	hello := greeting{Protocol: workerProtocol, Best: best.String(), ISAs: cli.ISANames()}
	w := server{workloads: map[request]func() error{}, parity: measure.Check}
	if slices.Contains(args, cli.CUDA) {
		if w.gpu, err = g.Device(); err != nil {
			hello.NoGPU = err.Error()
		} else {
			hello.ISAs = append(hello.ISAs, cli.CUDA)
		}
	}
	for _, k := range kernels.All() {
		known := workerKernel{Name: k.Name, Rows: k.Rows, OnlyGo: k.OnlyGo}
		for _, dtype := range k.DTypes {
			known.DTypes = append(known.DTypes, dtype.String())
		}
		hello.Kernels = append(hello.Kernels, known)
	}
	encoder, decoder := json.NewEncoder(out), json.NewDecoder(in)
	if err := encoder.Encode(hello); err != nil {
		return err
	}
	debug.SetGCPercent(-1) // the process is short, and the requests collect garbage where it matters
	for {
		var q request
		if err := decoder.Decode(&q); errors.Is(err, io.EOF) {
			return w.close()
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

// A server answers requests.
type server struct {
	workloads map[request]func() error // by what makes them
	parity    measure.Checker
	gpu       *gpu.Device // or nil
	onGPU     []*measure.Resident
}

// close gives back the GPU's memory.
func (w *server) close() (err error) {
	for _, r := range w.onGPU {
		err = errors.Join(err, r.Close())
	}
	return err
}

func (w *server) answer(q request) (answer, error) {
	k, err := kernels.Find(q.Kernel)
	if err != nil {
		return answer{}, err
	}
	var dtype reweight.DType
	if err := dtype.UnmarshalText([]byte(q.DType)); err != nil {
		return answer{}, err
	}
	onGPU := q.ISA == cli.CUDA && w.gpu != nil
	var impl kernels.Implementation
	if !onGPU {
		if impl, err = implementation(q.ISA); err != nil {
			return answer{}, err
		}
	}
	if q.Do == "check" {
		check := func() (string, error) { return w.check(k, dtype, q, impl) }
		if onGPU {
			check = func() (string, error) { return w.checkOnGPU(k, dtype, q) }
		}
		failure, err := check()
		return answer{Failure: failure}, err
	}
	key := request{Kernel: q.Kernel, DType: q.DType, ISA: q.ISA, Rows: q.Rows, Vocab: q.Vocab}
	f := w.workloads[key]
	if f == nil && onGPU {
		r, err := measure.NewResident(w.gpu, k, dtype, q.Rows, q.Vocab)
		if err != nil {
			return answer{}, err
		}
		w.onGPU = append(w.onGPU, r)
		f = r.Run
		w.workloads[key] = f
	}
	if f == nil {
		c, err := k.New(kernels.Spec{Rows: q.Rows, Vocab: q.Vocab, DType: dtype})
		if err != nil {
			return answer{}, err
		}
		r := impl.New(1)
		f = func() error { return c.Run(r) }
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

// callers is what those get who leave the choice to the library.
var callers = kernels.Implementation{Name: reweight.Auto.String(), New: func(workers int) kernels.Runner { return &reweight.Workspace{Workers: workers} }}

// implementation returns the one of that name, or what callers get if it is empty.
func implementation(name string) (kernels.Implementation, error) {
	if name == "" {
		return callers, nil
	}
	all := kernels.Implementations()
	i := slices.IndexFunc(all, func(impl kernels.Implementation) bool { return impl.Name == name })
	if i < 0 {
		return kernels.Implementation{}, fmt.Errorf("isa is %q, want one of %v", name, cli.ISANames())
	}
	return all[i], nil
}

// check compares the results of the kernel with the reference, and those of its
// instruction sets with each other, and counts what it allocates. The failure is
// the first that it finds.
func (w *server) check(k kernels.Kernel, dtype reweight.DType, q request, impl kernels.Implementation) (failure string, err error) {
	impls := kernels.Implementations()
	if q.ISA != "" {
		impls = append(impls[:1], impl)
	}
	size := q.Rows
	if k.Rows {
		size = q.Vocab
	}
	parities, err := w.parity(context.Background(), k, dtype, append(checkSizes[:], size), append(impls, callers))
	if err != nil {
		return "", err
	}
	if failures := measure.Failures(parities); len(failures) > 0 {
		return failures[0], nil
	}
	c, err := k.New(kernels.Spec{Rows: q.Rows, Vocab: q.Vocab, DType: dtype})
	if err != nil {
		return "", err
	}
	r := impl.New(1)
	return allocates(func() error { return c.Run(r) })
}

// checkOnGPU is check for the GPU. It also compares the bits of the workload that is
// timed with those of the CPU.
func (w *server) checkOnGPU(k kernels.Kernel, dtype reweight.DType, q request) (failure string, err error) {
	sizes := checkSizes[:]
	if k.Rows {
		sizes = append(sizes, q.Vocab)
	}
	parity, err := measure.CheckGPU(context.Background(), w.parity, w.gpu, k, dtype, sizes)
	if err != nil || parity.Failure != "" {
		return parity.Failure, err
	}
	r, err := measure.NewResident(w.gpu, k, dtype, q.Rows, q.Vocab)
	if err != nil {
		return "", err
	}
	if failure, err = r.Check(); failure == "" && err == nil {
		failure, err = allocates(r.Run)
	}
	return failure, errors.Join(err, r.Close())
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

// checkSizes are the sizes that the gate compares results at, besides the one that
// it times. Tests and the main job do so at more sizes.
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
