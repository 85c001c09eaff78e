package gate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/internal/test/must"
)

// ratioOf is an estimate with an interval of two percent.
func ratioOf(median float64) *bench.Estimate {
	return &bench.Estimate{Median: median, Lo: median - 0.01, Hi: median + 0.01, N: 24}
}

// benchmarkReport is a report of benchmarks with one of each kind, in the order in which
// they were found.
func benchmarkReport() report {
	in := func(dir, name string, verdict bench.Verdict, ratio, base float64) Result {
		return Result{Package: strings.TrimSuffix("example.com/m/"+dir, "/."), relative: dir, Benchmark: name,
			Verdict: verdict, Ratio: ratioOf(ratio), BaseNs: base, NewNs: base * ratio}
	}
	quick, slow, slower := in(".", "BenchmarkQuick", bench.Pass, 0.5, 1e6),
		in("codec", "BenchmarkEncode/1K", bench.Regression, 1.2, 1234),
		in(".", "BenchmarkB", bench.Regression, 1.3, 2.5)
	quick.Metrics = []Metric{{"B/op", bench.Pass, 64, 0, nil, nil, "", nil},
		{"allocs/op", bench.Pass, 1, 1, nil, nil, "", nil}}
	slow.Time, quick.Time = bench.Regression, bench.Pass
	slow.Message = "takes 1.200 times as long as the base (1.190 to 1.210), 24 pairs"
	slow.Metrics = []Metric{{"B/op", bench.Regression, 1024, 1536, nil, nil, "", nil},
		{"allocs/op", bench.Pass, 1, 1, nil, nil, "", nil}, {"MB/s", bench.Regression, 120, 100, ratioOf(1.2), nil, "", nil}, {"misses", bench.Pass, 0.0123, 0.0123, ratioOf(1), nil, "", nil}}
	slower.Message, slower.Accepted = "takes 1.300 times as long as the base (1.290 to 1.310), 24 pairs",
		"it is safe now (abc1234)"
	layout := in(".", "BenchmarkMoved", bench.Pass, 1.06, 10)
	layout.Message, layout.Reordered = "only by where the linker puts functions: so it is", ratioOf(1)
	layout.more = layout.Message
	open := in(".", "BenchmarkOpen", bench.Open, 1.04, 10)
	open.Ratio = &bench.Estimate{Median: 1.04, Lo: math.Inf(-1), Hi: math.Inf(1), N: 3}
	unsure := in(".", "BenchmarkUnsure", bench.Inconclusive, 1.05, 10)
	unsure.Message = "who knows"
	broken := Result{Package: "example.com/m", relative: ".", Benchmark: "BenchmarkBroken", Verdict: bench.Regression,
		Message: "the new build: panic: <no> & no", failed: true}
	r := report{command: "benchgate", Against: "main", Seconds: 43.4, Limits: limits{1.05, 1.02, 0.01},
		Null: &bench.Estimate{Median: 1, Lo: 0.99, Hi: 1.01, N: 9}, Notes: []string{"a | note"},
		Results: []Result{in(".", "BenchmarkSame", bench.Pass, 1, 2e9), quick, layout, slower, open, slow,
			unsure, broken}}
	r.Machine.CPU, r.Machine.Go, r.Machine.OS, r.Machine.Arch = "CPU", "go1.26", "linux", "amd64"
	r.sort()
	r.Verdict = r.verdict()
	return r
}

// written is the report in one of its formats.
func written(r report, write func(report, io.Writer) error) string {
	var b bytes.Buffer
	must.Do(write(r.printable(), &b))
	return b.String()
}

func wantText(t *testing.T, what, got, want string) {
	t.Helper()
	if strings.TrimSpace(got) != strings.TrimSpace(want) {
		t.Errorf("%s is\n%s\nwant\n%s", what, got, want)
	}
}

