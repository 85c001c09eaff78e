package main

import (
	"context"
	"errors"
	"io"

	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/internal/cli"
	"github.com/seed621a2839/reweight/internal/floors"
	"github.com/seed621a2839/reweight/internal/measure"
	"github.com/seed621a2839/reweight/kernels"
)

const floorsUsage = `Usage: bench floors FILE [flags]

Is an instruction set far slower than it may be on the kernels of this project? FILE
has floors: how many times as fast as the portable kernels, and which share of the
speed of a plain read. The results must be right too, and nothing may be allocated.
What is below its floor is measured again. With -record the command writes the file,
at half of the middle of three measurements, and keeps the floors of other machines.

Exit status: 0 pass, 1 below a floor or wrong, 2 error, 3 no floors, 130 interrupted.

`

func floorsCommand(ctx context.Context, args []string, out io.Writer, p *cli.Progress, sampler bench.Sampler) (err error) {
	opt := floors.Options{Plan: measure.Plan{Sampler: sampler, Check: measure.Check, Progress: p}}
	flags := cli.NewFlags("bench floors")
	flags.BoolVar(&opt.Record, "record", false, "write the file of floors for the instruction sets of this machine")
	kernelList := kernelFlag(flags)
	isaList := isaFlag(flags, kernels.Implementations()[1:], "all but portable", nil)
	operands, err := flags.Parse(floorsUsage, args, out)
	if err != nil {
		return err
	}
	switch len(operands) {
	case 0:
		return errors.New("want FILE, with floors")
	case 1:
		opt.File = operands[0]
	default:
		return cli.Unexpected(operands[1])
	}
	if opt.Plan.Kernels, err = kernelList(); err != nil {
		return err
	}
	choice, err := isaList()
	if err != nil {
		return err
	}
	opt.Plan.CPU = choice.CPU
	return floors.Run(ctx, opt, out)
}
