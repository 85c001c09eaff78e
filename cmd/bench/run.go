package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/kernels"
)

const runUsage = `Usage: bench run [flags]

Measures kernels, each in turn with a plain read of its input by as many workers
and with the float64 reference, and holds them against the reference on
every family of input. Kernels on rows of logits stream them from memory: at
least 64 MiB unless -rows says otherwise, of which a larger cache may keep a
part, for the plain read as for the kernel. Kernels on tokens have no vocabulary
and one worker, and stay in a cache.

Then measures training steps from logits to loss and gradient, of the first
-vocab and with the first -workers: actfocus and actfocus+aem over the uniform
step with a KL anchor, whose pass over the reference's logits gives the energy
too; actfocus_no_kl, which needs that pass for itself, and aem over the uniform
step without.

Lists are separated by commas.

`

// Above these sizes a workload would not fit in the memory of most machines.
const (
	maxSize     = 1 << 24 // rows, tokens or vocabulary
	maxElements = 1 << 28
	maxWorkers  = 1024
)

// A workload says what to measure.
type workload struct {
	sampler  bench.Sampler
	check    func(kernels.Kernel, string, []int, []reweight.ISA) ([]bench.Parity, error) // bench.Check
	kernels  []kernels.Kernel
	oneType  bool // only the first type of each kernel
	paths    []reweight.ISA
	vocabs   []int
	rows     int // 0 means as many as it takes to stream; tokens: bench.TokenCount
	workers  []int
	progress *progress
}

// A report is what bench run prints as JSON.
type report struct {
	Machine  machine `json:"machine"`
	Roofline struct {
		ReadGBPerS float64 `json:"read_gb_per_s"` // of the largest workload, first workers
	} `json:"roofline"`
	Results  []bench.Result   `json:"results"`
	Overhead []bench.Overhead `json:"overhead"`
}

func runCommand(args []string, out io.Writer, p *progress, sampler bench.Sampler) error {
	flags := flag.NewFlagSet("bench run", flag.ContinueOnError)
	kernelList := flags.String("kernel", "", "`names` of kernels: "+strings.Join(kernelNames(), ", ")+" (default all)")
	pathList := flags.String("path", "", "`names` of implementations: here "+strings.Join(pathNames(), ", ")+" (default all)")
	vocabList := flags.String("vocab", "151936", "`sizes` of the vocabulary")
	rows := flags.Int("rows", 0, "rows of logits, or tokens (default 64 MiB of logits, 65,536 tokens)")
	workerList := flags.String("workers", "1", "`numbers` of workers that share the rows")
	asJSON := flags.Bool("json", false, "print JSON")
	operands, err := parse(flags, runUsage, args, out)
	if err != nil {
		return err
	}
	if err := noOperands(operands); err != nil {
		return err
	}
	set := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { set[f.Name] = true })

	w := workload{sampler: sampler, check: bench.Check, kernels: kernels.All(), paths: reweight.Available(), rows: *rows, progress: p}
	if set["kernel"] {
		if w.kernels, err = pick("-kernel", *kernelList, kernels.All(), kernelNames()); err != nil {
			return err
		}
	}
	if set["path"] {
		if w.paths, err = pick("-path", *pathList, reweight.Available(), pathNames()); err != nil {
			return err
		}
	}
	if w.vocabs, err = numbers("-vocab", *vocabList, maxSize); err != nil {
		return err
	}
	if w.workers, err = numbers("-workers", *workerList, maxWorkers); err != nil {
		return err
	}
	if set["rows"] && (w.rows < 1 || w.rows > maxSize) {
		return fmt.Errorf("-rows %d: want 1 to %d", w.rows, maxSize)
	}
	for _, v := range w.vocabs {
		if w.rows > maxElements/v {
			return fmt.Errorf("-rows %d times -vocab %d: want at most %d elements", w.rows, v, maxElements)
		}
	}

	return w.run(out, *asJSON)
}

// run measures and prints.
func (w workload) run(out io.Writer, asJSON bool) error {
	r, failures, err := w.report()
	if err != nil {
		return err
	}
	w.progress.clear()
	if asJSON {
		err = printJSON(out, r)
	} else {
		err = r.print(out)
	}
	if err == nil && len(failures) > 0 {
		err = failed(failures)
	}
	return err
}

// report measures and checks it all. Failures are results that are wrong.
func (w workload) report() (r report, failures []string, err error) {
	if r.Machine, err = thisMachine(); err != nil {
		return r, nil, err
	}
	for _, shape := range w.shapes() {
		w.progress.say("measuring %s ...", shape)
		results, err := w.speed(shape)
		if err != nil {
			return r, nil, err
		}
		parities, err := w.check(shape.kernel, shape.typ, []int{shape.size()}, w.paths)
		if err != nil {
			return r, nil, err
		}
		failures = append(failures, failuresOf(parities)...)
		for i := range results {
			q := parities[i%len(parities)] // the paths come again for each number of workers
			results[i].MaxULP, results[i].MaxAbs = bench.Number(q.Errors.MaxULP), bench.Number(q.Errors.MaxAbs)
		}
		r.Results = append(r.Results, results...)
	}
	r.Roofline.ReadGBPerS = readSpeed(r.Results)
	r.Overhead, err = w.overheads()
	return r, failures, err
}

// failed makes one error of the first of several failures.
func failed(failures []string) error {
	what := failures[0]
	if more := len(failures) - 1; more > 0 {
		what += fmt.Sprintf(" (and %d more)", more)
	}
	return &failedCheck{what}
}

// A shape is a kernel on inputs of one type and size.
type shape struct {
	kernel      kernels.Kernel
	typ         string
	rows, vocab int
	workers     []int
}