func TestBenchmarkTable(t *testing.T) {
	wantText(t, "the table", written(benchmarkReport(), report.writeTable), `
benchmark                        verdict            old       new  ratio        interval  pairs   took
--------------------------------------------------------------------------------------------------------
BenchmarkBroken                  regression           -         -      -               -      0      -
codec BenchmarkEncode/1K         regression    1.234 µs  1.481 µs  1.200  1.190 to 1.210     24  0.0 s
codec BenchmarkEncode/1K B/op    regression        1024      1536  1.500               -     24
codec BenchmarkEncode/1K MB/s    regression         120       100  0.833  0.826 to 0.840     24
codec BenchmarkEncode/1K misses  pass           0.01230   0.01230  1.000  0.990 to 1.010     24
BenchmarkUnsure                  inconclusive  10.00 ns  10.50 ns  1.050  1.040 to 1.060     24  0.0 s
BenchmarkOpen                    open          10.00 ns  10.40 ns  1.040               -      3  0.0 s
BenchmarkB                       accepted      2.500 ns  3.250 ns  1.300  1.290 to 1.310     24  0.0 s
BenchmarkQuick                   faster        1.000 ms  500.0 µs  0.500  0.490 to 0.510     24  0.0 s
BenchmarkQuick B/op              pass                64         0  0.000               -     24
BenchmarkMoved                   pass          10.00 ns  10.60 ns  1.060  1.050 to 1.070     24  0.0 s
BenchmarkSame                    pass           2.000 s   2.000 s  1.000  0.990 to 1.010     24  0.0 s

BenchmarkBroken: the new build: panic: <no> & no
BenchmarkB: accepted: it is safe now (abc1234)
BenchmarkMoved: only by where the linker puts functions: so it is
To accept a regression, end a commit's message with: Bench-Accept: ./codec BenchmarkEncode/1K REASON
a | note
Noise now: of the same thing measured twice, the second takes 1.0000 times as long (0.9900 to 1.0100); 0 of 9 are outliers
REGRESSION against main: 2 regressions, 1 inconclusive, 1 open, 1 accepted, 1 faster, 2 pass, the limit is a ratio of 1.05, in 43 s`)
	r := benchmarkReport()
	for i := range mostPasses {
		r.Results = append(r.Results, Result{Benchmark: fmt.Sprint("BenchmarkMore", i), relative: ".",
			Verdict: bench.Pass, Ratio: ratioOf(0.98 + 0.0005*float64(i)), BaseNs: 1, NewNs: 1})
	}
	text := written(r, report.writeTable)
	if !strings.Contains(text, "\n31 more pass, ratios 0.98 to 1.00\n") || strings.Contains(text, "BenchmarkMore") ||
		strings.Contains(text, "BenchmarkSame") || !strings.Contains(text, "BenchmarkQuick ") ||
		!strings.Contains(text, "BenchmarkMoved ") {
		t.Error(text)
	}
	r.Results = r.Results[len(r.Results)-mostPasses:]
	if text := written(r, report.writeTable); !strings.Contains(text, "BenchmarkMore7 ") ||
		strings.Contains(text, "more pass") {
		t.Error(text)
	}
	r.Results = append(r.Results, r.Results[0])
	if text := written(r, report.writeTable); !strings.HasPrefix(text, "31 more pass, ratios 0.98 to 0.99\n\n") {
		t.Error(text)
	}
}

// TestRowOfTime: the row of the time has the verdict of the time, whatever that of another unit is.
func TestRowOfTime(t *testing.T) {
	for _, c := range []struct {
		verdict, time, bytes bench.Verdict
		accepted, want       string
	}{
		{bench.Regression, bench.Pass, bench.Regression, "", "pass"},
		{bench.Regression, bench.Open, bench.Regression, "", "open"}, // decided before the time was
		{bench.Regression, bench.Inconclusive, bench.Regression, "", "inconclusive"},
		{bench.Regression, bench.Regression, bench.Regression, "", "regression"},
		{bench.Regression, bench.Regression, bench.Pass, "", "regression"},
		{bench.Regression, bench.Pass, bench.Regression, "it is safe now", "pass"},
		{bench.Regression, bench.Regression, bench.Pass, "it is safe now", "accepted"},
		{bench.Inconclusive, bench.Pass, bench.Inconclusive, "", "pass"},
		{bench.Pass, bench.Pass, bench.Pass, "", "pass"},
	} {
		q := Result{Benchmark: "BenchmarkX", relative: ".", Verdict: c.verdict, Time: c.time, Accepted: c.accepted,
			Ratio: ratioOf(1.01), Metrics: []Metric{{Unit: "B/op", Verdict: c.bytes, Base: 1, New: 2}}}
		r := report{Limits: limits{1.05, 1.02, 0.01}, Results: []Result{q}}
		if got := r.rows(r.Results)[0][1]; got != c.want {
			t.Errorf("%+v: the row of the time says %s", c, got)
		}
	}
}

