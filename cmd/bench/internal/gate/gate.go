// Package gate decides whether a benchmark of a Go module is slower than in another
// revision, and whether a kernel of this project is, or is slower than a file of floors
// allows.
package gate

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/cpuid/v2"
	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/cmd/bench/internal/cli"
	"github.com/seed621a2839/reweight/cmd/bench/internal/measure"
	"github.com/seed621a2839/reweight/kernels"
)

// AllPackages is the pattern of all packages of a module.
const AllPackages = "./..."

// Options say what to compare with what: with Base, New with Old, or with Floors.
type Options struct {
	Base     string // a git revision, or empty
	Old, New string // directories of modules, test binaries, or empty
	Floors   string // a file, or empty
	Record   bool   // write the file of floors

	// Of the rule that compares with Base or Old.
	Alpha, Slower, Surely float64

	// Of the benchmarks of a module; without Bench it is the kernels of this project.
	Bench, Skip string   // as the flags of go test
	Packages    []string // patterns; nil is ./...
	Dir         string   // of the module
	CPU         int      // GOMAXPROCS of the benchmarks
	Args        []string // for the test binaries
	Metrics     []string // units that are judged besides ns/op
	Budget      time.Duration
	Cache       bool // of builds of the base

	Kernels  []kernels.Kernel // nil is all
	ISAs     *cli.Choice      // nil is what callers get, or with Floors all but portable, and the GPU
	GPU      *cli.GPU
	Files    [len(Formats)]string // that the report is written to in each of the formats; "-" is standard output, empty is none
	Progress *cli.Progress
	Sampler  bench.Sampler
}

// A gate measures, and fills in its report.
type gate struct {
	Options
	begin    time.Time
	report   report
	accepted []acceptance
	live     *live // or nil
}

// Run compares, and writes the report to out and to the files. Its error says
// what the report does: a *cli.FailedCheck for a regression, a *cli.Inconclusive,
// or that something went wrong.
func Run(ctx context.Context, opt Options, out io.Writer) (err error) {
	g := gate{Options: opt, begin: time.Now(), report: report{command: "bench gate"}}
	if g.report.Machine, err = cli.ThisMachine(); err != nil {
		return err
	}
	ctx, stop := cli.UntilHangup(ctx)
	defer stop()
	if opt.Bench == "" && (opt.ISAs == nil || opt.ISAs.GPU != nil) {
		g.report.Machine.SetGPU(opt.GPU.Device())
	}
	if g.Record {
		return g.record(ctx, g.Floors, out)
	}
	files := newOutputs(out, g.Files)
	if err := files.check(g.Floors); err != nil {
		return err
	}
	switch {
	case g.Old != "":
		g.report.command, g.live = "bench compare", g.newLive()
		err = g.againstOld(ctx)
		g.live.clear()
	case g.Bench != "":
		g.live = g.newLive()
		err = g.againstBaseOfModule(ctx, g.Base)
		g.live.clear()
	case g.Base != "":
		err = g.againstBase(ctx, g.Base)
	default:
		err = g.againstFloors(ctx, g.Floors)
	}
	g.Progress.Clear()
	return g.finish(ctx, err, files)
}

// A Result is the verdict on a kernel in one format with one instruction set, or on a
// benchmark.
type Result struct {
	Kernel    string        `json:"kernel,omitempty"`
	DType     string        `json:"dtype,omitempty"`
	ISA       string        `json:"isa,omitempty"`
	Package   string        `json:"package,omitempty"`   // import path
	Benchmark string        `json:"benchmark,omitempty"` // with sub-benchmarks, without the number of CPUs
	Verdict   bench.Verdict `json:"verdict"`
	Message   string        `json:"message,omitempty"`  // what is wrong, or not known
	Accepted  string        `json:"accepted,omitempty"` // why a regression is accepted, and the commit that says so

	// Of -base: new to base, and nanoseconds per call.
	Ratio     *bench.Estimate `json:"ratio,omitempty"`
	Reordered *bench.Estimate `json:"reordered,omitempty"` // the same with functions in random orders, where that was measured
	BaseNs    float64         `json:"base_ns,omitempty"`
	NewNs     float64         `json:"new_ns,omitempty"`
	Metrics   []Metric        `json:"metrics,omitempty"` // the other units

	// Of -floor: times the speed of the portable kernel, and the share of that of
	// a plain read, each with the least that is allowed.
	TimesPortable *bench.Estimate `json:"times_portable,omitempty"`
	TimesFloor    float64         `json:"times_floor,omitempty"`
	Share         *bench.Estimate `json:"roofline_share,omitempty"`
	ShareFloor    float64         `json:"share_floor,omitempty"`

	relative string // the package's directory in its module
	failed   bool   // it crashed, hung or said that it fails, which no acceptance covers
}

