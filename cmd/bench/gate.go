package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/klauspost/cpuid/v2"
	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/bench/report"
	"github.com/seed621a2839/reweight/kernels"
)

const gateUsage = `Usage: bench gate -base REF [flags]     is a kernel slower than in that git revision?
       bench gate -floor FILE [flags]   is a path slower than the file allows?
       bench gate -floor FILE -record   writes the file, at half of the middle of three measurements

-base builds the bench of the working tree as it is and that of REF, and runs the
two against each other, pair by pair of fresh processes, until each kernel is
clear: at looks after 12, 24, 48, 96 and 192 pairs it fails if the median ratio
is above 1.05 and the lower bound above 1.02, and passes if the upper bound is
below 1.05. The bounds are exact, at 1% for the whole run. Its workloads stay in
a cache. A slow-down of less than 5 ns per call counts as none.

-floor measures this bench: each path against the portable one and against a plain
read of the same memory, and what falls below its floor it measures again.

Both first check that results are right, that nothing is allocated, and that the
best path is what this CPU should get. docs/ci.md tells how to use it in CI.

FILE may be - for standard output, which then has nothing else. Lists are
separated by commas.
Exit status: 0 pass, 1 regression, 2 error, 3 inconclusive, 130 interrupted.

`

// A gateResult is the verdict on a path of a kernel on a type.
type gateResult struct {
	Kernel  string        `json:"kernel"`
	Type    string        `json:"dtype"`
	Path    string        `json:"path"`
	Verdict bench.Verdict `json:"verdict"`
	Message string        `json:"message,omitempty"` // what is wrong, or not known

	// Of -base: new to base, and nanoseconds per call.
	Ratio  *bench.Estimate `json:"ratio,omitempty"`
	BaseNs float64         `json:"base_ns,omitempty"`
	NewNs  float64         `json:"new_ns,omitempty"`

	// Of -floor: times the speed of the portable path, and the share of that of
	// a plain read, each with the least that is allowed.
	TimesPortable *bench.Estimate `json:"times_portable,omitempty"`
	TimesFloor    float64         `json:"times_floor,omitempty"`
	Share         *bench.Estimate `json:"roofline_share,omitempty"`
	ShareFloor    float64         `json:"share_floor,omitempty"`
}

func (r gateResult) name() string { return r.Kernel + " " + r.Type + " on " + r.Path }

// A gateReport is what the gate says.
type gateReport struct {
	Verdict bench.Verdict   `json:"verdict"`         // of what was measured; open if that is nothing worse
	Partial bool            `json:"partial"`         // it did not come to its end
	Error   string          `json:"error,omitempty"` // that ended it; none if it was interrupted
	Against string          `json:"against"`
	Machine report.Machine  `json:"machine"`
	Notes   []string        `json:"notes,omitempty"`
	Null    *bench.Estimate `json:"null,omitempty"` // the same thing measured twice, the second over the first: how noisy the machine is now
	Results []gateResult    `json:"results"`

	base bool // and not floors
}

func gateCommand(ctx context.Context, args []string, out io.Writer, p *progress, sampler bench.Sampler) (err error) {
	flags := flag.NewFlagSet("bench gate", flag.ContinueOnError)
	base := flags.String("base", "", "git `revision` to compare the working tree with: HEAD~1, origin/main, ...")
	floor := flags.String("floor", "", "`file` of floors")
	record := flags.Bool("record", false, "write the file of floors for the paths of this machine, and keep those of others")
	kernelList := flags.String("kernel", "", "`names` of kernels: "+strings.Join(kernelNames(), ", ")+" (default all)")
	pathList := flags.String("path", "", "`names` of implementations: here "+strings.Join(pathNames(), ", ")+" (default: -base what callers get, -floor all but portable)")
	outputs := gateOutputs{stdout: out}
	for i := range outputs.files {
		flags.StringVar(&outputs.files[i].name, gateFormats[i].name, "", "write "+gateFormats[i].what+" to this `file`")
	}
	operands, err := parse(flags, gateUsage, args, out)
	if err != nil {
		return err
	}
	if err := noOperands(operands); err != nil {
		return err
	}
	set := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { set[f.Name] = true })
	if set["base"] == set["floor"] {
		return errors.New("want either -base REF or -floor FILE")
	}
	for _, name := range [...]string{"base", "floor", "json", "junit", "markdown"} {
		if set[name] && flags.Lookup(name).Value.String() == "" {
			return fmt.Errorf("-%s: no name given", name)
		}
	}
	for _, name := range [...]string{"base", "json", "junit", "markdown"} {
		if *record && set[name] {
			return fmt.Errorf("-record goes with -floor, not with -%s", name)
		}
	}
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup
		var stop func()
		ctx, stop = signal.NotifyContext(ctx, syscall.SIGHUP)
		defer stop()
	}
	g := gate{kernels: kernels.All(), progress: p, sampler: sampler}
	if set["kernel"] {
		if g.kernels, err = pick("-kernel", *kernelList, kernels.All(), kernelNames()); err != nil {
			return err
		}
		g.names = strings.Split(*kernelList, ",")
	}
	if set["path"] {
		if g.paths, err = pick("-path", *pathList, reweight.Available(), pathNames()); err != nil {
			return err
		}
	}
	if g.report.Machine, err = thisMachine(); err != nil {
		return err
	}
	if *record {
		return g.record(ctx, *floor, out)
	}
	if err := outputs.open(*floor); err != nil {
		return err
	}
	defer outputs.close()
	if set["base"] {
		err = g.againstBase(ctx, *base)
	} else {
		err = g.againstFloors(ctx, *floor)
	}
	p.clear()
	return g.finish(ctx, err, &outputs)
}