// TestOnce: on GitHub, what has a line beside the code is not told once more, nor is what a row of the table says.
func TestOnce(t *testing.T) {
	r := benchmarkReport()
	for _, at := range []string{"", "true"} {
		t.Setenv("GITHUB_ACTIONS", at)
		text := written(r, func(r report, w io.Writer) error {
			o := outputs{stdout: w}
			return o.write(r)
		})
		if n := strings.Count(text, "panic: <no> & no"); n != 1 {
			t.Errorf("GITHUB_ACTIONS=%s: the panic is told %d times:\n%s", at, n, text)
		}
		if n := strings.Count(text, "1.200 times"); n != len(at)/4 {
			t.Errorf("GITHUB_ACTIONS=%s: the ratio is told %d times beside the table:\n%s", at, n, text)
		}
	}
}

func TestBenchmarkMarkdown(t *testing.T) {
	wantText(t, "Markdown", written(benchmarkReport(), report.writeMarkdown), `
**benchgate: REGRESSION against main: 2 regressions, 1 inconclusive, 1 open, 1 accepted, 1 faster, 2 pass, the limit is a ratio of 1.05, in 43 s**

| benchmark | verdict | old | new | ratio | interval | pairs | took |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |
| BenchmarkBroken | regression | - | - | - | - | 0 | - |
| codec BenchmarkEncode/1K | regression | 1.234 µs | 1.481 µs | 1.200 | 1.190 to 1.210 | 24 | 0.0 s |
| codec BenchmarkEncode/1K B/op | regression | 1024 | 1536 | 1.500 | - | 24 |  |
| codec BenchmarkEncode/1K MB/s | regression | 120 | 100 | 0.833 | 0.826 to 0.840 | 24 |  |
| codec BenchmarkEncode/1K misses | pass | 0.01230 | 0.01230 | 1.000 | 0.990 to 1.010 | 24 |  |
| BenchmarkUnsure | inconclusive | 10.00 ns | 10.50 ns | 1.050 | 1.040 to 1.060 | 24 | 0.0 s |
| BenchmarkOpen | open | 10.00 ns | 10.40 ns | 1.040 | - | 3 | 0.0 s |
| BenchmarkB | accepted | 2.500 ns | 3.250 ns | 1.300 | 1.290 to 1.310 | 24 | 0.0 s |
| BenchmarkQuick | faster | 1.000 ms | 500.0 µs | 0.500 | 0.490 to 0.510 | 24 | 0.0 s |
| BenchmarkQuick B/op | pass | 64 | 0 | 0.000 | - | 24 |  |
| BenchmarkMoved | pass | 10.00 ns | 10.60 ns | 1.060 | 1.050 to 1.070 | 24 | 0.0 s |

- BenchmarkBroken: the new build: panic: &lt;no> & no
- BenchmarkB: accepted: it is safe now (abc1234)
- BenchmarkMoved: only by where the linker puts functions: so it is
- To accept a regression, end a commit's message with: Bench-Accept: ./codec BenchmarkEncode/1K REASON

<details><summary>1 pass</summary>

| benchmark | verdict | old | new | ratio | interval | pairs | took |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |
| BenchmarkSame | pass | 2.000 s | 2.000 s | 1.000 | 0.990 to 1.010 | 24 | 0.0 s |

</details>

- a \| note
- Noise now: of the same thing measured twice, the second takes 1.0000 times as long (0.9900 to 1.0100); 0 of 9 are outliers
- CPU, go1.26 linux/amd64`)
}

