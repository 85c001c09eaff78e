// Command benchgate says whether a change makes a benchmark of a Go module slower.
// benchgate -h says how.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/seed621a2839/reweight/cmd/benchgate/internal/gate"
	"github.com/seed621a2839/reweight/cmd/benchgate/internal/gotest"
	"github.com/seed621a2839/reweight/internal/cli"
)

func main() {
	cli.IgnoreBrokenPipe() // run reports the error of a write
	os.Exit(run(cli.UntilInterrupt(context.Background()), os.Args[1:], os.Stdout, os.Stderr))
}

// run does what the arguments say and returns the exit status. If ctx ends, it prints what
// it has by then.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	out := &cli.FirstError{W: stdout}
	opt := gate.Options{Log: stderr, Alpha: gate.Alpha, Flags: args}
	name, err := "benchgate", error(nil)
	switch {
	case len(args) > 0 && args[0] == "compare":
		name, err = "benchgate compare", compareCommand(ctx, args[1:], out, opt)
	case len(args) > 0 && args[0] == "trend":
		name, err = "benchgate trend", trendCommand(args[1:], out)
	default:
		err = gateCommand(ctx, args, out, opt)
	}
	return cli.Finish(name, err, out, &cli.Progress{}, stderr)
}

const gateUsage = `Usage:
  benchgate -base REF [flags] [packages] [-- ARGS]
  benchgate compare OLD NEW [flags] [packages] [-- ARGS]
  benchgate trend FILE [-html PAGE]

Is a benchmark of this Go module slower than in that git revision? benchgate compare asks
the same of two working copies, or of two test binaries, and benchgate trend since which
commit it is, from what -history has written: benchgate compare -h, benchgate trend -h.

It builds the working tree as it is and REF, and runs the benchmarks of go test in
pairs of fresh processes until each is clear: at looks after fixed numbers of pairs it
fails if the median ratio is above -slower and the lower bound above two fifths of
that slow-down, and passes if the upper bound is below -slower. The bounds are exact,
for an error of 1% in a whole run. What would fail by its time is measured once more in
builds with functions in random orders. More bytes or allocations per call fail too. A line
"Bench-Accept: BenchmarkX reason" at the end of a commit's message accepts that BenchmarkX
is slower. Packages are patterns of the go command; the default is all of the module. ARGS
go to the test binaries.

cmd/benchgate/README.md tells how to use this in CI. FILE may be - for standard output, which
then has nothing else. Lists are separated by commas.
Exit status: 0 pass, 1 regression, 2 error, 3 inconclusive, 130 interrupted.

`

func gateCommand(ctx context.Context, args []string, out io.Writer, opt gate.Options) (err error) {
	flags := cli.NewFlags("benchgate")
	flags.StringVar(&opt.Base, "base", "", "git `revision` to compare the working tree with: HEAD~1, origin/main, ...")
	flags.BoolVar(&opt.Exact, "base-exact", false,
		"compare with the revision itself, and not with its merge base with HEAD")
	comparison := comparisonFlags(flags, &opt)
	flags.StringVar(&opt.Dir, "C", ".", "`directory` of the module")
	flags.StringVar(&opt.History, "history", "", "add to this `file` what each benchmark takes at HEAD over what it takes at the base, for benchgate trend")
	args, opt.Args = splitArgs(args)
	packages, err := flags.Parse(gateUsage, args, out)
	if err != nil {
		return err
	}
	if !flags.Given("base") {
		return errors.New("want -base REF, the git revision to compare with")
	}
	if err := flags.NotEmpty("base", "C", "history"); err != nil {
		return err
	}
	if err := comparison(packages); err != nil {
		return err
	}
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
// reads their values, and takes the packages, or all if there are none.
func comparisonFlags(flags cli.Flags, opt *gate.Options) func(packages []string) error {
	flags.StringVar(&opt.Bench, "bench", ".", "compare the benchmarks that match this `regexp`, as in go test")
	flags.StringVar(&opt.Skip, "skip", "", "but not those that match this `regexp`")
	skipPackages := flags.String("skip-pkg", "", "but not these `packages`, such as ./db,./internal/...")
	flags.IntVar(&opt.CPU, "cpu", 1, "run benchmarks with this `GOMAXPROCS`: with 1 they are disturbed least, and those that work in parallel need more")
	benchtime := flags.String("benchtime", "", "time benchmarks for so long in one go, or so many calls, as in go test: `100ms` or 10000x (default as long as it needs)")
	metrics := flags.String("metrics", "B/op,allocs/op", "`units` to judge besides ns/op, or none; of B/op and allocs/op, any more is a regression")
	flags.DurationVar(&opt.Budget, "budget", 10*time.Minute, "the longest `time` to find and measure benchmarks, such as 90s or 20m; what is open then is inconclusive")
	flags.Float64Var(&opt.Slower, "slower", 1.05, "fail above this `ratio` of the new time to the base's, if it is surely above two fifths of it")
	flags.StringVar(&opt.Profiles, "profiles", "",
		"write CPU profiles of both builds of what is slower to this `directory`")
	for i, format := range gate.Formats {
		flags.StringVar(&opt.Files[i], format.Name, "", "write "+format.What+" to this `file`")
	}
	opt.Given = flags.Given
	return func(packages []string) (err error) {
		if *benchtime != "" {
			if opt.Benchtime, err = gate.ParseBenchtime(*benchtime); err != nil {
				return fmt.Errorf("-benchtime: %w", err)
			}
		}
		if err := flags.NotEmpty("bench", "metrics", "profiles", "json", "junit", "markdown", "benchfmt"); err != nil {
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
		case !(opt.Slower > 1 && opt.Slower <= 100):
			return fmt.Errorf("-slower is %v, want a ratio above 1, such as 1.05", opt.Slower)
		}
		if opt.Packages = packages; len(packages) == 0 {
			opt.Packages = []string{gate.AllPackages}
		}
		if *skipPackages != "" {
			opt.SkipPackages = strings.Split(*skipPackages, ",")
		}
		if *metrics != "none" {
			opt.Metrics = strings.Split(*metrics, ",")
		}
		if slices.Contains(opt.Metrics, "ns/op") || slices.Contains(opt.Metrics, "") {
			return fmt.Errorf("-metrics is %q, want units besides ns/op", *metrics)
		}
		return nil
	}
}
