package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/seed621a2839/reweight/cmd/bench/internal/cli"
	"github.com/seed621a2839/reweight/cmd/bench/internal/gate"
	"github.com/seed621a2839/reweight/cmd/bench/internal/gotest"
)

const gateUsage = `Usage: bench gate -base REF [flags] [-- ARGS]

Is a benchmark of this Go module slower than in that git revision?

It builds the working tree as it is and REF, and runs the benchmarks of go test in
pairs of fresh processes until each is clear: at looks after fixed numbers of pairs it
fails if the median ratio is above -slower and the lower bound above -surely, and
passes if the upper bound is below -slower. The bounds are exact, at -alpha for the
whole run. What would fail by its time is measured once more in builds with functions
in random orders. More bytes or allocations per call fail too. ARGS go to the test
binaries. A line "Bench-Accept: BenchmarkX reason" at the end of a commit's message
accepts that BenchmarkX is slower.

docs/ci.md tells how to use this in CI. FILE may be - for standard output, which then
has nothing else. Lists are separated by commas.
Exit status: 0 pass, 1 regression, 2 error, 3 inconclusive, 130 interrupted.

`

func gateCommand(ctx context.Context, args []string, out io.Writer, p *cli.Progress) (err error) {
	opt := gate.Options{Progress: p}
	flags := cli.NewFlags("bench gate")
	flags.StringVar(&opt.Base, "base", "", "git `revision` to compare the working tree with: HEAD~1, origin/main, ...")
	comparison := comparisonFlags(flags, &opt)
	flags.StringVar(&opt.Dir, "C", ".", "`directory` of the module")
	cache := flags.String("cache", "auto", "`auto` keeps builds of the base in the user's cache directory, off does not")
	args, opt.Args = splitArgs(args)
	if err := flags.ParseAlone(gateUsage, args, out); err != nil {
		return err
	}
	if !flags.Given("base") {
		return errors.New("want -base REF, the git revision to compare with")
	}
	if err := flags.NotEmpty("base", "C"); err != nil {
		return err
	}
	if err := comparison(); err != nil {
		return err
	}
	if *cache != "auto" && *cache != "off" {
		return fmt.Errorf("-cache is %q, want auto or off", *cache)
	}
	opt.Cache = *cache == "auto"
	return gate.Run(ctx, opt, out)
}

// splitArgs returns the arguments before the first --, and those after it.
func splitArgs(args []string) (before, after []string) {
	if i := slices.Index(args, "--"); i >= 0 {
		return args[:i], args[i+1:]
	}
	return args, nil
}

// comparisonFlags declares the flags of commands that compare benchmarks. The function
// reads their values.
func comparisonFlags(flags cli.Flags, opt *gate.Options) func() error {
	flags.StringVar(&opt.Bench, "bench", ".", "compare the benchmarks that match this `regexp`, as in go test")
	flags.StringVar(&opt.Skip, "skip", "", "but not those that match this `regexp`")
	packages := flags.String("pkg", gate.AllPackages, "`packages` of the module, by patterns of the go command")
	flags.IntVar(&opt.CPU, "cpu", 1, "run benchmarks with this `GOMAXPROCS`: with 1 they are disturbed least, and those that work in parallel need more")
	metrics := flags.String("metrics", "B/op,allocs/op", "`units` to judge besides ns/op, or none; of B/op and allocs/op, any more is a regression")
	flags.DurationVar(&opt.Budget, "budget", 10*time.Minute, "the longest `time` to measure, such as 90s or 20m; what is open then is inconclusive")
	flags.Float64Var(&opt.Slower, "slower", 1.05, "fail above this `ratio` of the new time to the base's")
	flags.Float64Var(&opt.Surely, "surely", 1.02, "if it is surely above this `ratio`")
	flags.Float64Var(&opt.Alpha, "alpha", 0.01, "`chance` of a wrong verdict in a run, for each of the two kinds")
	for i, format := range gate.Formats {
		flags.StringVar(&opt.Files[i], format.Name, "", "write "+format.What+" to this `file`")
	}
	return func() error {
		if err := flags.NotEmpty("bench", "pkg", "metrics", "json", "junit", "markdown"); err != nil {
			return err
		}
		for _, r := range [...]struct{ flag, pattern string }{{"bench", opt.Bench}, {"skip", opt.Skip}} {
			if err := gotest.CheckPattern(r.pattern); err != nil {
				return fmt.Errorf("-%s: %w", r.flag, err)
			}
		}
		switch {
		case opt.CPU < 1 || opt.CPU > 1024:
			return fmt.Errorf("-cpu is %d, want 1 to 1024", opt.CPU)
		case opt.Budget < time.Second:
			return fmt.Errorf("-budget is %v, want a second or more", opt.Budget)
		case !(opt.Surely >= 1 && opt.Surely <= opt.Slower && opt.Slower <= 100):
			return fmt.Errorf("-surely is %v and -slower %v, want 1 <= -surely <= -slower <= 100", opt.Surely, opt.Slower)
		case !(opt.Alpha >= 1e-9 && opt.Alpha <= 0.5):
			return fmt.Errorf("-alpha is %v, want 1e-9 to 0.5", opt.Alpha)
		}
		opt.Packages = strings.Split(*packages, ",")
		if *metrics != "none" {
			opt.Metrics = strings.Split(*metrics, ",")
		}
		if slices.Contains(opt.Metrics, "ns/op") || slices.Contains(opt.Metrics, "") {
			return fmt.Errorf("-metrics is %q, want units besides ns/op", *metrics)
		}
		return nil
	}
}