func TestBenchmarkJUnit(t *testing.T) {
	wantText(t, "JUnit", written(benchmarkReport(), report.writeJUnit), `
<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="benchgate against main" tests="8" failures="2" skipped="2">
  <testcase classname="example.com/m" name="BenchmarkBroken">
    <failure message="the new build: panic: &lt;no&gt; &amp; no"></failure>
  </testcase>
  <testcase classname="example.com/m/codec" name="BenchmarkEncode/1K">
    <failure message="takes 1.200 times as long as the base (1.190 to 1.210), 24 pairs"></failure>
  </testcase>
  <testcase classname="example.com/m" name="BenchmarkUnsure">
    <skipped message="who knows"></skipped>
  </testcase>
  <testcase classname="example.com/m" name="BenchmarkOpen">
    <skipped message="open"></skipped>
  </testcase>
  <testcase classname="example.com/m" name="BenchmarkB">
    <system-out>BenchmarkB: takes 1.300 times as long as the base (1.290 to 1.310), 24 pairs; accepted: it is safe now (abc1234)</system-out>
  </testcase>
  <testcase classname="example.com/m" name="BenchmarkQuick"></testcase>
  <testcase classname="example.com/m" name="BenchmarkMoved">
    <system-out>BenchmarkMoved: only by where the linker puts functions: so it is</system-out>
  </testcase>
  <testcase classname="example.com/m" name="BenchmarkSame"></testcase>
  <system-out>BenchmarkBroken: the new build: panic: &lt;no&gt; &amp; no&#xA;codec BenchmarkEncode/1K: takes 1.200 times as long as the base (1.190 to 1.210), 24 pairs&#xA;BenchmarkUnsure: who knows&#xA;BenchmarkB: takes 1.300 times as long as the base (1.290 to 1.310), 24 pairs; accepted: it is safe now (abc1234)&#xA;BenchmarkMoved: only by where the linker puts functions: so it is&#xA;a | note&#xA;Noise now: of the same thing measured twice, the second takes 1.0000 times as long (0.9900 to 1.0100); 0 of 9 are outliers&#xA;REGRESSION against main: 2 regressions, 1 inconclusive, 1 open, 1 accepted, 1 faster, 2 pass, the limit is a ratio of 1.05, in 43 s</system-out>
</testsuite>`)
}

func TestBenchmarkJSON(t *testing.T) {
	var r compared
	must.Do(json.Unmarshal([]byte(written(benchmarkReport(), report.writeJSON)), &r))
	if r.Verdict != "regression" || r.Seconds != 43.4 ||
		fmt.Sprint(r.Limits) != "map[alpha:0.01 slower:1.05 surely:1.02]" || len(r.Results) != 8 {
		t.Errorf("%+v", r)
	}
	slow, accepted, moved := r.Results[1], r.Results[4], r.Results[6]
	if slow.Package != "example.com/m/codec" || slow.Benchmark != "BenchmarkEncode/1K" ||
		slow.Verdict != "regression" || slow.Ratio.Median != 1.2 || slow.Base_ns != 1234 || len(slow.Metrics) != 4 ||
		slow.Metrics[0].New != 1536 || slow.Metrics[0].Verdict != "regression" {
		t.Errorf("%+v", slow)
	}
	if accepted.Accepted != "it is safe now (abc1234)" || moved.Reordered == nil ||
		!strings.HasPrefix(moved.Message, "only by where") {
		t.Errorf("%+v, %+v", accepted, moved)
	}
}

// TestBenchmarkNumbers: four digits, whatever the size.
func TestBenchmarkNumbers(t *testing.T) {
	for ns, want := range map[float64]string{0.25: "0.2500 ns", 2.5: "2.500 ns", 43.21: "43.21 ns", 999.9: "999.9 ns",
		1000: "1.000 µs", 12345: "12.35 µs", 1.5e6: "1.500 ms", 2e9: "2.000 s", 2e12: "2000.0 s", 1e300: "1e+291 s"} {
		if got := duration(ns); got != want {
			t.Errorf("duration(%v) = %s, want %s", ns, got, want)
		}
	}
	for x, want := range map[float64]string{0: "0", 64: "64", 1048576: "1048576", 0.5: "0.5000", 1032.5: "1032.5",
		1e-7: "1e-07", 1e18: "1e+18", -3: "-3"} {
		if got := quantity(x); got != want {
			t.Errorf("quantity(%v) = %s, want %s", x, got, want)
		}
	}
}

