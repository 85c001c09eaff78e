package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/cmd/bench/internal/cli"
	"github.com/seed621a2839/reweight/cmd/bench/internal/gate"
)

const gateUsage = `Usage: bench gate -base REF [flags]     is a kernel slower than in that git revision?
       bench gate -floor FILE [flags]   is an instruction set slower than the file allows?
       bench gate -floor FILE -record   writes the file, at half of the middle of three measurements

-base builds the bench of the working tree as it is and that of REF, and runs the
two against each other, pair by pair of fresh processes, until each kernel is
clear: at looks after 12, 24, 48, 96 and 192 pairs it fails if the median ratio
is above 1.05 and the lower bound above 1.02, and passes if the upper bound is
below 1.05. The bounds are exact, at 1% for the whole run. Its workloads stay in
a cache. A slow-down of less than 5 ns per call counts as none.

-floor measures the kernels of this bench with each instruction set against the
portable kernels and against a plain read of the same memory. What is below its
floor is measured again.

Both first check that results are right, that nothing is allocated, and that
callers get the best instruction set of this CPU. docs/ci.md tells how to use it
in CI.

FILE may be - for standard output, which then has nothing else. Lists are
separated by commas.
Exit status: 0 pass, 1 regression, 2 error, 3 inconclusive, 130 interrupted.

`

func gateCommand(ctx context.Context, args []string, out io.Writer, p *cli.Progress, sampler bench.Sampler, g *cli.GPU) (err error) {
	opt := gate.Options{Alpha: 0.01, Slower: 1.05, Surely: 1.02, Progress: p, Sampler: sampler, GPU: g}
	flags := cli.NewFlags("bench gate")
	flags.StringVar(&opt.Base, "base", "", "git `revision` to compare the working tree with: HEAD~1, origin/main, ...")
	flags.StringVar(&opt.Floors, "floor", "", "`file` of floors")
	flags.BoolVar(&opt.Record, "record", false, "write the file of floors for the instruction sets of this machine, and keep those of others")
	kernelList := flags.Kernels()
	isaList := flags.ISAs("-base what callers get, -floor all but portable; and "+cli.CUDA+" where a GPU can be used", g)
	for i, format := range gate.Formats {
		flags.StringVar(&opt.Files[i], format.Name, "", "write "+format.What+" to this `file`")
	}
	if err := flags.ParseAlone(gateUsage, args, out); err != nil {
		return err
	}
	if flags.Given("base") == flags.Given("floor") {
		return errors.New("want either -base REF or -floor FILE")
	}
	if err := flags.NotEmpty("base", "floor", "json", "junit", "markdown"); err != nil {
		return err
	}
	for _, name := range [...]string{"base", "json", "junit", "markdown"} {
		if opt.Record && flags.Given(name) {
			return fmt.Errorf("-record goes with -floor, not with -%s", name)
		}
	}
	if opt.Kernels, err = kernelList(); err != nil {
		return err
	}
	if opt.ISAs, err = isaList(); err != nil {
		return err
	}
	return gate.Run(ctx, opt, out)
}
