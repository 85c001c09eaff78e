package gate

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/cmd/benchgate/internal/gotest"
	"github.com/seed621a2839/reweight/cmd/benchgate/internal/gotest/worker"
	"github.com/seed621a2839/reweight/internal/cli"
	"github.com/seed621a2839/reweight/internal/test/must"
)

// failing is a package whose benchmarks fail in several ways. isNew is whether it is the new
// version.
const failing = `package failing

import (
	"os"
	"path/filepath"
	"testing"
)

// first reports whether it is called for the first time, by any process.
func first(name string) bool {
	f, err := os.OpenFile(filepath.Join(os.Getenv("GATE_TEST_DIR"), name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err == nil {
		f.Close()
	}
	return err == nil
}

func work(b *testing.B) {
	for i := 0; i < b.N; i++ {
	}
	b.ReportMetric(1000, "ns/op")
}

func die() {
	p, _ := os.FindProcess(os.Getpid())
	p.Kill()
	select {}
}

func BenchmarkSame(b *testing.B) { work(b) }

// unlucky is every other process of the new version.
var unlucky = isNew && processes()%2 == 0

func processes() int64 {
	f, err := os.OpenFile(filepath.Join(os.Getenv("GATE_TEST_DIR"), "processes"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	f.WriteString("x")
	info, _ := f.Stat()
	return info.Size()
}

func BenchmarkSometimes(b *testing.B) {
	if unlucky {
		b.Fatal("a bad process")
	}
	work(b)
}

func BenchmarkAtFirst(b *testing.B) {
	if isNew && first("at first") {
		b.Fatal("a bad start")
	}
	work(b)
}

func BenchmarkOnce(b *testing.B) {
	if isNew && b.N > 1 && first("once") {
		b.Fatal("a bad day")
	}
	work(b)
}

func BenchmarkBaseKilledOnce(b *testing.B) {
	if !isNew && b.N > 1 && first("base killed") {
		die()
	}
	work(b)
}

func BenchmarkKilledOnce(b *testing.B) {
	if isNew && b.N > 1 && first("killed") {
		die()
	}
	work(b)
}

func BenchmarkKilled(b *testing.B) {
	if isNew {
		die()
	}
	work(b)
}

func BenchmarkDisk(b *testing.B) {
	if isNew {
		b.Fatal("write x: no space left on device")
	}
	work(b)
}

func BenchmarkBoth(b *testing.B) { b.Fatal("no database") }

func BenchmarkRepaired(b *testing.B) {
	if !isNew {
		b.Fatal("it never worked")
	}
	work(b)
}

func BenchmarkBreaks(b *testing.B) {
	if isNew && b.N > 1 {
		b.Fatal("it broke")
	}
	work(b)
}

func BenchmarkSkips(b *testing.B) {
	if isNew && b.N > 1 {
		b.Skip("not so many")
	}
	work(b)
}

// The parent compares what its children found.
func BenchmarkFamily(b *testing.B) {
	found := 0
	for _, name := range []string{"a", "b"} {
		b.Run(name, func(b *testing.B) { found++; work(b) })
	}
	if found < 2 {
		b.Fatal("no b")
	}
}
`

