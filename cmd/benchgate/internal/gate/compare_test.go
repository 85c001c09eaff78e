package gate

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/cmd/benchgate/internal/gotest/worker"
	"github.com/seed621a2839/reweight/internal/cli"
	"github.com/seed621a2839/reweight/internal/test/must"
)

// constants is a package whose benchmarks report times and counts of their own, times a
// factor, so that ratios are exact and verdicts certain.
const constants = `package constants

import (
	"fmt"
	"os"
	"testing"
	"time"
)

func report(b *testing.B, value float64, unit string) {
	for i := 0; i < b.N; i++ {
	}
	b.ReportMetric(1000, "ns/op")
	b.ReportMetric(value, unit)
}

func BenchmarkSame(b *testing.B)  { report(b, 1000, "ns/op") }
func BenchmarkSlow(b *testing.B)  { report(b, 1000*factor, "ns/op") }
func BenchmarkFast(b *testing.B)  { report(b, 1000/factor, "ns/op") }
func BenchmarkBytes(b *testing.B) { report(b, 64*factor, "B/op") }
func BenchmarkRate(b *testing.B)  { report(b, 100/factor, "MB/s") }

func BenchmarkSub(b *testing.B) {
	b.Run("same", func(b *testing.B) { report(b, 1000, "ns/op") })
	b.Run("skips", func(b *testing.B) { b.Skip("not here") })
	b.Run("fails", func(b *testing.B) {
		if factor > 1 {
			b.Fatal("it is wrong")
		}
		report(b, 1000, "ns/op")
	})
}

func BenchmarkPanics(b *testing.B) {
	if factor > 1 {
		panic("no more")
	}
	report(b, 1000, "ns/op")
}

func BenchmarkHangs(b *testing.B) {
	if factor > 1 && os.Getenv("GATE_TEST_HANGS") != "" {
		time.Sleep(time.Hour)
	}
	report(b, 1000, "ns/op")
}

func BenchmarkShouts(b *testing.B) {
	for factor > 1 && os.Getenv("GATE_TEST_HANGS") != "" {
		fmt.Println("portable")
	}
	report(b, 1000, "ns/op")
}
`

// twoVersions writes two copies of module example.com/m, in whose files isNew is whether it is
// the new version.
func twoVersions(t *testing.T, files map[string]string) (old, now string) {
	t.Helper()
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip(err)
	}
	canStart(t)
	for name, value := range map[string]string{"GOFLAGS": "", "GOWORK": "off", "GOPROXY": "off",
		"GOTOOLCHAIN": "local"} {
		t.Setenv(name, value)
	}
	old, now = filepath.Join(t.TempDir(), "old"), filepath.Join(t.TempDir(), "new, and longer")
	for dir, isNew := range map[string]string{old: "false", now: "true"} {
		put(filepath.Join(dir, "go.mod"), "module example.com/m\n\ngo 1.21\n")
		for name, text := range files {
			put(filepath.Join(dir, name), strings.ReplaceAll(text, "isNew", isNew))
		}
	}
	return old, now
}

// twoModules writes two copies of a module, with a factor of 1 and of 1.25.
func twoModules(t *testing.T) (old, now string) {
	t.Helper()
	old, now = twoVersions(t, map[string]string{
		"all_test.go":   constants,
		"this_test.go":  "package constants\n\nvar factor = 1 + map[bool]float64{true: 0.25}[isNew]\n",
		"sub/x_test.go": "package sub\n\nimport \"testing\"\n\nfunc BenchmarkOther(b *testing.B) { b.ReportMetric(1e6, \"ns/op\") }\n",
	})
	put(filepath.Join(now, "sub", "novel_test.go"),
		"package sub\n\nimport \"testing\"\n\nfunc BenchmarkNovel(b *testing.B) {}\n")
	return old, now
}

// compared is what benchgate compare writes as JSON.
type compared struct {
	Against, Verdict string
	Seconds          float64
	Limits           map[string]float64
	Notes            []string
	Results          []reported
}

// A reported is a Result as JSON has it.
type reported struct {
	Benchmark, Package, Verdict, Message, Accepted string
	Base_ns                                        float64
	Calls                                          int
	Ratio, Reordered                               *bench.Estimate
	Metrics                                        []struct {
		Verdict string
		New     float64
	}
	Pairs []struct{ Base float64 }
}

