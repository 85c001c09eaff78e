package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/cmd/bench/internal/cli"
	"github.com/seed621a2839/reweight/cmd/bench/internal/tool"
)

// The workloads of -base stay in a cache, because memory is most of the noise and
// has little to do with a change of a kernel.
const (
	gateTokens = 16384
	gateRows   = 2
	gateVocab  = 32768
)

// Those of the GPU are larger: the start of a kernel takes as long as a small one.
const (
	gateGPUTokens = 1 << 20
	gateGPURows   = 1024
)

// Each of the four times of a pair (see bench.TakePair) is the least of
// gateBlocks blocks of about gateBlock each. A block is shorter than the time
// between two interruptions, and there are enough for one without any.
const (
	gateBlock  = 150 * time.Microsecond
	gateBlocks = 5
)

// maxAnswer is the most of an answer of a worker, in bytes. None comes near.
const maxAnswer = 64 << 10

// A kernelBench is a build of this project's bench, which has kernels.
type kernelBench struct {
	name      string        // of the side
	dir       string        // of the module
	env       []string      // of the go command, besides that of this process
	exe       string        // the program
	reordered string        // those with functions in random orders begin so; empty if there can be none
	patience  time.Duration // how long an answer may take
	gpu       bool          // whether it is asked to open the GPU
}

// A kernelWorker is a running worker of a build.
type kernelWorker struct {
	process
	hello greeting
}

// side returns the build as a side of a comparison.
func (k *kernelBench) side() side {
	s := side{name: k.name, start: func(ctx context.Context, _ string, order int) (measurer, error) { return k.start(ctx, order) }}
	if k.reordered != "" {
		s.reorder = func(ctx context.Context, _ string, order int) error { return k.reorder(ctx, order) }
	}
	return s
}

// build builds the program, without its version and directory in it, so that builds of
// the same source are equal.
func (k *kernelBench) build(ctx context.Context, exe string, flags ...string) error {
	args := slices.Concat([]string{"build", "-trimpath", "-buildvcs=false", "-o", exe}, flags, []string{"./cmd/bench"})
	_, err := tool.Run(ctx, k.dir, append(tool.Environ(), k.env...), "go", args...)
	return err
}

// inOrder is the program with functions in an order.
func (k *kernelBench) inOrder(order int) string {
	if order == 0 {
		return k.exe
	}
	return fmt.Sprintf("%s-%d%s", k.reordered, order, filepath.Ext(k.exe))
}

// reorder builds the program of an order, unless it is there.
func (k *kernelBench) reorder(ctx context.Context, order int) error {
	exe := k.inOrder(order)
	if _, err := os.Stat(exe); err == nil {
		return nil
	}
	return k.build(ctx, exe, fmt.Sprintf("-ldflags=-randlayout=%d", 1+rand.Int64N(1<<62)))
}

// start starts a worker and reads its greeting.
func (k *kernelBench) start(ctx context.Context, order int) (*kernelWorker, error) {
	args := []string{WorkerCommand}
	if k.gpu {
		args = append(args, cli.CUDA)
	}
	cmd := exec.CommandContext(ctx, k.inOrder(order), args...)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1") // it does one thing at a time, and idle threads would disturb it
	w := &kernelWorker{process: process{of: "the bench of " + k.name, patience: k.patience, most: maxAnswer}}
	if err := w.run(ctx, cmd); err != nil {
		return nil, err
	}
	if err := w.hear(&w.hello, false); err != nil { // other versions may have other fields
		err = w.failed(err)
		if w.killed.Load() == nil && strings.Contains(w.stderr.String(), "unknown command") {
			err = fmt.Errorf("%s is older than the gate: it has no %s", w.of, WorkerCommand)
		}
		return nil, err
	}
	if w.hello.Protocol != workerProtocol {
		w.close()
		return nil, fmt.Errorf("%s has another version of the gate (protocol %d, and this one has %d), so the two cannot be compared", w.of, w.hello.Protocol, workerProtocol)
	}
	if err := w.hello.check(); err != nil {
		w.close()
		return nil, fmt.Errorf("%s: %w", w.of, err)
	}
	return w, nil
}

