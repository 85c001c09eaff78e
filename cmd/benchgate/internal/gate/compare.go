package gate

import (
	"bufio"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/seed621a2839/reweight/cmd/benchgate/internal/execx"
	"github.com/seed621a2839/reweight/cmd/benchgate/internal/gotest"
	"github.com/seed621a2839/reweight/cmd/benchgate/internal/gotest/worker"
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
		g.report.Notes = append(g.report.Notes, "The base and the new build are the same: this measures the noise")
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
	var versions [2]*testVersion
	for i, dir := range [...]string{g.Old, g.New} {
		if info, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil || info.IsDir() {
			return fmt.Errorf("%s has no go.mod: want the directory of a Go module", printable.Text(dir))
		}
		g.steps.phase("finding the module in %s", printable.Text(dir))
		m, err := gotest.Open(ctx, dir)
		if err != nil {
			return err
		}
		versions[i] = &testVersion{name: printable.Text(dir), module: m}
	}
	if old, now := versions[0].module.Path, versions[1].module.Path; old != now {
		return fmt.Errorf("%s is module %s, and %s is module %s: want two copies of one module", versions[0].name,
			printable.Text(old), versions[1].name, printable.Text(now))
	}
	if err := g.readSettings(g.New); err != nil {
		return err
	}
	return g.compareModules(ctx, run, versions[0], versions[1])
}

// openBinary checks that the file is a test binary for this machine. What its processes need
// is written to run.
func (g *gate) openBinary(name, run string) (*testVersion, error) {
	s := &testVersion{name: printable.Text(name), opt: &g.Options, env: execx.Environ(), run: run}
	var err error
	if s.binary, err = filepath.Abs(name); err != nil {
		return nil, err
	}
	info, err := os.Stat(s.binary)
	if err != nil {
		return nil, err
	}
	b, err := buildinfo.ReadFile(s.binary)
	if err != nil || !strings.HasSuffix(b.Path, ".test") {
		return nil, fmt.Errorf("%s is not a Go test binary, as go test -c makes it", s.name)
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&0o111 == 0 {
		return nil, fmt.Errorf("%s is not executable", s.name)
	}
	system := map[string]string{"GOOS": runtime.GOOS, "GOARCH": runtime.GOARCH}
	for _, v := range b.Settings {
		if want := system[v.Key]; want != "" && v.Value != want {
			return nil, fmt.Errorf("%s is for another machine: %s is %s, here %s", s.name, v.Key,
				printable.Text(v.Value), want)
		}
	}
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	s.pkgs = map[string]gotest.Package{".": {Path: strings.TrimSuffix(b.Path, ".test"), Rel: ".", Dir: dir}}
	return s, os.Mkdir(run, 0o700)
}

// compareBinaries compares two test binaries of a package.
func (g *gate) compareBinaries(ctx context.Context, run string) error {
	if !slices.Equal(g.Packages, []string{AllPackages}) {
		return errors.New("packages are of a module, and a test binary is of one: give none")
	}
	var versions [2]*testVersion
	var err error
	for i, name := range [...]string{g.Old, g.New} {
		if versions[i], err = g.openBinary(name, filepath.Join(run, [...]string{"old", "new"}[i])); err != nil {
			return err
		}
	}
	if old, now := versions[0].pkgs["."].Path, versions[1].pkgs["."].Path; old != now {
		return fmt.Errorf("%s tests %s, and %s tests %s: want two binaries of one package",
			versions[0].name, printable.Text(old), versions[1].name, printable.Text(now))
	}
	return g.compareVersions(ctx, versions, []string{"."})
}

// A binaryRunner runs a fresh copy of a test binary that has no worker, once for each request.
type binaryRunner struct {
	version  *testVersion
	ctx      context.Context
	exe, pkg string
	pad      string        // of the environment
	patience time.Duration // how long a run may take
}

func (w *binaryRunner) close() { os.Remove(w.exe) }

// list finds the benchmark functions of the binary that -bench may mean.
func (w *binaryRunner) list() error {
	pattern := w.version.opt.Bench
	if strings.Contains(pattern, "/") { // it is about sub-benchmarks too
		pattern = "^Benchmark"
	}
	text, p, err := w.execute("-test.list=" + pattern)
	pkg := w.version.pkgs[w.pkg]
	pkg.Benchmarks = nil
	for line := range strings.Lines(text) {
		b := gotest.Benchmark{Name: strings.TrimSpace(line)}
		if strings.HasPrefix(b.Name, "Benchmark") && !slices.Contains(pkg.Benchmarks, b) {
			pkg.Benchmarks = append(pkg.Benchmarks, b)
		}
	}
	w.version.pkgs[w.pkg] = pkg
	if err == nil && len(pkg.Benchmarks) == 0 { // there are none, or it ends before it runs anything
		if text, p, err = w.execute("-test.run=^$"); err == nil {
			err = p.passed(text)
		}
	}
	return err
}

// passed returns a failure if a binary ends well, but not by package testing.
func (p *process) passed(text string) error {
	if strings.Contains(text, "PASS\n") {
		return nil
	}
	return p.failed(io.EOF)
}

// run runs the binary. A pattern of the user's may mean other functions too, which are
// skipped then.
func (w *binaryRunner) run(q worker.Request) (reply, error) {
	skip := q.Skip
	if q.Bench == w.version.opt.Bench {
		var others []string
		for _, b := range w.version.pkgs[w.pkg].Benchmarks {
			if b.Name != q.Benchmark {
				others = append(others, regexp.QuoteMeta(b.Name))
			}
		}
		if len(others) > 0 {
			skip = strings.TrimSuffix("^("+strings.Join(others, "|")+")$|"+skip, "|")
		}
	}
	args := []string{"-test.run=^$", "-test.bench=" + q.Bench, "-test.benchtime=" + q.Benchtime,
		fmt.Sprintf("-test.count=%d", q.Count), fmt.Sprintf("-test.v=%t", q.Verbose)}
	if skip != "" { // Go has it since 1.20
		args = append(args, "-test.skip="+skip)
	}
	begin := time.Now()
	output, p, err := w.execute(args...)
	o := parseOutput(output, w.version.opt.CPU)
	if o.took = max(1, time.Since(begin)); err == nil {
		o.cpu, o.instructions = p.cmd.ProcessState.UserTime()+p.cmd.ProcessState.SystemTime(), p.instructions()
		err = p.passed(output)
	}
	if len(o.failed) > 0 {
		err = nil // it is how they failed
	}
	return o, err
}

// execute returns what the binary prints, and the process when it has ended.
func (w *binaryRunner) execute(args ...string) (output string, p *process, err error) {
	cmd := w.version.command(w.ctx, w.exe, w.pkg, append(args, "-test.benchmem", "-test.timeout=0")...)
	cmd.Env = append(cmd.Env, w.pad)
	p = new(process)
	w.version.describe(p)
	p.patience = w.patience
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
		if p.stderr.String() == "" {
			p.stderr.Write(text)
		}
		return string(text), p, p.failed(io.EOF)
	}
	return string(text), p, nil
}
