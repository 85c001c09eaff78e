package gate

import (
	"cmp"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/seed621a2839/reweight/cmd/benchgate/internal/gotest"
	"github.com/seed621a2839/reweight/cmd/benchgate/internal/gotest/worker"
)

// A runnable names a benchmark without sub-benchmarks, and how it is called.
type runnable struct {
	gotest.Benchmark        // its function
	full             string // with sub-benchmarks
	untimed          bool   // it reports no ns/op: the gate's own time plans its calls, and is not judged
}

// A result is a line that testing prints for a benchmark.
type result struct {
	name    string             // without the number of CPUs
	metrics map[string]float64 // by unit
}

// timed reports whether there is a time. One call may take too little for a clock.
func (r result) timed() bool {
	ns, ok := r.metrics[nanoseconds]
	return ok && ns >= 0
}

// hides reports whether the benchmark reports no time: testing leaves out one of 0.
func (r result) hides() bool {
	_, ok := r.metrics[nanoseconds]
	return !ok
}

// What testing prints of a benchmark that fails or is skipped begins with a mark.
const (
	failMark = "--- FAIL: "
	skipMark = "--- SKIP: "
)

// A reply is what came of a request to run benchmarks.
type reply struct {
	results []result
	failed  map[string]string // what the benchmarks said that failed
	skipped []string
	took    time.Duration // set-up included
	cpu     time.Duration // of a process of its own, whose start and end are much of took; or 0

	instructions uint64 // 0 if they are not known
}

// parseOutput reads what testing prints for benchmarks that run on that many CPUs.
func parseOutput(output string, cpus int) reply {
	suffix := ""
	if cpus != 1 {
		suffix = fmt.Sprintf("-%d", cpus)
	}
	o := reply{failed: map[string]string{}}
	failing := ""
	for line := range strings.Lines(output) {
		line = strings.TrimSuffix(line, "\n")
		// A benchmark logs this, whatever it looks like.
		if strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t") {
			if failing != "" {
				o.failed[failing] = cmp.Or(o.failed[failing], short(strings.TrimSpace(line)))
			}
			continue
		}
		if _, name, ok := strings.Cut(line, failMark); ok {
			failing = strings.TrimSuffix(strings.TrimSpace(name), suffix)
			o.failed[failing] = ""
			continue
		}
		failing = ""
		if _, name, ok := strings.Cut(line, skipMark); ok {
			o.skipped = append(o.skipped, strings.TrimSuffix(strings.TrimSpace(name), suffix))
			continue
		}
		fields := strings.Fields(line)
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		r := result{strings.TrimSuffix(fields[0], suffix), map[string]float64{}}
		calls, err := strconv.Atoi(fields[1])
		if err != nil {
			continue
		}
		if calls == 0 { // runtime.Goexit ends it so
			o.failed[r.name] = "it ends before it is done, by Skip or Goexit"
			continue
		}
		for i := 2; i+1 < len(fields); i += 2 {
			// ReportMetric takes any number.
			if v, err := strconv.ParseFloat(fields[i], 64); err == nil && !math.IsNaN(v) && !math.IsInf(v, 0) {
				r.metrics[fields[i+1]] = v
			}
		}
		o.results = append(o.results, r)
	}
	maps.DeleteFunc(o.failed, func(name, said string) bool { // it fails because one of its sub-benchmarks does
		return said == "" && slices.ContainsFunc(slices.Collect(maps.Keys(o.failed)), func(other string) bool {
			return strings.HasPrefix(other, name+"/")
		})
	})
	return o
}