// check returns an error if a name of the greeting is none.
func (g greeting) check() error {
	names := append([]string{g.Best}, g.ISAs...)
	for _, k := range g.Kernels {
		names = append(append(names, k.Name), k.DTypes...)
	}
	if i := slices.IndexFunc(names, func(name string) bool { return !isName(name) }); i >= 0 {
		return fmt.Errorf("%q is not the name of a kernel, a type or an instruction set", names[i])
	}
	return nil
}

// ask wants something of the worker.
func (w *kernelWorker) ask(q request) (a answer, err error) {
	if err = w.say(q); err == nil {
		err = w.hear(&a, true)
	}
	if err != nil {
		return a, w.failed(err)
	}
	if a.Error == "" && q.Do == "count" && (a.Calls < 1 || a.Calls > int(q.Block)) { // a call takes a nanosecond or more
		a.Error = fmt.Sprintf("%d calls take %v", a.Calls, q.Block)
	}
	if a.Error == "" && q.Do == "time" && (len(a.Ns) != q.Blocks || slices.Min(a.Ns) <= 0) {
		a.Error = fmt.Sprintf("the times of %d blocks are %v", q.Blocks, a.Ns)
	}
	if a.Error != "" {
		return a, fmt.Errorf("%s: %s %s: %s", w.of, q.Kernel, q.DType, a.Error)
	}
	return a, nil
}

// measure times some blocks of calls.
func (w *kernelWorker) measure(f *function) (turn, error) {
	q := f.kernel
	q.Do, q.Calls, q.Blocks = "time", f.calls, gateBlocks
	a, err := w.ask(q)
	return turn{ns: a.Ns}, err
}

// A catalogue is a comparison of the kernels of two builds.
type catalogue struct {
	comparison
	benches [2]*kernelBench // the base, and the new build
}

// workers starts a worker of either build.
func (c *catalogue) workers(ctx context.Context) (base, now *kernelWorker, err error) {
	if base, err = c.benches[0].start(ctx, 0); err != nil {
		return nil, nil, err
	}
	if now, err = c.benches[1].start(ctx, 0); err != nil {
		base.close()
		return nil, nil, err
	}
	return base, now, nil
}

// plan asks both sides what they have, and lists what can be compared: the named
// kernels, or all if there are no names, with one instruction set, or with the one
// that callers get if it is empty. It returns the instruction set that callers of
// the new build get, and in words what cannot be compared.
func (c *catalogue) plan(ctx context.Context, names []string, isa string) (best string, notes []string, err error) {
	base, now, err := c.workers(ctx)
	if err != nil {
		return "", nil, err
	}
	defer base.close()
	defer now.close()
	name := isa
	if isa == "" {
		if name = now.hello.Best; base.hello.Best != name {
			notes = append(notes, fmt.Sprintf("callers of %s get %s, those of %s get %s", c.base.name, base.hello.Best, c.now.name, name))
		}
	}
	for i, p := range [...]*kernelWorker{base, now} {
		name := c.benches[i].name
		if isa == cli.CUDA && !slices.Contains(p.hello.ISAs, isa) {
			return "", nil, &noGPUError{name, cmp.Or(p.hello.NoGPU, "it has no kernels for a GPU")}
		}
		if isa != "" && !slices.Contains(p.hello.ISAs, isa) {
			return "", nil, fmt.Errorf("-isa %q: the bench of %s has %s", isa, name, strings.Join(p.hello.ISAs, ", "))
		}
	}
	of := func(p *kernelWorker) (all []request) {
		for _, k := range p.hello.Kernels {
			if names != nil && !slices.Contains(names, k.Name) || k.OnlyGo && isa == cli.CUDA {
				continue
			}
			for _, dtype := range k.DTypes {
				q := request{Kernel: k.Name, DType: dtype, ISA: isa, Rows: gateTokens}
				switch {
				case k.Rows && isa == cli.CUDA:
					q.Rows, q.Vocab = gateGPURows, gateVocab
				case k.Rows:
					q.Rows, q.Vocab = gateRows, gateVocab
				case isa == cli.CUDA:
					q.Rows = gateGPUTokens
				}
				all = append(all, q)
			}
		}
		return all
	}
	old, all := of(base), of(now)
	for _, q := range old {
		if !slices.Contains(all, q) {
			notes = append(notes, fmt.Sprintf("%s %s is only in %s: not compared", q.Kernel, q.DType, c.base.name))
		}
	}
	for _, q := range all {
		if !slices.Contains(old, q) {
			notes = append(notes, fmt.Sprintf("%s %s is only in %s: not compared", q.Kernel, q.DType, c.now.name))
			continue
		}
		c.functions = append(c.functions, &function{Result: Result{Kernel: q.Kernel, DType: q.DType, ISA: name}, kernel: q, units: []*unit{{Metric: Metric{Unit: nanoseconds}}}})
	}
	return now.hello.Best, notes, nil
}

