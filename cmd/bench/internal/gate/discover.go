package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/cmd/bench/internal/cli"
	"github.com/seed621a2839/reweight/cmd/bench/internal/gotest"
	"github.com/seed621a2839/reweight/cmd/bench/internal/gotest/worker"
)

// A discovery finds the benchmarks that both sides have, and how many calls of each make
// a block.
type discovery struct {
	*comparison
	opt   *Options
	notes []string
	begin map[string]time.Duration // that it takes to start both workers, by package

	until   time.Time // when finding ends
	unfound []string  // that there was no time for
}

// sideNames are what notes call the sides.
var sideNames = [...]string{"base", "new build"}

// A starter starts a process in which benchmarks of a package run.
type starter func(ctx context.Context) (bencher, error)

// find looks through a package. A benchmark of the new build that fails is a regression;
// one of the base is an error that is told at the end.
func (d *discovery) find(ctx context.Context, pkg gotest.Package, old []gotest.Benchmark, starters [2]starter) error {
	begin := time.Now()
	var procs [2]bencher
	defer func() {
		for _, p := range procs {
			if p != nil {
				p.close()
			}
		}
	}()
	for i, start := range starters {
		p, err := start(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil { // TestMain fails, or an init function
			d.lost(i, d.newFunction(pkg, leaf{full: "all benchmarks"}), err)
			return nil
		}
		procs[i] = p
	}
	d.begin[pkg.Rel] = time.Since(begin)
	if pkg.Parallel && d.opt.CPU == 1 {
		d.notes = append(d.notes, fmt.Sprintf("package %s calls RunParallel, and -cpu is 1: what its benchmarks do at the same time was not measured", pkg.Path))
	}
	for _, b := range pkg.Benchmarks {
		if !slices.Contains(old, b) {
			d.notes = append(d.notes, fmt.Sprintf("%s is new: not compared", inPackage(pkg, b.Name)))
		}
	}
	for _, b := range old {
		if !slices.Contains(pkg.Benchmarks, b) {
			d.notes = append(d.notes, fmt.Sprintf("%s is only in the base: not compared", inPackage(pkg, b.Name)))
			continue
		}
		if time.Now().After(d.until) {
			d.unfound = append(d.unfound, inPackage(pkg, b.Name))
			continue
		}
		d.progress.Next("finding %s", inPackage(pkg, b.Name))
		found, err := d.leaves(ctx, pkg, b, procs[:], starters)
		if err != nil {
			return err
		}
		for _, f := range found {
			if time.Now().After(d.until) {
				d.unfound = append(d.unfound, f.name())
				continue
			}
			if err := d.calibrate(ctx, f, procs[:], starters); err != nil {
				return err
			}
		}
	}
	return nil
}

func inPackage(pkg gotest.Package, name string) string {
	return Result{Benchmark: name, relative: pkg.Rel}.name()
}

func (d *discovery) newFunction(pkg gotest.Package, l leaf) *function {
	return &function{Result: Result{Package: pkg.Path, Benchmark: l.full, relative: pkg.Rel}, group: pkg.Rel, leaf: l,
		units: []*unit{{Metric: Metric{Unit: nanoseconds}}}}
}

// lost adds a function that a side failed on: 0 is the base, 1 the new build.
func (d *discovery) lost(side int, f *function, err error) {
	if side == 0 {
		d.fails(f, err)
	} else {
		f.breaks(err)
	}
	d.functions = append(d.functions, f)
}

// knows reports whether the function has been added.
func (d *discovery) knows(f *function) bool {
	return slices.ContainsFunc(d.functions, func(g *function) bool { return g.Package == f.Package && g.Benchmark == f.Benchmark })
}

// leaves runs a benchmark function once on either side, and returns its benchmarks that
// both have.
func (d *discovery) leaves(ctx context.Context, pkg gotest.Package, b gotest.Benchmark, procs []bencher, starters [2]starter) (found []*function, err error) {
	q := worker.Request{Benchmark: b.Name, External: b.External, Bench: d.opt.Bench, Skip: d.opt.Skip, Benchtime: "1x", Count: 1, Verbose: true} // which tells what is skipped
	var has [2]map[string]result
	var skipped [2][]string
	for i := range procs {
		o, err := procs[i].run(q)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			d.lost(i, d.newFunction(pkg, leaf{b, b.Name}), err)
			return nil, d.restart(ctx, procs, starters, i)
		}
		if len(o.failed) > 0 && explain(procs[i], q, o.failed) != nil {
			if err := d.restart(ctx, procs, starters, i); err != nil {
				return nil, err
			}
		}
		for _, name := range slices.Sorted(maps.Keys(o.failed)) {
			if f := d.newFunction(pkg, leaf{b, name}); !d.knows(f) { // what fails in the base is not the change's fault
				d.lost(i, f, failure(map[string]string{name: o.failed[name]}))
			}
		}
		skipped[i] = o.skipped
		has[i] = map[string]result{}
		for _, r := range o.results {
			has[i][r.name] = r
		}
	}
	for i := range has {
		for _, name := range skipped[i] {
			switch both := slices.Contains(skipped[1-i], name); {
			case !both:
				d.notes = append(d.notes, fmt.Sprintf("%s is skipped in the %s", inPackage(pkg, name), sideNames[i]))
			case i == 0:
				d.notes = append(d.notes, fmt.Sprintf("%s is skipped", inPackage(pkg, name)))
			}
		}
		for _, name := range slices.Sorted(maps.Keys(has[i])) {
			f := d.newFunction(pkg, leaf{b, name})
			other, both := has[1-i][name]
			switch {
			case d.knows(f) || both && i == 1:
			case !both:
				d.notes = append(d.notes, fmt.Sprintf("%s has a result in the %s only: not compared", f.name(), sideNames[i]))
			case !has[i][name].timed() || !other.timed():
				d.notes = append(d.notes, fmt.Sprintf("%s reports no %s: not compared", f.name(), nanoseconds))
			default:
				f.addUnits(d.opt.Metrics, has[i][name], other)
				found = append(found, f)
			}
		}
	}
	return found, nil
}

