package gate

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
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
	opt := Options{Progress: p, Sampler: sampler}
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
			isa, err := reweight.ParseISA(value)
			if err != nil {
				return err
			}
			opt.ISAs = []reweight.ISA{isa}
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
		Kernels: []workerKernel{{"token_stats", []string{"f32", "bf16"}, true}, {"multiply", []string{"f32"}, false}}}
	switch kind {
	case "real":
		return Worker(in, out)
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
	case "more":
		hello.Kernels = append(hello.Kernels, workerKernel{"novel", []string{"f32"}, false})
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
func fake(t *testing.T, kind string) side {
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
		patience = 2 * time.Second
	}
	return side{kind, exe, patience}
}

// compareFakes runs the comparison of two fakes.
func compareFakes(t *testing.T, ctx context.Context, base, now string, names []string, isas []reweight.ISA) (report, error) {
	t.Helper()
	var k []kernels.Kernel
	for _, name := range names {
		k = append(k, kernels.Kernel{Name: name})
	}
	g := gate{Options: Options{Kernels: k, ISAs: isas, Progress: &cli.Progress{}}}
	err := compareWith(t, ctx, &g, base, now)
	return g.report, err
}

func compareWith(t *testing.T, ctx context.Context, g *gate, base, now string) error {
	t.Helper()
	c := comparison{base: fake(t, base), now: fake(t, now), rand: rand.New(rand.NewPCG(1, 2)), progress: g.Progress}
	err := g.compare(ctx, &c)
	if n := len(c.functions); err == nil && (n == 0 || c.rule.Functions != n) {
		t.Errorf("%s to %s: a rule for %d functions, and %d are compared", base, now, c.rule.Functions, n)
	}
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
		// Of 20 ns, 5 do not count.
		{"good", "slow", "token_stats f32 pass, token_stats bf16 pass, multiply f32 regression", "multiply f32 on " + expectedISA() + ": takes 1.150 times as long as the base (1.150 to 1.150), 12 pairs"},
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
	if r, err := compareFakes(t, t.Context(), "good", "good", []string{"multiply"}, []reweight.ISA{reweight.Portable}); err != nil || len(r.Results) != 1 || r.Results[0].ISA != "portable" {
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
	if _, err := compareFakes(t, t.Context(), "narrow", "good", nil, []reweight.ISA{reweight.AvailableISAs()[len(reweight.AvailableISAs())-1]}); len(reweight.AvailableISAs()) > 1 && (err == nil || !strings.Contains(err.Error(), "the bench of narrow has portable")) {
		t.Errorf("an instruction set that one side lacks: %v", err)
	}
}

// TestGateKernelsFail: a kernel that crashes, hangs or gives an error is a
// regression of the new build, and of the base an error; the others go on.
func TestGateKernelsFail(t *testing.T) {
	const one, all = "token_stats f32 pass, token_stats bf16 pass, multiply f32 regression", "token_stats f32 regression, token_stats bf16 regression, multiply f32 regression"
	for kind, want := range map[string]struct{ verdicts, message string }{
		"dies":    {all, "the bench of dies: panic: no more"},
		"refuses": {all, "the bench of refuses: token_stats f32: I would rather not"},
		"crashes": {one, "the bench of crashes: SIGSEGV: segmentation violation"},
		"hangs":   {one, "the bench of hangs: no answer in 2s"},
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
		if got := verdicts(r); err != nil || got != want.verdicts {
			t.Errorf("%s: %v, %s", kind, err, got)
		}
		if all := strings.Join(r.remarks(), "\n"); !strings.Contains(all, "the new build: "+want.message) || strings.Contains(all, "goroutine") {
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
		if cli.ExitStatus("", err, io.Discard) != 2 || measured != strings.Contains(out.String(), "ERROR, the results are partial against "+kind) || measured != g.report.Partial || measured != strings.Contains(out.String(), "It ended early: "+want.message) {
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
	for range 100 {
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
	p, err := fake(t, "real").start(t.Context())
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
		w := worker{parity: func(_ context.Context, k kernels.Kernel, dtype reweight.DType, sizes []int, isas []reweight.ISA) ([]measure.Parity, error) {
			if !slices.Contains(sizes, timed) || !slices.Contains(sizes, 17) || !slices.Contains(isas, reweight.Auto) || !slices.Contains(isas, reweight.Portable) {
				t.Errorf("%s is checked at %v on %v", name, sizes, isas)
			}
			return []measure.Parity{{}, {Failure: "far off"}, {Failure: "also"}}, nil
		}}
		if a, err := w.answer(q); err != nil || a.Failure != "far off" {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
	}
}

func TestCheckNoticesAllocations(t *testing.T) {
	q := request{DType: "f32", Rows: 64}
	k, err := kernels.Find("multiply")
	if err != nil {
		t.Fatal(err)
	}
	if failure, err := (worker{parity: measure.Check}).check(k, reweight.DTypeF32, q, reweight.Auto); failure != "" || err != nil {
		t.Errorf("%q, %v", failure, err)
	}
	var sink []byte
	failure, err := allocates(func() error { sink = make([]byte, 64); return nil })
	if want := "1 heap allocations of 64 bytes per call"; !strings.Contains(failure, want) || err != nil {
		t.Errorf("%q, %v, want %q", failure, err, want)
	}
	runtime.KeepAlive(sink)
}

// onWrite is called with what is written.
type onWrite func(string)

func (f onWrite) Write(b []byte) (int, error) { f(string(b)); return len(b), nil }

// sampleReport is a report with one of each verdict.
func sampleReport() report {
	e := bench.Estimate{Median: 1.1, Lo: 1.05, Hi: 1.2, N: 24}
	wide := bench.Estimate{Median: 1.06, Lo: math.Inf(-1), Hi: math.Inf(1), N: 12}
	r := report{Against: "HEAD~1", base: true, Null: &bench.Estimate{Median: 1, Lo: 0.99, Hi: 1.01, N: 9}, Notes: []string{"a | note"}, Results: []Result{
		{Kernel: "one", DType: "f32", ISA: "avx2", Verdict: bench.Pass, Ratio: &e, BaseNs: 100, NewNs: 110},
		{Kernel: "two", DType: "f32", ISA: "avx2", Verdict: bench.Regression, Ratio: &e, Message: "slower & <wrong>"},
		{Kernel: "three", DType: "f32", ISA: "avx2", Verdict: bench.Inconclusive, Ratio: &wide, Message: "who knows"},
		{Kernel: "four", DType: "f32", ISA: "avx2"},
	}}
	r.Verdict = r.verdict()
	return r
}

func TestGateVerdict(t *testing.T) {
	r := sampleReport()
	var failed *cli.FailedCheck
	if err := r.err(); !errors.As(err, &failed) || !strings.Contains(err.Error(), "two f32 on avx2: slower") || cli.ExitStatus("", err, io.Discard) != 1 {
		t.Errorf("%v", err)
	}
	if want := "REGRESSION against HEAD~1: 1 regression, 1 inconclusive, 1 open, 1 pass"; r.summary() != want {
		t.Errorf("%q, want %q", r.summary(), want)
	}
	r.Results = slices.Delete(r.Results, 1, 2)
	r.Verdict = r.verdict()
	if err := r.err(); err == nil || cli.ExitStatus("", err, io.Discard) != 3 || !strings.Contains(err.Error(), "inconclusive: three f32 on avx2: who knows") {
		t.Errorf("%v", err)
	}
	r.Results = r.Results[:1]
	r.Verdict = r.verdict()
	if err := r.err(); err != nil || r.Verdict != bench.Pass {
		t.Errorf("%v", err)
	}
	if empty := (report{Verdict: report{}.verdict()}); cli.ExitStatus("", empty.err(), io.Discard) != 3 || !strings.Contains(empty.err().Error(), "nothing was compared") {
		t.Errorf("of nothing: %v, %v", empty.Verdict, empty.err())
	}
	r.Partial = true
	if r.verdict() != bench.Open {
		t.Errorf("%v", r.verdict())
	}
}

func TestGateFormats(t *testing.T) {
	r := sampleReport()
	var table, markdown, junit, text bytes.Buffer
	for _, err := range []error{r.writeTable(&table), r.writeMarkdown(&markdown), r.writeJUnit(&junit), r.writeJSON(&text)} {
		if err != nil {
			t.Error(err)
		}
	}
	for _, want := range []string{"one", "1.100", "1.050 to 1.200", "regression", "two f32 on avx2: slower & <wrong>", "a | note", "REGRESSION", "Noise now"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("no %q in\n%s", want, table.String())
		}
	}
	for _, want := range []string{"**bench gate: REGRESSION", "- two f32 on avx2: slower & &lt;wrong>", `a \| note`, "| one | f32 | avx2 | pass | 100 | 110 | 1.100 | 1.050 to 1.200 | 24 |", "</details>"} {
		if !strings.Contains(markdown.String(), want) {
			t.Errorf("no %q in\n%s", want, markdown.String())
		}
	}
	var suite struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Skipped  int `xml:"skipped,attr"`
		Cases    []struct {
			Name    string `xml:"name,attr"`
			Failure *struct {
				Message string `xml:"message,attr"`
			} `xml:"failure"`
			Skipped *struct{} `xml:"skipped"`
		} `xml:"testcase"`
	}
	if err := xml.Unmarshal(junit.Bytes(), &suite); err != nil {
		t.Fatal(err)
	}
	if suite.Tests != 4 || suite.Failures != 1 || suite.Skipped != 2 || len(suite.Cases) != 4 || suite.Cases[0].Failure != nil || suite.Cases[1].Failure.Message != "slower & <wrong>" || suite.Cases[2].Skipped == nil {
		t.Errorf("%+v", suite)
	}
	var back map[string]any
	if err := json.Unmarshal(text.Bytes(), &back); err != nil || back["verdict"] != "regression" || len(back["results"].([]any)) != 4 {
		t.Errorf("%v in\n%s", err, text.String())
	}
}

func TestGateOutputs(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "r.json")
	if err := os.WriteFile(file, []byte("something that was there, and longer than a report, or so"), 0o666); err != nil {
		t.Fatal(err)
	}
	var stdout bytes.Buffer
	o := outputs{stdout: &stdout}
	o.files[0].name, o.files[2].name = file, "-"
	if err := errors.Join(o.check(""), o.write(sampleReport())); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(file); err != nil || !json.Valid(text) {
		t.Errorf("%v in\n%s", err, text)
	}
	if !strings.HasPrefix(stdout.String(), "**bench gate") || strings.Contains(stdout.String(), "---\n") {
		t.Errorf("standard output has\n%s", stdout.String())
	}
	// One file that cannot be written does not keep the other from being written.
	gone := filepath.Join(dir, "gone")
	if err := os.Mkdir(gone, 0o777); err != nil {
		t.Fatal(err)
	}
	o = outputs{stdout: &stdout}
	o.files[0].name, o.files[1].name = filepath.Join(gone, "r.json"), file
	if err := o.check(""); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(gone); err != nil {
		t.Fatal(err)
	}
	if err := o.write(sampleReport()); err == nil || !strings.Contains(err.Error(), "-json: ") {
		t.Errorf("error %v", err)
	}
	if text, err := os.ReadFile(file); err != nil || !bytes.HasPrefix(text, []byte(xml.Header)) {
		t.Errorf("%v in\n%s", err, text)
	}
}

// TestGateKeepsFiles: what ends in an error has overwritten nothing, and made
// nothing.
func TestGateKeepsFiles(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	const old = "{\"vocab\":151936}\n"
	for _, name := range []string{"f.json", "old.json"} {
		if err := os.WriteFile(name, []byte(old), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{"link.json": "f.json", "nowhere.json": "absent"} {
		if err := os.Symlink(target, link); err != nil {
			t.Skip(err)
		}
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-floor", "f.json", "-json", "f.json"}, "-floor and -json are the same file, f.json"},
		{[]string{"-floor", "f.json", "-markdown", "./link.json"}, "-floor and -markdown are the same file"},
		{[]string{"-floor", "f.json", "-json", "a", "-junit", "./a"}, "-json and -junit are the same file, ./a"},
		{[]string{"-floor", "f.json", "-json", "a", "-junit", filepath.Join(dir, "a")}, "-json and -junit are the same file"},
		{[]string{"-floor", "absent.json", "-json", "old.json", "-junit", "new.xml"}, "absent.json"},
		{[]string{"-base", "nowhere", "-json", "old.json", "-junit", "new.xml"}, "not a git repository"},
		{[]string{"-floor", "f.json", "-json", "no/such.json"}, "-json: "},
		{[]string{"-floor", "f.json", "-json", "nowhere.json"}, "-json: "},
		{[]string{"-floor", "f.json", "-json", dir}, "-json: "},
	} {
		err := command(t.Context(), c.args, io.Discard, &cli.Progress{}, quick)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.args, err, c.want)
		}
	}
	for _, name := range []string{"f.json", "old.json"} {
		if text, err := os.ReadFile(name); err != nil || string(text) != old {
			t.Errorf("%s holds %q, %v", name, text, err)
		}
	}
	if files, _ := os.ReadDir("."); len(files) != 4 {
		t.Errorf("the directory has %v", files)
	}
	// A link to a report stays one.
	o := outputs{stdout: io.Discard}
	o.files[0].name = "link.json"
	if err := errors.Join(o.check(""), o.write(sampleReport())); err != nil {
		t.Error(err)
	}
	info, err := os.Lstat("link.json")
	if text, _ := os.ReadFile("f.json"); err != nil || info.Mode().IsRegular() || !json.Valid(text) || string(text) == old {
		t.Errorf("%v, %v, %s", info, err, text)
	}
}

func TestFloors(t *testing.T) {
	path := reweight.AvailableISAs()[len(reweight.AvailableISAs())-1].String()
	floors := func(times, share float64) floorFile {
		return floorFile{Vocab: floorVocab, ISAs: map[string]isaFloors{path: {CPU: "another", Floors: []floor{{"k", "f32", times, share}}}}}
	}
	e := func(median, lo, hi float64) *bench.Estimate {
		return &bench.Estimate{Median: median, Lo: lo, Hi: hi, N: 9}
	}
	for _, c := range []struct {
		name    string
		q       measured
		floors  floorFile
		want    bench.Verdict
		message string
	}{
		{"above", measured{Result: Result{TimesPortable: e(9, 8, 10), Share: e(0.9, 0.8, 1)}}, floors(7, 0.7), bench.Pass, ""},
		{"within the noise", measured{Result: Result{TimesPortable: e(9, 8, 10), Share: e(0.9, 0.8, 1)}}, floors(9.9, 0.99), bench.Pass, ""},
		{"slower than portable allows", measured{Result: Result{TimesPortable: e(9, 8, 10), Share: e(0.9, 0.8, 1)}}, floors(11, 0.7), bench.Regression, "floor is 11, recorded on another; this is this one"},
		{"far from the read", measured{Result: Result{TimesPortable: e(9, 8, 10), Share: e(0.9, 0.8, 1)}}, floors(7, 1.1), bench.Regression, "floor is 1.1, recorded on another"},
		{"tokens", measured{Result: Result{TimesPortable: e(9, 8, 10)}}, floors(7, 1.1), bench.Pass, ""},
		{"none", measured{Result: Result{TimesPortable: e(9, 8, 10)}}, floorFile{}, bench.Inconclusive, "no floor"},
		{"wrong", measured{Result: Result{TimesPortable: e(9, 8, 10)}, failure: "far off"}, floors(7, 0.7), bench.Regression, "far off"},
	} {
		c.q.Kernel, c.q.DType, c.q.ISA = "k", "f32", path
		if c.q.judge(c.floors, "this one"); c.q.Verdict != c.want || !strings.Contains(c.q.Message, c.message) {
			t.Errorf("%s: %v, %q, want %v", c.name, c.q.Verdict, c.q.Message, c.want)
		}
	}
}

// TestFloorsConfirm: what is too slow twice is a regression, what is wrong at once,
// and what passed is not measured again.
func TestFloorsConfirm(t *testing.T) {
	paths := []reweight.ISA{reweight.Portable, reweight.AVX2, reweight.AVX512}
	floors := floorFile{ISAs: map[string]isaFloors{}}
	for _, p := range paths {
		floors.ISAs[p.String()] = isaFloors{Floors: []floor{{"k", "f32", 5, 0}}}
	}
	const allocates = -1
	for _, c := range []struct {
		first, second []float64 // times the speed of the portable path
		again         string
		want          [3]bench.Verdict
	}{
		{[]float64{6, 7, 8}, nil, "", [3]bench.Verdict{bench.Pass, bench.Pass, bench.Pass}},
		{[]float64{6, 4, 8}, []float64{9}, "[avx2]", [3]bench.Verdict{bench.Pass, bench.Pass, bench.Pass}},
		{[]float64{4, 6, 4}, []float64{9, 4}, "[portable avx512]", [3]bench.Verdict{bench.Pass, bench.Pass, bench.Regression}},
		{[]float64{allocates, 6, 8}, nil, "", [3]bench.Verdict{bench.Regression, bench.Pass, bench.Pass}},
		{[]float64{allocates, 6, 4}, []float64{9}, "[avx512]", [3]bench.Verdict{bench.Regression, bench.Pass, bench.Pass}},
		{[]float64{9, 6, 4}, []float64{allocates}, "[avx512]", [3]bench.Verdict{bench.Pass, bench.Pass, bench.Regression}},
	} {
		times, again := c.first, ""
		results, err := confirm(floors, "", paths, func(asked []reweight.ISA) (all []measured, err error) {
			if times == nil || len(times) != len(asked) {
				t.Fatalf("%v: asked for %v", c.first, asked)
			}
			for i, p := range asked {
				r := measure.Result{Kernel: "k", DType: "f32", ISA: p.String(), TimesPortable: bench.Estimate{Median: times[i], Lo: times[i], Hi: times[i]}}
				if times[i] == allocates {
					r.AllocsPerOp, r.TimesPortable.Hi = 3, 9
				}
				all = append(all, newMeasured(false, measure.Parity{}, r))
			}
			if &times[0] != &c.first[0] {
				again = fmt.Sprint(asked)
			}
			times = c.second
			return all, nil
		})
		if err != nil || again != c.again {
			t.Errorf("%v: measures %s again, want %s, %v", c.first, again, c.again, err)
		}
		for i, q := range results {
			if q.Verdict != c.want[i] || q.ISA != paths[i].String() || c.first[i] == allocates && !strings.Contains(q.Message, "3 heap allocations") {
				t.Errorf("%v, %v: %s: %v, %q, want %v", c.first, c.second, q.ISA, q.Verdict, q.Message, c.want[i])
			}
		}
	}
	if q := newMeasured(true, measure.Parity{Failure: "far off"}, measure.Result{AllocsPerOp: 1, Share: bench.Estimate{Median: 0.5}}); q.failure != "far off" || q.Share.Median != 0.5 {
		t.Errorf("%+v", q)
	}
}

// TestFloorsOnce records floors, keeps those of others, and compares with them and
// with ones that nothing reaches.
func TestFloorsOnce(t *testing.T) {
	if len(reweight.AvailableISAs()) < 2 {
		t.Skip("only the portable kernels run here")
	}
	name := filepath.Join(t.TempDir(), "floors.json")
	gateRun := func(args ...string) (string, error) {
		var out bytes.Buffer
		err := command(t.Context(), append([]string{"-floor", name, "-kernel", "multiply"}, args...), &out, &cli.Progress{}, quick)
		return out.String(), err
	}
	if _, err := gateRun(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a file: %v", err)
	}
	other := floorFile{Vocab: floorVocab, ISAs: map[string]isaFloors{
		"sve9":        {CPU: "another", Floors: []floor{{"multiply", "f32", 5, 0}}},
		expectedISA(): {CPU: "the moon", Floors: []floor{{"surrogate", "f32", 3, 0}, {"forgotten", "f32", 3, 0}, {"multiply", "f32", 1e9, 0}}},
	}}
	text, _ := json.Marshal(other)
	if err := os.WriteFile(name, text, 0o666); err != nil {
		t.Fatal(err)
	}
	if out, err := gateRun("-isa", expectedISA()); err == nil || cli.ExitStatus("", err, io.Discard) != 1 || !strings.Contains(out, "floor is 1e+09, recorded on the moon; this is ") || !strings.Contains(out, "The floor of forgotten f32 on "+expectedISA()+" is of a kernel that does not exist") || !strings.Contains(out, "The floors of sve9 were not looked at") {
		t.Errorf("below its floor: %v\n%s", err, out)
	}
	if out, err := gateRun("-record"); err != nil || !strings.Contains(out, "floors") {
		t.Fatalf("%v\n%s", err, out)
	}
	f, err := readFloors(name)
	if err != nil {
		t.Fatal(err)
	}
	if q, ok := f.find("sve9", "multiply", "f32"); !ok || q.TimesPortable != 5 || f.Margin != floorMargin {
		t.Errorf("%+v", f)
	}
	if q, ok := f.find(expectedISA(), "multiply", "f32"); !ok || !(q.TimesPortable > 0 && q.TimesPortable < 1e6) || q.Share != 0 {
		t.Errorf("%+v", f)
	}
	if _, ok := f.find(expectedISA(), "surrogate", "f32"); !ok {
		t.Errorf("a kernel that was not measured lost its floor: %+v", f)
	}
	if _, ok := f.find(expectedISA(), "forgotten", "f32"); ok {
		t.Errorf("a kernel that is no more has a floor: %+v", f)
	}
	save := func() {
		text, _ := json.Marshal(f)
		if err := os.WriteFile(name, text, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, of := range f.ISAs { // one round may be far off
		for i := range of.Floors {
			of.Floors[i].TimesPortable = 1e-9
		}
	}
	save()
	if out, err := gateRun(); err != nil || !strings.Contains(out, "PASS") {
		t.Errorf("%v\n%s", err, out)
	}
	// An instruction set without floors is no pass.
	delete(f.ISAs, expectedISA())
	save()
	if out, err := gateRun(); cli.ExitStatus("", err, io.Discard) != 3 || !strings.Contains(out, "it has no floor") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestRecordFirstFloors: into a file that has none.
func TestRecordFirstFloors(t *testing.T) {
	if len(reweight.AvailableISAs()) < 2 {
		t.Skip("only the portable kernels run here")
	}
	for _, text := range []string{`{"vocab":151936}`, `{"vocab":151936,"isas":null}`} {
		name := filepath.Join(t.TempDir(), "floors.json")
		if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if err := command(t.Context(), []string{"-floor", name, "-kernel", "multiply", "-record"}, io.Discard, &cli.Progress{}, quick); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if f, err := readFloors(name); err != nil || len(f.ISAs) == 0 {
			t.Errorf("%s: %+v, %v", text, f, err)
		}
	}
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
			time.Sleep(100 * time.Millisecond)
		}
	})}
	paths := reweight.AvailableISAs()
	if err := command(t.Context(), []string{"-floor", name, "-kernel", "multiply,surrogate", "-isa", paths[len(paths)-1].String()}, io.Discard, hangUp, quick); cli.ExitStatus("", err, io.Discard) != 130 {
		t.Errorf("%v", err)
	}
}

func TestRecordRefuses(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		name, path, want string
	}{
		{"-", "", "not standard output"},
		{filepath.Join(dir, "f.json"), "portable", "portable has no floors"},
		{dir, "", "not a regular file"},
		{filepath.Join(dir, "no", "f.json"), "", filepath.Join(dir, "no")},
	} {
		args := []string{"-record", "-floor", c.name, "-kernel", "multiply"}
		if c.path != "" {
			args = append(args, "-isa", c.path)
		}
		var measured bytes.Buffer
		err := command(t.Context(), args, io.Discard, &cli.Progress{W: &measured}, quick)
		if err == nil || !strings.Contains(err.Error(), c.want) || measured.Len() > 0 {
			t.Errorf("%v: %v, want %q; progress %q", args, err, c.want, measured.String())
		}
	}
	if err := command(t.Context(), []string{"-floor", dir}, io.Discard, &cli.Progress{}, quick); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("-floor of a directory: %v", err)
	}
}

