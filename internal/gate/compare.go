package gate

import (
	"bufio"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed621a2839/reweight/internal/gotest"
	"github.com/seed621a2839/reweight/internal/gotest/worker"
	"github.com/seed621a2839/reweight/internal/printable"
)

// againstOld compares two working copies of a module, or two test binaries of a package.
func (g *gate) againstOld(ctx context.Context) error {
	g.report.Against = g.Old
	var infos [2]fs.FileInfo
	for i, name := range [...]string{g.Old, g.New} {
		info, err := os.Stat(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("there is no %s", printable.Text(name))
		case err != nil:
			return err
		case !info.IsDir() && !info.Mode().IsRegular():
			return fmt.Errorf("%s is neither a directory nor a file", printable.Text(name))
		}
		infos[i] = info
	}
	old, now := infos[0], infos[1]
	if old.IsDir() != now.IsDir() {
		dir, file := g.Old, g.New
		if now.IsDir() {
			dir, file = file, dir
		}
		return fmt.Errorf("%s is a directory and %s is a file: want two directories, or two test binaries", printable.Text(dir), printable.Text(file))
	}
	if os.SameFile(old, now) {
		g.report.Notes = append(g.report.Notes, "Both sides are the same: this measures the noise")
	}
	run, err := newRunDir(ctx)
	if err != nil {
		return err
	}
	defer run.remove()
	if old.IsDir() {
		return g.compareCopies(ctx, run.dir)
	}
	return g.compareBinaries(ctx, run.dir)
}

// compareCopies compares two working copies of a module.
func (g *gate) compareCopies(ctx context.Context, run string) error {
	dirs := [...]string{g.Old, g.New}
	for _, dir := range dirs {
		if info, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil || info.IsDir() {
			return fmt.Errorf("%s has no go.mod: want the directory of a Go module", printable.Text(dir))
		}
	}
	g.steps.phase("finding the modules")
	var sides [2]*testSide
	for i, dir := range dirs {
		m, err := gotest.Open(ctx, dir)
		if err != nil {
			return err
		}
		files := filepath.Join(run, [...]string{"old", "new"}[i])
		if err := os.Mkdir(files, 0o700); err != nil {
			return err
		}
		sides[i] = &testSide{name: printable.Text(dir), module: m, bin: files}
	}
	if old, now := sides[0].module.Path, sides[1].module.Path; old != now {
		return fmt.Errorf("%s is module %s, and %s is module %s: want two copies of one module", sides[0].name, printable.Text(old), sides[1].name, printable.Text(now))
	}
	if err := g.readSettings(g.New); err != nil {
		return err
	}
	return g.compareModules(ctx, run, sides[0], sides[1])
}

// A binarySide is a test binary without a worker: a process runs one turn.
type binarySide struct {
	name       string
	path       string // of the binary
	pkg        string // import path of what it tests
	opt        *Options
	run        string        // directory for what a process needs
	patience   time.Duration // how long a turn may take
	starts     int           // so far
	benchmarks []string
}

// openBinary checks that the file is a test binary for this machine.
func openBinary(name string) (*binarySide, error) {
	s := &binarySide{name: printable.Text(name), patience: workerPatience}
	var err error
	if s.path, err = filepath.Abs(name); err != nil {
		return nil, err
	}
	info, err := os.Stat(s.path)
	if err != nil {
		return nil, err
	}
	b, err := buildinfo.ReadFile(s.path)
	if err != nil || !strings.HasSuffix(b.Path, ".test") {
		return nil, fmt.Errorf("%s is not a Go test binary, as go test -c makes it", s.name)
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&0o111 == 0 {
		return nil, fmt.Errorf("%s is not executable", s.name)
	}
	s.pkg = strings.TrimSuffix(b.Path, ".test")
	system := map[string]string{"GOOS": runtime.GOOS, "GOARCH": runtime.GOARCH}
	for _, v := range b.Settings {
		if want := system[v.Key]; want != "" && v.Value != want {
			return nil, fmt.Errorf("%s is for another machine: %s is %s, here %s", s.name, v.Key, printable.Text(v.Value), want)
		}
	}
	return s, nil
}

// compareBinaries compares two test binaries of a package.
func (g *gate) compareBinaries(ctx context.Context, run string) error {
	if !slices.Equal(g.Packages, []string{AllPackages}) {
		return errors.New("packages are of a module, and a test binary is of one: give none")
	}
	var sides [2]*binarySide
	var lists [2][]gotest.Benchmark
	for i, name := range [...]string{g.Old, g.New} {
		s, err := openBinary(name)
		if err != nil {
			return err
		}
		s.opt, s.run = &g.Options, filepath.Join(run, [...]string{"old", "new"}[i])
		if err := os.Mkdir(s.run, 0o700); err != nil {
			return err
		}
		sides[i] = s
	}
	old, now := sides[0], sides[1]
	if old.pkg != now.pkg {
		return fmt.Errorf("%s tests %s, and %s tests %s: want two binaries of one package", old.name, printable.Text(old.pkg), now.name, printable.Text(now.pkg))
	}
	for i, s := range sides {
		g.steps.phase("finding the benchmarks of %s", s.name)
		if err := s.list(ctx); err != nil {
			return err
		}
		for _, name := range s.benchmarks {
			lists[i] = append(lists[i], gotest.Benchmark{Name: name})
		}
	}
	if len(lists[1]) == 0 {
		return g.noBenchmark(nil)
	}
	c := g.newComparison(old, now)
	d := discovery{comparison: &c, opt: &g.Options, begin: map[string]time.Duration{}, until: time.Now().Add(g.Budget)}
	if err := d.find(ctx, gotest.Package{Path: now.pkg, Rel: ".", Benchmarks: lists[1]}, lists[0]); err != nil {
		return err
	}
	return g.measureFound(ctx, &d)
}

func (s *binarySide) build(context.Context, string, int) error {
	return errors.New("a binary cannot be built again")
}

func (s *binarySide) start(ctx context.Context, _ string, _ int) (bencher, error) {
	return s.copied(ctx)
}

// list finds the benchmark functions that -bench may mean.
func (s *binarySide) list(ctx context.Context) error {
	w, err := s.copied(ctx)
	if err != nil {
		return err
	}
	defer w.close()
	pattern := s.opt.Bench
	if strings.Contains(pattern, "/") { // it is about sub-benchmarks too
		pattern = "^Benchmark"
	}
	text, _, err := w.execute("-test.list=" + pattern)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "Benchmark") && !slices.Contains(s.benchmarks, line) {
			s.benchmarks = append(s.benchmarks, line)
		}
	}
	return err
}

