package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/internal/atomicfile"
	"github.com/seed621a2839/reweight/kernels"
)

// floorVocab is the vocabulary of the workloads that floors are about: at least
// bench.StreamBytes of rows.
const floorVocab = 151936

// floorMargin is the part of what was measured that becomes a floor. Ratios to
// plain Go differ between CPUs with the same instructions; what falls by half has
// lost its assembly. Smaller slow-downs are for -base.
const floorMargin = 0.5

// A floorFile has the floors of each instruction set.
type floorFile struct {
	Margin float64               `json:"margin"` // what was measured times this is the floor
	Vocab  int                   `json:"vocab"`
	Paths  map[string]pathFloors `json:"paths"`
}

type pathFloors struct {
	CPU    string  `json:"cpu"` // that they were recorded on
	Floors []floor `json:"floors"`
}

// A floor is the least that is allowed.
type floor struct {
	Kernel        string  `json:"kernel"`
	Type          string  `json:"dtype"`
	TimesPortable float64 `json:"times_portable"`           // times the speed of the portable path
	Share         float64 `json:"roofline_share,omitempty"` // of the speed of a plain read; kernels on rows only
}

func readFloors(name string) (f floorFile, err error) {
	info, err := os.Stat(name)
	if err != nil {
		return f, err
	}
	if !info.Mode().IsRegular() {
		return f, fmt.Errorf("%s is not a regular file", name)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return f, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return f, fmt.Errorf("%s: %w", name, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return f, fmt.Errorf("%s: more than one JSON value", name)
	}
	if f.Vocab != floorVocab {
		return f, fmt.Errorf("%s: floors for a vocabulary of %d, and %d is measured", name, f.Vocab, floorVocab)
	}
	if f.Paths == nil {
		f.Paths = map[string]pathFloors{}
	}
	for path, of := range f.Paths {
		for i, q := range of.Floors {
			what := fmt.Sprintf("%s: %s %s on %s", name, q.Kernel, q.Type, path)
			switch {
			case !(q.TimesPortable > 0):
				return f, fmt.Errorf("%s: times_portable is %.3g, want more than 0", what, q.TimesPortable)
			case !(q.Share >= 0):
				return f, fmt.Errorf("%s: roofline_share is %.3g, want 0 or more", what, q.Share)
			case slices.ContainsFunc(of.Floors[:i], func(p floor) bool { return p.Kernel == q.Kernel && p.Type == q.Type }):
				return f, fmt.Errorf("%s: given twice", what)
			}
		}
	}
	return f, nil
}

// find returns the floor of a kernel on a type and a path.
func (f floorFile) find(path, kernel, typ string) (floor, bool) {
	for _, q := range f.Paths[path].Floors {
		if q.Kernel == kernel && q.Type == typ {
			return q, true
		}
	}
	return floor{}, false
}

// elsewhere says that a path's floors were recorded on another CPU than this.
func (f floorFile) elsewhere(path, cpu string) string {
	if on := f.Paths[path].CPU; on != "" && on != cpu {
		return fmt.Sprintf("recorded on %s; this is %s", on, cmp.Or(cpu, "unknown"))
	}
	return ""
}

// floorPaths are the paths to hold against floors: those asked for, or all but
// the portable one.
func (g gate) floorPaths() (paths []reweight.ISA) {
	if g.paths != nil {
		return g.paths
	}
	for _, p := range reweight.Available() {
		if p != reweight.Portable {
			paths = append(paths, p)
		}
	}
	return paths
}

// againstFloors holds what is measured here against the floors of a file.
func (g *gate) againstFloors(ctx context.Context, name string) error {
	floors, err := readFloors(name)
	if err != nil {
		return fmt.Errorf("-floor: %w", err)
	}
	g.report.Against = name
	paths := g.floorPaths()
	g.report.expect(g.report.Machine.Chosen, expectedPath())
	for _, path := range slices.Sorted(maps.Keys(floors.Paths)) {
		if _, err := reweight.ParseISA(path); err != nil {
			g.report.Notes = append(g.report.Notes, "The floors of "+path+" were not looked at: it does not run here")
			continue
		}
		if note := floors.elsewhere(path, g.report.Machine.CPU); note != "" {
			g.report.Notes = append(g.report.Notes, "The floors of "+path+" were "+note)
		}
		for _, q := range floors.Paths[path].Floors {
			if k, err := kernels.Find(q.Kernel); err != nil || !slices.Contains(k.Types, q.Type) {
				g.report.Notes = append(g.report.Notes, fmt.Sprintf("The floor of %s %s on %s is of no kernel that there is", q.Kernel, q.Type, path))
			}
		}
	}
	if len(paths) == 0 {
		g.report.Notes = append(g.report.Notes, "There is no path here but the portable one, which has no floors")
		return nil
	}
	shapes := g.shapes()
	g.progress.expect(len(shapes))
	for _, s := range shapes {
		g.progress.next("measuring %s", s)
		results, err := settle(floors, g.report.Machine.CPU, paths, func(paths []reweight.ISA) ([]standing, error) { return g.standings(ctx, s, paths) })
		if err != nil {
			return err
		}
		for _, r := range results {
			g.report.Results = append(g.report.Results, r.gateResult)
		}
	}
	return nil
}

// settle holds what is measured of the paths against the floors, and what was too
// slow once more: a busy moment may be longer than a measurement.
func settle(floors floorFile, cpu string, paths []reweight.ISA, measure func([]reweight.ISA) ([]standing, error)) ([]standing, error) {
	results, err := measure(paths)
	if err != nil {
		return nil, err
	}
	var slow []int
	var again []reweight.ISA
	for i := range results {
		if results[i].hold(floors, cpu); results[i].Verdict == bench.Regression && results[i].failure == "" {
			slow, again = append(slow, i), append(again, paths[i])
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
		q.hold(floors, cpu)
		results[slow[i]] = q
	}
	return results, nil
}

// A standing is what one run says of a path of a kernel.
type standing struct {
	gateResult
	failure string // of a hard condition
}

// stand returns what a check and a measurement of a path say.
func stand(rows bool, parity bench.Parity, r bench.Result) standing {
	q := standing{failure: parity.Failure}
	q.Kernel, q.Type, q.Path = r.Kernel, r.Type, r.Path
	q.TimesPortable = r.TimesPortable
	if rows {
		q.Share = &bench.Estimate{Median: r.RooflineShare, Lo: r.ShareLo, Hi: r.ShareHi, N: r.Rounds, Outliers: r.Outliers}
	}
	if q.failure == "" && r.AllocsPerOp > 0 {
		q.failure = allocated(r.AllocsPerOp, r.BytesPerOp)
	}
	return q
}

// standings checks and measures the paths on a shape.
func (g *gate) standings(ctx context.Context, s shape, paths []reweight.ISA) ([]standing, error) {
	parities, err := bench.Check(ctx, s.kernel, s.typ, append(checkSizes[:], s.size()), paths)
	if err != nil {
		return nil, err
	}
	results, err := g.sampler.Kernel(ctx, s.kernel, s.typ, s.rows, s.vocab, 1, paths)
	if err != nil {
		return nil, err
	}
	standings := make([]standing, len(results))
	for i, r := range results {
		standings[i] = stand(s.kernel.Rows, parities[i], r)
		if null := g.report.Null; null == nil || r.Null.HalfWidth() > null.HalfWidth() { // the noisiest
			g.report.Null = &r.Null
		}
	}
	return standings, nil
}

// hold sets the verdict. It fails where even the upper bound is below the floor.
func (q *standing) hold(floors floorFile, cpu string) {
	f, ok := floors.find(q.Path, q.Kernel, q.Type)
	q.TimesFloor, q.ShareFloor = f.TimesPortable, f.Share
	q.Verdict, q.Message = bench.Pass, ""
	switch {
	case q.failure != "":
		q.Verdict, q.Message = bench.Regression, q.failure
	case !ok:
		q.Verdict, q.Message = bench.Inconclusive, "it has no floor: record one"
	case q.TimesPortable.Hi < f.TimesPortable:
		q.Verdict, q.Message = bench.Regression, fmt.Sprintf("%.1f times the speed of the portable path (%s), and the floor is %.3g", q.TimesPortable.Median, interval(*q.TimesPortable), f.TimesPortable)
	case q.Share != nil && q.Share.Hi < f.Share:
		q.Verdict, q.Message = bench.Regression, fmt.Sprintf("%.3f of the speed of a plain read (%s), and the floor is %.3g", q.Share.Median, interval(*q.Share), f.Share)
	}
	if note := floors.elsewhere(q.Path, cpu); note != "" && q.Verdict == bench.Regression && q.failure == "" {
		q.Message += ", " + note
	}
}

// recordings is how many measurements a floor is made of: of their medians it is
// the middle one.
const recordings = 3

// record writes the floors of the paths of this machine.
func (g *gate) record(ctx context.Context, name string, out io.Writer) error {
	if name == "-" {
		return errors.New("-record: want a file, not standard output")
	}
	if slices.Contains(g.paths, reweight.Portable) {
		return errors.New("-record: the portable path has no floors, the others are relative to it")
	}
	target, err := writable(name)
	if err != nil {
		return fmt.Errorf("-floor: %w", err)
	}
	floors, err := readFloors(name)
	if errors.Is(err, fs.ErrNotExist) {
		floors, err = floorFile{Vocab: floorVocab, Paths: map[string]pathFloors{}}, nil
	}
	if err != nil {
		return fmt.Errorf("-floor: %w", err)
	}
	floors.Margin = floorMargin
	paths := g.floorPaths()
	if len(paths) == 0 {
		return errors.New("-record: there is no path here but the portable one, which has no floors")
	}
	fresh := map[string][]floor{}
	shapes := g.shapes()
	g.progress.expect(len(shapes))
	for _, s := range shapes {
		g.progress.next("measuring %s", s)
		var recorded [recordings][]standing
		for i := range recorded {
			if recorded[i], err = g.standings(ctx, s, paths); ctx.Err() != nil {
				return fmt.Errorf("%w: %s is as it was", errInterrupted, name)
			} else if err != nil {
				return err
			}
			for _, q := range recorded[i] {
				if q.failure != "" {
					return &failedCheck{q.name() + ": " + q.failure}
				}
			}
		}
		for i, f := range floorsOf(recorded) {
			path := recorded[0][i].Path
			fresh[path] = append(fresh[path], f)
		}
	}
	g.progress.clear()
	n := 0
	for path, list := range fresh {
		// Kernels that were not measured keep theirs, if they still exist.
		for _, old := range floors.Paths[path].Floors {
			k, err := kernels.Find(old.Kernel)
			if _, measured := (floorFile{Paths: map[string]pathFloors{path: {Floors: list}}}).find(path, old.Kernel, old.Type); !measured && err == nil && slices.Contains(k.Types, old.Type) {
				list = append(list, old)
			}
		}
		floors.Paths[path] = pathFloors{CPU: g.report.Machine.CPU, Floors: list}
		n += len(list)
	}
	if err := atomicfile.Write(target, func(w io.Writer) error { return printJSON(w, floors) }); err != nil {
		return fmt.Errorf("-floor: %w", err)
	}
	_, err = fmt.Fprintf(out, "%s has %d floors for this machine's paths, %v of what was measured\n", name, n, floorMargin)
	return err
}

// floorsOf returns the floors of the standings, path by path.
func floorsOf(recorded [recordings][]standing) (floors []floor) {
	for i, q := range recorded[0] {
		var times, shares [recordings]float64
		for n, r := range recorded {
			times[n] = r[i].TimesPortable.Median
			if q.Share != nil {
				shares[n] = r[i].Share.Median
			}
		}
		floors = append(floors, floor{Kernel: q.Kernel, Type: q.Type,
			TimesPortable: rounded(floorMargin * middle(times)), Share: rounded(floorMargin * middle(shares))})
	}
	return floors
}

func middle(x [recordings]float64) float64 {
	slices.Sort(x[:])
	return x[recordings/2]
}

// rounded keeps two digits: more would be noise.
func rounded(x float64) float64 {
	r, _ := strconv.ParseFloat(strconv.FormatFloat(math.Max(0, x), 'g', 2, 64), 64)
	return r
}
