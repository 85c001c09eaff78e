// Package gate decides whether a benchmark of a Go module is slower than in another
// revision.
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
	"github.com/seed621a2839/reweight/internal/cli"
)

// Alpha is the chance of a wrong verdict in a run, for each of the two kinds.
const Alpha = 0.01

// AllPackages is the pattern of all packages of a module.
const AllPackages = "./..."

// Options say what to compare with what: with Base, or New with Old.
type Options struct {
	Base     string // a git revision, or empty
	Old, New string // directories of modules, or test binaries, or empty

	Exact bool // compare with Base itself, and not with the merge base

	Alpha, Slower float64 // of the rule

	Bench, Skip  string   // as the flags of go test
	Packages     []string // patterns
	SkipPackages []string // patterns without wildcards but ... at the end
	Dir          string   // of the module
	CPU          int      // GOMAXPROCS of the benchmarks
	Benchtime    Benchtime
	Args         []string // for the test binaries
	Metrics      []string // units that are judged besides ns/op
	Budget       time.Duration
	Flags        []string               // as they were given, for the report
	Given        func(flag string) bool // whether it was: flags win over the file of settings

	settings []setting

	Files    [len(Formats)]string // of the report in each format; "-" is standard output, empty is none
	Profiles string               // directory for CPU profiles of what is slower, or empty
	History  string               // the file that keeps times from commit to commit, or empty
	Log      io.Writer            // of what is being done; nil is none
}

// patience is how long an answer of a process may take. A verdict wants about ten pairs of
// times, each of four answers, so that what takes longer has none within the budget.
func (o *Options) patience() time.Duration { return max(2*time.Second, o.Budget/10) }

// A gate measures, and fills in its report.
type gate struct {
	Options
	begin    time.Time
	report   report
	top      string // of the git working tree
	changed  bool   // it has changes that are not committed
	accepted []acceptance
	steps    *steps
}

// Run compares, and writes the report to out and to the files. Its error says
// what the report does: a *cli.FailedCheck for a regression, a *cli.Inconclusive,
// or that something went wrong.
func Run(ctx context.Context, opt Options, out io.Writer) (err error) {
	g := gate{Options: opt, begin: time.Now(),
		report: report{command: "benchgate", Version: cli.Version(), Flags: opt.Flags, Machine: thisMachine(),
			Limits: limits{opt.Slower, surely(opt.Slower), opt.Alpha}}}
	g.report.Date = g.begin.UTC().Format(time.RFC3339)
	ctx, stop := cli.UntilHangup(ctx)
	defer stop()
	files := &outputs{stdout: out, names: g.Files}
	if err := files.check(); err != nil {
		return err
	}
	if err := g.checkHistory(files); err != nil {
		return err
	}
	if g.Profiles != "" {
		if err := os.MkdirAll(g.Profiles, 0o777); err != nil {
			return fmt.Errorf("-profiles: %w", err)
		}
	}
	g.steps = newSteps(g.Log, 30*time.Second)
	if g.Old != "" {
		g.report.command = "benchgate compare"
		err = g.againstOld(ctx)
	} else {
		err = g.againstBase(ctx)
	}
	g.steps.close()
	return g.finish(ctx, err, files)
}

// note adds a line about the run as a whole to the report.
func (g *gate) note(format string, args ...any) {
	g.report.Notes = append(g.report.Notes, fmt.Sprintf(format, args...))
}

// A Result is the verdict on a benchmark.
type Result struct {
	Package   string        `json:"package"`   // import path
	Benchmark string        `json:"benchmark"` // with sub-benchmarks, without the number of CPUs
	Verdict   bench.Verdict `json:"verdict"`
	Message   string        `json:"message,omitempty"` // what is wrong, or not known
	// Accepted is why a regression is accepted, and the commit that says so.
	Accepted string          `json:"accepted,omitempty"`
	Ratio    *bench.Estimate `json:"ratio,omitempty"` // new to base
	// Reordered is the ratio with functions in random orders, where it was measured.
	Reordered    *bench.Estimate `json:"reordered,omitempty"`
	BaseNs       float64         `json:"base_ns,omitempty"`      // nanoseconds per call
	Instructions *bench.Estimate `json:"instructions,omitempty"` // of a call, new to base, where they were counted
	NewNs        float64         `json:"new_ns,omitempty"`
	Time         bench.Verdict   `json:"time"`              // the verdict on the time alone
	Metrics      []Metric        `json:"metrics,omitempty"` // the other units
	Calls        int             `json:"calls,omitempty"`   // in a block
	// Short is the calls of a block that is subtracted, because of a fixed cost.
	Short   int          `json:"short,omitempty"`
	Seconds float64      `json:"seconds"`           // that comparing it took
	Profile string       `json:"profile,omitempty"` // the functions that gained most
	Pairs   []bench.Pair `json:"pairs,omitempty"`   // of nanoseconds

	relative string // the package's directory in its module
	file     string // of the benchmark's function, in the git working tree with slashes; or empty
	line     int
	failed   bool   // it crashed, hung or said that it fails, which no acceptance covers
	more     string // of the message, what the rows of the table do not say; of what failed, they say nothing
}

// A Metric is what was found in a unit.
type Metric struct {
	Unit    string        `json:"unit"`
	Verdict bench.Verdict `json:"verdict"`
	Base    float64       `json:"base"` // medians
	New     float64       `json:"new"`
	// Ratio is in the direction in which a larger one is worse; bytes and allocations have none.
	Ratio *bench.Estimate `json:"ratio,omitempty"`

	pairs   []bench.Pair
	message string   // what is wrong, or not known
	more    []string // about it, beside what the row of the table says
}

