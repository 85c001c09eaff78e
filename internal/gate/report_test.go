package gate

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/internal/cli"
)

// onWrite is called with what is written.
type onWrite func(string)

func (f onWrite) Write(b []byte) (int, error) { f(string(b)); return len(b), nil }

// sampleReport is a report with one of each verdict.
func sampleReport() report {
	e := bench.Estimate{Median: 1.1, Lo: 1.05, Hi: 1.2, N: 24}
	wide := bench.Estimate{Median: 1.06, Lo: math.Inf(-1), Hi: math.Inf(1), N: 12}
	r := report{command: "benchgate", Against: "HEAD~1", Limits: limits{1.05, 1.02, 0.01}, Null: &bench.Estimate{Median: 1, Lo: 0.99, Hi: 1.01, N: 9}, Notes: []string{"a | note"}, Results: []Result{
		{Benchmark: "one", relative: ".", Verdict: bench.Pass, Ratio: &e, BaseNs: 100, NewNs: 110},
		{Benchmark: "two", relative: ".", Verdict: bench.Regression, Ratio: &e, Message: "slower & <wrong>"},
		{Benchmark: "three", relative: ".", Verdict: bench.Inconclusive, Ratio: &wide, Message: "who knows"},
		{Benchmark: "four", relative: "."},
	}}
	r.Verdict = r.verdict()
	return r
}

func TestGateVerdict(t *testing.T) {
	r := sampleReport()
	var failed *cli.FailedCheck
	if err := r.err(); !errors.As(err, &failed) || !strings.Contains(err.Error(), "two: slower") || cli.ExitStatus("", err, io.Discard) != 1 {
		t.Errorf("%v", err)
	}
	if want := "REGRESSION against HEAD~1: 1 regression, 1 inconclusive, 1 open, 1 pass"; r.summary() != want {
		t.Errorf("%q, want %q", r.summary(), want)
	}
	r.Results = slices.Delete(r.Results, 1, 2)
	r.Verdict = r.verdict()
	if err := r.err(); err == nil || cli.ExitStatus("", err, io.Discard) != 3 || !strings.Contains(err.Error(), "inconclusive: three: who knows") {
		t.Errorf("%v", err)
	}
	r.Results = r.Results[:1]
	r.Verdict = r.verdict()
	if err := r.err(); err != nil || r.Verdict != bench.Pass {
		t.Errorf("%v", err)
	}
	if empty := (report{Verdict: report{}.verdict()}); cli.ExitStatus("", empty.err(), io.Discard) != 3 || !strings.Contains(empty.err().Error(), "nothing was compared") {
		t.Errorf("of nothing: %v, %v", empty.Verdict, empty.err())
	}
	r.Partial = true
	if r.verdict() != bench.Open {
		t.Errorf("%v", r.verdict())
	}
}

func TestGateFormats(t *testing.T) {
	r := sampleReport()
	var table, markdown, junit, text bytes.Buffer
	for _, err := range []error{r.writeTable(&table), r.writeMarkdown(&markdown), r.writeJUnit(&junit), r.writeJSON(&text)} {
		if err != nil {
			t.Error(err)
		}
	}
	for _, want := range []string{"one", "1.100", "1.050 to 1.200", "regression", "two: slower & <wrong>", "a | note", "REGRESSION", "Noise now"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("no %q in\n%s", want, table.String())
		}
	}
	for _, want := range []string{"**benchgate: REGRESSION", "- two: slower & &lt;wrong>", `a \| note`, "| one | pass | 100.0 ns | 110.0 ns | 1.100 | 1.050 to 1.200 | 24 | 0.0 s |", "</details>"} {
		if !strings.Contains(markdown.String(), want) {
			t.Errorf("no %q in\n%s", want, markdown.String())
		}
	}
	var suite struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Skipped  int `xml:"skipped,attr"`
		Cases    []struct {
			Name    string `xml:"name,attr"`
			Failure *struct {
				Message string `xml:"message,attr"`
			} `xml:"failure"`
			Skipped *struct{} `xml:"skipped"`
		} `xml:"testcase"`
	}
	if err := xml.Unmarshal(junit.Bytes(), &suite); err != nil {
		t.Fatal(err)
	}
	if suite.Tests != 4 || suite.Failures != 1 || suite.Skipped != 2 || len(suite.Cases) != 4 || suite.Cases[0].Failure != nil || suite.Cases[1].Failure.Message != "slower & <wrong>" || suite.Cases[2].Skipped == nil {
		t.Errorf("%+v", suite)
	}
	var back map[string]any
	if err := json.Unmarshal(text.Bytes(), &back); err != nil || back["verdict"] != "regression" || len(back["results"].([]any)) != 4 {
		t.Errorf("%v in\n%s", err, text.String())
	}
}

