package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/bench/report"
	"github.com/seed621a2839/reweight/internal/atomicfile"
	"github.com/seed621a2839/reweight/kernels"
)

const runUsage = `Usage: bench run [flags]

Measures kernels, each in turn with a plain read of its input by as many workers
and with the float64 reference, and holds them against the reference on
every family of input. Kernels on rows of logits stream at least 64 MiB of them
unless -rows says otherwise: from memory only where that is more than the largest
cache holds, as a line under the results tells. Kernels on tokens have no
vocabulary and one worker, and stay in a cache.

Lists are separated by commas. -format go is what benchstat reads. docs/measuring.md
says how each figure is taken.

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
	check    func(context.Context, kernels.Kernel, string, []int, []reweight.ISA) ([]bench.Parity, error) // bench.Check
	kernels  []kernels.Kernel
	oneType  bool // only the first type of each kernel
	paths    []reweight.ISA
	vocabs   []int
	rows     int // 0 means as many as it takes to stream; tokens: bench.TokenCount
	workers  []int
	progress *progress
}

func runCommand(ctx context.Context, args []string, out io.Writer, p *progress, sampler bench.Sampler) error {
	flags := flag.NewFlagSet("bench run", flag.ContinueOnError)
	kernelList := flags.String("kernel", "", "`names` of kernels: "+strings.Join(kernelNames(), ", ")+" (default all)")
	pathList := flags.String("path", "", "`names` of implementations: here "+strings.Join(pathNames(), ", ")+" (default all)")
	vocabList := flags.String("vocab", "151936", "`sizes` of the vocabulary")
	rows := flags.Int("rows", 0, "rows of logits, or tokens (default 64 MiB of logits, 65,536 tokens)")
	workerList := flags.String("workers", "1", "`numbers` of workers that share the rows")
	pinned := flags.Int("pin", 0, pinUsage)
	var opt runOptions
	flags.Var(choice[format]{&opt.format, formatNames[:]}, "format", "`name` of what is printed: "+strings.Join(formatNames[:], ", "))
	flags.StringVar(&opt.dir, "out", "", "write report.html and results.json into this `directory` (report.partial.html and results.partial.json\nif the run ends early), and measure smaller sizes too, for growth")
	flags.StringVar(&opt.baseline, "baseline", "", "compare with an earlier run on this machine: its results.json, or the `file` of its -format json")
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
	if err := w.checkRows(set["rows"]); err != nil {
		return err
	}

	if !slices.ContainsFunc(w.kernels, func(k kernels.Kernel) bool { return k.Rows }) {
		for _, name := range [...]string{"vocab", "workers"} {
			if set[name] {
				return fmt.Errorf("-%s means nothing to -kernel %s: kernels on tokens have no vocabulary, and one worker", name, *kernelList)
			}
		}
	}
	for _, name := range [...]string{"out", "baseline"} {
		if f := flags.Lookup(name); set[name] && f.Value.String() == "" {
			return fmt.Errorf("-%s: no name given", name)
		}
	}
	if opt.pinned, err = pin(*pinned, set["pin"]); err != nil {
		return err
	}
	return w.run(ctx, out, opt)
}

const pinUsage = "run on this `CPU` alone, from 0 (default wherever the system likes; Linux only)"

// pin keeps the process on that CPU, which it returns, if it is set.
func pin(cpu int, set bool) (*int, error) {
	if !set {
		return nil, nil
	}
	if err := bench.Pin(cpu); err != nil {
		return nil, fmt.Errorf("-pin %d: %s", cpu, strings.TrimPrefix(err.Error(), "bench: "))
	}
	return &cpu, nil
}

// checkRows returns an error if the rows, where they are set, are out of range.
func (w workload) checkRows(set bool) error {
	if set && (w.rows < 1 || w.rows > maxSize) {
		return fmt.Errorf("-rows %d: want 1 to %d", w.rows, maxSize)
	}
	if w.kernels != nil && !slices.ContainsFunc(w.kernels, func(k kernels.Kernel) bool { return k.Rows }) {
		return nil // tokens have no vocabulary
	}
	for _, v := range w.vocabs {
		if w.rows > maxElements/v {
			return fmt.Errorf("-rows %d times -vocab %d: want at most %d elements", w.rows, v, maxElements)
		}
	}
	return nil
}

// A format is a way to print results.
type format uint8

const (
	asTable format = iota
	asMarkdown
	asCSV
	asJSON
	asGo
)

var formatNames = [...]string{"table", "markdown", "csv", "json", "go"}

// runOptions say what becomes of the results.
type runOptions struct {
	format        format
	dir, baseline string // or empty
	pinned        *int   // as report.Machine's
}

// run measures and prints, and then writes the report. What was measured before
// an error or an interrupt is printed and written too, marked as partial.
func (w workload) run(ctx context.Context, out io.Writer, opt runOptions) error {
	m, err := thisMachine()
	if err != nil {
		return err
	}
	m.Pinned = opt.pinned
	var then report.Report
	if opt.baseline != "" {
		if then, err = report.Read(opt.baseline); err != nil {
			return fmt.Errorf("-baseline: %w", err)
		}
		if err := then.Comparable(m, w.planned()); err != nil {
			return fmt.Errorf("-baseline %s: %w", opt.baseline, err)
		}
	}
	if opt.dir != "" { // before minutes of work
		if err := makeWritable(opt.dir); err != nil {
			return fmt.Errorf("-out: %w", err)
		}
	}
	r, failures, stopped := w.report(ctx, m, opt.dir != "")
	if r.Results == nil && stopped != nil && ctx.Err() == nil {
		return trimmed(stopped)
	}
	if opt.baseline != "" {
		r.Compare(then)
	}
	w.progress.clear()
	err = printReport(out, r, opt.format)
	if opt.dir != "" && len(r.Results) > 0 {
		err = also(err, save(opt.dir, r))
	}
	if len(failures) > 0 {
		err = also(failed(failures), err)
	}
	if stopped != nil {
		stopped = whyEnded(ctx, stopped)
	}
	return also(stopped, err)
}

// whyEnded returns the error of a command that has printed what it had when err
// or the end of ctx stopped it.
func whyEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errInterrupted
	}
	return trimmed(err)
}

// also joins two errors in one line.
func also(a, b error) error {
	if a == nil || b == nil {
		return cmp.Or(a, b)
	}
	return fmt.Errorf("%w; %w", a, b)
}

// planned returns what the results will be of.
func (w workload) planned() []bench.Result {
	var all []bench.Result
	for _, s := range w.shapes() {
		for _, n := range s.workers {
			for _, path := range w.paths {
				all = append(all, bench.Result{Kernel: s.kernel.Name, Type: s.typ, Path: path.String(), Rows: s.rows, Vocab: s.vocab, Workers: n})
			}
		}
	}
	return all
}

// report measures and checks it all, with a sweep over smaller sizes if asked.
// Failures are results that are wrong. With an error it is what there is by then.
func (w workload) report(ctx context.Context, m report.Machine, sweep bool) (r report.Report, failures []string, err error) {
	r.Machine = m
	smaller := w.smaller()
	work := measureWork * w.measurements()
	if sweep {
		work += sweepWork * len(smaller.sizes)
	}
	w.progress.expect(work)
	defer func() {
		r.Partial = err != nil
		r.SetRoofline()
	}()
	for _, shape := range w.shapes() {
		results, err := w.speed(ctx, shape, measureWork)
		var parities []bench.Parity
		if err == nil {
			parities, err = w.check(ctx, shape.kernel, shape.typ, []int{shape.size()}, w.paths)
			failures = append(failures, failuresOf(parities)...)
		}
		for i := range results {
			q := &results[i]
			q.MaxULP, q.MaxAbs = bench.Number(math.NaN()), bench.Number(math.NaN())
			if len(parities) > 0 {
				p := parities[i%len(parities)] // the paths come again for each number of workers
				q.MaxULP, q.MaxAbs = bench.Number(p.Errors.MaxULP), bench.Number(p.Errors.MaxAbs)
			}
		}
		if r.Results = append(r.Results, results...); err != nil {
			return r, failures, err
		}
	}
	if !sweep {
		return r, failures, nil
	}
	for _, shape := range smaller.sizes {
		results, err := smaller.speed(ctx, shape, sweepWork)
		if r.Sweep = append(r.Sweep, results...); err != nil {
			return r, failures, err
		}
	}
	return r, failures, nil
}

// A sweep is a shorter measurement of each kernel at its size and smaller ones.
type sweep struct {
	workload
	sizes []shape
}

func (w workload) smaller() sweep {
	s := sweep{workload: w}
	s.sampler.Budget /= 5
	s.workers, s.oneType, s.vocabs = w.workers[:1], true, []int{slices.Max(w.vocabs)}
	for _, full := range s.shapes() {
		for part := 64; part > 0; part /= 4 {
			q := full
			if q.kernel.Rows {
				if q.vocab /= part; w.rows == 0 {
					q.rows = bench.RowsToStream(q.typ, max(1, q.vocab))
				}
			} else {
				q.rows /= part
			}
			if q.rows > 0 && (q.vocab > 0 || !q.kernel.Rows) {
				s.sizes = append(s.sizes, q)
			}
		}
	}
	return s
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

// measurements is how many times speed measures, for all shapes.
func (w workload) measurements() int {
	n := 0
	for _, s := range w.shapes() {
		n += len(s.workers)
	}
	return n
}

// speed measures all paths on a shape, for each number of workers. With an error
// it is what there is by then. work is that of each, for progress.
func (w workload) speed(ctx context.Context, s shape, work int) ([]report.Result, error) {
	var all []report.Result
	for _, n := range s.workers {
		w.progress.nextOf(work, "measuring %s", s)
		results, err := w.sampler.Kernel(ctx, s.kernel, s.typ, s.rows, s.vocab, n, w.paths)
		for _, r := range results {
			all = append(all, report.Result{Result: r})
		}
		if err != nil {
			return all, err
		}
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

// printReport prints the report in that format.
func printReport(w io.Writer, r report.Report, as format) error {
	switch as {
	case asMarkdown:
		return r.WriteMarkdown(w)
	case asCSV:
		return r.WriteCSV(w)
	case asJSON:
		return r.WriteJSON(w)
	case asGo:
		return r.WriteGo(w)
	}
	if err := table(w, 2, nil, r.Machine.Rows(why(r.Machine))); err != nil {
		return err
	}
	if len(r.Results) > 0 {
		heading(w, "Kernels")
		text, header, rows := r.Table()
		if err := table(w, text, header, rows); err != nil {
			return err
		}
		printNotes(w, r)
	}
	if drift := r.Drift(); drift != "" {
		fmt.Fprintf(w, "\n%s\n", drift)
	}
	if r.Partial {
		fmt.Fprintf(w, "\n%s\n", report.Ended)
	}
	return nil
}

// printNotes says how the table is to be read.
func printNotes(w io.Writer, r report.Report) {
	fmt.Fprintf(w, "\n%s\n", strings.Join(r.Notes(), "\n"))
}

// outNames are the files that a run writes, for programs and for people. One
// that ends early does not take the place of one that did not.
func outNames(partial bool) (results, page string) {
	if partial {
		return "results.partial.json", "report.partial.html"
	}
	return "results.json", "report.html"
}

// makeWritable makes the directory if it is not there, and returns an error if
// no file can be made in it, or something else has the name of one.
func makeWritable(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	for _, partial := range [...]bool{false, true} {
		results, page := outNames(partial)
		for _, name := range [...]string{results, page} {
			path := filepath.Join(dir, name)
			if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
				return fmt.Errorf("%s: not a regular file", path)
			}
		}
	}
	f, err := os.CreateTemp(dir, "bench")
	if err != nil {
		return err
	}
	f.Close()
	return os.Remove(f.Name())
}

// save writes the report for people and for -baseline into the directory.
func save(dir string, r report.Report) error {
	example, err := exampleRollout()
	if err != nil {
		return err
	}
	results, page := outNames(r.Partial)
	err = atomicfile.Write(filepath.Join(dir, results), r.WriteJSON)
	return also(err, atomicfile.Write(filepath.Join(dir, page), func(w io.Writer) error { return r.WriteHTML(w, example, why(r.Machine)) }))
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
	given := map[int]bool{}
	for name := range strings.SplitSeq(list, ",") {
		i := slices.Index(names, name)
		if i < 0 {
			return nil, fmt.Errorf("%s %q: not available here, want some of %s", flag, name, strings.Join(names, ", "))
		}
		if given[i] {
			return nil, fmt.Errorf("%s %q: given twice", flag, name)
		}
		given[i] = true
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
		if slices.Contains(n, v) {
			return nil, fmt.Errorf("%s %q: given twice", flag, text)
		}
		n = append(n, v)
	}
	return n, nil
}