// explain asks again why benchmarks fail: a verbose run prints that elsewhere.
func explain(b bencher, q worker.Request, failed map[string]string) error {
	q.Verbose = false
	again, err := b.run(q)
	for name := range failed {
		failed[name] = cmp.Or(failed[name], again.failed[name])
	}
	return err
}

// addUnits adds those of the metrics that both results have.
func (f *function) addUnits(metrics []string, base, now result) {
	for _, name := range metrics {
		_, inBase := base.metrics[name]
		_, inNew := now.metrics[name]
		if !inBase || !inNew {
			continue
		}
		f.units = append(f.units, &unit{Metric: Metric{Unit: name}, kind: kindOf(name)})
	}
}

// restart replaces the process of a side, which failed.
func (d *discovery) restart(ctx context.Context, procs []bencher, starters [2]starter, i int) error {
	procs[i].close()
	fresh, err := starters[i](ctx)
	if err != nil {
		return err
	}
	procs[i] = fresh
	return nil
}

// calibrate asks the base how many calls make a block, and adds the function.
func (d *discovery) calibrate(ctx context.Context, f *function, procs []bencher, starters [2]starter) error {
	n, perBlock := 1, time.Duration(0)
	for {
		op := math.Inf(1)
		perBlock = math.MaxInt64
		for range 3 { // the least counts: others may use the machine
			results, took, err := runLeaf(procs[0], f.leaf, n, 1)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if errors.Is(err, errNoResult) {
				d.notes = append(d.notes, fmt.Sprintf("%s gives no result when it runs alone, as where its name changes: not compared", f.name()))
				return nil
			}
			if err != nil {
				d.lost(0, f, err)
				return d.restart(ctx, procs, starters, 0)
			}
			op, perBlock = min(op, results[0].metrics[nanoseconds]), min(perBlock, took)
		}
		wanted := float64(benchBlock) / max(op, 0.01)
		allowed := float64(n) * float64(blockLimit) / float64(perBlock)
		next := int(max(1, min(wanted, allowed, 100*float64(n))))
		near := next <= 2*n
		n = next
		if near {
			break
		}
	}
	f.calls = n
	f.blocks = int(min(benchBlocks, max(2, turnTime/perBlock)))
	f.cost = 4 * time.Duration(f.blocks) * perBlock
	if perBlock > ownProcess {
		f.group += "\x00" + f.Benchmark
	}
	d.functions = append(d.functions, f)
	return nil
}

// fit leaves out the slowest benchmarks until the others can reach the first look within
// the time, and says which.
func (d *discovery) fit(within time.Duration, alpha float64) {
	var slow []string
	enough := time.Duration(0) // for all of them
	for {
		units, rest := 0, d.open()
		round := time.Duration(0)
		groups := map[string]bool{}
		for _, f := range rest {
			units += len(f.units)
			round += f.cost
			if !groups[f.group] {
				groups[f.group] = true
				round += d.begin[packageOf(f.group)]
			}
		}
		first := round * time.Duration(bench.NewRule(units, alpha).Looks[0])
		if len(rest) == 0 || first <= within*2/3 { // the machine may become busier
			break
		}
		enough = max(enough, first*3/2)
		slowest := slices.MaxFunc(rest, func(a, b *function) int { return cmp.Compare(a.cost, b.cost) })
		slow = append(slow, slowest.name())
		d.functions = slices.DeleteFunc(d.functions, func(f *function) bool { return f == slowest })
	}
	if len(d.unfound) > 0 {
		d.notes = append(d.notes, fmt.Sprintf("Left out, as it took longer than -budget %v to find benchmarks: %s", within, cli.FirstOf(d.unfound)))
	}
	if len(slow) > 0 {
		d.notes = append(d.notes, fmt.Sprintf("Left out, as they take too long for -budget %v (%s would do for all): %s", within, budget(enough), strings.Join(slow, ", ")))
	}
}