func TestReadFloors(t *testing.T) {
	for text, want := range map[string]string{
		"":                             "EOF",
		"{":                            "unexpected EOF",
		`{"vocab":151936} {}`:          "more than one",
		`{"vocab":151936, "floor":{}}`: `unknown field "floor"`,
		`{"vocab":1000}`:               "vocabulary of 1000",
		`{"vocab":"many"}`:             "vocab",
		`{"vocab":151936,"isas":{"::error::x":{"floors":[{"kernel":"k","dtype":"f32","times_portable":1}]}}}`:                                           `"::error::x" is not the name of`,
		`{"vocab":151936,"isas":{"avx2":{"floors":[{"kernel":"k\u202e","dtype":"f32","times_portable":1}]}}}`:                                           `"k\u202e" is not the name of`,
		`{"vocab":151936,"isas":{"avx2":{"floors":[{"kernel":"k","times_portable":1}]}}}`:                                                               `"" is not the name of`,
		`{"vocab":151936,"isas":{"avx2":{"floors":[{"kernel":"k","dtype":"f32","times_portable":-1}]}}}`:                                                "k f32 on avx2: times_portable is -1, want more than 0",
		`{"vocab":151936,"isas":{"avx2":{"floors":[{"kernel":"k","dtype":"f32"}]}}}`:                                                                    "k f32 on avx2: times_portable is 0",
		`{"vocab":151936,"isas":{"avx2":{"floors":[{"kernel":"k","dtype":"f32","times_portable":1,"roofline_share":-1}]}}}`:                             "roofline_share is -1",
		`{"vocab":151936,"isas":{"avx2":{"floors":[{"kernel":"k","dtype":"f32","times_portable":1},{"kernel":"k","dtype":"f32","times_portable":2}]}}}`: "k f32 on avx2: given twice",
	} {
		name := filepath.Join(t.TempDir(), "floors.json")
		if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := readFloors(name); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestFloorsOf: the middle of three recordings, in any order, and half of that.
func TestFloorsOf(t *testing.T) {
	var recorded [recordings][]measured
	for i, x := range [recordings]float64{30, 10, 24} {
		e := &bench.Estimate{Median: x}
		recorded[i] = []measured{
			{Result: Result{Kernel: "k", DType: "f32", ISA: "avx2", TimesPortable: e, Share: &bench.Estimate{Median: x / 100}}},
			{Result: Result{Kernel: "k", DType: "f32", ISA: "avx512", TimesPortable: &bench.Estimate{Median: 2 * x}}},
		}
	}
	if got, want := floorsOf(recorded), []floor{{"k", "f32", 12, 0.12}, {"k", "f32", 24, 0}}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestFloorsNoticeTheISA: the one that callers get.
func TestFloorsNoticeTheISA(t *testing.T) {
	name := filepath.Join(t.TempDir(), "floors.json")
	if err := os.WriteFile(name, []byte(`{"vocab":151936}`), 0o666); err != nil {
		t.Fatal(err)
	}
	for chosen, want := range map[string]int{expectedISA(): 0, "another": 1} {
		g := gate{Options: Options{Kernels: []kernels.Kernel{}, Progress: &cli.Progress{}}}
		g.report.Machine.Chosen = chosen
		if err := g.againstFloors(t.Context(), name); err != nil || len(g.report.Results) != want {
			t.Errorf("callers get %s: %+v, %v", chosen, g.report.Results, err)
		}
	}
}

func TestRounded(t *testing.T) {
	for x, want := range map[float64]float64{123.4: 120, 0.2345: 0.23, 0: 0, -3: 0, 7: 7} {
		if got := rounded(x); got != want {
			t.Errorf("rounded(%v) = %v, want %v", x, got, want)
		}
	}
}

// withoutSettings makes git work as if nobody had configured it, in the directory.
func withoutSettings(t *testing.T, dir string) {
	t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	t.Setenv("GIT_CEILING_DIRECTORIES", filepath.Dir(dir))
}

// inRepository returns functions that run git in the directory, and that commit
// a file there.
func inRepository(t *testing.T, dir string) (do func(args ...string), commit func(name, text string)) {
	do = func(args ...string) {
		t.Helper()
		if _, err := git(t.Context(), dir, append([]string{"-c", "user.name=n", "-c", "user.email=e@x", "-c", "commit.gpgsign=false"}, args...)...); err != nil {
			t.Fatal(args, err)
		}
	}
	commit = func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		do("add", "-A")
		do("commit", "--quiet", "-m", name)
	}
	return do, commit
}

// TestGateGit builds revisions of a small program instead of bench.
func TestGateGit(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip(err)
	}
	canStart(t)
	dir := t.TempDir()
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	withoutSettings(t, dir)
	t.Chdir(dir)
	refuse := func(ref, want string) {
		t.Helper()
		var out bytes.Buffer
		err := command(t.Context(), []string{"-base", ref}, &out, &cli.Progress{}, quick)
		if err == nil || !strings.Contains(err.Error(), want) || cli.ExitStatus("", err, io.Discard) != 2 {
			t.Errorf("-base %s: %v, want %q", ref, err, want)
		}
		if left, _ := os.ReadDir(temporary); len(left) > 0 {
			t.Errorf("-base %s leaves %v", ref, left)
		}
	}
	refuse("HEAD", "not a git repository")
	do, commit := inRepository(t, dir)
	do("init", "--quiet")
	if _, err := tool(t.Context(), dir, "sh", "-c", "printf 'go: downloading x v1\\n# x\\nx.go: wrong\\n' >&2; exit 1"); err == nil || err.Error() != "x.go: wrong" {
		t.Errorf("of a build: %v", err)
	}
	commit("go.mod", "module small\n\ngo 1.26\n")
	refuse("HEAD", "no cmd/bench")
	commit("cmd/bench/main.go", "package main\n\nfunc main() { wrong }\n")
	commit("cmd/bench/main.go", "package main\n\nimport (\"fmt\"; \"os\")\n\nfunc main() { fmt.Fprintln(os.Stderr, \"unknown command\", os.Args[1]); os.Exit(2) }\n")
	if err := os.WriteFile(".git/hooks/post-checkout", []byte("#!/bin/sh\ntouch \""+temporary+"/hooked\"\n"), 0o777); err != nil {
		t.Fatal(err)
	}
	refuse("HEAD", "the bench of HEAD is older than the gate")
	notes := func(want string) {
		t.Helper()
		b, err := buildBoth(t.Context(), "HEAD")
		defer b.remove()
		if err != nil || len(b.notes) != 1 || !strings.Contains(b.notes[0], want) {
			t.Errorf("notes %q, %v, want %q", b.notes, err, want)
		}
	}
	notes("Both sides are the same commit")
	if err := os.WriteFile("new.txt", nil, 0o666); err != nil {
		t.Fatal(err)
	}
	notes("The working tree has changes")
	if err := os.Remove("new.txt"); err != nil {
		t.Fatal(err)
	}
	// As in a hook: neither that index nor that of the repository is touched.
	hooked := filepath.Join(t.TempDir(), "index")
	var indexes [2][]byte
	for i, name := range []string{filepath.Join(dir, ".git", "index"), hooked} {
		var err error
		if indexes[i], err = os.ReadFile(filepath.Join(dir, ".git", "index")); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, indexes[i], 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for name, value := range map[string]string{"GIT_INDEX_FILE": hooked, "GIT_DIR": filepath.Join(dir, ".git"), "GIT_WORK_TREE": t.TempDir()} {
		t.Setenv(name, value)
		refuse("HEAD~1", "-base HEAD~1 does not build")
	}
	for i, name := range []string{filepath.Join(dir, ".git", "index"), hooked} {
		if text, err := os.ReadFile(name); err != nil || !bytes.Equal(text, indexes[i]) {
			t.Errorf("%s is not as it was: %v", name, err)
		}
	}
	refuse("HEAD~1", "-base HEAD~1 does not build: cmd/bench/main.go:3:15: undefined: wrong")
	refuse("HEAD~2", "-base HEAD~2 does not build: ")
	refuse("nowhere", `-base "nowhere": no such commit`)
	refuse("-x", `-base "-x": no such commit`)
	refuse("--all", `-base "--all": no such commit`)
	refuse("HEAD\n", `-base "HEAD\n": no such commit`)
	for _, ref := range []string{"^HEAD", "HEAD~1..HEAD", "HEAD...HEAD~1", "..", "^nowhere"} {
		refuse(ref, fmt.Sprintf("-base %q: not a commit, but a range of them", ref))
	}
	refuse("HEAD^!", `-base "HEAD^!": no such commit`)
	refuse("HEAD:go.mod", "no such commit")
	do("commit", "--quiet", "--allow-empty", "-m", "a word to be found")
	refuse(":/word to", "the bench of :/word to is older than the gate")
	refuse(":/no such word", "no such commit")
	if err := os.WriteFile("cmd/bench/main.go", []byte("package main\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	refuse("HEAD", "the working tree does not build: ")
	if trees, err := git(t.Context(), dir, "worktree", "list"); err != nil || strings.Count(trees, "\n") != 0 {
		t.Errorf("worktrees left: %s, %v", trees, err)
	}
	// Without go, and without git.
	bin := t.TempDir()
	if program, err := exec.LookPath("git"); err == nil && os.Symlink(program, filepath.Join(bin, "git")) == nil {
		t.Setenv("PATH", bin)
		refuse("HEAD", "-base needs go: ")
	}
	t.Setenv("PATH", "")
	refuse("HEAD", "-base needs git: ")
}
