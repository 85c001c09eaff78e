package gotest

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/cmd/benchgate/internal/gotest/worker"
	"github.com/seed621a2839/reweight/internal/test/must"
)

// A session is what a test binary with a worker does until its input ends.
type session struct {
	answers []worker.Answer
	others  []string // lines of its standard output that the worker has not written
	stderr  string
	err     error // how it ends
}

// serve starts a test binary, and gives it requests. Without a Benchtime they are for two
// calls.
func serve(t *testing.T, m *Module, p Package, exe string, requests ...worker.Request) (s session) {
	t.Helper()
	const mark = "TOKEN-1234 "
	var in, out, stderr bytes.Buffer
	for _, q := range requests {
		if q.Benchtime == "" {
			q.Benchtime, q.Count = "2x", 1
		}
		in.Write(must.Get(json.Marshal(q)))
		// This is more than the worker reads ahead, so that a benchmark might read it.
		in.WriteString(strings.Repeat(" ", 4096) + "\n")
	}
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^"+worker.Test+"$", "-test.benchmem", "-test.timeout=0",
		"-test.paniconexit0", "-test.cpu=2")
	cmd.Dir = p.Dir
	cmd.Env = append(m.Environ(), worker.EnvToken+"="+mark, worker.EnvShake+"=1",
		worker.EnvOutput+"="+filepath.Join(t.TempDir(), "output"))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = &in, &out, &stderr
	s.err = cmd.Run()
	s.stderr = stderr.String()
	for line := range strings.Lines(out.String()) {
		text, ok := strings.CutPrefix(line, mark)
		switch {
		case !ok:
			s.others = append(s.others, strings.TrimSuffix(line, "\n"))
		default:
			s.answers = append(s.answers, worker.Answer{})
			must.Do(json.Unmarshal([]byte(text), &s.answers[len(s.answers)-1]))
		}
	}
	if len(s.answers) == 0 || s.answers[0] != (worker.Answer{}) {
		t.Fatalf("it does not begin: %+v, %v, %s", s.answers, s.err, s.stderr)
	}
	s.answers = s.answers[1:]
	return s
}

// all is the request for all of a benchmark.
func all(name string) worker.Request {
	return worker.Request{Benchmark: name, Bench: "^" + name + "$"}
}

// lines are those of an answer, without those about the machine, and without the times and
// counts, which may differ.
func lines(t *testing.T, a worker.Answer) (lines []string) {
	t.Helper()
	if a.Error != "" || a.Ns <= 0 {
		t.Errorf("%+v", a)
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

// result runs the first benchmark of a package of a module, and returns its lines.
func result(t *testing.T, m *Module, rel string) string {
	t.Helper()
	p := pack(t, m, rel)
	s := serve(t, m, p, build(t, m, p, 0), all(p.Benchmarks[0].Name))
	if s.err != nil || len(s.answers) != 1 {
		t.Fatalf("%d answers, %v: %s", len(s.answers), s.err, s.stderr)
	}
	return strings.Join(lines(t, s.answers[0]), "\n")
}
