package gotest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/internal/gotest/worker"
	"github.com/seed621a2839/reweight/internal/must"
)

const mark = "TOKEN-1234 "

// A process is a test binary with a worker.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Scanner
	hello  worker.Hello
	others []string // lines of its standard output that the worker has not written
	stderr bytes.Buffer
}

// start starts a test binary, and reads its hello.
func start(t *testing.T, m *Module, p Package, exe string) *process {
	t.Helper()
	w := &process{t: t, cmd: exec.CommandContext(t.Context(), exe, "-test.run=^"+worker.Test+"$", "-test.benchmem", "-test.timeout=0", "-test.paniconexit0", "-test.cpu=2")}
	w.cmd.Dir = p.Dir
	w.cmd.Env = append(m.Environ(), worker.EnvToken+"="+mark, worker.EnvShake+"=1", worker.EnvOutput+"="+filepath.Join(t.TempDir(), "output"))
	w.cmd.Stderr = &w.stderr
	w.in = must.Get(w.cmd.StdinPipe())
	w.out = bufio.NewScanner(must.Get(w.cmd.StdoutPipe()))
	w.out.Buffer(nil, 2*worker.MaxOutput)
	must.Do(w.cmd.Start())
	if !w.read(&w.hello) {
		t.Fatalf("no hello: %s", &w.stderr)
	}
	if w.hello.Procs != 2 {
		t.Errorf("hello %+v", w.hello)
	}
	return w
}

// read reads the worker's next line, and reports whether there is one.
func (w *process) read(to any) bool {
	w.t.Helper()
	for w.out.Scan() {
		text, ok := strings.CutPrefix(w.out.Text(), mark)
		if !ok {
			w.others = append(w.others, w.out.Text())
			continue
		}
		must.Do(json.Unmarshal([]byte(text), to))
		return true
	}
	return false
}

// ask sends a request.
func (w *process) ask(q worker.Request) (a worker.Answer, ok bool) {
	w.t.Helper()
	if q.Benchtime == "" {
		q.Benchtime, q.Count = "2x", 1
	}
	must.Do(json.NewEncoder(w.in).Encode(q))
	ok = w.read(&a)
	return a, ok
}

// end closes the worker's input and returns what it says then.
func (w *process) end() error {
	w.in.Close()
	w.read(nil)
	return w.cmd.Wait()
}

// run asks for all of a benchmark and returns the output's lines, without those
// about the machine, and without the times and counts, which may differ.
func (w *process) run(name string) []string {
	w.t.Helper()
	return w.lines(worker.Request{Benchmark: name, Bench: "^" + name + "$"})
}

func (w *process) lines(q worker.Request) (lines []string) {
	w.t.Helper()
	a, ok := w.ask(q)
	if !ok {
		w.t.Fatalf("%s: no answer: %v, %s", q.Benchmark, w.cmd.Wait(), &w.stderr)
	}
	if a.Error != "" || a.Ns <= 0 {
		w.t.Errorf("%s: %+v", q.Benchmark, a)
	}
	for line := range strings.Lines(a.Output) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] == "goos:" || f[0] == "goarch:" || f[0] == "cpu:" {
			continue
		}
		for _, unit := range [...]string{"ns/op", "B/op", "allocs/op"} {
			if i := slices.Index(f, unit); i > 0 {
				f = slices.Delete(f, i-1, i+1)
			}
		}
		lines = append(lines, strings.Join(f, " "))
	}
	return lines
}
