package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/bench/report"
	"github.com/seed621a2839/reweight/kernels"
	"github.com/seed621a2839/reweight/rollout"
	"github.com/seed621a2839/reweight/testdata"
)

// A job is the main job: the arithmetic on rollouts, whether the kernels are
// right, and what they cost.
type job struct {
	sizes []int // for parity: elements per row, or tokens
	workload
}

// defaultJob meets the edges of the kernels' blocks, and measures float32 on one
// worker, which leaves time for slow machines; bench run measures the rest.
func defaultJob(p *progress) job {
	return job{
		sizes: []int{1, 2, 15, 16, 17, 63, 64, 65, 300, 1023, 1024, 1025, 2047, 2049, 5000, 151936},
		workload: workload{
			sampler: bench.DefaultSampler, check: bench.Check, kernels: kernels.All(), oneType: true, paths: reweight.Available(),
			vocabs: []int{151936}, workers: []int{1}, progress: p,
		},
	}
}

// speedColumns are those of bench run that the main job shows.
var speedColumns = [...]string{"kernel", "path", "rows", "ns/element", "GB/s", "of read", "x reference", "rounds", "allocs"}

func mainCommand(ctx context.Context, args []string, out io.Writer, j job) error {
	operands, err := parse(flag.NewFlagSet("bench", flag.ContinueOnError), usage, args, out)
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
	m, err := thisMachine()
	if err != nil {
		return err
	}
	if err := table(out, 2, nil, m.Rows(why(m))); err != nil {
		return err
	}

	heading(out, "Rollouts of a trained policy on slippery FrozenLake")
	if err := printEmbedded(out); err != nil {
		return err
	}

	j.progress.expect(checkWork*j.checks() + measureWork*j.measurements() + overheadWork*2)
	parities, stopped := j.parity(ctx)
	failures := failuresOf(parities)
	j.progress.clear()
	heading(out, fmt.Sprintf("Parity with the float64 reference: %d families of input, %d sizes from 1 to %s",
		len(kernels.Families), len(j.sizes), humanize.Comma(int64(slices.Max(j.sizes)))))
	if err := printParities(out, parities); err != nil {
		return err
	}
	if stopped != nil {
		return ended(ctx, out, stopped)
	}

	var results []report.Result
	for _, shape := range j.shapes() {
		var r []report.Result
		r, stopped = j.speed(ctx, shape, measureWork)
		if results = append(results, r...); stopped != nil {
			break
		}
	}
	j.progress.clear()
	heading(out, "Speed on float32: rows of logits streamed, tokens from a cache")
	r := report.Report{Machine: m, Results: results}
	_, header, cells := r.Table()
	rows := make([][]string, len(cells))
	for _, name := range speedColumns {
		for i := range cells {
			rows[i] = append(rows[i], cells[i][slices.Index(header, name)])
		}
	}
	if err := table(out, 2, speedColumns[:], rows); err != nil {
		return err
	}
	if len(results) > 0 {
		printNotes(out, r)
	}
	if stopped != nil {
		return ended(ctx, out, stopped)
	}

	best := j.workload
	best.paths = j.paths[len(j.paths)-1:]
	overheads, stopped := best.overheads(ctx, false)
	j.progress.clear()
	heading(out, "Training steps of GRPO from logits to loss and gradient, over the uniform step")
	rows = nil
	for _, o := range overheads {
		rows = append(rows, []string{o.Step, yesNo(o.KL), o.Verdict, timesUniform(o), extraMemory(o), strconv.FormatUint(o.Allocs, 10)})
	}
	if err := table(out, 3, []string{"step", "KL anchor", "verdict", "times uniform", "extra memory", "allocs"}, rows); err != nil {
		return err
	}
	if stopped != nil {
		return ended(ctx, out, stopped)
	}

	if len(failures) > 0 {
		fmt.Fprintf(out, "\nSome results are WRONG:\n%s\n", strings.Join(failures, "\n"))
		return failed(failures)
	}
	return j.conclude(out, results, overheads, time.Since(begin))
}

// conclude says in words what the tables show, where all is right.
func (j job) conclude(out io.Writer, results []report.Result, overheads []bench.Overhead, took time.Duration) error {
	best := j.paths[len(j.paths)-1].String()
	i := slices.IndexFunc(results, func(r report.Result) bool { return r.Vocab > 0 && r.Path == best })
	same := "On the one path here, every kernel agrees with the reference."
	if n := len(j.paths); n > 1 {
		same = fmt.Sprintf("Every kernel agrees with the reference, and the %d paths with each other bit for bit.", n)
	}
	r, o := results[i], overheads[len(overheads)-1]
	_, err := fmt.Fprintf(out, "\n%s\nOn %s, %s takes %.2f ns per element: %.0f times the speed of the reference, %s of that of a plain read.\n"+
		"With a KL anchor, a training step with ActFocus and AEM takes %s times the uniform one. All this took %.0f s.\n",
		same, best, r.Kernel, r.NsPerElement, r.TimesReference, report.Percent(r.RooflineShare), timesUniform(o), took.Seconds())
	return err
}

// ended marks what is printed as partial, and returns why.
func ended(ctx context.Context, out io.Writer, err error) error {
	fmt.Fprintf(out, "\n%s\n", report.Ended)
	return whyEnded(ctx, err)
}

// checks is how many times parity checks.
func (j job) checks() int {
	n := 0
	for _, k := range j.kernels {
		n += len(k.Types)
	}
	return n
}

// parity checks all types of all kernels.
func (j job) parity(ctx context.Context) ([]bench.Parity, error) {
	var all []bench.Parity
	for _, k := range j.kernels {
		for _, typ := range k.Types {
			j.progress.nextOf(checkWork, "checking %s %s", k.Name, typ)
			p, err := j.check(ctx, k, typ, j.sizes, j.paths)
			if err != nil {
				return all, err
			}
			all = append(all, p...)
		}
	}
	return all, nil
}

// printParities prints a line for the paths of a kernel that are equally good.
func printParities(out io.Writer, parities []bench.Parity) error {
	var rows [][]string
	for i, p := range parities {
		verdict := "ok"
		if p.Failure != "" {
			verdict = "WRONG"
		}
		row := []string{p.Kernel, p.Type, p.Path, verdict, humanize.Comma(int64(p.Cases)), report.Small(p.Errors.MaxULP), report.Small(p.Errors.MaxAbs)}
		const path = 2
		if i > 0 {
			last := rows[len(rows)-1]
			paths := last[path]
			if row[path] = paths; slices.Equal(row, last) {
				last[path] = paths + " " + p.Path
				continue
			}
			row[path] = p.Path
		}
		rows = append(rows, row)
	}
	return table(out, 4, []string{"kernel", "type", "paths", "", "cases", "max ulp", "max abs"}, rows)
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
	s, err := summarise(b, nil, defaultOptions(), compute)
	if err != nil {
		return err
	}
	if err := s.print(out); err != nil {
		return err
	}
	return s.agreement.err()
}
