package gate

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/internal/cli"
	"github.com/seed621a2839/reweight/internal/test/must"
)

// TestGateVerdict: the worst of the results, and the error that stands for it.
func TestGateVerdict(t *testing.T) {
	r := benchmarkReport()
	if err := r.err(); cli.ExitStatus("", err, io.Discard) != 1 ||
		err.Error() != "a check failed: BenchmarkBroken (and 1 more)" {
		t.Errorf("%v", err)
	}
	r.Results = r.Results[2:] // without those that fail
	r.Verdict = r.verdict()
	if err := r.err(); cli.ExitStatus("", err, io.Discard) != 3 ||
		err.Error() != "inconclusive: BenchmarkUnsure" { // the table has the rest
		t.Errorf("%v", err)
	}
	r.Results = r.Results[2:] // and those that are open
	r.Verdict = r.verdict()
	if err := r.err(); err != nil || r.Verdict != bench.Pass {
		t.Errorf("%v", err)
	}
	if empty := (report{Verdict: report{}.verdict()}); cli.ExitStatus("", empty.err(), io.Discard) != 3 ||
		!strings.Contains(empty.err().Error(), "nothing was compared") {
		t.Errorf("of nothing: %v, %v", empty.Verdict, empty.err())
	}
	r.Partial = true
	if r.verdict() != bench.Open {
		t.Errorf("%v", r.verdict())
	}
}

func TestGateOutputs(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "r.json")
	put(file, "something that was there")
	var stdout bytes.Buffer
	o := outputs{stdout: &stdout}
	o.names[0], o.names[2] = file, "-"
	must.Do(errors.Join(o.check(), o.write(benchmarkReport())))
	if text, err := os.ReadFile(file); err != nil || !json.Valid(text) {
		t.Errorf("%v in\n%s", err, text)
	}
	if !strings.HasPrefix(stdout.String(), "**benchgate") || strings.Contains(stdout.String(), "---\n") {
		t.Errorf("standard output has\n%s", stdout.String())
	}
	// One file that cannot be written does not keep the other from being written.
	gone := filepath.Join(dir, "gone")
	must.Do(os.Mkdir(gone, 0o777))
	o = outputs{stdout: &stdout}
	o.names[0], o.names[1] = filepath.Join(gone, "r.json"), file
	must.Do(o.check())
	must.Do(os.Remove(gone))
	if err := o.write(benchmarkReport()); err == nil || !strings.Contains(err.Error(), "-json: ") {
		t.Errorf("error %v", err)
	}
	if text, err := os.ReadFile(file); err != nil || !bytes.HasPrefix(text, []byte(xml.Header)) {
		t.Errorf("%v in\n%s", err, text)
	}
}

// TestGateKeepsFiles: what ends in an error has overwritten nothing, and made
// nothing.
func TestGateKeepsFiles(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	const old = "{\"vocab\":151936}\n"
	for _, name := range []string{"f.json", "old.json"} {
		put(name, old)
	}
	for link, target := range map[string]string{"link.json": "f.json", "nowhere.json": "absent"} {
		if err := os.Symlink(target, link); err != nil {
			t.Skip(err)
		}
	}
	for _, c := range []struct {
		json, junit, want string
	}{
		{"a", "./a", "-json and -junit are the same file, ./a"},
		{"a", filepath.Join(dir, "a"), "-json and -junit are the same file"},
		{"link.json", "f.json", "-json and -junit are the same file"},
		{"old.json", "new.xml", "not in a Go module"},
		{"no/such.json", "", "-json: "},
		{"nowhere.json", "", "-json: "},
		{dir, "", "-json: "},
	} {
		opt := Options{Base: "HEAD", Dir: "."}
		opt.Files[0], opt.Files[1] = c.json, c.junit
		if err := Run(t.Context(), opt, io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	for _, name := range []string{"f.json", "old.json"} {
		if text, err := os.ReadFile(name); err != nil || string(text) != old {
			t.Errorf("%s holds %q, %v", name, text, err)
		}
	}
	if files, _ := os.ReadDir("."); len(files) != 4 {
		t.Errorf("the directory has %v", files)
	}
	// A link to a report stays one.
	o := outputs{stdout: io.Discard}
	o.names[0] = "link.json"
	if err := errors.Join(o.check(), o.write(benchmarkReport())); err != nil {
		t.Error(err)
	}
	info, err := os.Lstat("link.json")
	if text, _ := os.ReadFile("f.json"); err != nil || info.Mode().IsRegular() || !json.Valid(text) ||
		string(text) == old {
		t.Errorf("%v, %v, %s", info, err, text)
	}
}

// TestAnnotations: a regression has a line for GitHub, with the place of the benchmark.
func TestAnnotations(t *testing.T) {
	t.Setenv("GITHUB_ACTIONS", "true")
	r := benchmarkReport()
	r.Results[1].file, r.Results[1].line = "a,b/x_test.go", 12
	var out bytes.Buffer
	must.Do((&outputs{stdout: &out}).write(r))
	if want := "\n::error title=benchmark regression::BenchmarkBroken: the new build: panic: <no> & no\n::error file=a%2Cb/x_test.go,line=12,title=benchmark regression::codec BenchmarkEncode/1K: takes "; !strings.Contains(out.String(), want) || strings.Count(out.String(), "::error") != 2 {
		t.Error(out.String())
	}
}

// TestBenchfmt: both versions, as benchstat reads them.
func TestBenchfmt(t *testing.T) {
	r := report{Machine: Machine{CPU: "C", OS: "linux", Arch: "amd64"},
		Results: []Result{{Package: "m/a", Benchmark: "BenchmarkX/y", Calls: 100,
			Pairs:   []bench.Pair{{Base: 10, New: 11}, {Base: 10.5, New: 11.5}},
			Metrics: []Metric{{Unit: "B/op", pairs: []bench.Pair{{Base: 1, New: 2}, {Base: 1, New: 2}}}}}}}
	var b bytes.Buffer
	must.Do(r.writeBenchfmt(&b))
	const want = "goos: linux\ngoarch: amd64\ncpu: C\nside: base\npkg: m/a\nBenchmarkX/y\t100\t10 ns/op\t1 B/op\nBenchmarkX/y\t100\t10.5 ns/op\t1 B/op\n" +
		"side: new\npkg: m/a\nBenchmarkX/y\t100\t11 ns/op\t2 B/op\nBenchmarkX/y\t100\t11.5 ns/op\t2 B/op\n"
	if b.String() != want {
		t.Errorf("%q", b.String())
	}
}

// TestGains: of what go tool pprof prints, the functions that take more time.
func TestGains(t *testing.T) {
	const text = "File: x.test\nType: cpu\nShowing nodes accounting for 500ms, 25% of 2000ms total\n      flat  flat%   sum%        cum   cum%\n" +
		"     100ms  5.00%  5.00%      600ms 30.00%  example.com/m/btree.(*node[...]).get (inline)\n     400ms 20.00% 25.00%      400ms 20.00%  main.slow\n" +
		"     -90ms  4.50% 20.50%      -90ms  4.50%  main.fast\n      10ms  0.50% 21.00%       10ms  0.50%  main.other\n"
	if got := strings.Join(parseGains(text), ", "); got != "+20% in main.slow, +5% in btree.(*node[...]).get" {
		t.Error(got)
	}
}