// TestBlame: a failure is a regression if the new version fails each time and the base never.
func TestBlame(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a process is killed without a signal here")
	}
	t.Setenv("GATE_TEST_DIR", t.TempDir())
	const db = "package db\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nfunc TestMain(m *testing.M) { os.Exit(0) }\n\nfunc BenchmarkDB(b *testing.B) {}\n"
	old, now := twoVersions(t, map[string]string{"x_test.go": failing,
		"db/db_test.go": db})
	opt := compareOptions(old, now, ".")
	opt.Metrics = nil
	c, err := runCompare(t, opt)
	line := regexp.MustCompile(`x_test\.go:\d+`)
	tries := regexp.MustCompile(`so far: the new build: (.*); the new build failed [3-6] of 9`)
	const want = `BenchmarkBreaks regression: x_test.go:N: it broke; the new build failed 9 of 9 tries, the base 0 of 9
BenchmarkSkips regression: it ends before it is done, by Skip or Goexit; the new build failed 9 of 9 tries, the base 0 of 9
BenchmarkDisk inconclusive: x_test.go:N: write x: no space left on device; the new build failed 9 of 9 tries, the base 0 of 9: the machine may be short of something
BenchmarkKilled inconclusive: signal: killed; the new build failed 9 of 9 tries, the base 0 of 9: the machine may be short of something
BenchmarkSometimes inconclusive: it fails now and then, 5 times so far: the new build: x_test.go:N: a bad process; the new build failed 3 of 9 tries, the base 0 of 9
BenchmarkAtFirst pass
BenchmarkBaseKilledOnce pass
BenchmarkKilledOnce pass
BenchmarkOnce pass
BenchmarkSame pass`
	if len(c.Results) < 10 {
		t.Fatal(err, c)
	}
	lines := strings.Split(c.lines(), "\n")
	slices.Sort(lines[5:])
	slices.Sort(lines[2:5])
	slices.Sort(lines[:2])
	text := tries.ReplaceAllString(strings.Join(lines, "\n"), "so far: the new build: $1; the new build failed 3 of 9")
	got := strings.ReplaceAll(line.ReplaceAllString(text, "x_test.go:N"), now, "NOW")
	if cli.ExitStatus("", err, io.Discard) != 1 || got != want {
		t.Errorf("%v\n%s\nwant\n%s", err, got, want)
	}
	notes := line.ReplaceAllString(strings.Join(c.Notes, "\n"), "x_test.go:N")
	for _, note := range []string{
		"BenchmarkBoth fails in both builds: not compared: x_test.go:N: no database",
		"BenchmarkRepaired fails in the base: not compared: ",
		"BenchmarkFamily/a fails in both builds: not compared: BenchmarkFamily fails: x_test.go:N: no b",
		"BenchmarkOnce failed 1 time in ",
		"BenchmarkKilledOnce failed 1 time in ",
		"db all benchmarks fails in both builds: not compared: it ends without an answer",
	} {
		if !strings.Contains(notes, note) {
			t.Errorf("no note %q in\n%s", note, notes)
		}
	}
	// Packages that are left out are not started.
	for _, dir := range []string{old, now} {
		put(filepath.Join(dir, "left", "x_test.go"), strings.ReplaceAll(db, "DB", "Left"))
	}
	opt = compareOptions(old, now, "Same|DB|Left")
	opt.Skip, opt.SkipPackages = "DB", []string{"./left/..."}
	if c, err := runCompare(t, opt); err != nil || len(c.Notes) > 0 {
		t.Errorf("%v, %q", err, c.Notes)
	}
}

// TestSettle: whose fault it is by how often either version fails when it is tried again.
func TestSettle(t *testing.T) {
	for _, c := range []struct {
		version   int
		why       failure
		base, now string // what becomes of the tries, again and again: x fails
		want      blame
	}{
		{1, failure{}, "..", "xx", newBuild},
		{1, failure{}, "..", "x.", noBlame},
		{1, failure{}, "..", ".x", noBlame},
		{1, failure{}, "x.", "xx", bothFail},
		{1, failure{scarce: true}, "..", "xx", machine},
		{1, failure{hung: true}, ".", "x", newBuild}, // it is tried once more
		{0, failure{}, "xx", "..", onlyBase},
		{0, failure{}, "x.", "..", noBlame},
		{0, failure{}, "..", "x.", bothFail},
	} {
		version := func(tries string) fakeVersion {
			return func(int) (bencher, error) {
				try := tries[0]
				if tries = tries[1:] + tries[:1]; try == 'x' {
					return nil, newFailure("", "again")
				}
				return steady(100), nil
			}
		}
		k := quietGate(0.01).newComparison(version(c.base), version(c.now))
		w := workers{c: &k}
		c.why.version = c.version
		why, got, err := w.judge(t.Context(), &c.why, func(bencher) error { return nil })
		if why == nil || got != c.want || err != nil {
			t.Errorf("%+v: blame %v, %v", c, got, err)
		}
	}
}