// lines has a line for each benchmark: the name, the verdict, and the message.
func (c compared) lines() string {
	var lines []string
	for _, q := range c.Results {
		lines = append(lines, strings.TrimSuffix(q.Benchmark+" "+q.Verdict+": "+q.Message, ": "))
	}
	return strings.Join(lines, "\n")
}

func compareOptions(old, now, pattern string) Options {
	return Options{Old: old, New: now, Bench: pattern, Packages: []string{AllPackages}, CPU: 1,
		Metrics: []string{"B/op", "allocs/op"}, Budget: time.Hour,
		Alpha: 0.3, Slower: 1.05}
}

func runCompare(t *testing.T, opt Options) (c compared, err error) {
	t.Helper()
	var out bytes.Buffer
	opt.Files[0] = "-"
	err = Run(t.Context(), opt, &out)
	if out.Len() > 0 {
		if err := json.Unmarshal(out.Bytes(), &c); err != nil {
			t.Fatal(err, out.String())
		}
	}
	return c, err
}

// TestCompareCopies compares working copies.
func TestCompareCopies(t *testing.T) {
	old, now := twoModules(t)
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	opt := compareOptions(old, now, "Same|Fast|Bytes|Rate|Sub|Panics|Other|Novel")
	opt.Metrics = append(opt.Metrics, "MB/s")
	c, err := runCompare(t, opt)
	want := `BenchmarkSub/fails regression: all_test.go:28: it is wrong; the new build failed 9 of 9 tries, the base 0 of 9
BenchmarkPanics regression: panic: no more (all_test.go:36); the new build failed 9 of 9 tries, the base 0 of 9
BenchmarkBytes regression: 80 B/op, base 64, N pairs
BenchmarkRate regression: the base has 1.250 times as many MB/s (1.250 to 1.250), N pairs
BenchmarkFast pass
BenchmarkSame pass
BenchmarkSub/same pass
BenchmarkOther pass`
	if got := withoutPairs(c); cli.ExitStatus("", err, io.Discard) != 1 || got != want {
		t.Errorf("%v, %s\nwant\n%s", err, got, want)
	}
	if c.Against != old || c.Verdict != "regression" || len(c.Results) != 8 || c.Results[4].Ratio == nil ||
		c.Results[4].Ratio.Median != 0.8 || len(c.Results[2].Metrics) != 2 || c.Results[2].Metrics[0].New != 80 ||
		c.Results[7].Package != "example.com/m/sub" {
		t.Errorf("%+v", c)
	}
	for _, note := range []string{"BenchmarkSub/skips is skipped", "sub BenchmarkNovel is new: not compared"} {
		if !slices.Contains(c.Notes, note) {
			t.Errorf("no note %q in %q", note, c.Notes)
		}
	}
	// What does not build is named, in either version, and not what is built at the same time.
	broken := filepath.Join(now, "sub", "broken_test.go")
	put(broken, "package sub\n\nvar _ = wrong\n")
	want = now + ": the tests of example.com/m/sub do not build: sub/broken_test.go:3:9: undefined: wrong"
	for _, pair := range [...][2]string{{old, now}, {now, old}} {
		_, err := runCompare(t, compareOptions(pair[0], pair[1], "Other|Same"))
		if cli.ExitStatus("", err, io.Discard) != 2 || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if left, _ := os.ReadDir(temporary); len(left) > 0 {
		t.Errorf("it leaves %v", left)
	}
}

// withoutPairs is lines without how many pairs there were.
func withoutPairs(c compared) string {
	for i := range c.Results {
		q := &c.Results[i]
		if before, _, ok := strings.Cut(q.Message, " pairs"); ok {
			q.Message = before[:strings.LastIndex(before, " ")] + " N" + strings.TrimPrefix(q.Message, before)
		}
	}
	return c.lines()
}

// TestCompareBinaries compares test binaries that nothing was added to.
func TestCompareBinaries(t *testing.T) {
	old, now := twoModules(t)
	dir := t.TempDir()
	build := func(from, pkg, name string) string {
		t.Helper()
		exe := filepath.Join(dir, name+".exe")
		cmd := exec.Command("go", "test", "-c", "-vet=off", "-o", exe, pkg)
		cmd.Dir = from
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatal(err, string(out))
		}
		return exe
	}
	before, after := build(old, ".", "before"), build(now, ".", "after")
	opt := compareOptions(before, after, "Same|Slow|Bytes|Sub/(same|fails)|Panics")
	opt.Skip = "Nothing"
	c, err := runCompare(t, opt)
	want := `BenchmarkSub/fails regression: all_test.go:28: it is wrong; the new build failed 9 of 9 tries, the base 0 of 9
BenchmarkPanics regression: panic: no more (` + now + `/all_test.go:36); the new build failed 9 of 9 tries, the base 0 of 9
BenchmarkSlow regression: takes 1.250 times as long as the base (1.250 to 1.250), N pairs; this may be only by where the linker puts functions, as there is no build in random orders: a binary cannot be built again
BenchmarkBytes regression: 80 B/op, base 64, N pairs
BenchmarkSame pass
BenchmarkSub/same pass`
	if got := withoutPairs(c); cli.ExitStatus("", err, io.Discard) != 1 || got != want ||
		c.Results[0].Package != "example.com/m" {
		t.Errorf("%v, %s\nwant\n%s", err, got, want)
	}
	if c, err = runCompare(t, compareOptions(before, before, "Slow")); err != nil ||
		c.lines() != "BenchmarkSlow pass" ||
		!slices.Contains(c.Notes, "The base and the new build are the same: this measures the noise") {
		t.Errorf("%v, %s, %q", err, c.lines(), c.Notes)
	}

	// What fails in the old one is not compared, and the others are.
	c, err = runCompare(t, compareOptions(after, before, "Panics|Same"))
	if err != nil || c.lines() != "BenchmarkSame pass" ||
		!strings.Contains(strings.Join(c.Notes, "\n"),
			"BenchmarkPanics fails in the base: not compared: panic: no more") {
		t.Errorf("%v, %s, %q", err, c.lines(), c.Notes)
	}

	// A run that does not end is ended, and so is one that prints too much.
	t.Setenv("GATE_TEST_HANGS", "1")
	s := must.Get((&gate{Options: Options{CPU: 1}}).openBinary(after, filepath.Join(dir, "run")))
	for _, c := range []struct {
		benchmark, want string
		patience        time.Duration
	}{{"BenchmarkHangs", "no end in 500ms", 500 * time.Millisecond},
		{"BenchmarkShouts", "it prints more than 4 MiB", time.Minute}} {
		w := must.Get(s.start(t.Context(), ".", 0)).(*binaryRunner)
		w.patience = c.patience
		if _, err := w.run(worker.Request{Benchmark: c.benchmark, Bench: "^" + c.benchmark + "$", Benchtime: "1x",
			Count: 1}); err == nil || err.Error() != "the tests of "+s.name+": "+c.want {
			t.Errorf("%s: %v, want %s", c.benchmark, err, c.want)
		}
		w.close()
	}

	// What cannot be compared is an error before anything runs.
	dead, other := filepath.Join(dir, "dead.exe"), filepath.Join(dir, "other")
	put(filepath.Join(other, "go.mod"), "module example.com/other\n")
	must.Do(copyFile(dead, before))
	must.Do(os.Chmod(dead, 0o666))
	self := must.Get(exec.LookPath("go"))
	for _, c := range []struct{ old, now, want string }{
		{before, old, old + " is a directory and " + before + " is a file: want two directories, or two test binaries"},
		{self, before, self + " is not a Go test binary, as go test -c makes it"},
		{before, dead, dead + " is not executable"},
		{before, build(old, "./sub", "sub"), "tests example.com/m/sub: want two binaries of one package"},
		{os.DevNull, before, os.DevNull + " is neither a directory nor a file"},
		{old, other, "is module example.com/other: want two copies of one module"},
		{before + "\x1b[2J", before, `there is no "`},
	} {
		if c.now == dead && runtime.GOOS == "windows" {
			continue
		}
		if _, err := runCompare(t, compareOptions(c.old, c.now, ".")); cli.ExitStatus("", err, io.Discard) != 2 ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, %s: %v, want %q", c.old, c.now, err, c.want)
		}
	}
	if _, err := runCompare(t, compareOptions(before, after, "Nothing")); err == nil ||
		!strings.HasPrefix(err.Error(), "there is no benchmark to compare") {
		t.Errorf("of nothing: %v", err)
	}
}