// finish writes the report of what was measured until the error, if there is one,
// and returns the error that stands for all.
func (g *gate) finish(ctx context.Context, err error, outputs *gateOutputs) error {
	if err != nil {
		if ctx.Err() != nil {
			err = errInterrupted
		} else {
			g.report.Error = err.Error()
		}
		if !slices.ContainsFunc(g.report.Results, func(q gateResult) bool { return q.Verdict != bench.Open || q.Ratio != nil }) {
			return err // there is nothing to lose
		}
		g.report.Partial = true
	}
	g.report.Verdict = g.report.verdict()
	return cmp.Or(also(err, outputs.write(g.report)), g.report.err())
}

// A gate measures, and fills in its report.
type gate struct {
	kernels  []kernels.Kernel
	names    []string       // of them, nil for all: another build may have others
	paths    []reweight.ISA // nil is the default
	progress *progress
	sampler  bench.Sampler
	report   gateReport
}

// verdict sums the results up.
func (r gateReport) verdict() bench.Verdict {
	worst := bench.Pass
	if len(r.Results) == 0 {
		worst = bench.Inconclusive
	}
	for _, q := range r.Results {
		switch {
		case q.Verdict == bench.Regression:
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

// An inconclusiveError is a gate that could not tell.
type inconclusiveError struct{ what string }

func (e *inconclusiveError) Error() string { return "inconclusive: " + e.what }

// err returns the error that stands for the verdict; a report that is partial has
// another one.
func (r gateReport) err() error {
	of := func(verdict bench.Verdict) (all []string) {
		for _, q := range r.Results {
			if q.Verdict == verdict {
				all = append(all, q.name()+": "+cmp.Or(q.Message, q.Verdict.String()))
			}
		}
		return all
	}
	switch r.Verdict {
	case bench.Regression:
		return failed(of(bench.Regression))
	case bench.Inconclusive:
		what := of(bench.Inconclusive)
		if len(what) == 0 {
			return &inconclusiveError{"nothing was compared"}
		}
		if more := len(what) - 1; more > 0 {
			what[0] += fmt.Sprintf(" (and %d more)", more)
		}
		return &inconclusiveError{what[0]}
	}
	return nil
}

// summary says it in a line.
func (r gateReport) summary() string {
	count := map[bench.Verdict]int{}
	for _, q := range r.Results {
		count[q.Verdict]++
	}
	var parts []string
	for _, v := range [...]bench.Verdict{bench.Regression, bench.Inconclusive, bench.Open, bench.Pass} {
		if n := count[v]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %v", n, v))
		}
	}
	what := strings.ToUpper(r.Verdict.String())
	if r.Partial {
		what = "INTERRUPTED, the results are partial"
	}
	if r.Error != "" {
		what = "ERROR, the results are partial"
	}
	return fmt.Sprintf("%s against %s: %s", what, r.Against, cmp.Or(strings.Join(parts, ", "), "nothing was compared"))
}

// expectedPath returns the path that callers should get on this CPU, as far as
// REWEIGHT_ISA allows. It is not asked of the library, whose choice is held
// against it.
func expectedPath() string {
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

// expect adds a result if the library's best path is not the expected one.
func (r *gateReport) expect(best, expected string) {
	if best != expected {
		r.Results = append(r.Results, gateResult{
			Kernel: "all", Type: "types", Path: best, Verdict: bench.Regression,
			Message: fmt.Sprintf("callers get the path %s, and this CPU and REWEIGHT_ISA want %s", best, expected),
		})
	}
}

// shapes returns the kernels and types to measure, at the sizes that bench run
// has by default.
func (g gate) shapes() []shape {
	return workload{kernels: g.kernels, vocabs: []int{floorVocab}, workers: []int{1}}.shapes()
}

// interval prints an estimate's interval.
func interval(e bench.Estimate) string {
	if math.IsInf(e.Lo, 0) || math.IsNaN(e.Lo) {
		return "-"
	}
	return fmt.Sprintf("%.3f to %.3f", e.Lo, e.Hi)
}
