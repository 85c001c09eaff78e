package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/cmd/benchgate/internal/gotest"
	"github.com/seed621a2839/reweight/cmd/benchgate/internal/gotest/worker"
	"github.com/seed621a2839/reweight/internal/cli"
)

// A discovery finds the benchmarks that both versions have, and how many calls of each make
// a block.
type discovery struct {
	*comparison
	has     [2]map[string]gotest.Package // in either version, by their directory in the module
	startup map[string]time.Duration     // of both workers, by package
	common  int                          // functions that both versions have
	unfound []string                     // that there was no time for
	endless []string                     // that gave no answer in time
	leftOut bool                         // some, to keep the budget
}

// versionNames are what notes call the versions.
var versionNames = [...]string{"base", "new build"}

// find looks through a package. What ctx leaves no time for is not found.
func (d *discovery) find(ctx context.Context, name string) error {
	begin := time.Now()
	w := workers{c: d.comparison, group: name}
	defer w.close()
	all := d.newFunction(d.has[1][name], runnable{full: "all benchmarks"}) // where TestMain fails, or an init function
	begins := func(b bencher) error {
		if r, ok := b.(*binaryRunner); ok { // of which only a run tells what it has
			return r.list()
		}
		return nil
	}
	slow := false
	start := func() (err error) {
		base := time.Duration(0)
		for version := 0; version < 2 && err == nil; version++ {
			begin := time.Now()
			err = w.run(ctx, version, begins)
			if slow = d.isSlow(err, base); slow {
				return nil
			}
			base = time.Since(begin)
		}
		return err
	}
	lost, err := d.insist(ctx, &w, all, start, begins)
	if slow {
		d.endless = append(d.endless, all.name())
		return nil
	}
	if errors.Is(err, errTimeUp) {
		d.unfound = append(d.unfound, all.name())
		return nil
	}
	if lost || err != nil {
		return err
	}
	d.startup[name] = time.Since(begin)
	pkg, old := d.has[1][name], d.has[0][name].Benchmarks
	if len(pkg.Benchmarks) == 0 {
		return d.noBenchmark(nil)
	}
	if pkg.Parallel && d.CPU == 1 {
		d.note("package %s calls RunParallel, and -cpu is 1: what its benchmarks do at the same time was not measured", pkg.Path)
	}
	same := func(b gotest.Benchmark) func(gotest.Benchmark) bool {
		return func(other gotest.Benchmark) bool { return b.Name == other.Name && b.External == other.External }
	}
	for _, b := range pkg.Benchmarks {
		if !slices.ContainsFunc(old, same(b)) {
			d.note("%s is new: not compared", inPackage(pkg, b.Name))
		}
	}
	for _, b := range old {
		i := slices.IndexFunc(pkg.Benchmarks, same(b))
		if i < 0 {
			d.note("%s is only in the base: not compared", inPackage(pkg, b.Name))
			continue
		}
		b = pkg.Benchmarks[i]
		d.common++
		d.steps.next("finding %s", inPackage(pkg, b.Name))
		found, err := d.runnables(ctx, pkg, b, &w)
		if errors.Is(err, errTimeUp) {
			d.unfound = append(d.unfound, inPackage(pkg, b.Name))
			continue
		}
		for _, f := range found {
			if err == nil {
				err = d.calibrate(ctx, f, &w)
			}
			if errors.Is(err, errTimeUp) {
				d.unfound, err = append(d.unfound, f.name()), nil
			}
		}
		if err != nil {
			return err
		}
		if n := w.left(); n > 0 { // what runs on would disturb the others
			w.close()
			for _, f := range found {
				if n > 1 { // and each run leaves more: it is not what the package starts once
					f.alone()
				}
			}
		}
	}
	return nil
}

// isSlow reports whether an error is that a version gave no answer in time, where it may only be
// slow: the base, or the new build, if the base took long as well.
func (d *discovery) isSlow(err error, base time.Duration) bool {
	why, ok := errors.AsType[*failure](err)
	return ok && why.hung && (why.version == 0 || 4*base > d.patience())
}

func inPackage(pkg gotest.Package, name string) string {
	return Result{Benchmark: name, relative: pkg.Rel}.name()
}

func (d *discovery) newFunction(pkg gotest.Package, of runnable) *function {
	file, line := d.inTree(place{of.File, of.Line})
	return &function{Result: Result{Package: pkg.Path, Benchmark: of.full, relative: pkg.Rel, file: file, line: line},
		group: pkg.Rel, runnable: of,
		units: []*Metric{{Unit: nanoseconds}}}
}

// insist does something for a function, again after a failure by chance. If it fails on and
// on, the function is lost. run does the same in another process.
func (d *discovery) insist(ctx context.Context, w *workers, f *function, do func() error,
	run func(bencher) error) (lost bool, err error) {
	for flakes := 0; ; flakes++ {
		why, b, err := w.judge(ctx, do(), run)
		if why == nil || err != nil {
			return false, err
		}
		if b != noBlame || flakes >= mostFlakes {
			d.lost(f, b, why)
			return true, nil
		}
	}
}