// A noGPUError says that a side cannot use the GPU.
type noGPUError struct{ side, why string }

func (e *noGPUError) Error() string {
	return fmt.Sprintf("%s is not compared: the bench of %s: %s", cli.CUDA, e.side, e.why)
}

// check asks the new build for the hard conditions, and the base how many calls
// make a block.
func (c *catalogue) check(ctx context.Context) error {
	base, now, err := c.workers(ctx)
	if err != nil {
		return err
	}
	defer func() { base.close(); now.close() }()
	for _, f := range c.functions {
		c.progress.Next("checking %s %s", f.Kernel, f.DType)
		q := f.kernel
		q.Do = "check"
		a, err := now.ask(q)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			f.breaks(err)
			now.close()
			fresh, err := c.benches[1].start(ctx, 0)
			if err != nil {
				return err
			}
			now = fresh
			continue
		}
		if f.Message = a.Failure; a.Failure != "" {
			f.Verdict = bench.Regression
			continue
		}
		q.Do, q.Block = "count", gateBlock
		if a, err = base.ask(q); err != nil {
			return err
		}
		f.calls = a.Calls
	}
	return nil
}

// againstBase compares the working tree with a revision.
func (g *gate) againstBase(ctx context.Context, ref string) error {
	g.report.Against = ref
	g.Progress.Next("building both benches")
	b, err := buildBoth(ctx, ref, g.Cache)
	defer b.remove()
	if err != nil {
		return err
	}
	g.report.Against = b.against
	g.report.Notes = append(g.report.Notes, b.notes...)
	if g.accepted, err = b.accepted(ctx); err != nil {
		return err
	}
	return g.compareKernels(ctx, b.base, b.now)
}

// compared returns the names of what is compared, of which empty is what callers get. A
// note says why the GPU is not among them.
func (g *gate) compared() []string {
	if g.ISAs == nil {
		if g.report.Machine.GPU == nil {
			g.report.Notes = append(g.report.Notes, g.noGPU())
			return []string{""}
		}
		return []string{"", cli.CUDA}
	}
	var names []string
	for _, impl := range g.ISAs.CPU {
		names = append(names, impl.Name)
	}
	if g.ISAs.GPU != nil {
		names = append(names, cli.CUDA)
	}
	return names
}

// noGPU says why the GPU is left out.
func (g *gate) noGPU() string { return "No GPU: " + g.report.Machine.NoGPU }

// compareKernels compares the kernels of two builds.
func (g *gate) compareKernels(ctx context.Context, base, now *kernelBench) error {
	isas := g.compared()
	base.gpu = slices.Contains(isas, cli.CUDA)
	now.gpu = base.gpu
	c := catalogue{g.newComparison(base.side(), now.side()), [2]*kernelBench{base, now}}
	var names []string // another build may have other kernels, so all is not the list of this one
	for _, k := range g.Kernels {
		names = append(names, k.Name)
	}
	for i, isa := range isas {
		best, notes, err := c.plan(ctx, names, isa)
		var none *noGPUError
		if g.ISAs == nil && errors.As(err, &none) {
			g.report.Notes = append(g.report.Notes, none.Error())
			continue
		}
		if err != nil {
			return err
		}
		if i == 0 {
			g.report.Notes = append(g.report.Notes, notes...)
			g.report.expect(best, expectedISA())
		}
	}
	if len(c.functions) == 0 {
		return errors.New("there is no kernel to compare: " + strings.Join(g.report.Notes, "; "))
	}
	if err := c.check(ctx); err != nil {
		g.report.take(&c.comparison)
		return err
	}
	c.deadline, c.reserve = time.Now().Add(g.Budget), g.Budget/4
	return g.compare(ctx, &c.comparison)
}