// short returns the beginning of a text that a worker says and that is a line of a
// report.
func short(s string) string {
	const most = 500
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

// exactly is the pattern that matches this benchmark alone.
func exactly(name string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}

// A testVersion is the test binaries of one version.
type testVersion struct {
	name   string
	opt    *Options
	env    []string                  // of the binaries
	pkgs   map[string]gotest.Package // by their directory in the module
	run    string                    // directory for what a process needs
	starts int                       // of processes, so far
	lacks  string                    // what its files lack, in words; or empty

	module *gotest.Module // nil if the user gave a binary
	binary string         // which has no worker
}

// exe is the test binary of a package with functions in an order.
func (s *testVersion) exe(pkg string, order int) string {
	if s.module == nil && order == 0 {
		return s.binary
	}
	return filepath.Join(s.run, fmt.Sprintf("%x-%d.test%s", sha256.Sum256([]byte(pkg)), order, exeSuffix))
}

// exeSuffix ends the name of a program.
var exeSuffix = map[string]string{"windows": ".exe"}[runtime.GOOS]

// build builds the test binary of a group's package, unless it is there.
func (s *testVersion) build(ctx context.Context, group string, order int) error {
	pkg := packageOf(group)
	exe := s.exe(pkg, order)
	if _, err := os.Stat(exe); err == nil {
		return nil
	}
	if s.module == nil {
		return errors.New("a binary cannot be built again")
	}
	seed := int64(0)
	if order > 0 {
		seed = 1 + rand.Int64N(1<<62)
	}
	if err := s.module.Build(ctx, s.pkgs[pkg], exe, s.run, seed); err != nil {
		return s.failed(fmt.Errorf("the tests of %s do not build: %w", s.pkgs[pkg].Path, err))
	}
	return nil
}

// failed is an error about the files of the version.
func (s *testVersion) failed(err error) error {
	if s.lacks != "" {
		return fmt.Errorf("%s: %w. %s", s.name, err, s.lacks)
	}
	return fmt.Errorf("%s: %w", s.name, err)
}

// packageOf returns the directory of the package of a group: a group is a package, or a
// slow benchmark of one.
func packageOf(group string) string {
	pkg, _, _ := strings.Cut(group, "\x00")
	return pkg
}

// A testWorker is a running test binary that has a worker.
type testWorker struct {
	process
	files []string // that the process needs
	cpu   int      // GOMAXPROCS of the benchmarks
	left  int      // after how many requests there were more goroutines than before
}

// command is a run of a package's binary with these flags.
func (s *testVersion) command(ctx context.Context, exe, pkg string, flags ...string) *exec.Cmd {
	flags = append(flags, "-test.paniconexit0", fmt.Sprintf("-test.cpu=%d", s.opt.CPU))
	cmd := exec.CommandContext(ctx, exe, append(flags, s.opt.Args...)...)
	cmd.Dir = s.pkgs[pkg].Dir
	cmd.Env = slices.Concat(s.env, []string{"PWD=" + cmd.Dir, "GOMAXPROCS=" + strconv.Itoa(s.opt.CPU)})
	return cmd
}

// start starts a worker: from a fresh copy of the binary, and with an environment of
// another size, because where the pages of a file and the stack lie in memory is luck
// that a process keeps.
func (s *testVersion) start(ctx context.Context, group string, order int) (bencher, error) {
	pkg := packageOf(group)
	s.starts++
	exe, output := filepath.Join(s.run, fmt.Sprintf("%d.test%s", s.starts, exeSuffix)),
		filepath.Join(s.run, fmt.Sprintf("%d.txt", s.starts))
	if err := copyFile(exe, s.exe(pkg, order)); err != nil {
		return nil, err
	}
	pad := "BENCHGATE_PAD=" + strings.Repeat("x", rand.IntN(4096))
	if s.module == nil {
		return &binaryRunner{s, ctx, exe, pkg, pad, s.opt.patience()}, nil
	}
	token := fmt.Sprintf("%016x%016x:", rand.Uint64(), rand.Uint64())
	w := &testWorker{process: process{mark: token, most: 8 * worker.MaxOutput}, files: []string{exe, output},
		cpu: s.opt.CPU}
	s.describe(&w.process)
	cmd := s.command(ctx, exe, pkg, "-test.run=^"+worker.Test+"$", "-test.benchmem", "-test.timeout=0")
	cmd.Env = append(cmd.Env, pad, worker.EnvToken+"="+token, worker.EnvOutput+"="+output,
		worker.EnvShake+"="+strconv.FormatUint(rand.Uint64(), 10))
	err := w.process.run(ctx, cmd)
	if err == nil {
		if err = w.hear(&worker.Answer{}); err != nil {
			err = w.failed(err)
		}
	}
	if err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

// describe says what a process is that will be started.
func (s *testVersion) describe(p *process) {
	p.of, p.patience, p.module = testsOf+s.name, s.opt.patience(), s.pkgs["."].Path
	if s.module != nil {
		p.module, p.dir = s.module.Path, s.module.Dir
	}
}

func copyFile(to, from string) error {
	syscall.ForkLock.RLock() // a program that starts meanwhile would have the copy open, too: it could not be run
	defer syscall.ForkLock.RUnlock()
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o700)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return cmp.Or(err, out.Close())
}

// close ends the process and removes its files.
func (w *testWorker) close() {
	if w.cmd.Process != nil {
		w.process.close()
	}
	for _, name := range w.files {
		os.Remove(name)
	}
}

func (w *testWorker) run(q worker.Request) (reply, error) {
	var a worker.Answer
	instructions := w.instructions()
	err := w.say(q)
	if err == nil {
		err = w.hear(&a)
	}
	if err != nil {
		return reply{}, w.failed(err)
	}
	if a.Truncated {
		a.Error = fmt.Sprintf("%s prints more than %d MiB", q.Benchmark, worker.MaxOutput>>20)
	}
	if a.Error != "" {
		return reply{}, newFailure(w.of, a.Error)
	}
	if a.Left > 0 {
		w.left++
	}
	o := parseOutput(a.Output, w.cpu)
	o.took, o.instructions = max(1, time.Duration(a.Ns)), w.instructions()-instructions
	return o, nil
}

// takeSample measures a benchmark once.
func takeSample(b bencher, f *function) (sample, error) {
	if f.units[0].Unit == instructions {
		return countedSample(b, f)
	}
	t, err := bestOf(b, f, f.calls)
	if err != nil || f.short == 0 {
		return t, err
	}
	few, err := bestOf(b, f, f.short)
	if err != nil {
		return nil, err
	}
	// What grows with the calls is the difference to a shorter block. Noise may be larger than it is: of a shorter
	// block that took longer nothing is subtracted, so that another sample is the best.
	if grows := t[nanoseconds]*float64(f.calls) - few[nanoseconds]*float64(f.short); grows > 0 {
		t[nanoseconds] = grows / float64(f.calls-f.short)
	}
	return t, nil
}

// bestOf runs the blocks of a sample, of so many calls.
func bestOf(b bencher, f *function, calls int) (sample, error) {
	results, _, err := runBlocks(b, f.runnable, calls, f.blocks)
	if err != nil {
		return nil, err
	}
	t := sample{}
	for _, r := range results {
		for _, u := range f.units {
			v, has := r.metrics[u.Unit]
			if !has || u.Unit == nanoseconds && v <= 0 {
				return nil, newFailure(f.Benchmark+fails, "it has no "+u.Unit+" any more")
			}
			t.keep(u.Unit, v)
		}
	}
	return t, nil
}

// runBlocks runs blocks of calls of one benchmark, and returns as many results. A *failure
// tells how the benchmark failed.
func runBlocks(b bencher, of runnable, calls, blocks int) ([]result, reply, error) {
	o, err := b.run(worker.Request{Benchmark: of.Name, External: of.External, Bench: exactly(of.full),
		Benchtime: fmt.Sprintf("%dx", calls), Count: blocks})
	if err != nil {
		return nil, o, err
	}
	for _, name := range slices.Sorted(maps.Keys(o.failed)) {
		return nil, o, failed(name, o.failed[name])
	}
	results := slices.DeleteFunc(o.results, func(r result) bool { return r.name != of.full })
	if len(results) == 0 {
		return nil, o, newFailure(of.full+fails, "it gives no result when it runs alone, as where its name changes")
	}
	if len(results) != blocks {
		return nil, o, newFailure(of.full+fails, fmt.Sprintf("%d results, want %d", len(results), blocks))
	}
	for _, r := range results {
		if of.untimed {
			r.metrics[nanoseconds] = float64(o.took) / float64(blocks*calls)
		}
	}
	return results, o, nil
}

// failed is the failure of a benchmark that says so.
func failed(name, said string) *failure {
	return newFailure(name+fails, cmp.Or(said, "it says nothing"))
}

// againstBase compares the working copy of the module with a revision.
func (g *gate) againstBase(ctx context.Context) error {
	ref := g.Base
	g.report.Against = ref
	g.steps.phase("finding the module")
	now, err := gotest.Open(ctx, g.Dir)
	if err != nil {
		return err
	}
	if g.Packages, err = fromRoot(now.Dir, g.Dir, g.Packages); err != nil {
		return err
	}
	if err := g.readSettings(now.Dir); err != nil {
		return err
	}
	var own []string
	if g.History != "" {
		own = append(own, g.History)
	}
	r, err := openRepository(ctx, now.Dir, ref, g.Exact, own...)
	if err != nil {
		return err
	}
	g.report.Against, g.report.BaseCommit, g.report.HeadCommit, g.top = r.against, r.commit, r.head, r.top
	g.changed = r.changed
	g.report.Notes = append(g.report.Notes, r.notes...)
	run, err := newRunDir(ctx)
	if err != nil {
		return err
	}
	defer run.remove()
	tree, err := r.export(ctx, run)
	if err != nil {
		return err
	}
	old, err := now.At(ctx, r.top, tree, run.dir)
	if errors.Is(err, gotest.ErrNoModule) {
		g.nothingYet("the base: " + err.Error())
		return nil
	}
	if err != nil {
		return err
	}
	if g.accepted, err = r.accepted(ctx); err != nil {
		return err
	}
	return g.compareModules(ctx, run.dir, &testVersion{name: ref, module: old, lacks: r.lacks},
		&testVersion{name: "the working tree", module: now})
}

// fromRoot returns patterns of packages as they are in the root of the module, from those
// in a directory of it.
func fromRoot(root, dir string, patterns []string) ([]string, error) {
	dir, err := filepath.Abs(dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err == nil {
		dir, err = filepath.Rel(root, dir)
	}
	if err != nil {
		return nil, err
	}
	patterns = slices.Clone(patterns)
	for i, p := range patterns {
		if p == "." || p == ".." || strings.HasPrefix(p, "./") || strings.HasPrefix(p, "../") {
			if p = path.Join(filepath.ToSlash(dir), p); p != "." {
				p = "./" + p
			}
			patterns[i] = p
		}
	}
	return patterns, nil
}

// compareModules builds the test binaries of two copies of a module and compares the
// benchmarks that both have.
func (g *gate) compareModules(ctx context.Context, run string, base, now *testVersion) error {
	versions := [2]*testVersion{base, now}
	var remarks []string
	for i, s := range slices.Backward(versions[:]) { // what is wrong with a flag is wrong with both
		list, notes, err := s.module.Packages(ctx, g.Packages, g.Bench)
		if err != nil && s == base {
			err = s.failed(err)
		}
		if err != nil {
			return err
		}
		if s == now {
			remarks = notes
		}
		s.opt, s.env, s.pkgs = &g.Options, s.module.Environ(), map[string]gotest.Package{}
		s.run = filepath.Join(run, "run"+strconv.Itoa(i))
		if err := os.Mkdir(s.run, 0o700); err != nil {
			return err
		}
		for _, p := range list {
			p.Benchmarks = slices.DeleteFunc(p.Benchmarks, func(b gotest.Benchmark) bool {
				return gotest.Skips(g.Skip, b.Name)
			})
			if len(p.Benchmarks) > 0 && !slices.ContainsFunc(g.SkipPackages, func(pattern string) bool {
				return inPattern(p, pattern)
			}) {
				s.pkgs[p.Rel] = p
			}
		}
		if s == now && len(s.pkgs) == 0 {
			return g.noBenchmark(notes)
		}
	}
	g.report.Notes = append(g.report.Notes, remarks...)
	var both []string
	for i, lacks := range [...]string{"any more", "in the base"} {
		for _, name := range slices.Sorted(maps.Keys(versions[i].pkgs)) {
			if _, ok := versions[1-i].pkgs[name]; !ok {
				g.note("package %s has no such benchmarks %s: not compared", versions[i].pkgs[name].Path, lacks)
			} else if i == 0 {
				both = append(both, name)
			}
		}
	}
	g.steps.phase("building %d test binaries", 2*len(both))
	if err := buildAll(ctx, versions, both); err != nil {
		return err
	}
	return g.compareVersions(ctx, versions, both)
}

// compareVersions compares the benchmarks of packages that are built in both versions.
func (g *gate) compareVersions(ctx context.Context, versions [2]*testVersion, packages []string) error {
	c := g.newComparison(versions[0], versions[1])
	if len(packages) > 0 {
		if info, err := buildinfo.ReadFile(versions[1].exe(packages[0], 0)); err == nil {
			g.report.Machine.Go = info.GoVersion
		}
	}
	return c.findAndCompare(ctx, [2]map[string]gotest.Package{versions[0].pkgs, versions[1].pkgs}, packages)
}

// findAndCompare finds the benchmarks of packages that both versions have, for at most half of
// the budget, and compares them in what is left of it.
func (c *comparison) findAndCompare(ctx context.Context, has [2]map[string]gotest.Package, packages []string) error {
	d := discovery{comparison: c, has: has, startup: map[string]time.Duration{}}
	finding, cancel := context.WithDeadlineCause(ctx, c.started.Add(c.Budget/2), errTimeUp)
	defer cancel()
	for _, name := range packages {
		if err := d.find(finding, name); err != nil {
			return err
		}
	}
	d.fit()
	c.reserve = time.Until(c.deadline) / 4
	if err := c.compare(ctx); err != nil {
		return err
	}
	return d.nothing()
}

// buildAll builds the test binaries of packages for both versions, as many at the same time
// as there are CPUs. The first that does not build ends the others, and is the error.
func buildAll(ctx context.Context, versions [2]*testVersion, packages []string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < 2*len(packages) && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := versions[i%2].build(ctx, packages[i/2], 0); err != nil {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// noBenchmark is the error of flags that leave none.
func (g *gate) noBenchmark(notes []string) error {
	if len(notes) == 0 {
		notes = []string{fmt.Sprintf("-bench %q and the other flags leave none", g.Bench)}
	}
	return errors.New(short("there is no benchmark to compare; " + strings.Join(notes[:min(len(notes), 5)], "; ")))
}

// nothingYet ends a run on a change that brings the first benchmarks.
func (g *gate) nothingYet(why string) {
	g.report.Nothing = true
	g.note("Nothing to compare yet: %s", why)
}

// inPattern reports whether a package is one that a pattern of -skip-pkg means.
func inPattern(p gotest.Package, pattern string) bool {
	for _, name := range [...]string{p.Path, "./" + p.Rel} {
		below, all := strings.CutSuffix(pattern, "/...")
		if path.Clean(name) == path.Clean(pattern) || all &&
			strings.HasPrefix(path.Clean(name)+"/", strings.TrimPrefix(path.Clean(below)+"/", "./")) {
			return true
		}
	}
	return false
}
