package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/cmd/bench/internal/cli"
	"github.com/seed621a2839/reweight/cmd/bench/internal/losses"
	"github.com/seed621a2839/reweight/cmd/bench/internal/measure"
	"github.com/seed621a2839/reweight/cmd/bench/internal/report"
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
}

// defaultJob checks at the edges of the kernels' blocks, and measures float32 with
// one worker, which does not take too long on slow machines; bench run measures
// the rest.
func defaultJob(p *cli.Progress) job {
	checks := measure.Plan{Check: measure.Check, Kernels: kernels.All(), ISAs: reweight.AvailableISAs(), Progress: p}
	speed := checks
	speed.Sampler, speed.Kernels = bench.DefaultSampler, measure.FirstDTypes(checks.Kernels)
	speed.Sizes = cli.Sizes{Vocabs: []int{151936}, Workers: []int{1}}
	return job{
		checks: checks,
		sizes:  []int{1, 2, 15, 16, 17, 63, 64, 65, 300, 1023, 1024, 1025, 2047, 2049, 5000, 151936},
		speed:  speed,
	}
}

// speedColumns are those of bench run that the main job shows.
var speedColumns = [...]string{"kernel", "isa", "rows", "ns/element", "GB/s", "of read", "x reference", "rounds", "allocs"}

func mainCommand(ctx context.Context, args []string, out io.Writer, j job) error {
	operands, err := cli.NewFlags("bench").Parse(usage, args, out)
	if err != nil {
		return err
	}
	if len(operands) > 0 {
		return fmt.Errorf("unknown command %q, want reweight, run, overhead, gate or info", operands[0])
	}
	return j.do(ctx, out)
}

// do does the main job and prints each part when it is done, or what there is of
// it when ctx ends.
func (j job) do(ctx context.Context, out io.Writer) error {
	begin := time.Now()
	m, err := cli.ThisMachine()
	if err != nil {
		return err
	}
	if err := cli.WriteTable(out, 2, nil, m.Rows()); err != nil {
		return err
	}

	cli.Heading(out, "Rollouts of a trained policy on slippery FrozenLake")
	if err := printEmbedded(out); err != nil {
		return err
	}

	best := j.speed
	best.ISAs = best.ISAs[len(best.ISAs)-1:]
	p := j.speed.Progress
	p.Expect(j.checks.ParityWork() + j.speed.SpeedWork() + best.OverheadWork(1))
	parities, stopped := j.checks.Parities(ctx, j.sizes)
	failures := measure.Failures(parities)
	p.Clear()
	cli.Heading(out, fmt.Sprintf("Parity with the float64 reference: %d families of input, %d sizes from 1 to %s",
		len(kernels.Families), len(j.sizes), humanize.Comma(int64(slices.Max(j.sizes)))))
	if err := printParities(out, parities); err != nil {
		return err
	}
	if stopped != nil {
		return ended(ctx, out, stopped)
	}

	results, stopped := j.speed.Speed(ctx)
	p.Clear()
	cli.Heading(out, "Speed on float32: rows of logits streamed, tokens from a cache")
	r := report.New(m, measure.Results{Results: results}, stopped != nil)
	_, header, cells := r.Table()
	rows := make([][]string, len(cells))
	for _, name := range speedColumns {
		for i := range cells {
			rows[i] = append(rows[i], cells[i][slices.Index(header, name)])
		}
	}
	if err := cli.WriteTable(out, 2, speedColumns[:], rows); err != nil {
		return err
	}
	if len(results) > 0 {
		r.WriteNotes(out)
	}
	if stopped != nil {
		return ended(ctx, out, stopped)
	}

	grpo := false
	overheads, stopped := best.Overheads(ctx, grpo)
	p.Clear()
	cli.Heading(out, "Training steps of GRPO from logits to loss and gradient, over the uniform step")
	rows = nil
	for _, o := range overheads {
		rows = append(rows, []string{o.Step, report.YesNo(o.KL), o.Verdict, cli.Ratio(o.OverUniform), report.ExtraMemory(o), strconv.FormatUint(o.Allocs, 10)})
	}
	if err := cli.WriteTable(out, 3, []string{"step", "KL anchor", "verdict", "times uniform", "extra memory", "allocs"}, rows); err != nil {
		return err
	}
	if stopped != nil {
		return ended(ctx, out, stopped)
	}

	if len(failures) > 0 {
		fmt.Fprintf(out, "\nSome results are WRONG:\n%s\n", strings.Join(failures, "\n"))
		return cli.Failed(failures)
	}
	return j.conclude(out, results, overheads, time.Since(begin))
}

// conclude says in words what the tables show, if all is right.
func (j job) conclude(out io.Writer, results []measure.Result, overheads []measure.Overhead, took time.Duration) error {
	isas := j.speed.ISAs
	best := isas[len(isas)-1].String()
	i := slices.IndexFunc(results, func(r measure.Result) bool { return r.Vocab > 0 && r.ISA == best })
	same := "With the one instruction set here, every kernel agrees with the reference."
	if n := len(isas); n > 1 {
		same = fmt.Sprintf("Every kernel agrees with the reference, and has the same bits with all %d instruction sets.", n)
	}
	r, o := results[i], overheads[len(overheads)-1]
	_, err := fmt.Fprintf(out, "\n%s\nOn %s, %s takes %.2f ns per element: %.0f times the speed of the reference, %s of that of a plain read.\n"+
		"With a KL anchor, a training step with ActFocus and AEM takes %s times the uniform one. All this took %.0f s.\n",
		same, best, r.Kernel, r.NsPerElement.Median, r.TimesReference.Median, cli.Percent(r.Share.Median), cli.Ratio(o.OverUniform), took.Seconds())
	return err
}

// ended marks what is printed as partial, and returns why it is.
func ended(ctx context.Context, out io.Writer, err error) error {
	fmt.Fprintf(out, "\n%s\n", report.Ended)
	return cli.WhyEnded(ctx, err)
}

// printParities prints a line for the instruction sets of a kernel that have equal
// errors.
func printParities(out io.Writer, parities []measure.Parity) error {
	var rows [][]string
	for i, p := range parities {
		verdict := "ok"
		if p.Failure != "" {
			verdict = "WRONG"
		}
		row := []string{p.Kernel, p.DType, p.ISA, verdict, humanize.Comma(int64(p.Cases)), cli.Small(p.Errors.MaxULP), cli.Small(p.Errors.MaxAbs)}
		const isa = 2
		if i > 0 {
			last := rows[len(rows)-1]
			isas := last[isa]
			if row[isa] = isas; slices.Equal(row, last) {
				last[isa] = isas + " " + p.ISA
				continue
			}
			row[isa] = p.ISA
		}
		rows = append(rows, row)
	}
	return cli.WriteTable(out, 4, []string{"kernel", "type", "isa", "", "cases", "max ulp", "max abs"}, rows)
}

// printEmbedded prints what the losses make of the embedded rollouts.
func printEmbedded(out io.Writer) error {
	file, err := rollout.Parse(testdata.FrozenLakeSmall)
	if err != nil {
		return err
	}
	defer file.Close()
	b, err := file.Batch()
	if err != nil {
		return err
	}
	s, err := losses.Summarise(b, losses.Default(), losses.Compute)
	if err != nil {
		return err
	}
	if err := s.Write(out); err != nil {
		return err
	}
	return s.Err()
}