// TestNoRoom: a full disk is nobody's fault, and ends the run.
func TestNoRoom(t *testing.T) {
	full := fakeVersion(func(int) (bencher, error) {
		return nil, &os.PathError{Op: "write", Path: "1.test", Err: os.ErrPermission}
	})
	g := quietGate(0.01)
	for _, versions := range [][2]fakeVersion{{steadyVersion(100), full}, {full, steadyVersion(100)}} {
		k := g.newComparison(versions[0], versions[1])
		k.functions = []*function{newSteady("BenchmarkX")}
		if err := k.compare(t.Context()); err == nil || cli.ExitStatus("", err, io.Discard) != 2 ||
			k.functions[0].Verdict != bench.Open {
			t.Errorf("%v, %+v", err, k.functions[0])
		}
	}
}

// TestStartsNoMore: a version whose processes start no more, as after a benchmark that has left
// something behind, fails by that.
func TestStartsNoMore(t *testing.T) {
	g := quietGate(0.01)
	c := g.newComparison(steadyVersion(100), fakeVersion(func(int) (bencher, error) {
		return nil, newFailure("", "no start")
	}))
	d := discovery{comparison: &c}
	w := workers{c: &c}
	found, err := d.runnables(t.Context(), gotest.Package{Rel: "."}, gotest.Benchmark{Name: "BenchmarkX"}, &w)
	if err != nil || len(found) > 0 || len(c.functions) != 1 || c.functions[0].Verdict != bench.Regression ||
		c.functions[0].Message != "no start; the new build failed 9 of 9 tries, the base 0 of 9" {
		t.Errorf("%v, %v, %+v", found, err, c.functions)
	}
}

// A limited is a steady worker that fails at so many calls.
type limited struct {
	steady
	most int
}

func (l limited) run(q worker.Request) (reply, error) {
	var calls int
	if _, err := fmt.Sscanf(q.Benchtime, "%dx", &calls); err != nil || calls >= l.most {
		return reply{}, cmp.Or(err, error(newFailure("", "too many calls")))
	}
	o, err := l.steady.run(q)
	o.took = time.Duration(float64(l.steady) * float64(calls))
	o.results = slices.Repeat(o.results, q.Count)
	return o, err
}

// TestBreaksAtMoreCalls: what breaks in the new version at more calls than a block has is a
// regression, as go test makes more of them. If the base breaks there too, it is compared.
func TestBreaksAtMoreCalls(t *testing.T) {
	for _, c := range []struct {
		base, now int
		want      bench.Verdict
		flake     string
	}{
		{1e9, 1e9, bench.Open, ""},
		{1e9, 50_000, bench.Regression, "too many calls; the new build failed 9 of 9 tries, the base 0 of 9"},
		{50_000, 50_000, bench.Open, "new build: too many calls"},
	} {
		version := func(most int) fakeVersion {
			return func(int) (bencher, error) { return limited{steady(100), most}, nil }
		}
		k := quietGate(0.01).newComparison(version(c.base), version(c.now))
		k.CPU = 1
		d, f, w := discovery{comparison: &k}, newSteady("BenchmarkX"), workers{c: &k}
		err := d.calibrate(t.Context(), f, &w)
		if err != nil || len(d.functions) != 1 || f.calls > 2000 || f.Verdict != c.want ||
			cmp.Or(f.Message, f.flake) != c.flake || len(d.report.Notes) > 0 {
			t.Errorf("%+v: %v, %+v, notes %q", c, err, f, d.report.Notes)
		}
	}
}

// TestNothingYet: a change that brings the first benchmarks passes.
func TestNothingYet(t *testing.T) {
	old, now := twoVersions(t, map[string]string{
		"x_test.go": "package x\n\nimport \"testing\"\n\nfunc BenchmarkX(b *testing.B) {}\n"})
	must.Do(os.Remove(filepath.Join(old, "x_test.go")))
	put(filepath.Join(old, "x.go"), "package x\n")
	c, err := runCompare(t, compareOptions(old, now, "."))
	if err != nil || c.Verdict != "pass" ||
		!slices.Contains(c.Notes, "Nothing to compare yet: the base has none of these benchmarks") {
		t.Errorf("%v, %+v", err, c)
	}
	if _, err := runCompare(t, compareOptions(now, old, ".")); cli.ExitStatus("", err, io.Discard) != 2 {
		t.Errorf("the other way round: %v", err)
	}
}

