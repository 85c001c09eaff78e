// Package floors decides whether an instruction set is far slower than it may be on the
// kernels of this project: against the portable kernels, and against a plain read.
package floors

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strconv"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/internal/atomicfile"
	"github.com/seed621a2839/reweight/internal/cli"
	"github.com/seed621a2839/reweight/internal/machine"
	"github.com/seed621a2839/reweight/internal/measure"
	"github.com/seed621a2839/reweight/internal/printable"
	"github.com/seed621a2839/reweight/kernels"
)

// Options say what to measure.
type Options struct {
	File   string
	Record bool // write the file
	Plan   measure.Plan
}

// A check measures, and collects what it found.
type check struct {
	Options
	cpu      string
	notes    []string
	results  []result
	failures []string // results that are wrong
}

// A result is what one measurement says of a kernel in one format with one instruction set,
// and the verdict on that.
type result struct {
	measure.Result
	verdict bench.Verdict
	message string // what is wrong, or not known
	least   floor  // that is allowed
}

// Run compares what is measured here with the floors of the file, or records them, and
// prints what it found. Its error is a *cli.FailedCheck for what is too slow or wrong, a
// *cli.Inconclusive, or that something went wrong.
func Run(ctx context.Context, opt Options, out io.Writer) error {
	m, err := machine.This()
	if err != nil {
		return err
	}
	g := check{Options: opt, cpu: m.CPU}
	g.Plan.Sizes = measure.Sizes{Vocabs: []int{floorVocab}, Workers: []int{1}}
	if g.Record {
		return g.record(ctx, out)
	}
	err = g.compare(func(p measure.Plan) (measure.Results, error) { return p.Run(ctx) })
	g.Plan.Progress.Clear()
	if ctx.Err() != nil {
		err = cli.ErrInterrupted
	}
	if err != nil && len(g.results) == 0 {
		return err
	}
	return cmp.Or(cli.Also(err, g.write(out)), g.verdict())
}

// verdict is the error that stands for the results.
func (g *check) verdict() error {
	var failed, open []string
	failed = append(failed, g.failures...)
	for _, q := range g.results {
		switch q.verdict {
		case bench.Regression:
			failed = append(failed, q.name()+": "+q.message)
		case bench.Inconclusive:
			open = append(open, q.name()+": "+q.message)
		}
	}
	switch {
	case len(failed) > 0:
		return cli.Failed(failed)
	case len(open) > 0:
		return &cli.Inconclusive{What: cli.FirstOf(open)}
	case len(g.results) == 0:
		return &cli.Inconclusive{What: "nothing was compared"}
	}
	return nil
}

// write prints the table, and what there is to say.
func (g *check) write(out io.Writer) error {
	optional := func(x float64, format string) string {
		if x == 0 {
			return "-"
		}
		return fmt.Sprintf(format, x)
	}
	var rows [][]string
	for _, q := range g.results {
		share := "-" // of kernels on tokens
		if q.Vocab > 0 {
			share = cli.Percent(q.Share.Median)
		}
		rows = append(rows, []string{q.Kernel, q.DType, q.ISA, q.verdict.String(),
			fmt.Sprintf("%.1f", q.TimesPortable.Median), optional(q.least.TimesPortable, "%.3g"),
			share, optional(100*q.least.Share, "%.3g%%")})
		if q.message != "" {
			g.notes = append(g.notes, q.name()+": "+q.message)
		}
	}
	g.notes = append(g.notes, g.failures...)
	if len(g.results) > 0 {
		e := slices.MaxFunc(g.results, func(a, b result) int { return cmp.Compare(a.Null.HalfWidth(), b.Null.HalfWidth()) }).Null
		g.notes = append(g.notes, fmt.Sprintf("Noise now: of the same thing measured twice, the second takes %.4f times as long (%s)",
			e.Median, interval(e)))
	}
	header := []string{"kernel", "type", "isa", "verdict", "x portable", "floor", "of read", "floor"}
	if err := cli.WriteTable(out, 4, header, rows); err != nil {
		return err
	}
	fmt.Fprintln(out)
	for _, line := range g.notes {
		if _, err := fmt.Fprintln(out, printable.Line(line)); err != nil {
			return err
		}
	}
	return nil
}

func (q result) name() string { return q.Kernel + " " + q.DType + " on " + q.ISA }

func interval(e bench.Estimate) string { return fmt.Sprintf("%.3f to %.3f", e.Lo, e.Hi) }

// floorVocab is the vocabulary of the workloads that floors are about: at least
// measure.StreamBytes of rows.
const floorVocab = 151936

// floorMargin is the part of what was measured that becomes a floor. It is small
// because ratios to plain Go differ between CPUs with the same instructions. A
// kernel that is below half has usually lost its assembly; benchgate finds smaller
// slow-downs.
const floorMargin = 0.5

// A floorFile has the floors of each instruction set.
type floorFile struct {
	Margin float64              `json:"margin"` // what was measured times this is the floor
	Vocab  int                  `json:"vocab"`
	ISAs   map[string]isaFloors `json:"isas"`
}

