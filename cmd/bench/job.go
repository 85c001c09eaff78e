package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/cmd/bench/internal/machine"
	"github.com/seed621a2839/reweight/cmd/bench/internal/measure"
	"github.com/seed621a2839/reweight/cmd/bench/internal/report"
	"github.com/seed621a2839/reweight/internal/cli"
	"github.com/seed621a2839/reweight/internal/compare"
	"github.com/seed621a2839/reweight/internal/printable"
	"github.com/seed621a2839/reweight/kernels"
	"github.com/seed621a2839/reweight/rollout"
	"github.com/seed621a2839/reweight/testdata"
)

// A job is the main job: the arithmetic on rollouts, whether the kernels are
// right, and what they cost.
type job struct {
	checks measure.Plan // of all kernels in all formats
	sizes  []int        // for checks: elements per row, or tokens
	speed  measure.Plan
	cached measure.Plan // one kernel on rows that a cache holds
	steps  measure.Plan
	gpu    opener
	within time.Duration // by then all but the first kernel's speed and the steps ends
}

// defaultJob checks at the edges of the kernels' blocks, and measures float32 with
// one worker, which does not take too long on slow machines; bench run measures
// the rest.
func defaultJob(p *cli.Progress, g opener) job {
	checks := measure.Plan{Check: measure.Check, Kernels: kernels.All(), CPU: kernels.Implementations(), Progress: p}
	speed := checks
	speed.Sampler, speed.Kernels = bench.DefaultSampler, measure.FirstDTypes(checks.Kernels)
	speed.Sizes = measure.Sizes{Vocabs: []int{151936}, Workers: []int{1},
		Stream: measure.Stream(machine.LastCache(), measure.BriefStream)}
	cached, steps := speed, speed
	cached.Kernels, cached.Sizes.Rows = speed.Kernels[:1], 4 // rows: 2.3 MiB
	cached.CPU = checks.CPU[len(checks.CPU)-1:]
	steps.CPU = cached.CPU
	return job{
		checks: checks,
		sizes:  []int{1, 2, 15, 16, 17, 63, 64, 65, 300, 1023, 1024, 1025, 2047, 2049, 5000, 151936},
		speed:  speed, cached: cached, steps: steps, gpu: g, within: time.Minute,
	}
}

func mainCommand(ctx context.Context, args []string, out io.Writer, j job) error {
	flags := cli.NewFlags("bench")
	operands, err := flags.Parse(usage, args, out)
	if err != nil {
		return err
	}
	if len(operands) > 0 {
		return fmt.Errorf("unknown command %q, want run, overhead or info", operands[0])
	}
	return j.do(ctx, out)
}

// An outcome is what the main job found, or as much as there is when it ends early.
type outcome struct {
	machine   machine.Machine
	losses    *compare.Comparison
	wrongStep error // of the schemes on the embedded rollouts
	parities  []measure.Parity
	results   measure.Results
	cached    measure.Results
	overheads []measure.Overhead
	late      bool // the time was over before all kernels were measured
	took      time.Duration
}

// do does the main job and prints what it found, or what there is of it when ctx
// ends.
func (j job) do(ctx context.Context, out io.Writer) error {
	begin := time.Now()
	var o outcome
	var err error
	if o.machine, err = machine.This(); err != nil {
		return err
	}
	device, err := j.gpu()
	o.machine.SetGPU(device, err)
	j.checks.GPU, j.speed.GPU = device, device
	with, takes := o.machine.Chosen, "a minute"
	if device != nil {
		with, takes = with+" and "+printable.Line(o.machine.GPU.Name), "a minute, and more on the GPU"
	}
	if _, err := fmt.Fprintf(out, "%s with %s. This takes about %s.\n", printable.Line(o.machine.CPU), with,
		takes); err != nil {
		return err
	}
	if o.losses, o.wrongStep, err = embeddedLosses(); err != nil {
		return err
	}
	const checks, grpo = false, false
	speed := j.speed.Speed(&o.results, checks)
	tasks := slices.Concat(j.checks.Parities(&o.parities, j.sizes), speed[:1], j.cached.Speed(&o.cached, checks),
		j.steps.Overheads(&o.overheads, grpo))
	if err = tasks.Do(ctx, j.speed.Progress); err == nil {
		rest, cancel := context.WithDeadline(ctx, begin.Add(j.within))
		defer cancel()
		if err = speed[1:].Do(rest, j.speed.Progress); ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
			o.late, err = true, nil
		}
	}
	j.speed.Progress.Clear()
	o.took = time.Since(begin)
	if e := j.print(out, o, err != nil); e != nil {
		return e
	}
	if err != nil {
		return cli.WhyEnded(ctx, err)
	}
	if failures := o.failures(); len(failures) > 0 {
		return cli.Failed(failures)
	}
	return nil
}