func TestGateOutputs(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "r.json")
	if err := os.WriteFile(file, []byte("something that was there, and longer than a report, or so"), 0o666); err != nil {
		t.Fatal(err)
	}
	var stdout bytes.Buffer
	o := outputs{stdout: &stdout}
	o.files[0].name, o.files[2].name = file, "-"
	if err := errors.Join(o.check(), o.write(sampleReport())); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(file); err != nil || !json.Valid(text) {
		t.Errorf("%v in\n%s", err, text)
	}
	if !strings.HasPrefix(stdout.String(), "**benchgate") || strings.Contains(stdout.String(), "---\n") {
		t.Errorf("standard output has\n%s", stdout.String())
	}
	// One file that cannot be written does not keep the other from being written.
	gone := filepath.Join(dir, "gone")
	if err := os.Mkdir(gone, 0o777); err != nil {
		t.Fatal(err)
	}
	o = outputs{stdout: &stdout}
	o.files[0].name, o.files[1].name = filepath.Join(gone, "r.json"), file
	if err := o.check(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(gone); err != nil {
		t.Fatal(err)
	}
	if err := o.write(sampleReport()); err == nil || !strings.Contains(err.Error(), "-json: ") {
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
		if err := os.WriteFile(name, []byte(old), 0o666); err != nil {
			t.Fatal(err)
		}
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
	o.files[0].name = "link.json"
	if err := errors.Join(o.check(), o.write(sampleReport())); err != nil {
		t.Error(err)
	}
	info, err := os.Lstat("link.json")
	if text, _ := os.ReadFile("f.json"); err != nil || info.Mode().IsRegular() || !json.Valid(text) || string(text) == old {
		t.Errorf("%v, %v, %s", info, err, text)
	}
}

// TestAnnotations: a regression has a line for GitHub, with the place of the benchmark.
func TestAnnotations(t *testing.T) {
	t.Setenv("GITHUB_ACTIONS", "true")
	r := sampleReport()
	r.Results[1].file, r.Results[1].line = "a,b/x_test.go", 12
	var out bytes.Buffer
	must(t, (&outputs{stdout: &out}).write(r))
	if want := "\n::error file=a%2Cb/x_test.go,line=12,title=benchmark regression::two: slower & <wrong>\n"; !strings.HasSuffix(out.String(), want) || strings.Count(out.String(), "::error") != 1 {
		t.Error(out.String())
	}
}

// TestBenchfmt: both sides, as benchstat reads them.
func TestBenchfmt(t *testing.T) {
	r := report{Machine: Machine{CPU: "C", OS: "linux", Arch: "amd64"}, Results: []Result{{Package: "m/a", Benchmark: "BenchmarkX/y", Calls: 100, Pairs: []bench.Pair{{Base: 10, New: 11}, {Base: 10.5, New: 11.5}},
		Metrics: []Metric{{Unit: "B/op", pairs: []bench.Pair{{Base: 1, New: 2}, {Base: 1, New: 2}}}}}}}
	var b bytes.Buffer
	must(t, r.writeBenchfmt(&b))
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