// A binaryRunner runs a fresh copy of a test binary, once for each turn.
type binaryRunner struct {
	side *binarySide
	ctx  context.Context
	exe  string
	env  []string
}

func (s *binarySide) copied(ctx context.Context) (*binaryRunner, error) {
	s.starts++
	w := &binaryRunner{side: s, ctx: ctx, exe: filepath.Join(s.run, fmt.Sprintf("%d.test%s", s.starts, exeSuffix))}
	w.env = append(os.Environ(), "GOMAXPROCS="+strconv.Itoa(s.opt.CPU), "BENCHGATE_PAD="+strings.Repeat("x", rand.IntN(4096)))
	return w, copyFile(w.exe, s.path)
}

func (w *binaryRunner) close() { os.Remove(w.exe) }

// run runs the binary. A pattern of the user's may mean other functions too, which are
// skipped then.
func (w *binaryRunner) run(q worker.Request) (outcome, error) {
	skip := q.Skip
	if q.Bench == w.side.opt.Bench {
		var others []string
		for _, name := range w.side.benchmarks {
			if name != q.Benchmark {
				others = append(others, regexp.QuoteMeta(name))
			}
		}
		if len(others) > 0 {
			skip = strings.TrimSuffix("^("+strings.Join(others, "|")+")$|"+skip, "|")
		}
	}
	cpu := w.side.opt.CPU
	args := []string{"-test.run=^$", "-test.bench=" + q.Bench, "-test.benchtime=" + q.Benchtime, fmt.Sprintf("-test.count=%d", q.Count), fmt.Sprintf("-test.cpu=%d", cpu),
		fmt.Sprintf("-test.v=%t", q.Verbose)}
	if skip != "" { // Go has it since 1.20
		args = append(args, "-test.skip="+skip)
	}
	begin := time.Now()
	output, p, err := w.execute(args...)
	o := parseOutcome(output, cpu)
	if o.took = max(1, time.Since(begin)); err == nil {
		o.cpu, o.instructions = p.cmd.ProcessState.UserTime()+p.cmd.ProcessState.SystemTime(), p.instructions()
	}
	if len(o.failed) > 0 {
		err = nil // it is how they failed
	}
	return o, err
}

// execute returns what the binary prints, and the process when it has ended.
func (w *binaryRunner) execute(args ...string) (output string, p *process, err error) {
	args = append(args, "-test.benchmem", "-test.timeout=0", "-test.paniconexit0")
	cmd := exec.CommandContext(w.ctx, w.exe, append(args, w.side.opt.Args...)...)
	cmd.Env = w.env
	p = &process{of: "the tests of " + w.side.name, patience: w.side.patience, mark: w.exe} // with a mark it may print to standard error
	if err := p.run(w.ctx, cmd); err != nil {
		return "", nil, err
	}
	p.in.Close()
	timer := time.AfterFunc(p.patience, func() { p.hung.Store(true); p.kill(fmt.Sprintf("no end in %v", p.patience)) })
	text, err := io.ReadAll(io.LimitReader(p.out, worker.MaxOutput+1))
	timer.Stop() // it must not kill by a number that is another process's by then
	if len(text) > worker.MaxOutput {
		p.kill(fmt.Sprintf("it prints more than %d MiB", worker.MaxOutput>>20))
		err = bufio.ErrTooLong
	}
	if ended := p.close(); ended != nil || err != nil {
		return string(text), nil, p.failed(io.EOF)
	}
	return string(text), p, nil
}