// TestHiddenTime: a benchmark that hides ns/op, as testing documents, is judged by the units
// that are asked for.
func TestHiddenTime(t *testing.T) {
	old, now := twoVersions(t, map[string]string{"x_test.go": `package x

import "testing"

func report(b *testing.B, perItem float64) {
	for i := 0; i < b.N; i++ {
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(perItem, "ns/item")
}

func BenchmarkSame(b *testing.B) { report(b, 100) }

func BenchmarkSlower(b *testing.B) { report(b, 100*map[bool]float64{false: 1, true: 1.3}[isNew]) }
`})
	opt := compareOptions(old, now, ".")
	opt.Metrics, opt.Files[3] = []string{"ns/item"}, filepath.Join(t.TempDir(), "bench")
	c, err := runCompare(t, opt)
	const want = "BenchmarkSlower regression: has 1.300 times as many ns/item as the base (1.300 to 1.300), N pairs\nBenchmarkSame pass"
	if got := withoutPairs(c); cli.ExitStatus("", err, io.Discard) != 1 || got != want || len(c.Results[0].Pairs) > 0 ||
		c.Results[0].Metrics[0].New != 130 {
		t.Errorf("%v, %s\nwant\n%s\n%+v", err, got, want, c)
	}
	if text := string(must.Get(os.ReadFile(opt.Files[3]))); strings.Contains(text, "ns/op") ||
		!strings.Contains(text, "\t130 ns/item\n") {
		t.Error(text)
	}
	opt.Metrics = nil
	if c, err := runCompare(t, opt); cli.ExitStatus("", err, io.Discard) != 3 ||
		!slices.Contains(c.Notes, "BenchmarkSame reports no ns/op: not compared; -metrics ns/item judges what it reports") {
		t.Errorf("%v, %+v", err, c)
	}
	opt.Metrics = []string{"B/op"}
	if c, err := runCompare(t, opt); err != nil || !slices.Contains(c.Notes,
		"BenchmarkSame reports no ns/op: judged by B/op alone; -metrics ns/item judges what it reports") {
		t.Errorf("%v, %+v", err, c)
	}
}