// TestAccepted: a regression by figures counts as a pass, one that crashes does not.
func TestAccepted(t *testing.T) {
	g := gate{report: benchmarkReport(), accepted: []acceptance{
		{"codec", "BenchmarkEncode", math.Inf(1), "more checks", "aaa"}, {"", "BenchmarkEncode/1K", math.Inf(1), "again", "bbb"},
		{"", "BenchmarkBroken", math.Inf(1), "so what", "ccc"}, {"", "BenchmarkSame", math.Inf(1), "needless", "ddd"}, {"", "BenchmarkEnc", math.Inf(1), "a part of a name", "eee"},
		{"other", "BenchmarkB", math.Inf(1), "another package", "fff"},
	}}
	// It dies after some pairs.
	dies := Result{relative: ".", Package: "example.com/m", Benchmark: "BenchmarkBroken/dies",
		Verdict: bench.Regression, Ratio: ratioOf(1.5), failed: true}
	g.report.Results = slices.Insert(g.report.Results, 1, dies)
	g.accept()
	for _, q := range g.report.Results {
		want := map[string]string{"BenchmarkEncode/1K": "more checks (aaa)",
			"BenchmarkB": "it is safe now (abc1234)"}[q.Benchmark]
		if q.Accepted != want {
			t.Errorf("%s: accepted %q, want %q", q.Benchmark, q.Accepted, want)
		}
	}
	if notes := strings.Join(g.report.Notes[1:], "\n"); notes != "Bench-Accept in commit eee names BenchmarkEnc, which was not compared\nBench-Accept in commit fff names BenchmarkB, which was not compared" {
		t.Error(notes)
	}
	r := g.report
	if !strings.Contains(r.summary(), ": 2 regressions, 1 inconclusive, 1 open, 2 accepted, 1 faster, 2 pass") ||
		r.verdict() != bench.Regression || strings.Contains(fmt.Sprint(r.err()), "Encode") {
		t.Errorf("%s, %v", r.summary(), r.err())
	}
	r.Results = slices.DeleteFunc(r.Results, func(q Result) bool { return q.Accepted == "" })
	if r.Verdict = r.verdict(); r.Verdict != bench.Pass || r.err() != nil {
		t.Errorf("of accepted ones: %v, %v", r.Verdict, r.err())
	}
}

// TestAcceptedOnce: the name alone is not enough where two packages have it, and a bound is
// one.
func TestAcceptedOnce(t *testing.T) {
	in := func(dir string, ratio float64) Result {
		return Result{Package: "example.com/m/" + dir, relative: dir, Benchmark: "BenchmarkSum",
			Verdict: bench.Regression, Time: bench.Regression, Ratio: ratioOf(ratio), Message: "slower"}
	}
	for _, c := range []struct{ line, want string }{
		{"BenchmarkSum it copies", "a regression, b regression"},
		{"./a BenchmarkSum it copies", "a accepted, b regression"},
		{"example.com/m/b BenchmarkSum it copies", "a regression, b accepted"},
		{"./a BenchmarkSum up to 1.3 it copies", "a accepted, b regression"},
		{"./b BenchmarkSum up to 1.3 it copies", "a regression, b regression"},
	} {
		a := must.Get(parseAcceptance(strings.Fields(c.line)))
		g := gate{accepted: []acceptance{a}, report: report{Results: []Result{in("a", 1.2), in("b", 10)}}}
		g.accept()
		if got := "a " + g.report.word(g.report.Results[0]) + ", b " +
			g.report.word(g.report.Results[1]); got != c.want {
			t.Errorf("%s: %s, want %s; %q", c.line, got, c.want, g.report.Notes)
		}
	}
	for _, line := range []string{"BenchmarkSum", "./a BenchmarkSum", "BenchmarkSum up to 1.3",
		"BenchmarkSum up to many reasons", "BenchmarkSum up to 0.5 x"} {
		if _, err := parseAcceptance(strings.Fields(line)); err == nil {
			t.Errorf("%s: no error", line)
		}
	}
}