func (s shape) String() string {
	if !s.kernel.Rows {
		return s.kernel.Name + " " + s.typ
	}
	return fmt.Sprintf("%s %s, vocabulary of %s", s.kernel.Name, s.typ, humanize.Comma(int64(s.vocab)))
}

// size is what parity is checked at, for which the float64 reference need not
// take long: two rows, or not too many tokens.
func (s shape) size() int {
	if s.kernel.Rows {
		return s.vocab
	}
	return min(s.rows, bench.TokenCount)
}

func (w workload) shapes() []shape {
	var shapes []shape
	for _, k := range w.kernels {
		types := k.Types
		if w.oneType {
			types = types[:1]
		}
		for _, typ := range types {
			if !k.Rows {
				shapes = append(shapes, shape{k, typ, cmp.Or(w.rows, bench.TokenCount), 0, []int{1}})
				continue
			}
			for _, vocab := range w.vocabs {
				shapes = append(shapes, shape{k, typ, cmp.Or(w.rows, bench.RowsToStream(typ, vocab)), vocab, w.workers})
			}
		}
	}
	return shapes
}

// speed measures all paths on a shape, for each number of workers.
func (w workload) speed(s shape) ([]bench.Result, error) {
	var all []bench.Result
	for _, n := range s.workers {
		results, err := w.sampler.Kernel(context.Background(), s.kernel, s.typ, s.rows, s.vocab, n, w.paths)
		if err != nil {
			return nil, err
		}
		all = append(all, results...)
	}
	return all, nil
}

func failuresOf(parities []bench.Parity) []string {
	var failures []string
	for _, q := range parities {
		if q.Failure != "" {
			failures = append(failures, q.Failure)
		}
	}
	return failures
}

// readSpeed returns the speed of the plain read of the largest workload, the
// first of them.
func readSpeed(results []bench.Result) float64 {
	return slices.MaxFunc(results, func(a, b bench.Result) int { return cmp.Compare(a.Bytes, b.Bytes) }).ReadGBPerS
}

// overheads measures the training steps.
func (w workload) overheads() ([]bench.Overhead, error) {
	var all []bench.Overhead
	vocab := w.vocabs[0]
	for _, path := range w.paths {
		w.progress.say("measuring training steps on %v ...", path)
		o, err := w.sampler.Overheads(context.Background(), cmp.Or(w.rows, bench.StepRows(vocab)), vocab, w.workers[0], path)
		if err != nil {
			return nil, err
		}
		all = append(all, o...)
	}
	return all, nil
}

// print prints the report for people.
func (r report) print(w io.Writer) error {
	if err := table(w, 2, nil, r.Machine.rows()); err != nil {
		return err
	}
	heading(w, fmt.Sprintf("Kernels, with a plain read at %.1f GB/s", r.Roofline.ReadGBPerS))
	if err := printResults(w, r.Results); err != nil {
		return err
	}
	heading(w, "Training steps from logits to loss and gradient, over the uniform step")
	return printOverheads(w, r.Overhead)
}

func printResults(w io.Writer, results []bench.Result) error {
	var rows [][]string
	for _, r := range results {
		rows = append(rows, append([]string{r.Kernel, r.Type, r.Path, strconv.Itoa(r.Workers)}, append(speedCells(r), small(float64(r.MaxULP)), small(float64(r.MaxAbs)))...))
	}
	return table(w, 3, append([]string{"kernel", "type", "path", "workers"}, append(speedHeader(), "max ulp", "max abs")...), rows)
}

func speedHeader() []string {
	return []string{"rows", "ns/element", "GB/s", "of read", "x reference", "allocs"}
}

func speedCells(r bench.Result) []string {
	rows := humanize.Comma(int64(r.Rows))
	if r.Vocab > 0 {
		rows += " x " + humanize.Comma(int64(r.Vocab))
	}
	return []string{rows, fmt.Sprintf("%.3f", r.NsPerElement), fmt.Sprintf("%.2f", r.GBPerS), percent(r.RooflineShare),
		fmt.Sprintf("%.1f", r.TimesReference), strconv.FormatUint(r.AllocsPerOp, 10)}
}

func printOverheads(w io.Writer, overheads []bench.Overhead) error {
	var rows [][]string
	for _, o := range overheads {
		rows = append(rows, []string{o.Step, o.Path, fmt.Sprintf("%.3f", o.OverUniform), humanize.IBytes(uint64(max(0, o.ExtraBytes))), strconv.FormatUint(o.Allocs, 10)})
	}
	if err := table(w, 2, []string{"step", "path", "times uniform", "extra memory", "allocs"}, rows); err != nil {
		return err
	}
	_, err := fmt.Fprint(w, "\nactfocus takes its energy from the KL anchor's pass over the reference's logits;\nactfocus_no_kl has no such anchor and makes that pass for itself.\n")
	return err
}

func kernelNames() []string {
	var names []string
	for _, k := range kernels.All() {
		names = append(names, k.Name)
	}
	return names
}

// pick returns those of all whose names are in the list.
func pick[E any](flag, list string, all []E, names []string) ([]E, error) {
	var picked []E
	for name := range strings.SplitSeq(list, ",") {
		i := slices.Index(names, name)
		if i < 0 {
			return nil, fmt.Errorf("%s %q: not available here, want some of %s", flag, name, strings.Join(names, ", "))
		}
		picked = append(picked, all[i])
	}
	return picked, nil
}

// numbers returns the numbers of a list, which are 1 to most.
func numbers(flag, list string, most int) ([]int, error) {
	var n []int
	for text := range strings.SplitSeq(list, ",") {
		v, err := strconv.Atoi(text)
		if err != nil || v < 1 || v > most {
			return nil, fmt.Errorf("%s %q: want whole numbers of 1 to %d", flag, text, most)
		}
		n = append(n, v)
	}
	return n, nil
}
