package gate

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/cmd/bench/internal/cli"
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

// A compared function is a kernel in one format with one instruction set.
type compared struct {
	Result
	request request
	calls   int
	pairs   []bench.Pair
}

// A side is a build of the bench.
type side struct {
	name     string
	exe      string
	patience time.Duration // how long an answer may take
	gpu      bool          // whether it is asked to open the GPU
}

// workerPatience is how long an answer may take: any takes far less.
const workerPatience = time.Minute

// What a worker may print: an answer is a line on standard output. None comes near.
const (
	maxAnswer = 64 << 10 // bytes
	maxStderr = 64 << 10 // in all
)

// A process is a running worker.
type process struct {
	side   side
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr *capped
	hello  greeting
	killed atomic.Pointer[string] // why the gate killed it, if it did
}

// start starts a worker and reads its greeting.
func (s side) start(ctx context.Context) (*process, error) {
	args := []string{WorkerCommand}
	if s.gpu {
		args = append(args, cli.CUDA)
	}
	p := &process{side: s, cmd: exec.CommandContext(ctx, s.exe, args...)}
	p.stderr = &capped{most: maxStderr, full: func() { p.kill(fmt.Sprintf("more than %d KiB on standard error", maxStderr>>10)) }}
	p.cmd.Env = append(os.Environ(), "GOMAXPROCS=1") // it does one thing at a time, and idle threads would disturb it
	p.cmd.Stderr = p.stderr
	p.cmd.WaitDelay = workerGrace
	p.cmd.SysProcAttr = ownGroup()
	p.cmd.Cancel = func() error { return killGroup(p.cmd.Process) }
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReaderSize(out, maxAnswer)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := p.line()
	if err == nil {
		err = json.Unmarshal(line, &p.hello) // other versions may have other fields
	}
	if err != nil {
		err = p.failed(err)
		if p.killed.Load() == nil && strings.Contains(p.stderr.text.String(), "unknown command") {
			err = fmt.Errorf("the bench of %s is older than the gate: it has no %s", s.name, WorkerCommand)
		}
		return nil, err
	}
	if p.hello.Protocol != workerProtocol {
		p.close()
		return nil, fmt.Errorf("the bench of %s has another version of the gate (protocol %d, and this one has %d), so the two cannot be compared", s.name, p.hello.Protocol, workerProtocol)
	}
	if err := p.hello.check(); err != nil {
		p.close()
		return nil, fmt.Errorf("the bench of %s: %w", s.name, err)
	}
	return p, nil
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

// line reads the next line that the worker prints.
func (p *process) line() ([]byte, error) {
	timer := time.AfterFunc(p.side.patience, func() { p.kill(fmt.Sprintf("no answer in %v", p.side.patience)) })
	defer timer.Stop()
	line, err := p.out.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		p.kill(fmt.Sprintf("an answer of more than %d KiB", maxAnswer>>10))
	}
	return line, err
}

// hear reads the answer to a request, with no fields that an answer lacks.
func (p *process) hear() (a answer, err error) {
	line, err := p.line()
	if err != nil {
		return a, err
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	return a, d.Decode(&a)
}

// kill ends the worker and what it has started, at once. The first reason counts.
func (p *process) kill(why string) {
	p.killed.CompareAndSwap(nil, &why)
	killGroup(p.cmd.Process)
}

// A capped buffer keeps the first bytes that are written to it. If there are more
// than most, it drops the rest and calls full.
type capped struct {
	text bytes.Buffer
	most int
	full func() // or nil
}

func (c *capped) Write(b []byte) (int, error) {
	room := c.most - c.text.Len()
	c.text.Write(b[:min(room, len(b))])
	if len(b) > room && c.full != nil {
		c.full()
	}
	return len(b), nil
}

// failed ends a worker that does not answer, and explains why.
func (p *process) failed(err error) error {
	ended := p.close()
	said, _, _ := strings.Cut(strings.TrimSpace(p.stderr.text.String()), "\n") // without the stack of a panic
	switch why := p.killed.Load(); {
	case why != nil:
		return fmt.Errorf("the bench of %s: %s", p.side.name, *why)
	case said != "":
		return fmt.Errorf("the bench of %s: %s", p.side.name, said)
	case ended != nil && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)):
		err = ended
	}
	return fmt.Errorf("the bench of %s: %w", p.side.name, err)
}