// name is what lines of a report begin with.
func (r Result) name() string { return strings.TrimPrefix(r.relative+" "+r.Benchmark, ". ") }

// A report is what the gate found.
type report struct {
	Verdict    bench.Verdict `json:"verdict"`         // of what was measured; open if that is nothing worse
	Partial    bool          `json:"partial"`         // it did not come to its end
	Error      string        `json:"error,omitempty"` // that ended it; none if it was interrupted
	Against    string        `json:"against"`
	BaseCommit string        `json:"base_commit,omitempty"`
	HeadCommit string        `json:"head_commit,omitempty"`        // that the working tree is of
	Nothing    bool          `json:"nothing_to_compare,omitempty"` // because the base has none of the benchmarks
	Date       string        `json:"date"`
	Version    string        `json:"version"` // of the gate
	Flags      []string      `json:"flags"`
	Machine    Machine       `json:"machine"`
	Notes      []string      `json:"notes,omitempty"`
	// Null is of the same code, the second measurement over the first: how noisy the machine is now.
	Null    *bench.Estimate `json:"null,omitempty"`
	Seconds float64         `json:"seconds"` // that the run took
	Limits  limits          `json:"limits"`
	Results []Result        `json:"results"` // what matters most is the first

	command   string // the name of the command
	broken    int    // benchmarks that fail in both builds
	annotated bool   // regressions have lines for GitHub beside the table
}

// A Machine describes where it ran.
type Machine struct {
	CPU  string `json:"cpu"`
	CPUs int    `json:"cpus"`
	OS   string `json:"os"`
	Arch string `json:"arch"`
	Go   string `json:"go"` // that built the test binaries
}

func thisMachine() Machine {
	return Machine{cmp.Or(strings.TrimSpace(cpuid.CPU.BrandName), "unknown CPU"), runtime.NumCPU(), runtime.GOOS,
		runtime.GOARCH, ""}
}

// Limits are those that benchmarks were judged by.
type limits struct {
	Slower float64 `json:"slower"`
	Surely float64 `json:"surely"`
	Alpha  float64 `json:"alpha"`
}

// surely is the ratio that the lower bound of a regression is above.
func surely(slower float64) float64 { return 1 + 0.4*(slower-1) }

// finish writes the report of what was measured, until the error if there is one,
// and returns the error of the run.
func (g *gate) finish(ctx context.Context, err error, outputs *outputs) error {
	if err != nil {
		if ctx.Err() != nil {
			err = cli.ErrInterrupted
		} else {
			g.report.Error = err.Error()
		}
		if !slices.ContainsFunc(g.report.Results, func(q Result) bool {
			return q.Verdict != bench.Open || q.Ratio != nil
		}) {
			return err // nothing was measured
		}
		g.report.Partial = true
	}
	g.accept()
	g.report.Seconds = time.Since(g.begin).Seconds()
	g.report.sort()
	g.report.Verdict = g.report.verdict()
	kept := g.keep()
	return cmp.Or(cli.Also(err, cli.Also(outputs.write(g.report), kept)), g.report.err())
}

// verdict is that of all results together.
func (r report) verdict() bench.Verdict {
	worst := bench.Pass
	if len(r.Results) == 0 && !r.Nothing {
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

// err returns the error that stands for the verdict. Benchmarks are only named in it, because
// the report has the rest. A partial report has none: its run ended with another error.
func (r report) err() error {
	of := func(verdict bench.Verdict) (all []string) {
		for _, q := range r.Results {
			if q.Verdict == verdict && q.Accepted == "" {
				all = append(all, q.name())
			}
		}
		return all
	}
	switch r.Verdict {
	case bench.Regression:
		return cli.Failed(of(bench.Regression))
	case bench.Inconclusive:
		if names := of(bench.Inconclusive); len(names) > 0 {
			return &cli.Inconclusive{What: cli.FirstOf(names)}
		}
		return &cli.Inconclusive{What: "nothing was compared"}
	}
	return nil
}

// words are what tables and the summary call verdicts, the worst first.
var words = []string{"regression", "inconclusive", "open", "accepted", "faster", "pass"}

// word is the one of a result. A pass is called faster if it is so by as
// much as a regression is slower.
func (r report) word(q Result) string {
	switch l := r.Limits; {
	case q.Accepted != "":
		return "accepted"
	case q.Verdict == bench.Pass && q.Ratio != nil && q.Ratio.Median < 1/l.Slower && q.Ratio.Hi < 1/l.Surely:
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
		if n := count[w]; n > 1 && w == "regression" {
			parts = append(parts, fmt.Sprintf("%d regressions", n))
		} else if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, w))
		}
	}
	if r.broken > 0 {
		parts = append(parts, fmt.Sprintf("%d failing in both builds", r.broken))
	}
	what := strings.ToUpper(r.Verdict.String())
	if r.Partial {
		what = "INTERRUPTED, the results are partial"
	}
	if r.Error != "" {
		what = "ERROR, the results are partial"
	}
	nothing := "nothing was compared"
	if r.Nothing {
		nothing = "nothing to compare yet"
	}
	line := fmt.Sprintf("%s against %s: %s", what, r.Against, cmp.Or(strings.Join(parts, ", "), nothing))
	if len(parts) > 0 {
		line += fmt.Sprintf(", the limit is a ratio of %g", r.Limits.Slower)
	}
	if r.Seconds > 0 {
		line += fmt.Sprintf(", in %.0f s", r.Seconds)
	}
	return line
}

// interval prints an estimate's interval.
func interval(e bench.Estimate) string {
	if math.IsInf(e.Lo, 0) || math.IsNaN(e.Lo) {
		return "-"
	}
	return fmt.Sprintf("%.3f to %.3f", e.Lo, e.Hi)
}