type isaFloors struct {
	CPU    string  `json:"cpu"` // that they were recorded on
	Floors []floor `json:"floors"`
}

// A floor is the least that is allowed.
type floor struct {
	Kernel        string  `json:"kernel"`
	DType         string  `json:"dtype"`
	TimesPortable float64 `json:"times_portable"`           // times the speed of the portable kernel
	Share         float64 `json:"roofline_share,omitempty"` // of the speed of a plain read; kernels on rows only
}

// same reports whether the floors are of the same kernel and format.
func (q floor) same(p floor) bool { return q.Kernel == p.Kernel && q.DType == p.DType }

func readFloors(name string) (f floorFile, err error) {
	if f, err = cli.ReadJSON[floorFile](name); err != nil {
		return f, err
	}
	if f.Vocab != floorVocab {
		return f, fmt.Errorf("%s: floors for a vocabulary of %d, and %d is measured", name, f.Vocab, floorVocab)
	}
	for isa, of := range f.ISAs {
		for i, q := range of.Floors {
			if what := fmt.Sprintf("%s: %s %s on %s", name, q.Kernel, q.DType, isa); !(q.TimesPortable > 0 && q.Share >= 0) {
				return f, fmt.Errorf("%s: times_portable is %.3g and roofline_share %.3g, want more than 0, and 0 or more",
					what, q.TimesPortable, q.Share)
			} else if slices.ContainsFunc(of.Floors[:i], q.same) {
				return f, fmt.Errorf("%s: given twice", what)
			}
		}
	}
	return f, nil
}

// exists reports whether the floor is of a kernel that there is, in a format that it has.
func (q floor) exists() bool {
	k, err := kernels.Find(q.Kernel)
	return err == nil && slices.ContainsFunc(k.DTypes, func(t reweight.DType) bool { return t.String() == q.DType })
}

// find returns the floor of a kernel in a format with an instruction set.
func (f floorFile) find(isa, kernel, dtype string) (floor, bool) {
	of := f.ISAs[isa].Floors
	i := slices.IndexFunc(of, floor{Kernel: kernel, DType: dtype}.same)
	if i < 0 {
		return floor{}, false
	}
	return of[i], true
}

// elsewhere says that the floors of an instruction set were recorded on another CPU
// than this one.
func (f floorFile) elsewhere(isa, cpu string) string {
	if on := f.ISAs[isa].CPU; on != "" && on != cpu {
		return fmt.Sprintf("recorded on %s; this is %s", on, cmp.Or(cpu, "unknown"))
	}
	return ""
}

// compare compares what run measures with the floors of the file. It measures a second time what
// was too slow, because a busy moment of the machine may be longer than one measurement.
func (g *check) compare(run func(measure.Plan) (measure.Results, error)) error {
	floors, err := readFloors(g.File)
	if err != nil {
		return err
	}
	for _, isa := range slices.Sorted(maps.Keys(floors.ISAs)) {
		if _, err := reweight.ParseISA(isa); err != nil {
			g.notes = append(g.notes, "The floors of "+isa+" were not looked at: it does not run here")
			continue
		}
		if note := floors.elsewhere(isa, g.cpu); note != "" {
			g.notes = append(g.notes, "The floors of "+isa+" were "+note)
		}
		for _, q := range floors.ISAs[isa].Floors {
			if !q.exists() {
				g.notes = append(g.notes, fmt.Sprintf("The floor of %s %s on %s is of a kernel that does not exist", q.Kernel, q.DType, isa))
			}
		}
	}
	if len(g.Plan.CPU) == 0 {
		g.notes = append(g.notes, "Only the portable kernels run here, and they have no floors")
		return nil
	}
	first, err := run(g.Plan)
	g.failures = first.Failures
	for _, q := range first.Results {
		g.results = append(g.results, floors.judge(q, g.cpu))
	}
	again := g.Plan
	again.Kernels = g.slow()
	if err != nil || len(again.Kernels) == 0 {
		return err
	}
	second, err := run(again)
	g.failures = append(g.failures, second.Failures...)
	for _, r := range second.Results {
		q := floors.judge(r, g.cpu)
		if i := slices.IndexFunc(g.results, func(p result) bool { return p.name() == q.name() }); g.results[i].slow() {
			g.results[i] = q
		}
	}
	return err
}

// slow reports whether another measurement may be faster.
func (q result) slow() bool { return q.verdict == bench.Regression && q.AllocsPerOp == 0 }

// slow returns the kernels of which a result is slow, in the formats in which one is.
func (g *check) slow() (some []kernels.Kernel) {
	for _, k := range g.Plan.Kernels {
		k.DTypes = slices.DeleteFunc(slices.Clone(k.DTypes), func(dtype reweight.DType) bool {
			return !slices.ContainsFunc(g.results, func(q result) bool { return q.slow() && q.Kernel == k.Name && q.DType == dtype.String() })
		})
		if len(k.DTypes) > 0 {
			some = append(some, k)
		}
	}
	return some
}