// A Metric is what was found in another unit than nanoseconds per call.
type Metric struct {
	Unit    string          `json:"unit"`
	Verdict bench.Verdict   `json:"verdict"`
	Base    float64         `json:"base"` // medians
	New     float64         `json:"new"`
	Ratio   *bench.Estimate `json:"ratio,omitempty"` // of the worse to the better direction; none of bytes and allocations
}

// isName reports whether s can be the name of a kernel, a type or an instruction
// set. Names from a file and from another build are checked by it before anything
// is done with them, because lines of a report begin with them.
func isName(s string) bool {
	return s != "" && len(s) <= 64 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") == ""
}

// name is what lines of a report begin with.
func (r Result) name() string {
	if r.Benchmark != "" {
		return strings.TrimPrefix(r.relative+" "+r.Benchmark, ". ")
	}
	return r.Kernel + " " + r.DType + " on " + r.ISA
}

// A report is what the gate found.
type report struct {
	Verdict bench.Verdict   `json:"verdict"`         // of what was measured; open if that is nothing worse
	Partial bool            `json:"partial"`         // it did not come to its end
	Error   string          `json:"error,omitempty"` // that ended it; none if it was interrupted
	Against string          `json:"against"`
	Machine cli.Machine     `json:"machine"`
	Notes   []string        `json:"notes,omitempty"`
	Null    *bench.Estimate `json:"null,omitempty"`    // the same thing measured twice, the second over the first: how noisy the machine is now
	Seconds float64         `json:"seconds,omitempty"` // that the run took; of benchmarks, as is the next
	Limits  *limits         `json:"limits,omitempty"`
	Results []Result        `json:"results"` // of benchmarks: what matters most is the first

	command string // the name of the command
	base    bool   // and not floors
}

// Limits are those that benchmarks were judged by.
type limits struct {
	Slower float64 `json:"slower"`
	Surely float64 `json:"surely"`
	Alpha  float64 `json:"alpha"`
}

// finish writes the report of what was measured, until the error if there is one,
// and returns the error of the run.
func (g *gate) finish(ctx context.Context, err error, outputs *outputs) error {
	if err != nil {
		if ctx.Err() != nil {
			err = cli.ErrInterrupted
		} else {
			g.report.Error = err.Error()
		}
		if !slices.ContainsFunc(g.report.Results, func(q Result) bool { return q.Verdict != bench.Open || q.Ratio != nil }) {
			return err // nothing was measured
		}
		g.report.Partial = true
	}
	g.accept()
	if g.report.Limits != nil {
		g.report.Seconds = time.Since(g.begin).Seconds()
		g.report.sort()
	}
	g.report.Verdict = g.report.verdict()
	return cmp.Or(cli.Also(err, outputs.write(g.report)), g.report.err())
}

// verdict is that of all results together.
func (r report) verdict() bench.Verdict {
	worst := bench.Pass
	if len(r.Results) == 0 {
		worst = bench.Inconclusive
	}
	for _, q := range r.Results {
		switch {
		case q.Verdict == bench.Regression && q.Accepted == "":
			return bench.Regression
		case q.Verdict == bench.Inconclusive || q.Verdict == bench.Open:
			worst = bench.Inconclusive
		}
	}
	if r.Partial {
		return bench.Open
	}
	return worst
}