// TestLeftRunning: goroutines that a benchmark leaves behind run beside no other benchmark. Those that a package
// starts once do not cost each benchmark processes of its own.
func TestLeftRunning(t *testing.T) {
	old, now := twoVersions(t, map[string]string{"x_test.go": `package x

import (
	"os"
	"runtime"
	"sync"
	"testing"
)

var once sync.Once

func leave() {
	for i := 0; i < 100; i++ {
		go func() { select {} }()
	}
}

func work(b *testing.B) {
	for i := 0; i < b.N; i++ {
	}
	b.ReportMetric(1000, "ns/op")
}

func BenchmarkLeaves(b *testing.B) {
	leave()
	work(b)
}

func BenchmarkOnce(b *testing.B) {
	once.Do(leave)
	work(b)
}

func BenchmarkX(b *testing.B) {
	if runtime.NumGoroutine() > 100 {
		os.WriteFile(os.Getenv("GATE_TEST_FILE"), nil, 0o666)
	}
	work(b)
}
`})
	for pattern, want := range map[string]bool{"Leaves|X": false, "Once|X": true} {
		beside := false
		// X comes second in one half of the processes: in none of the 6 pairs of a run in 64.
		for try := 0; !beside && (try == 0 || want && try < 5); try++ {
			file := filepath.Join(t.TempDir(), "beside")
			t.Setenv("GATE_TEST_FILE", file)
			opt := compareOptions(old, now, pattern)
			opt.Metrics = nil
			if c, err := runCompare(t, opt); err != nil || len(c.Results) != 2 {
				t.Fatalf("%v, %+v", err, c)
			}
			_, err := os.Stat(file)
			beside = err == nil
		}
		if beside != want {
			t.Errorf("%s: one runs beside what the other has left: %v, want %v", pattern, beside, want)
		}
	}
}