// TestGiveUp: what is open when the time is up says so, and what time would do.
func TestGiveUp(t *testing.T) {
	of := func(name string, ratio, spread float64, pairs int, spent time.Duration) *function {
		f := newSteady(name)
		f.cost, f.spent = time.Second, spent
		u := f.units[0]
		for i := range pairs {
			u.pairs = append(u.pairs, bench.Pair{Base: 1000, New: 1000 * (ratio + spread*float64(1-i%2*2))})
		}
		if pairs > 0 {
			f.decide(bench.NewRule(10, 0.01))
		}
		return f
	}
	for _, c := range []struct {
		functions []*function
		want      string
	}{
		// The first look is at 12 pairs. A pair takes a second, and 4 s in the second one's.
		{[]*function{of("BenchmarkA", 1.2, 0, 2, 2*time.Second), of("BenchmarkB", 1, 0, 2, 8*time.Second)}, "With -budget 90s, BenchmarkA (and 1 more) would probably be decided\nThe present budget would probably do without BenchmarkB"},
		{[]*function{of("BenchmarkA", 1.2, 0, 120, 2*time.Minute), of("BenchmarkNear", 1.05, 0.04, 120, time.Minute)}, "With -budget 30s, BenchmarkA would probably be decided\nMore time would hardly decide BenchmarkNear: too near to the limit, or too noisy"},
		{[]*function{of("BenchmarkNear", 1.05, 0.04, 120, time.Minute)}, "More time would hardly decide BenchmarkNear: too near to the limit, or too noisy"},
		{[]*function{of("BenchmarkEarly", 1.05, 0.02, 11, 11*time.Second)}, "With -budget 20s, BenchmarkEarly would probably be decided"},
		{[]*function{of("BenchmarkNone", 1, 0, 0, 0)}, "With -budget 40s, BenchmarkNone would probably be decided"},
	} {
		k := comparison{gate: &gate{}, functions: c.functions, rule: bench.NewRule(10, 0.01),
			started: time.Now().Add(-10 * time.Second), deadline: time.Now().Add(12 * time.Second)}
		k.giveUp(k.open())
		if got := strings.Join(k.report.Notes, "\n"); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
		want := "not measured before the time was up"
		if e := c.functions[0].units[0].Ratio; e != nil {
			bounds := strings.ReplaceAll(" ("+interval(*e)+")", " (-)", "")
			want = fmt.Sprintf("takes %.3f times as long as the base%s, open after %d pairs, when the time was up", e.Median, bounds, e.N)
		}
		if f := c.functions[0]; f.Verdict != bench.Inconclusive || f.Message != want {
			t.Errorf("%v, %q, want %q", f.Verdict, f.Message, want)
		}
	}
}

// TestOutcome: what a benchmark logs is no result, whatever it looks like.
func TestOutcome(t *testing.T) {
	o := parseOutput(`BenchmarkLogs    	     100	      12.5 ns/op	       0 B/op
--- BENCH: BenchmarkLogs
    x_test.go:1: --- FAIL: BenchmarkOther
    x_test.go:2: two lines
        BenchmarkLogs 100 5 ns/op
        --- SKIP: BenchmarkOther
	... [output truncated]
BenchmarkFails   	--- FAIL: BenchmarkFails
    x_test.go:3: why`+strings.Repeat("ä", 1000)+`
    x_test.go:4: --- FAIL: BenchmarkOther
BenchmarkAfter   	       1	       7 ns/op	       NaN B/op	      -Inf allocs/op
`, 1)
	if len(o.results) != 2 || o.results[0].name != "BenchmarkLogs" || o.results[0].metrics[nanoseconds] != 12.5 ||
		o.results[1].name != "BenchmarkAfter" || len(o.results[1].metrics) != 1 {
		t.Errorf("results %+v", o.results)
	}
	if len(o.failed) != 1 || !strings.HasPrefix(o.failed["BenchmarkFails"], "x_test.go:3: whyä") ||
		len(o.failed["BenchmarkFails"]) > 600 || len(o.skipped) > 0 {
		t.Errorf("failed %q, skipped %q", o.failed, o.skipped)
	}
}
