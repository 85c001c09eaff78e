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
	"path/filepath"
	"slices"
	"strconv"
	"strings"

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
	File    string
	Record  bool                     // write the file
	Kernels []kernels.Kernel         // nil is all
	CPU     []kernels.Implementation // nil is all but portable

	Progress *cli.Progress
	Sampler  bench.Sampler
}

// A check measures, and collects what it found.
type check struct {
	Options
	machine machine.Machine
	notes   []string
	results []result
	null    *bench.Estimate // the same thing measured twice, where that differed most
}

// A result is what one measurement says of a kernel in one format with one instruction set,
// and the verdict on that.
type result struct {
	kernel, dtype, isa string
	failure            string // a wrong result, or an allocation
	verdict            bench.Verdict
	message            string // what is wrong, or not known

	// Times the speed of the portable kernel, and the share of that of a plain read, each
	// with the least that is allowed. Kernels on tokens have no share.
	timesPortable, share *bench.Estimate
	least                floor
}

// Run compares what is measured here with the floors of the file, or records them, and
// prints what it found. Its error is a *cli.FailedCheck for what is too slow, a
// *cli.Inconclusive, or that something went wrong.
func Run(ctx context.Context, opt Options, out io.Writer) (err error) {
	g := check{Options: opt}
	if g.machine, err = machine.This(); err != nil {
		return err
	}
	ctx, stop := cli.UntilHangup(ctx)
	defer stop()
	if opt.Kernels == nil {
		g.Kernels = kernels.All()
	}
	if opt.CPU == nil {
		g.CPU = kernels.Implementations()[1:]
	}
	if g.Record {
		return g.record(ctx, out)
	}
	err = g.compare(ctx)
	g.Progress.Clear()
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
	of := func(e *bench.Estimate, format string, unit float64) string {
		if e == nil {
			return "-"
		}
		return fmt.Sprintf(format, unit*e.Median)
	}
	var rows [][]string
	for _, q := range g.results {
		rows = append(rows, []string{q.kernel, q.dtype, q.isa, q.verdict.String(),
			of(q.timesPortable, "%.1f", 1), optional(q.least.TimesPortable, "%.3g"), of(q.share, "%.1f%%", 100), optional(100*q.least.Share, "%.3g%%")})
		if q.message != "" {
			g.notes = append(g.notes, q.name()+": "+q.message)
		}
	}
	if e := g.null; e != nil {
		g.notes = append(g.notes, fmt.Sprintf("Noise now: of the same thing measured twice, the second takes %.4f times as long (%s)", e.Median, interval(*e)))
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

func (q result) name() string { return q.kernel + " " + q.dtype + " on " + q.isa }

func interval(e bench.Estimate) string { return fmt.Sprintf("%.3f to %.3f", e.Lo, e.Hi) }

// isName reports whether s can be the name of a kernel, a type or an instruction set.
// Lines of the output begin with names from the file.
func isName(s string) bool {
	return s != "" && len(s) <= 64 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") == ""
}

// checkSizes are the sizes that results are compared at, besides the one that is timed.
var checkSizes = [...]int{1, 17, 300, 2049}

// shapes returns the kernels and formats to measure, at the sizes that bench run has by
// default.
func (g *check) shapes() []measure.Shape {
	return measure.Shapes(g.Kernels, measure.Sizes{Vocabs: []int{floorVocab}, Workers: []int{1}})
}

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
			for _, n := range [...]string{isa, q.Kernel, q.DType} {
				if !isName(n) {
					return f, fmt.Errorf("%s: %q is not the name of a kernel, a type or an instruction set", name, n)
				}
			}
			what := fmt.Sprintf("%s: %s %s on %s", name, q.Kernel, q.DType, isa)
			switch {
			case !(q.TimesPortable > 0):
				return f, fmt.Errorf("%s: times_portable is %.3g, want more than 0", what, q.TimesPortable)
			case !(q.Share >= 0):
				return f, fmt.Errorf("%s: roofline_share is %.3g, want 0 or more", what, q.Share)
			case slices.ContainsFunc(of.Floors[:i], q.same):
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

// compare compares what is measured here with the floors of a file.
func (g *check) compare(ctx context.Context) error {
	floors, err := readFloors(g.File)
	if err != nil {
		return err
	}
	for _, isa := range slices.Sorted(maps.Keys(floors.ISAs)) {
		if _, err := reweight.ParseISA(isa); err != nil {
			g.notes = append(g.notes, "The floors of "+isa+" were not looked at: it does not run here")
			continue
		}
		if note := floors.elsewhere(isa, g.machine.CPU); note != "" {
			g.notes = append(g.notes, "The floors of "+isa+" were "+note)
		}
		for _, q := range floors.ISAs[isa].Floors {
			if !q.exists() {
				g.notes = append(g.notes, fmt.Sprintf("The floor of %s %s on %s is of a kernel that does not exist", q.Kernel, q.DType, isa))
			}
		}
	}
	if len(g.CPU) == 0 {
		g.notes = append(g.notes, "Only the portable kernels run here, and they have no floors")
		return nil
	}
	shapes := g.shapes()
	g.Progress.Expect(len(shapes))
	for _, s := range shapes {
		g.Progress.Next("measuring %s", s)
		results, err := confirm(floors, g.machine.CPU, g.CPU, func(some []kernels.Implementation) ([]result, error) { return g.measure(ctx, s, some) })
		if err != nil {
			return err
		}
		g.results = append(g.results, results...)
	}
	return nil
}

// confirm measures with each of the implementations and compares the results
// with the floors. It measures a second time what was too slow, because a busy
// moment of the machine may be longer than one measurement.
func confirm(floors floorFile, cpu string, impls []kernels.Implementation, measure func([]kernels.Implementation) ([]result, error)) ([]result, error) {
	results, err := measure(impls)
	if err != nil {
		return nil, err
	}
	var slow []int
	var again []kernels.Implementation
	for i := range results {
		if results[i].judge(floors, cpu); results[i].verdict == bench.Regression && results[i].failure == "" {
			slow, again = append(slow, i), append(again, impls[i])
		}
	}
	if len(again) == 0 {
		return results, nil
	}
	second, err := measure(again)
	if err != nil {
		return nil, err
	}
	for i, q := range second {
		q.judge(floors, cpu)
		results[slow[i]] = q
	}
	return results, nil
}

// newResult returns what a check and a measurement say.
func newResult(rows bool, parity measure.Parity, r measure.Result) result {
	q := result{kernel: r.Kernel, dtype: r.DType, isa: r.ISA, failure: parity.Failure, timesPortable: &r.TimesPortable}
	if rows {
		q.share = &r.Share
	}
	if q.failure == "" && r.AllocsPerOp > 0 {
		q.failure = fmt.Sprintf("%d heap allocations of %d bytes per call, want none", r.AllocsPerOp, r.BytesPerOp)
	}
	return q
}

// measure checks and measures a shape with each of the implementations.
func (g *check) measure(ctx context.Context, s measure.Shape, impls []kernels.Implementation) ([]result, error) {
	parities, err := measure.Check(ctx, s.Kernel, s.DType, append(checkSizes[:], s.CheckSize()), impls)
	if err != nil {
		return nil, err
	}
	results, err := measure.Kernel(ctx, g.Sampler, s.Kernel, s.DType, s.Rows, s.Vocab, 1, impls)
	if err != nil {
		return nil, err
	}
	all := make([]result, len(results))
	for i, r := range results {
		all[i] = newResult(s.Kernel.Rows, parities[i], r)
		if null := g.null; null == nil || r.Null.HalfWidth() > null.HalfWidth() { // the noisiest
			g.null = &r.Null
		}
	}
	return all, nil
}

// judge sets the verdict. A kernel fails if even its upper bound is below the
// floor.
func (q *result) judge(floors floorFile, cpu string) {
	f, ok := floors.find(q.isa, q.kernel, q.dtype)
	q.least, q.verdict = f, bench.Pass
	switch {
	case q.failure != "":
		q.verdict, q.message = bench.Regression, q.failure
		return
	case !ok:
		q.verdict, q.message = bench.Inconclusive, "it has no floor: record one"
	case q.timesPortable.Hi < f.TimesPortable:
		q.verdict, q.message = bench.Regression, fmt.Sprintf("%.1f times the speed of the portable kernel (%s), and the floor is %.3g", q.timesPortable.Median, interval(*q.timesPortable), f.TimesPortable)
	case q.share != nil && q.share.Hi < f.Share:
		q.verdict, q.message = bench.Regression, fmt.Sprintf("%.3f of the speed of a plain read (%s), and the floor is %.3g", q.share.Median, interval(*q.share), f.Share)
	}
	if note := floors.elsewhere(q.isa, cpu); note != "" && q.verdict == bench.Regression {
		q.message += ", " + note
	}
}

// recordings is how many times a kernel is measured for its floor, which comes
// from the middle one of their medians.
const recordings = 3

// record writes the floors of the instruction sets of this machine.
func (g *check) record(ctx context.Context, out io.Writer) error {
	name := g.File
	if name == "-" {
		return errors.New("-record: want a file, not standard output")
	}
	if slices.ContainsFunc(g.CPU, func(impl kernels.Implementation) bool { return impl.Name == reweight.Portable.String() }) {
		return errors.New("-record: portable has no floors, the others are relative to it")
	}
	target, err := filepath.EvalSymlinks(name)
	if errors.Is(err, fs.ErrNotExist) {
		target, err = name, nil
	}
	if err == nil {
		err = atomicfile.Check(target)
	}
	if err != nil {
		return err
	}
	floors, err := readFloors(name)
	if errors.Is(err, fs.ErrNotExist) {
		floors, err = floorFile{Vocab: floorVocab}, nil
	}
	if err != nil {
		return err
	}
	floors.Margin = floorMargin
	if floors.ISAs == nil {
		floors.ISAs = map[string]isaFloors{}
	}
	if len(g.CPU) == 0 {
		return errors.New("-record: only the portable kernels run here, and they have no floors")
	}
	fresh := map[string][]floor{}
	shapes := g.shapes()
	g.Progress.Expect(len(shapes))
	for _, s := range shapes {
		g.Progress.Next("measuring %s", s)
		var recorded [recordings][]result
		for i := range recorded {
			if recorded[i], err = g.measure(ctx, s, g.CPU); ctx.Err() != nil {
				return fmt.Errorf("%w: %s is as it was", cli.ErrInterrupted, name)
			} else if err != nil {
				return err
			}
			for _, q := range recorded[i] {
				if q.failure != "" {
					return &cli.FailedCheck{What: q.name() + ": " + q.failure}
				}
			}
		}
		for i, f := range floorsOf(recorded) {
			isa := recorded[0][i].isa
			fresh[isa] = append(fresh[isa], f)
		}
	}
	g.Progress.Clear()
	n := 0
	for isa, list := range fresh {
		// Kernels that were not measured keep their floors, if they still exist.
		for _, old := range floors.ISAs[isa].Floors {
			if old.exists() && !slices.ContainsFunc(list, old.same) {
				list = append(list, old)
			}
		}
		floors.ISAs[isa] = isaFloors{CPU: g.machine.CPU, Floors: list}
		n += len(list)
	}
	if err := atomicfile.Write(target, func(w io.Writer) error { return cli.WriteJSON(w, floors) }); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s has %d floors for this machine's instruction sets, %v of what was measured\n", printable.Text(name), n, floorMargin)
	return err
}

// floorsOf returns a floor for each instruction set of the measurements.
func floorsOf(recorded [recordings][]result) (floors []floor) {
	for i, q := range recorded[0] {
		var times, shares [recordings]float64
		for n, r := range recorded {
			times[n] = r[i].timesPortable.Median
			if q.share != nil {
				shares[n] = r[i].share.Median
			}
		}
		floors = append(floors, floor{Kernel: q.kernel, DType: q.dtype, TimesPortable: floorOf(times), Share: floorOf(shares)})
	}
	return floors
}

// floorOf keeps two digits of half of the middle one: more would be noise.
func floorOf(x [recordings]float64) float64 {
	slices.Sort(x[:])
	f, _ := strconv.ParseFloat(strconv.FormatFloat(floorMargin*x[recordings/2], 'g', 2, 64), 64)
	return f
}