// crashing is a package that ends before it runs anything, or in a benchmark, in the way and on
// the version that the environment says.
const crashing = `package crashing

import (
	"flag"
	"fmt"
	"log"
	"os"
	"strings"
	"testing"
)

var words = []int{1, 2, 3}

func crashes(how string) bool {
	way, version, _ := strings.Cut(os.Getenv("GATE_TEST_CRASH"), ":")
	return way == how && (version == "both" || version == map[bool]string{false: "base", true: "new"}[isNew])
}

func init() {
	switch {
	case crashes("panic"):
		words = words[:len(words)+2]
	case crashes("Fatal"):
		log.Fatal("no database")
	case crashes("exit 0"):
		os.Exit(0)
	case crashes("deadlock"):
		select {}
	case crashes("flag"):
		flag.CommandLine.Parse([]string{"-nosuch"})
	}
}

func TestMain(m *testing.M) {
	if crashes("TestMain") {
		fmt.Println("no server")
		os.Exit(1)
	}
	if crashes("no m.Run") {
		return
	}
	os.Exit(m.Run())
}

func BenchmarkX(b *testing.B) {
	if crashes("benchmark") {
		panic(fmt.Sprint("of ", b.Name()))
	}
	b.ReportMetric(1000, "ns/op")
}
`

// TestCrash: what ends before it runs a benchmark fails as a benchmark does: it is a regression
// of the new version, an error if both versions do it, and passes a change that mends it.
func TestCrash(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("paths in the messages have backslashes here")
	}
	t.Setenv("GATE_TEST_CRASH", "")
	old, now := twoVersions(t, map[string]string{"x_test.go": crashing})
	var binaries [2]string
	for i, dir := range [...]string{old, now} {
		binaries[i] = filepath.Join(t.TempDir(), "x.test")
		inDir(t, dir, "go", "test", "-c", "-vet=off", "-o", binaries[i], ".")
	}
	const all = "all benchmarks"
	for _, c := range []struct{ way, name, says string }{
		{"panic", all, "panic: runtime error: slice bounds out of range [:5] with capacity 3 (PLACEx_test.go:22)"},
		{"Fatal", all, "exit status 1: DATE no database"},
		{"exit 0", all, "it ends without an answer"},
		{"deadlock", all, "fatal error: all goroutines are asleep - deadlock! (PLACEx_test.go:28)"},
		{"flag", all, "flag provided but not defined: -nosuch"},
		{"TestMain", all, "exit status 1: no server"},
		{"no m.Run", all, "it ends without an answer"},
		{"benchmark", "BenchmarkX", "panic: of BenchmarkX (PLACEx_test.go:47)"},
	} {
		for _, version := range [...]string{"new", "base", "both"} {
			for _, pair := range [...][2]string{{old, now}, binaries} {
				// Each of the others builds both versions.
				if pair[0] == old && c.way != "panic" &&
					(version != "new" || c.way != "exit 0" && c.way != "TestMain") {
					continue
				}
				what := c.way + " on " + version + ", " + filepath.Base(pair[0])
				t.Setenv("GATE_TEST_CRASH", c.way+":"+version)
				opt := compareOptions(pair[0], pair[1], ".")
				opt.Metrics = nil
				got, err := runCompare(t, opt)
				says := func(of int) string { // of a version
					place := ""
					if pair == binaries {
						place = [...]string{old, now}[of] + "/"
					}
					return strings.ReplaceAll(c.says, "PLACE", place)
				}
				clean := func(s string) string {
					s = regexp.MustCompile(`\d{4}/\d\d/\d\d \d\d:\d\d:\d\d`).ReplaceAllString(s, "DATE")
					return regexp.MustCompile(`failed (\d) of \d tries, the base 0 of \d`).ReplaceAllString(
						s, "failed")
				}
				notes := clean(strings.Join(got.Notes, "\n"))
				status := cli.ExitStatus("", err, io.Discard)
				switch version {
				case "new":
					if want := c.name + " regression: " + says(1) +
						"; the new build failed"; status != 1 ||
						clean(got.lines()) != want {
						t.Errorf("%s: %v, %s\nwant\n%s\nnotes %s", what, err, got.lines(), want, notes)
					}
				case "base":
					want := c.name + " fails in the base: not compared: " + says(0) + "\nNothing to compare yet: what both builds have fails in the base, and not in the new build"
					if status != 0 || got.Verdict != "pass" || len(got.Results) > 0 || notes != want {
						t.Errorf("%s: %v, %+v\nnotes\n%s\nwant\n%s", what, err, got, notes, want)
					}
				case "both":
					if want := "nothing can be compared, as the base and the new build both fail: " + c.name + ": " +
						says(0); status != 2 || clean(err.Error()) != want {
						t.Errorf("%s: %v\nwant\n%s\n%s", what, err, want, notes)
					}
				}
			}
		}
	}
}