// lost adds a function that failed.
func (d *discovery) lost(f *function, b blame, why *failure) {
	if b == noBlame {
		f.flakes = mostFlakes
	}
	d.blamed(f, b, why)
	d.functions = append(d.functions, f)
}

// knows reports whether the function has been added.
func (d *discovery) knows(f *function) bool {
	return slices.ContainsFunc(d.functions, func(g *function) bool {
		return g.Package == f.Package && g.Benchmark == f.Benchmark
	})
}

// A listing is what a benchmark function has in one version.
type listing struct {
	results map[string]result
	skipped []string
	failed  failures
}

// list runs a benchmark function once.
func list(b bencher, q worker.Request) (l listing, err error) {
	o, err := b.run(q)
	if err == nil && len(o.failed) > 0 { // a verbose run says elsewhere why
		q.Verbose = false
		var more reply
		more, err = b.run(q)
		for name := range o.failed {
			o.failed[name] = cmp.Or(o.failed[name], more.failed[name])
		}
	}
	if err != nil {
		return l, err
	}
	l = listing{map[string]result{}, o.skipped, failures{}}
	for _, r := range o.results {
		l.results[r.name] = r
	}
	for name, said := range o.failed {
		l.failed[name] = failed(name, said)
		delete(l.results, name)
	}
	return l, nil
}

// runnables runs a benchmark function once in either version, and returns its benchmarks that
// both have.
func (d *discovery) runnables(ctx context.Context, pkg gotest.Package, b gotest.Benchmark,
	w *workers) (found []*function, err error) {
	// Verbose output tells what is skipped.
	q := worker.Request{Benchmark: b.Name, External: b.External, Bench: d.Bench, Skip: d.Skip, Benchtime: "1x",
		Count: 1, Verbose: true}
	var has [2]listing
	var took [2]time.Duration
	for flakes := 0; ; flakes++ {
		var first [2]failures
		for i := range has {
			begin := time.Now()
			err := w.run(ctx, i, func(p bencher) (err error) { has[i], err = list(p, q); return err })
			took[i] = time.Since(begin)
			if d.isSlow(err, took[0]) {
				d.endless = append(d.endless, inPackage(pkg, b.Name))
				return nil, nil
			}
			if why, ok := errors.AsType[*failure](err); ok {
				has[i] = listing{failed: failures{b.Name: why}}
			} else if err != nil {
				return nil, err
			}
			if first[i] = has[i].failed; len(first[i]) > 0 { // it may have left something in the process
				w.end(i)
			}
		}
		if len(first[0])+len(first[1]) == 0 {
			break
		}
		blames, err := w.settle(ctx, first, func(p bencher) (failures, error) {
			l, err := list(p, q)
			return l.failed, err
		})
		if err != nil {
			return nil, err
		}
		if len(blames) == 0 && flakes < mostFlakes {
			continue
		}
		for i := range first {
			for _, name := range slices.Sorted(maps.Keys(first[i])) {
				if f := d.newFunction(pkg, runnable{Benchmark: b, full: name}); !d.knows(f) {
					first[i][name].version = i
					d.lost(f, blames[name], first[i][name])
				}
			}
		}
		break
	}
	for i := range has {
		for _, name := range has[i].skipped {
			switch both := slices.Contains(has[1-i].skipped, name); {
			case !both:
				d.note("%s is skipped in the %s", inPackage(pkg, name), versionNames[i])
			case i == 0:
				d.note("%s is skipped", inPackage(pkg, name))
			}
		}
		for _, name := range slices.Sorted(maps.Keys(has[i].results)) {
			f := d.newFunction(pkg, runnable{Benchmark: b, full: name})
			r := has[i].results[name]
			other, both := has[1-i].results[name]
			switch {
			case d.knows(f) || both && i == 1:
			case !both:
				d.note("%s has a result in the %s only: not compared", f.name(), versionNames[i])
			default:
				d.addUnits(f, r, other)
				if f.runnable.untimed = r.hides() && other.hides(); f.runnable.untimed {
					f.units[0].Verdict = bench.Pass
				}
				if !f.runnable.untimed && (!r.timed() || !other.timed()) || f.runnable.untimed && len(f.units) == 1 {
					d.note("%s reports no %s: not compared%s", f.name(), nanoseconds, f.unjudged(r, other))
					continue
				}
				if rest := f.unjudged(r, other); f.runnable.untimed && rest != "" {
					d.note("%s reports no %s: judged by %s alone%s", f.name(), nanoseconds, f.units[1].Unit, rest)
				}
				once := r.metrics[nanoseconds]
				if len(has[0].results) == 1 { // and set-up, which each run has
					once = max(once, float64(took[0]))
				}
				f.cost = time.Duration(4 * once)
				found = append(found, f)
			}
		}
	}
	return found, nil
}

// unjudged tells which flag would judge what both versions report besides the units of the function.
func (f *function) unjudged(base, now result) string {
	var units []string
	for _, unit := range slices.Sorted(maps.Keys(base.metrics)) {
		_, both := now.metrics[unit]
		if both && kindOf(unit) != count && !slices.ContainsFunc(f.units, func(u *Metric) bool {
			return u.Unit == unit
		}) {
			units = append(units, unit)
		}
	}
	if len(units) == 0 {
		return ""
	}
	return "; -metrics " + strings.Join(units, ",") + " judges what it reports"
}