// err returns the error that stands for the verdict. A partial report has none:
// its run ended with another error.
func (r report) err() error {
	of := func(verdict bench.Verdict) (all []string) {
		for _, q := range r.Results {
			if q.Verdict == verdict && q.Accepted == "" {
				all = append(all, q.name()+": "+cmp.Or(q.Message, q.Verdict.String()))
			}
		}
		return all
	}
	switch r.Verdict {
	case bench.Regression:
		return cli.Failed(of(bench.Regression))
	case bench.Inconclusive:
		what := of(bench.Inconclusive)
		if len(what) == 0 {
			return &cli.Inconclusive{What: "nothing was compared"}
		}
		return &cli.Inconclusive{What: cli.FirstOf(what)}
	}
	return nil
}

// words are what tables and the summary call verdicts, the worst first.
var words = []string{"regression", "inconclusive", "open", "accepted", "faster", "pass"}

// word is the one of a result. Of benchmarks, a pass is called faster if it is so by as
// much as a regression is slower.
func (r report) word(q Result) string {
	switch l := r.Limits; {
	case q.Accepted != "":
		return "accepted"
	case l != nil && q.Verdict == bench.Pass && q.Ratio != nil && q.Ratio.Median < 1/l.Slower && q.Ratio.Hi < 1/l.Surely:
		return "faster"
	}
	return q.Verdict.String()
}

// sort puts the results first that matter most: by their words, and then the slowest,
// of the faster ones the fastest.
func (r report) sort() {
	ratio := func(q Result) float64 {
		if q.Ratio == nil || q.Ratio.N == 0 {
			return math.Inf(1)
		}
		return q.Ratio.Median
	}
	slices.SortStableFunc(r.Results, func(a, b Result) int {
		word := r.word(a)
		byRatio := cmp.Compare(ratio(b), ratio(a))
		if word == "faster" {
			byRatio = -byRatio
		}
		return cmp.Or(cmp.Compare(slices.Index(words, word), slices.Index(words, r.word(b))), byRatio)
	})
}

// summary is the report in one line.
func (r report) summary() string {
	count := map[string]int{}
	for _, q := range r.Results {
		count[r.word(q)]++
	}
	var parts []string
	for _, w := range words {
		if n := count[w]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, w))
		}
	}
	what := strings.ToUpper(r.Verdict.String())
	if r.Partial {
		what = "INTERRUPTED, the results are partial"
	}
	if r.Error != "" {
		what = "ERROR, the results are partial"
	}
	line := fmt.Sprintf("%s against %s: %s", what, r.Against, cmp.Or(strings.Join(parts, ", "), "nothing was compared"))
	if r.Seconds > 0 {
		line += fmt.Sprintf(", in %.0f s", r.Seconds)
	}
	return line
}

// expectedISA returns the instruction set that callers should get on this CPU, as
// far as REWEIGHT_ISA allows. It does not ask the library, because the library's
// choice is compared with it.
func expectedISA() string {
	if v := os.Getenv("REWEIGHT_ISA"); v != "" {
		return v
	}
	switch c := &cpuid.CPU; {
	case runtime.GOARCH == "arm64":
		return "neon"
	case runtime.GOARCH != "amd64" || !c.Supports(cpuid.AVX2, cpuid.FMA3, cpuid.F16C, cpuid.POPCNT):
		return "portable"
	case c.Supports(cpuid.AVX512F, cpuid.AVX512VL, cpuid.AVX512DQ, cpuid.AVX512BW):
		return "avx512"
	}
	return "avx2"
}

// expect adds a result if the library's best instruction set is not the expected
// one.
func (r *report) expect(best, expected string) {
	if best != expected {
		r.Results = append(r.Results, Result{
			Kernel: "all", DType: "types", ISA: best, Verdict: bench.Regression,
			Message: fmt.Sprintf("callers get %s, and this CPU and REWEIGHT_ISA want %s", best, expected),
		})
	}
}

// shapes returns the kernels and formats to measure, at the sizes that bench run
// has by default.
func (g *gate) shapes() []measure.Shape {
	ks := g.Kernels
	if ks == nil {
		ks = kernels.All()
	}
	return measure.Shapes(ks, cli.Sizes{Vocabs: []int{floorVocab}, Workers: []int{1}})
}

// interval prints an estimate's interval.
func interval(e bench.Estimate) string {
	if math.IsInf(e.Lo, 0) || math.IsNaN(e.Lo) {
		return "-"
	}
	return fmt.Sprintf("%.3f to %.3f", e.Lo, e.Hi)
}
