package gate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/cmd/bench/internal/cli"
	"github.com/seed621a2839/reweight/cmd/bench/internal/measure"
	"github.com/seed621a2839/reweight/kernels"
)

// The tests' own program is a worker of the gate where it is called as one: a
// fake, of which its name says how it behaves.
func init() {
	if len(os.Args) > 1 && os.Args[1] == WorkerCommand {
		if err := fakeWorker(strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe"), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		os.Exit(0)
	}
}

// quick measures as little as can be.
var quick = bench.Sampler{Block: time.Microsecond, Rounds: 1}

// command runs the gate with the flags of bench gate.
func command(ctx context.Context, args []string, out io.Writer, p *cli.Progress, sampler bench.Sampler) error {
	opt := Options{Alpha: 0.01, Slower: 1.05, Surely: 1.02, Budget: time.Hour, Progress: p, Sampler: sampler, GPU: &cli.GPU{}}
	for len(args) > 0 {
		if args[0] == "-record" {
			opt.Record, args = true, args[1:]
			continue
		}
		switch flag, value := args[0], args[1]; flag {
		case "-base":
			opt.Base = value
		case "-floor":
			opt.Floors = value
		case "-isa":
			impl, err := implementation(value)
			if err != nil {
				return err
			}
			opt.ISAs = &cli.Choice{CPU: []kernels.Implementation{impl}}
		case "-kernel":
			for name := range strings.SplitSeq(value, ",") {
				k, err := kernels.Find(name)
				if err != nil {
					return err
				}
				opt.Kernels = append(opt.Kernels, k)
			}
		default:
			i := slices.IndexFunc(Formats[:], func(f format) bool { return "-"+f.Name == flag })
			opt.Files[i] = value
		}
		args = args[2:]
	}
	return Run(ctx, opt, out)
}

// fakeWorker has two kernels and says that a call takes 100 ns.
func fakeWorker(kind string, in io.Reader, out io.Writer) error {
	hello := greeting{Protocol: workerProtocol, Best: expectedISA(), ISAs: []string{"portable", expectedISA()},
		Kernels: []workerKernel{{"token_stats", []string{"f32", "bf16"}, true, false}, {"multiply", []string{"f32"}, false, false}}}
	switch kind {
	case "real":
		return Worker(nil, in, out, &cli.GPU{})
	case "old":
		return fmt.Errorf("bench: unknown command %q, want something else", WorkerCommand)
	case "future":
		hello.Protocol++
	case "noisy":
		fmt.Fprintln(out, "hello, world")
		return nil
	case "mute":
		return errors.New("bench: cannot speak")
	case "named":
		return fmt.Errorf("bench %s: reweight: REWEIGHT_ISA is \"mmx\"", WorkerCommand)
	case "narrow":
		hello.Best = "portable"
		hello.ISAs = hello.ISAs[:1]
	case "gpu":
		if slices.Contains(os.Args, cli.CUDA) {
			hello.ISAs = append(hello.ISAs, cli.CUDA)
		}
	case "blind":
		hello.NoGPU = "the driver finds no device"
	case "more":
		hello.Kernels = append(hello.Kernels, workerKernel{"novel", []string{"f32"}, false, false})
	case "none":
		hello.Kernels = nil
	case "commands":
		hello.Kernels[1].Name = "::error::x"
	case "floods":
		fmt.Fprint(out, `{"protocol":2,"best":"`)
		for {
			fmt.Fprint(out, "portable")
		}
	case "screams":
		for {
			fmt.Fprint(os.Stderr, "portable\n")
		}
	case "repeats":
		for { // the greeting is not the answer to anything
			if err := json.NewEncoder(out).Encode(hello); err != nil {
				return err
			}
		}
	case "hushed":
		time.Sleep(time.Hour)
	case "babbles":
		fmt.Fprintln(out, "hello, world")
		time.Sleep(time.Hour)
	}
	if err := json.NewEncoder(out).Encode(hello); err != nil {
		return err
	}
	for d := json.NewDecoder(in); ; {
		var q request
		if err := d.Decode(&q); err != nil {
			return nil
		}
		a := answer{}
		ns := 100.0
		switch {
		case kind == "dies" && q.Do == "time":
			return errors.New("panic: no more\n\ngoroutine 1")
		case kind == "refuses" && q.Do == "time":
			a.Error = "I would rather not"
		case kind == "crashes" && q.Kernel == "multiply":
			return errors.New("SIGSEGV: segmentation violation")
		case kind == "hangs" && q.Do == "time" && q.Kernel == "multiply":
			time.Sleep(time.Hour)
		case kind == "killed" && q.Do == "time" && q.Kernel == "multiply":
			self, _ := os.FindProcess(os.Getpid())
			self.Kill()
			time.Sleep(time.Hour)
		case kind == "late" && q.Do == "time" && q.Kernel == "multiply":
			q.Blocks = 0
		case kind == "wrong" && q.Do == "check" && q.Kernel == "multiply":
			a.Failure = "multiply: far off"
		case kind == "hostile" && q.Do == "check" && q.Kernel == "multiply":
			a.Failure = hostile
		case kind == "swamps" && q.Do == "time" && q.Kernel == "multiply":
			if err := startSleeper(); err != nil {
				return err
			}
			fmt.Fprint(out, `{"error":"`)
			for {
				fmt.Fprint(out, "portable")
			}
		case kind == "wails" && q.Do == "time" && q.Kernel == "multiply":
			for {
				fmt.Fprint(os.Stderr, "portable\n")
			}
		case kind == "slow" && q.Kernel == "multiply":
			ns = 120
		case kind == "random" && q.Kernel == "multiply":
			ns = 100 + 10*rand.Float64()
		}
		if q.Do == "count" {
			a.Calls = 7
			if kind == "idle" {
				a.Calls = 0
			}
			if kind == "endless" {
				a.Calls = math.MaxInt32
			}
		}
		for range q.Blocks {
			a.Ns = append(a.Ns, ns)
		}
		if q.Do == "time" && q.Calls != 7 {
			a.Error = "not as many calls as were counted"
		}
		if err := json.NewEncoder(out).Encode(a); err != nil {
			return err
		}
	}
}

// hostile is text that a worker of another revision may say.
const hostile = "far\noff\r\n::error::x\x1b[2J ##[error]y \u202e <b>|\x00"

// startSleeper starts a process that outlives this one unless it is killed, and
// writes its number to the file of that environment variable.
func startSleeper() error {
	name := os.Getenv("GATE_TEST_SLEEPER")
	if name == "" {
		return nil
	}
	cmd := exec.Command("sleep", "600")
	cmd.Stderr = os.Stderr // it would keep the pipe open
	if err := cmd.Start(); err != nil {
		return err
	}
	return os.WriteFile(name, fmt.Append(nil, cmd.Process.Pid), 0o666)
}

// canStart skips a test that starts this program or one that is built for it,
// where an emulated process cannot.
func canStart(t *testing.T) {
	t.Helper()
	if err := exec.Command(os.Args[0], "-test.run", "^$").Run(); errors.Is(err, syscall.ENOEXEC) {
		t.Skip("an emulated process cannot start another")
	}
}

// fake returns a side that behaves as its name says.
func fake(t *testing.T, kind string) *kernelBench {
	t.Helper()
	canStart(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GORACE", "atexit_sleep_ms=0") // there are hundreds of these processes
	exe := filepath.Join(t.TempDir(), kind+".exe")
	if err := os.Symlink(self, exe); err != nil {
		t.Skip(err)
	}
	patience := workerPatience
	switch kind {
	case "hushed":
		patience = 100 * time.Millisecond
	case "hangs":
		patience = hangPatience
	}
	return &kernelBench{name: kind, exe: exe, patience: patience}
}

// hangPatience is how long the fake that hangs is waited for. What it does before that has
// to take less.
var hangPatience = 2 * time.Second

// compareFakes runs the comparison of two fakes.
func compareFakes(t *testing.T, ctx context.Context, base, now string, names []string, impls []kernels.Implementation) (report, error) {
	t.Helper()
	var k []kernels.Kernel
	for _, name := range names {
		k = append(k, kernels.Kernel{Name: name})
	}
	g := gate{Options: Options{Kernels: k, Progress: &cli.Progress{}}}
	if impls != nil {
		g.ISAs = &cli.Choice{CPU: impls}
	}
	err := compareWith(t, ctx, &g, base, now)
	return g.report, err
}

func compareWith(t *testing.T, ctx context.Context, g *gate, base, now string) error {
	t.Helper()
	g.Alpha, g.Slower, g.Surely, g.Budget = 0.01, 1.05, 1.02, time.Hour
	err := g.compareKernels(ctx, fake(t, base), fake(t, now))
	g.report.Against, g.report.Partial = base, ctx.Err() != nil
	g.report.Verdict = g.report.verdict()
	return err
}

// verdicts returns them in one line.
func verdicts(r report) string {
	var all []string
	for _, q := range r.Results {
		all = append(all, q.Kernel+" "+q.DType+" "+q.Verdict.String())
	}
	return strings.Join(all, ", ")
}

func TestGateCompares(t *testing.T) {
	for _, c := range []struct{ base, now, want, message string }{
		{"good", "good", "token_stats f32 pass, token_stats bf16 pass, multiply f32 pass", ""},
		{"slow", "good", "token_stats f32 pass, token_stats bf16 pass, multiply f32 pass", ""},
		// Of 20 ns, half of one does not count.
		{"good", "slow", "token_stats f32 pass, token_stats bf16 pass, multiply f32 regression", "multiply f32 on " + expectedISA() + ": takes 1.195 times as long as the base (1.195 to 1.195), 12 pairs"},
		{"good", "wrong", "token_stats f32 pass, token_stats bf16 pass, multiply f32 regression", "multiply: far off"},
		{"random", "random", "token_stats f32 pass, token_stats bf16 pass, multiply f32 pass", ""},
		{"good", "more", "token_stats f32 pass, token_stats bf16 pass, multiply f32 pass", "novel f32 is only in more: not compared"},
		{"more", "good", "token_stats f32 pass, token_stats bf16 pass, multiply f32 pass", "novel f32 is only in more: not compared"},
	} {
		r, err := compareFakes(t, t.Context(), c.base, c.now, nil, nil)
		if got := verdicts(r); err != nil || got != c.want {
			t.Errorf("%s to %s: %v, %s, want %s", c.base, c.now, err, got, c.want)
		}
		if all := strings.Join(r.remarks(), "\n"); !strings.Contains(all, c.message) {
			t.Errorf("%s to %s: no %q in %s", c.base, c.now, c.message, all)
		}
		if r.Null == nil || c.base != "random" && r.Null.Median != 1 || r.Results[0].Ratio.N != 12 || r.Results[0].BaseNs != 100 {
			t.Errorf("%s to %s: noise %+v, results %+v", c.base, c.now, r.Null, r.Results)
		}
	}
	if r, err := compareFakes(t, t.Context(), "good", "slow", []string{"token_stats"}, nil); err != nil || verdicts(r) != "token_stats f32 pass, token_stats bf16 pass" {
		t.Errorf("of one kernel: %v, %s", err, verdicts(r))
	}
	if r, err := compareFakes(t, t.Context(), "good", "good", []string{"multiply"}, kernels.Implementations()[:1]); err != nil || len(r.Results) != 1 || r.Results[0].ISA != "portable" {
		t.Errorf("of one path: %v, %+v", err, r.Results)
	}
}

// TestGateNoticesTheISA: callers of a build that lost its assembly do not get
// what this CPU has.
func TestGateNoticesTheISA(t *testing.T) {
	if expectedISA() == "portable" {
		t.Skip("only the portable kernels run here")
	}
	r, err := compareFakes(t, t.Context(), "good", "narrow", nil, nil)
	if err != nil || r.Verdict != bench.Regression || !strings.Contains(verdicts(r), "all types regression") {
		t.Errorf("%v, %s", err, verdicts(r))
	}
	if all := strings.Join(r.remarks(), "\n"); !strings.Contains(all, "callers get portable") || !strings.Contains(all, "callers of good get "+expectedISA()) {
		t.Error(all)
	}
}

// TestExpectedISA: the library does take it.
func TestExpectedISA(t *testing.T) {
	best, err := reweight.BestISA()
	if err != nil {
		t.Fatal(err)
	}
	if want := expectedISA(); best.String() != want && len(reweight.AvailableISAs()) > 1 {
		t.Errorf("the path is %v, want %s", best, want)
	}
	t.Setenv("REWEIGHT_ISA", "portable")
	if got := expectedISA(); got != "portable" {
		t.Errorf("with REWEIGHT_ISA=portable: %s", got)
	}
}

func TestGateWorkersFail(t *testing.T) {
	for kind, want := range map[string]string{
		"old":      "the bench of old is older than the gate",
		"future":   "has another version of the gate (protocol 3, and this one has 2)",
		"noisy":    "the bench of noisy: invalid character",
		"babbles":  "the bench of babbles: invalid character",
		"hushed":   "the bench of hushed: no answer in 100ms",
		"mute":     "the bench of mute: bench: cannot speak",
		"named":    "the bench of named: bench gate-worker: reweight: REWEIGHT_ISA is",
		"none":     "there is no kernel to compare",
		"commands": `the bench of commands: "::error::x" is not the name of a kernel, a type or an instruction set`,
		"floods":   "the bench of floods: an answer of more than 64 KiB",
		"screams":  "the bench of screams: more than 64 KiB on standard error",
	} {
		for _, sides := range [][2]string{{kind, "good"}, {"good", kind}} {
			if _, err := compareFakes(t, t.Context(), sides[0], sides[1], nil, nil); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v: %v, want %q", sides, err, want)
			}
		}
	}
	if _, err := compareFakes(t, t.Context(), "narrow", "good", nil, kernels.Implementations()[len(reweight.AvailableISAs())-1:]); len(reweight.AvailableISAs()) > 1 && (err == nil || !strings.Contains(err.Error(), "the bench of narrow has portable")) {
		t.Errorf("an instruction set that one side lacks: %v", err)
	}
}

// TestGateKernelsFail: a kernel that crashes, hangs or gives an error is a
// regression of the new build, and of the base an error; the others go on.
func TestGateKernelsFail(t *testing.T) {
	const one, all = "token_stats f32 pass, token_stats bf16 pass, multiply f32 regression", "token_stats f32 regression, token_stats bf16 regression, multiply f32 regression"
	for kind, want := range map[string]struct{ verdicts, message string }{
		"dies":    {all, "the bench of dies: panic: no more"},
		"refuses": {all, ": I would rather not"},
		"crashes": {one, "the bench of crashes: SIGSEGV: segmentation violation"},
		"hangs":   {one, "the bench of hangs: no answer in "},
		"killed":  {one, "the bench of killed: signal: killed"},
		"late":    {one, "the bench of late: multiply f32: the times of 5 blocks are []"},
		"swamps":  {one, "the bench of swamps: an answer of more than 64 KiB"},
		"wails":   {one, "the bench of wails: more than 64 KiB on standard error"},
		"repeats": {all, `the bench of repeats: json: unknown field "protocol"`},
	} {
		if kind == "killed" && runtime.GOOS == "windows" {
			continue
		}
		r, err := compareFakes(t, t.Context(), "good", kind, nil, nil)
		for kind == "hangs" && verdicts(r) != want.verdicts && hangPatience < time.Minute { // a slow machine
			hangPatience *= 5
			r, err = compareFakes(t, t.Context(), "good", kind, nil, nil)
		}
		if got := verdicts(r); err != nil || got != want.verdicts {
			t.Errorf("%s: %v, %s", kind, err, got)
		}
		if all := strings.Join(r.remarks(), "\n"); !strings.Contains(all, "the new build: ") || !strings.Contains(all, want.message) || strings.Contains(all, "goroutine") {
			t.Errorf("%s: no %q in %s", kind, want.message, all)
		}
		// Of the base: with what there is by then.
		g := gate{Options: Options{Progress: &cli.Progress{}}}
		err = compareWith(t, t.Context(), &g, kind, "good")
		if err == nil || !strings.Contains(err.Error(), want.message) {
			t.Errorf("base %s: %v", kind, err)
		}
		var out bytes.Buffer
		g.report.Partial = false
		err = g.finish(t.Context(), err, &outputs{stdout: &out})
		measured := kind == "hangs" || kind == "killed" || kind == "late" || kind == "swamps" || kind == "wails"
		if cli.ExitStatus("", err, io.Discard) != 2 || measured != strings.Contains(out.String(), "ERROR, the results are partial against "+kind) || measured != g.report.Partial || measured != (strings.Contains(out.String(), "It ended early: ") && strings.Contains(out.String(), want.message)) {
			t.Errorf("base %s: %v\n%s", kind, err, out.String())
		}
	}
}

// TestGateCountsAreChecked: a base that has no sensible number of calls cannot
// make the new build look bad.
func TestGateCountsAreChecked(t *testing.T) {
	for kind, want := range map[string]string{
		"idle":    "the bench of idle: token_stats f32: 0 calls take 150µs",
		"endless": "the bench of endless: token_stats f32: 2147483647 calls take 150µs",
	} {
		if r, err := compareFakes(t, t.Context(), kind, "good", nil, nil); err == nil || err.Error() != want || r.Verdict == bench.Regression {
			t.Errorf("%s: %v, want %s", kind, err, want)
		}
	}
}

// TestGateEndsWhatAWorkerStarted: a worker is killed with its children.
func TestGateEndsWhatAWorkerStarted(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("it looks into /proc")
	}
	name := filepath.Join(t.TempDir(), "pid")
	t.Setenv("GATE_TEST_SLEEPER", name)
	if r, err := compareFakes(t, t.Context(), "good", "swamps", []string{"multiply"}, nil); err != nil || verdicts(r) != "multiply f32 regression" {
		t.Fatalf("%v, %s", err, verdicts(r))
	}
	pid, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for begin := time.Now(); time.Since(begin) < 5*time.Minute; {
		stat, err := os.ReadFile("/proc/" + string(pid) + "/stat")
		if err != nil || strings.Contains(string(stat), ") Z ") { // gone, or dead and not waited for by its new parent
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("process %s still runs", pid)
}

// TestGateQuotes: what a worker, git or a file says reaches no output as it is.
func TestGateQuotes(t *testing.T) {
	g := gate{Options: Options{Progress: &cli.Progress{}}}
	if err := compareWith(t, t.Context(), &g, "good", "hostile"); err != nil {
		t.Fatal(err)
	}
	g.report.Against, g.report.Notes = "::error::"+hostile, []string{"::error::" + hostile}
	g.report.Results = append(g.report.Results, Result{Kernel: hostile, DType: hostile, ISA: hostile, Verdict: bench.Inconclusive, Message: hostile})
	quotes(t, &g)
	// Benchmarks, with names that a test binary has made up, and trailers of a commit.
	g = gate{accepted: []acceptance{{hostile, "::error::" + hostile, hostile}, {"x", hostile, hostile}}}
	g.report = report{Against: hostile, Limits: &limits{1.05, 1.02, 0.01}, Results: []Result{
		{Package: hostile, relative: "::error::" + hostile, Benchmark: hostile, Verdict: bench.Regression, Ratio: ratioOf(1.2), Metrics: []Metric{{"::error::" + hostile, bench.Regression, 1, 2, nil}}},
		{Package: hostile, relative: ".", Benchmark: "::error::" + hostile, Verdict: bench.Regression, Message: "::error::" + hostile},
		{Package: hostile, relative: ".", Benchmark: "::error::" + hostile, Verdict: bench.Pass, Ratio: ratioOf(1), Message: "::error::" + hostile},
	}}
	quotes(t, &g)
	if q := g.report.Results[1]; q.Accepted == "" {
		t.Errorf("%+v is not accepted", q)
	}
}

// quotes writes the report in all formats.
func quotes(t *testing.T, g *gate) {
	t.Helper()
	for stdout := range len(Formats) + 1 { // each of the formats, and the table
		var out bytes.Buffer
		o := outputs{stdout: &out}
		if stdout < len(Formats) {
			o.files[stdout].name = "-"
		}
		err := g.finish(t.Context(), errors.New("::error::"+hostile), &o)
		cli.ExitStatus("bench gate", err, &out)
		if !strings.Contains(out.String(), `far`) {
			t.Errorf("format %d lacks the message:\n%q", stdout, out.String())
		}
		for line := range strings.Lines(out.String()) {
			line = strings.TrimSuffix(line, "\n")
			if strings.HasPrefix(strings.TrimSpace(line), "::") || strings.Contains(line, "##[") || strings.HasPrefix(line, "off") || strings.ContainsFunc(line, func(r rune) bool { return !strconv.IsPrint(r) && r != '─' }) {
				t.Errorf("format %d has the line %q", stdout, line)
			}
		}
	}
}

// TestGateInterrupted: what there is by then is kept, and marked.
func TestGateInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	g := gate{Options: Options{Progress: &cli.Progress{W: onWrite(func(line string) {
		if strings.Contains(line, "pair 3 of") {
			cancel()
		}
	})}}}
	if err := compareWith(t, ctx, &g, "good", "good"); err == nil {
		t.Error("no error")
	}
	r := g.report
	if got := verdicts(r); got != "token_stats f32 open, token_stats bf16 open, multiply f32 open" {
		t.Error(got)
	}
	if r.Verdict != bench.Open || !strings.Contains(r.summary(), "INTERRUPTED") {
		t.Errorf("%v, %s", r.Verdict, r.summary())
	}
	var out bytes.Buffer
	if err := g.finish(ctx, context.Canceled, &outputs{stdout: &out}); err != cli.ErrInterrupted || !strings.Contains(out.String(), "1.000") {
		t.Errorf("%v in\n%s", err, out.String())
	}
}

// TestGateRealWorker: the worker does what it is asked, on every kernel.
func TestGateRealWorker(t *testing.T) {
	p, err := fake(t, "real").start(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	if best, _ := reweight.BestISA(); p.hello.Best != best.String() || !slices.Equal(p.hello.ISAs, cli.ISANames()) || len(p.hello.Kernels) != len(kernels.All()) {
		t.Errorf("%+v", p.hello)
	}
	for _, k := range p.hello.Kernels {
		q := request{Do: "check", Kernel: k.Name, DType: k.DTypes[0], Rows: 64}
		if k.Rows {
			q.Rows, q.Vocab = 2, 50
		}
		if a, err := p.ask(q); err != nil || a.Failure != "" {
			t.Errorf("%+v: %+v, %v", q, a, err)
		}
		q.Do, q.Block = "count", 50*time.Microsecond
		a, err := p.ask(q)
		if err != nil || a.Calls < 1 || a.Calls > 50000 {
			t.Errorf("%+v: %+v, %v", q, a, err)
		}
		q.Do, q.Calls, q.Blocks = "time", 2, 3
		if a, err := p.ask(q); err != nil || len(a.Ns) != 3 || !(a.Ns[0] > 0) {
			t.Errorf("%+v: %+v, %v", q, a, err)
		}
	}
	good := request{Do: "time", Kernel: "multiply", DType: "f32", Rows: 64, Calls: 1, Blocks: 1}
	for what, change := range map[string]func(*request){
		"request": func(q *request) { q.Do = "dance" }, "kernel": func(q *request) { q.Kernel = "gemm" }, "type": func(q *request) { q.DType = "f64" },
		"isa": func(q *request) { q.ISA = "sse9" }, "rows": func(q *request) { q.Rows = 0 }, "calls": func(q *request) { q.Calls = 0 }, "blocks": func(q *request) { q.Blocks = 1e9 },
	} {
		q := good
		change(&q)
		if _, err := p.ask(q); err == nil {
			t.Errorf("no error for a wrong %s", what)
		}
	}
	if a, err := p.ask(good); err != nil || len(a.Ns) != 1 {
		t.Errorf("after errors: %+v, %v", a, err)
	}
}

// TestWorkerChecksParity: at small sizes and at the one that is timed; the first
// failure is the answer.
func TestWorkerChecksParity(t *testing.T) {
	for name, rows := range map[string]int{"multiply": gateTokens, "token_stats": gateRows} {
		k, err := kernels.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		q := request{Do: "check", Kernel: name, DType: "f32", Rows: rows}
		timed := rows
		if k.Rows {
			q.Vocab, timed = gateVocab, gateVocab
		}
		w := &server{parity: func(_ context.Context, k kernels.Kernel, dtype reweight.DType, sizes []int, impls []kernels.Implementation) ([]measure.Parity, error) {
			if !slices.Contains(sizes, timed) || !slices.Contains(sizes, 17) || !slices.Equal(names(impls), append(cli.ISANames(), "auto")) {
				t.Errorf("%s is checked at %v on %v", name, sizes, names(impls))
			}
			return []measure.Parity{{}, {Failure: "far off"}, {Failure: "also"}}, nil
		}}
		if a, err := w.answer(q); err != nil || a.Failure != "far off" {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
	}
}

func names(impls []kernels.Implementation) (all []string) {
	for _, impl := range impls {
		all = append(all, impl.Name)
	}
	return all
}

func TestCheckNoticesAllocations(t *testing.T) {
	q := request{DType: "f32", Rows: 64}
	k, err := kernels.Find("multiply")
	if err != nil {
		t.Fatal(err)
	}
	if failure, err := (&server{parity: measure.Check}).check(k, reweight.DTypeF32, q, callers); failure != "" || err != nil {
		t.Errorf("%q, %v", failure, err)
	}
	var sink []byte
	failure, err := allocates(func() error { sink = make([]byte, 64); return nil })
	if want := "1 heap allocations of 64 bytes per call"; !strings.Contains(failure, want) || err != nil {
		t.Errorf("%q, %v, want %q", failure, err, want)
	}
	runtime.KeepAlive(sink)
}

// TestGateHangup: a terminal that is closed ends it as an interrupt does.
func TestGateHangup(t *testing.T) {
	if signal.Ignored(syscall.SIGHUP) || runtime.GOOS == "windows" {
		t.Skip("a hangup does nothing here")
	}
	name := filepath.Join(t.TempDir(), "floors.json")
	if err := os.WriteFile(name, []byte(`{"vocab":151936}`), 0o666); err != nil {
		t.Fatal(err)
	}
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	rescue := make(chan os.Signal, 1) // from the end of the test's process
	signal.Notify(rescue, syscall.SIGHUP)
	defer signal.Stop(rescue)
	hangUp := &cli.Progress{W: onWrite(func(line string) {
		if strings.Contains(line, "measuring multiply") {
			self.Signal(syscall.SIGHUP)
			<-rescue
			time.Sleep(time.Second) // what else waits for the signal has it too, and needs a moment to end the context
		}
	})}
	paths := reweight.AvailableISAs()
	if err := command(t.Context(), []string{"-floor", name, "-kernel", "multiply,surrogate", "-isa", paths[len(paths)-1].String()}, io.Discard, hangUp, quick); cli.ExitStatus("", err, io.Discard) != 130 {
		t.Errorf("%v", err)
	}
}