// TestCrashBeside: a package that crashes beside one that works counts in every report, with
// its place.
func TestCrashBeside(t *testing.T) {
	old, now := twoVersions(t, map[string]string{
		"a/x_test.go": "package a\n\nimport \"testing\"\n\nfunc BenchmarkA(b *testing.B) { b.ReportMetric(1000, \"ns/op\") }\n",
		"b/x_test.go": "package b\n\nimport \"testing\"\n\nvar list = build(nil)\n\nfunc BenchmarkB(b *testing.B) {}\n\nfunc BenchmarkC(b *testing.B) {}\n",
		"b/x.go":      "package b\n\nimport \"strconv\"\n\nfunc build(list []int) []int {\n\tif isNew {\n\t\tpanic(strconv.Quote(\"no \\n list\"))\n\t}\n\treturn list\n}\n",
	})
	dir := t.TempDir()
	do, commit := newRepository(t, dir)
	t.Setenv("TMPDIR", t.TempDir())
	must.Do(os.CopyFS(filepath.Join(dir, "m"), os.DirFS(old)))
	commit("README", "text")
	must.Do(os.CopyFS(filepath.Join(dir, "new"), os.DirFS(now)))
	must.Do(os.Rename(filepath.Join(dir, "new", "b", "x.go"), filepath.Join(dir, "m", "b", "x.go")))
	do("rm", "-r", "--quiet", "--cached", "--ignore-unmatch", "new")
	t.Setenv("GITHUB_ACTIONS", "true")
	opt := compareOptions("", "", ".")
	opt.Base, opt.Dir, opt.Metrics = "HEAD", filepath.Join(dir, "m"), nil
	opt.Files[1], opt.Files[2] = filepath.Join(dir, "gate.xml"), filepath.Join(dir, "gate.md")
	var out bytes.Buffer
	err := Run(t.Context(), opt, &out)
	const says = `b all benchmarks: panic: "no \n list" (b/x.go:7); the new build failed 9 of 9 tries, the base 0 of 9`
	if cli.ExitStatus("", err, io.Discard) != 1 || err.Error() != "a check failed: b all benchmarks" ||
		strings.Count(out.String(), says) != 1 {
		t.Errorf("%v\n%s", err, &out)
	}
	for what, c := range map[string]struct{ text, want string }{
		"the table":   {out.String(), "\nb all benchmarks  regression "},
		"annotations": {out.String(), "\n::error file=m/b/x.go,line=7,title=benchmark regression::" + says},
		"JUnit":       {string(must.Get(os.ReadFile(opt.Files[1]))), `tests="2" failures="1" skipped="0"`},
		"Markdown":    {string(must.Get(os.ReadFile(opt.Files[2]))), "\n- " + cli.MarkdownText(says) + "\n"},
	} {
		if !strings.Contains(c.text, c.want) {
			t.Errorf("%s has no %q:\n%s", what, c.want, c.text)
		}
	}
}