func (p *process) ask(q request) (answer, error) {
	text, err := json.Marshal(q)
	if err != nil {
		return answer{}, err
	}
	if _, err := p.in.Write(append(text, '\n')); err != nil { // a line fits in the pipe
		return answer{}, p.failed(io.ErrUnexpectedEOF)
	}
	a, err := p.hear()
	if err != nil {
		return a, p.failed(err)
	}
	if a.Error == "" && q.Do == "count" && (a.Calls < 1 || a.Calls > int(q.Block)) { // a call takes a nanosecond or more
		a.Error = fmt.Sprintf("%d calls take %v", a.Calls, q.Block)
	}
	if a.Error == "" && q.Do == "time" && (len(a.Ns) != q.Blocks || slices.Min(a.Ns) <= 0) {
		a.Error = fmt.Sprintf("the times of %d blocks are %v", q.Blocks, a.Ns)
	}
	if a.Error != "" {
		return a, fmt.Errorf("the bench of %s: %s %s: %s", p.side.name, q.Kernel, q.DType, a.Error)
	}
	return a, nil
}

// workerGrace is how long a worker may take to end.
const workerGrace = time.Second

// close ends the worker, and returns how it ended. It may be called again.
func (p *process) close() error {
	p.in.Close()
	kill := time.AfterFunc(workerGrace, func() { killGroup(p.cmd.Process) })
	defer kill.Stop()
	return p.cmd.Wait()
}

// A comparison runs the benches of two builds against each other.
type comparison struct {
	base, now side
	functions []*compared
	rule      bench.Rule
	rounds    int
	again     []float64 // see bench.TakePair
	rand      *rand.Rand
	progress  *cli.Progress
}