// judge returns the verdict. A kernel fails if even its upper bound is below the floor.
func (f floorFile) judge(r measure.Result, cpu string) result {
	least, ok := f.find(r.ISA, r.Kernel, r.DType)
	q := result{Result: r, verdict: bench.Pass, least: least}
	switch {
	case r.AllocsPerOp > 0:
		q.verdict, q.message = bench.Regression, allocations(r)
		return q
	case !ok:
		q.verdict, q.message = bench.Inconclusive, "it has no floor: record one"
	case r.TimesPortable.Hi < least.TimesPortable:
		q.verdict, q.message = bench.Regression, fmt.Sprintf("%.1f times the speed of the portable kernel (%s), and the floor is %.3g",
			r.TimesPortable.Median, interval(r.TimesPortable), least.TimesPortable)
	case r.Vocab > 0 && r.Share.Hi < least.Share:
		q.verdict, q.message = bench.Regression, fmt.Sprintf("%.3f of the speed of a plain read (%s), and the floor is %.3g",
			r.Share.Median, interval(r.Share), least.Share)
	}
	if note := f.elsewhere(r.ISA, cpu); note != "" && q.verdict == bench.Regression {
		q.message += ", " + note
	}
	return q
}

func allocations(r measure.Result) string {
	return fmt.Sprintf("%d heap allocations of %d bytes per call, want none", r.AllocsPerOp, r.BytesPerOp)
}

// recordings is how many times a kernel is measured for its floor, which comes
// from the middle one of their medians.
const recordings = 3

// record writes the floors of the instruction sets of this machine.
func (g *check) record(ctx context.Context, out io.Writer) error {
	if slices.ContainsFunc(g.Plan.CPU, func(impl kernels.Implementation) bool { return impl.Name == reweight.Portable.String() }) {
		return errors.New("-record: portable has no floors, the others are relative to it")
	}
	if len(g.Plan.CPU) == 0 {
		return errors.New("-record: only the portable kernels run here, and they have no floors")
	}
	if err := atomicfile.Check(g.File); err != nil {
		return err
	}
	floors, err := readFloors(g.File)
	if errors.Is(err, fs.ErrNotExist) {
		floors, err = floorFile{Vocab: floorVocab}, nil
	}
	if err != nil {
		return err
	}
	var recorded [recordings]measure.Results
	var tasks measure.Tasks
	for i := range recorded {
		tasks = append(tasks, g.Plan.Speed(&recorded[i], true)...)
	}
	err = tasks.Do(ctx, g.Plan.Progress)
	g.Plan.Progress.Clear()
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %s is as it was", cli.ErrInterrupted, g.File)
	}
	if err != nil {
		return err
	}
	for _, r := range recorded {
		failures := r.Failures
		for _, q := range r.Results {
			if q.AllocsPerOp > 0 {
				failures = append(failures, result{Result: q}.name()+": "+allocations(q))
			}
		}
		if len(failures) > 0 {
			return cli.Failed(failures)
		}
	}
	n := floors.record(recorded, g.cpu)
	if err := atomicfile.Write(g.File, func(w io.Writer) error { return cli.WriteJSON(w, floors) }); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s has %d floors for this machine's instruction sets, %v of what was measured\n",
		printable.Text(g.File), n, floorMargin)
	return err
}

// record takes the floors from what was measured, and returns how many the instruction sets of it
// have. Kernels that were not measured keep theirs, if they still exist.
func (f *floorFile) record(recorded [recordings]measure.Results, cpu string) (n int) {
	f.Margin = floorMargin
	fresh := map[string][]floor{}
	for i, q := range recorded[0].Results {
		middle := func(of func(measure.Result) bench.Estimate) float64 {
			var x [recordings]float64
			for n, r := range recorded {
				x[n] = of(r.Results[i]).Median
			}
			slices.Sort(x[:])
			return x[recordings/2]
		}
		least := floor{Kernel: q.Kernel, DType: q.DType}
		least.TimesPortable = floorOf(middle(func(q measure.Result) bench.Estimate { return q.TimesPortable }))
		if q.Vocab > 0 {
			least.Share = floorOf(middle(func(q measure.Result) bench.Estimate { return q.Share }))
		}
		fresh[q.ISA] = append(fresh[q.ISA], least)
	}
	all := map[string]isaFloors{}
	maps.Copy(all, f.ISAs)
	for isa, list := range fresh {
		for _, old := range f.ISAs[isa].Floors {
			if old.exists() && !slices.ContainsFunc(list, old.same) {
				list = append(list, old)
			}
		}
		all[isa] = isaFloors{CPU: cpu, Floors: list}
		n += len(list)
	}
	f.ISAs = all
	return n
}

// floorOf keeps two digits of half of what was measured: more would be noise.
func floorOf(x float64) float64 {
	f, _ := strconv.ParseFloat(strconv.FormatFloat(floorMargin*x, 'g', 2, 64), 64)
	return f
}
