package main

import (
	"cmp"
	"context"
	"encoding/csv"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/bench/report"
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

`

// An overheadReport is what bench overhead prints as JSON.
type overheadReport struct {
	Machine  report.Machine   `json:"machine"`
	Partial  bool             `json:"partial"` // the run was interrupted, or failed
	Overhead []bench.Overhead `json:"overhead"`
}

func overheadCommand(ctx context.Context, args []string, out io.Writer, p *progress, sampler bench.Sampler) error {
	flags := flag.NewFlagSet("bench overhead", flag.ContinueOnError)
	paths := reweight.Available()
	pathList := flags.String("path", pathNames()[len(paths)-1], "`names` of implementations: here "+strings.Join(pathNames(), ", "))
	vocabList := flags.String("vocab", "151936", "`sizes` of the vocabulary")
	rows := flags.Int("rows", 0, "tokens of a step (default as many as make 64 MiB of logits and gradient)")
	workerList := flags.String("workers", "1", "`numbers` of workers that share the rows")
	pinned := flags.Int("pin", 0, pinUsage)
	var as format
	formats := formatNames[:asGo] // benchstat knows no ratios
	flags.Var(choice[format]{&as, formats}, "format", "`name` of what is printed: "+strings.Join(formats, ", "))
	operands, err := parse(flags, overheadUsage, args, out)
	if err != nil {
		return err
	}
	if err := noOperands(operands); err != nil {
		return err
	}
	set := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { set[f.Name] = true })
	w := workload{sampler: sampler, rows: *rows, progress: p}
	if w.paths, err = pick("-path", *pathList, paths, pathNames()); err != nil {
		return err
	}
	if w.vocabs, err = numbers("-vocab", *vocabList, maxSize); err != nil {
		return err
	}
	if w.workers, err = numbers("-workers", *workerList, maxWorkers); err != nil {
		return err
	}
	if err := w.checkRows(set["rows"]); err != nil {
		return err
	}
	if set["rows"] && *rows < bench.FewestTokens {
		return fmt.Errorf("-rows %d: a training step takes at least %d tokens", *rows, bench.FewestTokens)
	}
	cpu, err := pin(*pinned, set["pin"])
	if err != nil {
		return err
	}
	w.sampler.Budget *= 4 // the question is about a hundredth, on machines that drift by tens of them
	var r overheadReport
	if r.Machine, err = thisMachine(); err != nil {
		return err
	}
	r.Machine.Pinned = cpu
	p.expect(overheadWork * 4 * len(w.vocabs) * len(w.workers) * len(w.paths))
	r.Overhead, err = w.overheads(ctx, false, true)
	p.clear()
	if err != nil && ctx.Err() == nil && r.Overhead == nil {
		return trimmed(err)
	}
	if r.Partial = err != nil; r.Partial {
		err = whyEnded(ctx, err)
	}
	return also(err, r.print(out, as))
}

// overheads measures the steps of every shape, with and without a KL anchor:
// those of GRPO, and of PPO too if these are among them. With an error it is
// what there is by then.
func (w workload) overheads(ctx context.Context, ppo ...bool) ([]bench.Overhead, error) {
	var all []bench.Overhead
	for _, path := range w.paths {
		for _, vocab := range w.vocabs {
			for _, workers := range w.workers {
				for _, ppo := range ppo {
					for _, kl := range [...]bool{false, true} {
						w.progress.nextOf(overheadWork, "measuring training steps on %v, vocabulary of %s", path, humanize.Comma(int64(vocab)))
						o, err := w.sampler.Overheads(ctx, bench.Steps{
							Tokens: cmp.Or(w.rows, bench.StepRows(vocab)), Vocab: vocab, Workers: workers, Path: path, PPO: ppo, KL: kl,
						})
						if all = append(all, o...); err != nil {
							return all, err
						}
					}
				}
			}
		}
	}
	return all, nil
}

// print prints the report in that format.
func (r overheadReport) print(w io.Writer, as format) error {
	switch as {
	case asJSON:
		return printJSON(w, r)
	case asCSV:
		return r.printCSV(w)
	case asMarkdown:
		if r.Partial {
			fmt.Fprintf(w, "**%s**\n\n", report.Ended)
		}
		fmt.Fprintf(w, "%s, %s, %s/%s\n\n", r.Machine.CPU, r.Machine.Go, r.Machine.OS, r.Machine.Arch)
		return report.Markdown(w, overheadText, overheadHeader, overheadRows(r.Overhead))
	}
	if err := table(w, 2, nil, r.Machine.Rows(why(r.Machine))); err != nil {
		return err
	}
	heading(w, "Training steps from logits to loss and gradient, over the uniform step")
	if err := table(w, overheadText, overheadHeader, overheadRows(r.Overhead)); err != nil {
		return err
	}
	if r.Partial {
		fmt.Fprintf(w, "\n%s\n", report.Ended)
	}
	return nil
}

const overheadText = 5 // columns

var overheadHeader = []string{"step", "advantages", "KL", "path", "verdict", "times uniform", "null", "rounds", "extra", "allocs", "peak", "rows", "uniform ms"}

func overheadRows(overheads []bench.Overhead) [][]string {
	var rows [][]string
	for _, o := range overheads {
		peak := "unknown"
		if o.PeakBytes > 0 {
			peak = humanize.IBytes(uint64(o.PeakBytes))
		}
		rows = append(rows, []string{
			o.Step, o.Advantages, yesNo(o.KL), o.Path, o.Verdict, timesUniform(o), report.Interval(o.Null.Median, o.Null.Lo, o.Null.Hi),
			strconv.Itoa(o.Rounds), extraMemory(o), strconv.FormatUint(o.Allocs, 10), peak, report.Shape(o.Tokens, o.Vocab, o.Workers), fmt.Sprintf("%.2f", o.UniformNs/1e6),
		})
	}
	return rows
}

func timesUniform(o bench.Overhead) string {
	return report.Interval(o.OverUniform, o.Lo, o.Hi)
}

func extraMemory(o bench.Overhead) string { return humanize.IBytes(uint64(max(0, o.ExtraBytes))) }

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func (r overheadReport) printCSV(w io.Writer) error {
	c := csv.NewWriter(w)
	c.Write([]string{"step", "advantages", "kl", "path", "tokens", "vocab", "workers", "uniform_ns", "over_uniform", "lo", "hi", "verdict", "rounds", "outliers",
		"null", "null_lo", "null_hi", "extra_bytes", "allocs", "alloc_bytes", "peak_bytes", "partial"}) // the first error stays, and Error returns it
	f := func(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
	for _, o := range r.Overhead {
		c.Write([]string{o.Step, o.Advantages, strconv.FormatBool(o.KL), o.Path, strconv.Itoa(o.Tokens), strconv.Itoa(o.Vocab), strconv.Itoa(o.Workers),
			f(o.UniformNs), f(o.OverUniform), f(o.Lo), f(o.Hi), o.Verdict, strconv.Itoa(o.Rounds), strconv.Itoa(o.Outliers), f(o.Null.Median), f(o.Null.Lo), f(o.Null.Hi),
			strconv.FormatInt(o.ExtraBytes, 10), strconv.FormatUint(o.Allocs, 10), strconv.FormatUint(o.AllocBytes, 10), strconv.FormatInt(o.PeakBytes, 10), strconv.FormatBool(r.Partial)})
	}
	c.Flush()
	return c.Error()
}