// plan asks both sides what they have, and lists what can be compared: the named
// kernels, or all if there are no names, with one instruction set, or with the one
// that callers get if it is empty. It returns the instruction set that callers of
// the new build get, and in words what cannot be compared.
func (c *comparison) plan(ctx context.Context, names []string, isa string) (best string, notes []string, err error) {
	base, now, err := c.start(ctx)
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
	for _, p := range []*process{base, now} {
		if isa == cli.CUDA && !slices.Contains(p.hello.ISAs, isa) {
			return "", nil, &noGPUError{p.side.name, cmp.Or(p.hello.NoGPU, "it has no kernels for a GPU")}
		}
		if isa != "" && !slices.Contains(p.hello.ISAs, isa) {
			return "", nil, fmt.Errorf("-isa %q: the bench of %s has %s", isa, p.side.name, strings.Join(p.hello.ISAs, ", "))
		}
	}
	of := func(p *process) (all []request) {
		for _, k := range p.hello.Kernels {
			if names != nil && !slices.Contains(names, k.Name) {
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
		c.functions = append(c.functions, &compared{Result: Result{Kernel: q.Kernel, DType: q.DType, ISA: name}, request: q})
	}
	return now.hello.Best, notes, nil
}

// A noGPUError says that a side cannot use the GPU.
type noGPUError struct{ side, why string }

func (e *noGPUError) Error() string {
	return fmt.Sprintf("%s is not compared: the bench of %s: %s", cli.CUDA, e.side, e.why)
}

// start starts a fresh process of either side.
func (c *comparison) start(ctx context.Context) (base, now *process, err error) {
	if base, err = c.base.start(ctx); err != nil {
		return nil, nil, err
	}
	if now, err = c.now.start(ctx); err != nil {
		base.close()
		return nil, nil, err
	}
	return base, now, nil
}

// check asks the new build for the hard conditions, and the base how many calls
// make a block.
func (c *comparison) check(ctx context.Context) error {
	base, now, err := c.start(ctx)
	if err != nil {
		return err
	}
	defer func() { base.close(); now.close() }()
	for _, f := range c.functions {
		c.progress.Next("checking %s %s", f.Kernel, f.DType)
		q := f.request
		q.Do = "check"
		a, err := now.ask(q)
		if err != nil {
			if now, err = c.broke(ctx, f, now, err); err != nil {
				return err
			}
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

// broke is called when the new build failed to answer about the function. That is
// a regression of the function. broke returns a fresh process in place of the one
// that was asked.
func (c *comparison) broke(ctx context.Context, f *compared, now *process, err error) (*process, error) {
	if ctx.Err() != nil {
		return now, err
	}
	f.Verdict, f.Message = bench.Regression, "the new build: "+err.Error()
	now.close()
	fresh, err := c.now.start(ctx)
	if err != nil {
		return now, err
	}
	return fresh, nil
}

// measure takes pairs until each function has its verdict.
//
// Two processes of one build may differ by several percent for as long as they
// live, by where their memory happens to lie. So every pair has two processes of
// its own, which makes such luck part of the noise between pairs, and a coin says
// which of them begins: with no difference between the builds, a pair is as
// likely to be above 1 as below, whatever the machine does meanwhile. Functions
// take turns pair by pair, so that a bad moment hits few pairs of each.
func (c *comparison) measure(ctx context.Context) error {
	last := c.rule.Looks[len(c.rule.Looks)-1]
	for ; c.rounds < last; c.rounds++ {
		open := slices.DeleteFunc(slices.Clone(c.functions), func(f *compared) bool { return f.Verdict != bench.Open })
		if len(open) == 0 {
			return nil
		}
		c.progress.Next("pair %d of at most %d, still open: %d", c.rounds+1, last, len(open))
		if err := c.round(ctx, open); err != nil {
			return err
		}
	}
	return nil
}

// round takes a pair of each of these functions.
func (c *comparison) round(ctx context.Context, open []*compared) error {
	base, now, err := c.start(ctx)
	if err != nil {
		return err
	}
	defer func() { base.close(); now.close() }()
	for _, f := range open {
		q := f.request
		q.Do, q.Calls, q.Blocks = "time", f.calls, gateBlocks
		var broken error // of the new build
		pair, again, err := bench.TakePair(c.rand, func() ([]float64, error) {
			a, err := base.ask(q)
			return a.Ns, err
		}, func() ([]float64, error) {
			a, err := now.ask(q)
			broken = err
			return a.Ns, err
		})
		if broken != nil {
			if now, err = c.broke(ctx, f, now, broken); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		c.again = append(c.again, again)
		f.pairs = append(f.pairs, pair)
		f.decide(c.rule)
	}
	return nil
}

// decide sets the result from the pairs so far.
func (f *compared) decide(rule bench.Rule) {
	verdict, ratio := rule.Decide(f.pairs)
	f.Verdict, f.Ratio = verdict, &ratio
	var sides bench.Samples = make([][]float64, 2)
	for _, p := range f.pairs {
		sides[0], sides[1] = append(sides[0], p.Base), append(sides[1], p.New)
	}
	f.BaseNs, f.NewNs = sides.Median(0).Median, sides.Median(1).Median
	switch verdict {
	case bench.Regression:
		f.Message = fmt.Sprintf("takes %.3f times as long as the base (%s), %d pairs", ratio.Median, interval(ratio), ratio.N)
	case bench.Inconclusive:
		f.Message = fmt.Sprintf("takes %.3f times as long as the base (%s), open after %d pairs", ratio.Median, interval(ratio), ratio.N)
	}
}

// againstBase compares the working tree with a revision.
func (g *gate) againstBase(ctx context.Context, ref string) error {
	g.report.Against = ref
	c := comparison{rand: rand.New(rand.NewPCG(rand.Uint64(), 0)), progress: g.Progress}
	g.Progress.Next("building both benches")
	b, err := buildBoth(ctx, ref)
	defer b.remove()
	if err != nil {
		return err
	}
	g.report.Against = b.against
	g.report.Notes = append(g.report.Notes, b.notes...)
	c.base, c.now = side{ref, b.base, workerPatience, false}, side{"the working tree", b.now, workerPatience, false}
	return g.compare(ctx, &c)
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

// compare runs the comparison and adds its results to the report. With an error,
// they are those that there are by then.
func (g *gate) compare(ctx context.Context, c *comparison) error {
	g.report.base = true
	defer func() {
		for _, f := range c.functions {
			g.report.Results = append(g.report.Results, f.Result)
		}
		if len(c.again) > 0 {
			null := bench.Samples{c.again}.Median(0)
			g.report.Null = &null
		}
	}()
	isas := g.compared()
	c.base.gpu = slices.Contains(isas, cli.CUDA)
	c.now.gpu = c.base.gpu
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
	c.rule = bench.NewRule(len(c.functions), 0.01)
	if err := c.check(ctx); err != nil {
		return err
	}
	return c.measure(ctx)
}
