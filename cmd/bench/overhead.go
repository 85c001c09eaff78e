package main

import (
	"context"
	"fmt"
	"io"

	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/cmd/bench/internal/machine"
	"github.com/seed621a2839/reweight/cmd/bench/internal/measure"
	"github.com/seed621a2839/reweight/cmd/bench/internal/report"
	"github.com/seed621a2839/reweight/internal/cli"
	"github.com/seed621a2839/reweight/internal/compare"
	"github.com/seed621a2839/reweight/kernels"
)

const overheadUsage = `Usage: bench overhead [flags]

Tests the papers' claim that the reweighting costs nothing: the training step
with ActFocus, AEM and both, in turn with the uniform step, each from the logits
of the old and the current policy to the loss and the gradient by the logits;
with the advantages of GRPO and of PPO (GAE), with and without a KL anchor to
the reference. ActFocus's energy is a sum of the anchor's pass over the
reference's logits; without an anchor it has to make that pass for itself.

A step is called free if it takes at most 1.02 times the uniform one at the upper
end of the 95% interval, and so does the uniform step over itself (the null), in
at least 6 rounds. Lists are separated by commas.

-isa cuda takes the steps on the GPU, on arrays that stay in its memory.

With -scheme, the steps are those of other schemes, with advantages of GRPO or their own:
on rollouts that are made up and have all that a scheme reads, on the CPU. The bound of
off_policy_mask, which has no default, is 0.1 nats.

`

func overheadCommand(ctx context.Context, args []string, out io.Writer, p *cli.Progress, sampler bench.Sampler,
	g opener) (err error) {
	plan := measure.Plan{Sampler: sampler, Progress: p}
	plan.Sampler.Budget *= 4 // differences of 1% count, on machines whose speed varies by tens of percent
	flags := cli.NewFlags("bench overhead")
	all := kernels.Implementations()
	isaList := isaFlag(flags, all[len(all)-1:], "the best of the CPU", g)
	sizes := sizeFlags(flags, "tokens of a step (default as many as make 64 MiB of logits and gradient)")
	pin := pinFlag(flags)
	list := flags.String("scheme", "", "measure these `names` of schemes in place of ActFocus, AEM and both, with commas between them, or all (see above)")
	format := flags.Format()
	if err := flags.ParseAlone(overheadUsage+compare.SchemesUsage(), args, out); err != nil {
		return err
	}
	choice, err := isaList()
	if err != nil {
		return err
	}
	if plan.Sizes, err = sizes(); err != nil {
		return err
	}
	if err := checkWorkers(flags, choice); err != nil {
		return err
	}
	if flags.Given("rows") && plan.Sizes.Rows < measure.FewestTokens {
		return fmt.Errorf("-rows is %d, want at least %d tokens for a training step", plan.Sizes.Rows,
			measure.FewestTokens)
	}
	ppo := []bool{false, true}
	if flags.Given("scheme") {
		if choice.GPU != nil {
			return fmt.Errorf("-scheme means nothing to -isa %s: a GPU has the steps of ActFocus and AEM only", machine.CUDA)
		}
		if plan.Schemes, err = compare.ParseSchemes(*list); err != nil {
			return fmt.Errorf("-scheme %w", err)
		}
		if flags.Given("rows") && plan.Sizes.Rows < measure.FewestOfSchemes {
			return fmt.Errorf("-rows is %d, want at least %d tokens with -scheme: a whole group of rollouts",
				plan.Sizes.Rows, measure.FewestOfSchemes)
		}
		ppo = ppo[:1] // schemes say where their advantages come from
	}
	asJSON, err := format()
	if err != nil {
		return err
	}
	var r report.Overhead
	if r.Machine, err = machine.This(); err != nil {
		return err
	}
	if r.Machine.Pinned, err = pin(); err != nil {
		return err
	}
	plan.CPU, plan.GPU = choice.CPU, choice.GPU
	r.Machine.SetGPU(plan.GPU, nil)
	if err := plan.Sizes.CheckElements(len(plan.CPU) > 0); err != nil {
		return err
	}
	err = plan.Overheads(&r.Overhead, ppo...).Do(ctx, p)
	p.Clear()
	if err != nil && ctx.Err() == nil && r.Overhead == nil {
		return err
	}
	if r.Partial = err != nil; r.Partial {
		err = cli.WhyEnded(ctx, err)
	}
	return cli.Also(err, r.Write(out, asJSON))
}
