package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/cmd/bench/internal/machine"
	"github.com/seed621a2839/reweight/cmd/bench/internal/measure"
	"github.com/seed621a2839/reweight/cmd/bench/internal/report"
	"github.com/seed621a2839/reweight/internal/cli"
	"github.com/seed621a2839/reweight/kernels"
)

const runUsage = `Usage: bench run [flags]

Measures kernels, each in turn with a plain read of its input by as many workers
and with the float64 reference, and compares their results with the reference on
every family of input. Kernels on rows of logits read eight times as many bytes as
the last cache holds, and at least 64 MiB, so that they come from memory, unless
-rows says otherwise or less memory is free: the results say where they came from.
With a large cache this takes minutes.
Kernels on tokens have no vocabulary and one worker, and stay in a cache.

On a GPU the arrays stay in its memory. Kernels run there in turn with a plain read
and a plain copy of their input, 8,192 rows by default, or fewer where its memory has
no room. Without -vocab and -rows, token_stats and row_gradient have the sizes that the
goals of docs/gpu.md are about. Gradients are in place there.

Lists are separated by commas. docs/measuring.md says how each figure is taken.

`

func runCommand(ctx context.Context, args []string, out io.Writer, p *cli.Progress, sampler bench.Sampler,
	g opener) (err error) {
	plan := measure.Plan{Sampler: sampler, Check: measure.Check, Progress: p}
	flags := cli.NewFlags("bench run")
	kernelList := kernelFlag(flags)
	isaList := isaFlag(flags, kernels.Implementations(), "all, and "+machine.CUDA+" where a GPU can be used", g)
	sizes := sizeFlags(flags, "rows of logits, or tokens (default eight times the last cache of logits, 65,536 tokens)")
	pin := pinFlag(flags)
	format := flags.Format()
	if err := flags.ParseAlone(runUsage, args, out); err != nil {
		return err
	}
	if plan.Kernels, err = kernelList(); err != nil {
		return err
	}
	choice, err := isaList()
	if err != nil {
		return err
	}
	plan.CPU, plan.GPU = choice.CPU, choice.GPU
	var noGPU error // why there is none, if one was looked for
	if !flags.Given("isa") {
		plan.GPU, noGPU = g()
	}
	if plan.Sizes, err = sizes(); err != nil {
		return err
	}
	if err := checkWorkers(flags, choice); err != nil {
		return err
	}
	if slices.ContainsFunc(plan.Kernels, func(k kernels.Kernel) bool { return k.Rows }) {
		if err := plan.Sizes.CheckElements(len(plan.CPU) > 0); err != nil {
			return err
		}
	} else {
		for _, name := range [...]string{"vocab", "workers"} {
			if flags.Given(name) {
				return fmt.Errorf("-%s means nothing to -kernel %s: kernels on tokens have no vocabulary, and one worker", name, flags.Lookup("kernel").Value)
			}
		}
	}
	asJSON, err := format()
	if err != nil {
		return err
	}
	m, err := machine.This()
	if err != nil {
		return err
	}
	if m.Pinned, err = pin(); err != nil {
		return err
	}
	m.SetGPU(plan.GPU, noGPU)
	plan.Goals = !flags.Given("vocab") && !flags.Given("rows")
	plan.Sizes.Stream = measure.Stream(machine.LastCache(), measure.LongStream)
	return runPlan(ctx, plan, m, asJSON, out)
}

// runPlan measures on the machine and prints. What was measured before an error or an
// interrupt is printed too, marked as partial.
func runPlan(ctx context.Context, plan measure.Plan, m machine.Machine, asJSON bool, out io.Writer) error {
	results, stopped := plan.Run(ctx)
	plan.Progress.Clear()
	if results.Results == nil && stopped != nil && ctx.Err() == nil {
		return stopped
	}
	err := report.New(m, results, stopped != nil).Write(out, asJSON)
	if len(results.Failures) > 0 {
		err = cli.Also(cli.Failed(results.Failures), err)
	}
	if stopped != nil {
		stopped = cli.WhyEnded(ctx, stopped)
	}
	return cli.Also(stopped, err)
}
