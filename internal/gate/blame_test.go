package gate

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/internal/cli"
	"github.com/seed621a2839/reweight/internal/gotest"
	"github.com/seed621a2839/reweight/internal/must"
)

// failing is a package whose benchmarks fail in several ways. isNew is whether it is the new
// side.
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

// TestBlame: a failure is a regression if the new side fails each time and the base never.
func TestBlame(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a process is killed without a signal here")
	}
	t.Setenv("GATE_TEST_DIR", t.TempDir())
	const db = "package db\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nfunc TestMain(m *testing.M) { os.Exit(0) }\n\nfunc BenchmarkDB(b *testing.B) {}\n"
	old, now := twoSides(t, map[string]string{"x_test.go": failing,
		"db/db_test.go": db})
	opt := compareOptions(old, now, ".")
	opt.Metrics = nil
	c, err := runCompare(t, opt)
	line := regexp.MustCompile(`x_test\.go:\d+`)
	const want = `BenchmarkBreaks regression: the new build: BenchmarkBreaks fails: x_test.go:N: it broke
BenchmarkSkips regression: the new build: BenchmarkSkips fails: it ends before it is done, by Skip or Goexit
BenchmarkDisk inconclusive: the new build: BenchmarkDisk fails: x_test.go:N: write x: no space left on device, each time, and the base does not: the machine may be short of something
BenchmarkKilled inconclusive: the new build: the tests of NOW: signal: killed, each time, and the base does not: the machine may be short of something
BenchmarkAtFirst pass
BenchmarkBaseKilledOnce pass
BenchmarkKilledOnce pass
BenchmarkOnce pass
BenchmarkSame pass`
	if len(c.Results) < 9 {
		t.Fatal(err, c)
	}
	lines := strings.Split(c.lines(), "\n")
	slices.Sort(lines[4:])
	slices.Sort(lines[2:4])
	slices.Sort(lines[:2])
	if got := strings.ReplaceAll(line.ReplaceAllString(strings.Join(lines, "\n"), "x_test.go:N"), now, "NOW"); cli.ExitStatus("", err, io.Discard) != 1 || got != want {
		t.Errorf("%v\n%s\nwant\n%s", err, got, want)
	}
	notes := line.ReplaceAllString(strings.Join(c.Notes, "\n"), "x_test.go:N")
	for _, note := range []string{
		"BenchmarkBoth fails in the base: not compared: BenchmarkBoth fails: x_test.go:N: no database",
		"BenchmarkRepaired fails in the base: not compared: ",
		"BenchmarkFamily/a fails in the base: not compared: BenchmarkFamily fails: x_test.go:N: no b",
		"BenchmarkOnce failed 1 times in ",
		"BenchmarkKilledOnce failed 1 times in ",
		"db all benchmarks fails in the base: not compared: the tests of " + old + ": it ends without an answer",
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

// TestSettle: whose fault it is by how often either side fails when it is tried again.
func TestSettle(t *testing.T) {
	for _, c := range []struct {
		side      int
		why       failure
		base, now string // what becomes of the tries: x fails
		want      blame
	}{
		{1, failure{}, "..", "xx", newBuild},
		{1, failure{}, "..", "x.", noBlame},
		{1, failure{}, "..", ".x", noBlame},
		{1, failure{}, "x.", "xx", notCompared},
		{1, failure{scarce: true}, "..", "xx", machine},
		{1, failure{hung: true}, ".", "x", newBuild}, // it is tried once more
		{0, failure{}, "xx", "..", notCompared},
		{0, failure{}, "x.", "..", noBlame},
		{0, failure{}, "..", "x.", notCompared},
	} {
		side := func(tries string) fakeSide {
			return func(int) (bencher, error) {
				try := tries[0]
				if tries = tries[1:]; try == 'x' {
					return nil, newFailure("again")
				}
				return steady(100), nil
			}
		}
		k := quietGate(0.01).newComparison(side(c.base), side(c.now))
		w := workers{c: &k}
		c.why.side = c.side
		why, got, err := w.judge(t.Context(), &c.why, func(bencher) error { return nil })
		if why == nil || got != c.want || err != nil {
			t.Errorf("%+v: blame %v, %v", c, got, err)
		}
	}
}

// TestNoRoom: a full disk is nobody's fault, and ends the run.
func TestNoRoom(t *testing.T) {
	full := fakeSide(func(int) (bencher, error) {
		return nil, &os.PathError{Op: "write", Path: "1.test", Err: os.ErrPermission}
	})
	g := quietGate(0.01)
	for _, sides := range [][2]fakeSide{{steadySide(100), full}, {full, steadySide(100)}} {
		k := g.newComparison(sides[0], sides[1])
		k.functions = []*function{newSteady("BenchmarkX")}
		if err := k.compare(t.Context()); err == nil || cli.ExitStatus("", err, io.Discard) != 2 || k.functions[0].Verdict != bench.Open {
			t.Errorf("%v, %+v", err, k.functions[0])
		}
	}
}

// TestStartsNoMore: a side whose processes start no more, as after a benchmark that has left
// something behind, fails by that.
func TestStartsNoMore(t *testing.T) {
	g := quietGate(0.01)
	c := g.newComparison(steadySide(100), fakeSide(func(int) (bencher, error) { return nil, newFailure("no start") }))
	d := discovery{comparison: &c}
	w := workers{c: &c}
	found, err := d.leaves(t.Context(), gotest.Package{Rel: "."}, gotest.Benchmark{Name: "BenchmarkX"}, &w)
	if err != nil || len(found) > 0 || len(c.functions) != 1 || c.functions[0].Verdict != bench.Regression || c.functions[0].Message != "the new build: no start" {
		t.Errorf("%v, %v, %+v", found, err, c.functions)
	}
}

// TestNothingYet: a change that brings the first benchmarks passes.
func TestNothingYet(t *testing.T) {
	old, now := twoSides(t, map[string]string{"x_test.go": "package x\n\nimport \"testing\"\n\nfunc BenchmarkX(b *testing.B) {}\n"})
	must.Do(os.Remove(filepath.Join(old, "x_test.go")))
	put(filepath.Join(old, "x.go"), "package x\n")
	c, err := runCompare(t, compareOptions(old, now, "."))
	if err != nil || c.Verdict != "pass" || !slices.Contains(c.Notes, "Nothing to compare yet: the base has none of these benchmarks") {
		t.Errorf("%v, %+v", err, c)
	}
	if _, err := runCompare(t, compareOptions(now, old, ".")); cli.ExitStatus("", err, io.Discard) != 2 {
		t.Errorf("the other way round: %v", err)
	}
}