// addUnits adds those of the metrics that both results have, and the limit.
func (d *discovery) addUnits(f *function, base, now result) {
	var metrics []string
	f.slower, metrics = d.limits(f.Benchmark)
	for _, name := range metrics {
		_, inBase := base.metrics[name]
		_, inNew := now.metrics[name]
		if !inBase || !inNew {
			continue
		}
		f.units = append(f.units, &Metric{Unit: name})
	}
}

// calibrate finds how many calls make a block, on the base, and adds the function. One whose
// first call shows that fit will leave it out is not called again: the call may have been
// a slow one, but each pair has such a call in both versions.
func (d *discovery) calibrate(ctx context.Context, f *function, w *workers) error {
	if f.cost/2*time.Duration(bench.NewRule(len(f.units), d.Alpha).Looks[1]) > d.left() {
		d.functions = append(d.functions, f)
		return nil
	}
	calls, endless := 1, false
	at := func(b bencher) func(int) (point, error) {
		return func(n int) (point, error) {
			calls = n
			return timeCalls(b, f.runnable, n)
		}
	}
	retry := func(b bencher) error {
		_, _, err := runBlocks(b, f.runnable, calls, 1)
		return err
	}
	size := func() error {
		err := w.run(ctx, 0, func(b bencher) error { return d.size(f, at(b)) })
		if why, ok := errors.AsType[*failure](err); ok && why.hung { // a single call has ended in time
			endless, err = true, nil
		}
		return err
	}
	lost, err := d.insist(ctx, w, f, size, retry)
	if endless {
		d.endless = append(d.endless, f.name())
	}
	if lost || endless || err != nil {
		return err
	}
	for version := 0; version < 2 && d.Benchtime == (Benchtime{}) && f.short == 0 && f.blocks > 1 &&
		!f.runnable.untimed; version++ {
		before := f.calls
		err = w.run(ctx, version, func(b bencher) error {
			return d.grow(f, at(b), func(n, blocks int) (point, error) {
				calls = n
				return timeBlocks(b, f.runnable, n, blocks)
			})
		})
		why, ok := errors.AsType[*failure](err)
		if ok && !why.hung {
			var b blame
			if why, b, err = w.judge(ctx, err, retry); b == newBuild { // at more calls than it would be compared at
				d.lost(f, b, why)
				return nil
			}
		}
		if errors.Is(err, errTimeUp) { // it can be measured as it is
			err = nil
			break
		}
		if ok { // if it is not by chance, it fails again when it is compared
			f.flakes, f.flake, err = 1, versionNames[why.version]+": "+why.beside(f.Benchmark), nil
		}
		if err != nil || f.calls != before {
			break
		}
	}
	d.functions = append(d.functions, f)
	return err
}

// fit leaves out the slowest benchmarks until the others can probably be decided in the time
// that is left, and says which.
func (d *discovery) fit() {
	var slow []string
	left, enough := d.left(), time.Duration(0) // for all of them
	for {
		units, rest := 0, d.open()
		round := time.Duration(0)
		groups := map[string]bool{}
		for _, f := range rest {
			units += len(f.units)
			round += f.cost
			if !groups[f.group] {
				groups[f.group] = true
				round += d.startup[packageOf(f.group)]
			}
		}
		total := round * time.Duration(bench.NewRule(units, d.Alpha).Looks[1]) // most are decided by then
		if len(rest) == 0 || total <= left {
			break
		}
		enough = max(enough, total+d.Budget-left)
		slowest := slices.MaxFunc(rest, func(a, b *function) int { return cmp.Compare(a.cost, b.cost) })
		slow = append(slow, slowest.name())
		d.functions = slices.DeleteFunc(d.functions, func(f *function) bool { return f == slowest })
	}
	if len(d.endless) > 0 {
		d.note("Left out, as a run takes longer than %v, too long for -budget %v: %s", d.patience(), d.Budget,
			strings.Join(d.endless, ", "))
	}
	if len(d.unfound) > 0 {
		d.note("Left out, as it took longer than half of -budget %v to find benchmarks: %s", d.Budget,
			cli.FirstOf(d.unfound))
	}
	if len(slow) > 0 {
		d.note("Left out, as they take too long for -budget %v (%s would do for all): %s", d.Budget, budget(enough),
			strings.Join(slow, ", "))
	}
	d.leftOut = len(d.endless)+len(d.unfound)+len(slow) > 0
}

// nothing says why nothing was compared, if nothing was.
func (d *discovery) nothing() error {
	switch {
	case len(d.report.Results) > 0 || d.leftOut:
	case len(d.broken) > 0:
		return fmt.Errorf("nothing can be compared, as the base and the new build both fail: %s", cli.FirstOf(d.broken))
	case d.mended:
		d.nothingYet("what both builds have fails in the base, and not in the new build")
	case d.common == 0:
		d.nothingYet("the base has none of these benchmarks")
	}
	return nil
}