// failures are the results that are wrong.
func (o outcome) failures() []string {
	failures := append(measure.Failures(o.parities), o.results.Failures...)
	if o.wrongStep != nil {
		failures = append(failures, o.wrongStep.Error())
	}
	return failures
}

// print prints the verdict first, and then the tables that it comes from.
func (j job) print(out io.Writer, o outcome, partial bool) error {
	r := report.New(o.machine, o.results, partial)
	failures := o.failures()
	if len(failures) > 0 {
		fmt.Fprintf(out, "\nRight: NO. Some results are WRONG:\n%s\n", strings.Join(failures, "\n"))
	} else if !partial {
		fmt.Fprintf(out, "\nRight: %s\n", report.Right("every kernel", o.machine.Series()))
	}
	if !partial {
		fmt.Fprintf(out, "Fast:  %s\nCost:  %s\nGPU:   %s\n", r.Fast(o.cached.Results), report.Cost(o.overheads),
			printable.Line(r.GPU()))
	}
	if noisy := report.Noisy(append(r.Nulls(), report.OverheadNulls(o.overheads)...)); noisy != "" {
		cli.Warning(out, noisy)
	}
	if err := j.printTables(out, o, r); err != nil {
		return err
	}
	end := "\n" + report.Ended
	if !partial {
		end = fmt.Sprintf("All this took %.0f s. bench run measures all kernels on all instruction sets.",
			o.took.Seconds())
	}
	_, err := fmt.Fprintln(out, end)
	return err
}

// printTables prints tables of at most 100 columns, which fit on a screen together.
func (j job) printTables(out io.Writer, o outcome, r report.Report) error {
	speed := fmt.Sprintf("Speed on float32 with %s: ns per element, share of a plain read, times the speed of the others",
		o.machine.Chosen)
	onRows := slices.Concat(o.results.Results, o.cached.Results)
	onRows = slices.DeleteFunc(onRows, func(q measure.Result) bool { return q.Vocab == 0 })
	for _, t := range []struct {
		title string
		table func() (text int, header []string, rows [][]string)
	}{
		{speed, report.New(o.machine, measure.Results{Results: onRows}, false).Brief},
		{"Speed on float32 on the GPU, arrays in its memory: share of a plain read and of a plain copy there", r.GPUSpeed},
		{
			"Training steps of GRPO from logits to loss and gradient, over the uniform step",
			report.Overhead{Overhead: o.overheads}.Brief,
		},
	} {
		text, header, rows := t.table()
		if len(rows) == 0 {
			continue
		}
		fmt.Fprintf(out, "\n%s\n", t.title)
		if err := cli.WriteTable(out, text, header, rows); err != nil {
			return err
		}
	}
	fmt.Fprintln(out, "\nRollouts of a trained policy on slippery FrozenLake: four schemes")
	if err := o.losses.WriteTables(out); err != nil {
		return err
	}
	var notes []string
	if o.late {
		notes = append(notes, fmt.Sprintf("After %v the other kernels were left out: bench run measures them.",
			j.within))
	}
	if len(o.parities) > 0 {
		notes = append(notes, report.Checked(o.parities, j.sizes))
	}
	notes = append(notes, r.BriefNotes()...)
	if len(notes) == 0 {
		return nil
	}
	_, err := fmt.Fprintf(out, "\n%s\n", strings.Join(notes, "\n"))
	return err
}

// embeddedLosses compares schemes on the embedded rollouts. A step that is not that of
// float64 is wrong.
func embeddedLosses() (c *compare.Comparison, wrong, err error) {
	file, err := rollout.Parse(testdata.FrozenLakeSmall)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	b, err := file.Batch()
	if err != nil {
		return nil, nil, err
	}
	picked, err := compare.ParseSchemes(compare.OfPapers)
	if err != nil {
		return nil, nil, err
	}
	var ws reweight.Workspace
	for _, s := range picked {
		step, err := s.NewStep(&ws, b)
		if err != nil {
			return nil, nil, err
		}
		res, err := step.Run()
		if err != nil {
			return nil, nil, err
		}
		if err := step.Check(res); err != nil {
			wrong = err
		}
	}
	c, err = compare.Schemes(b, picked, picked[0], compare.Options{})
	return c, wrong, err
}
