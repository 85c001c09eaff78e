package gotest

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/cmd/benchgate/internal/gotest/worker"
	"github.com/seed621a2839/reweight/internal/test/must"
)

// copyModule copies the module of testdata.
func copyModule(t *testing.T, to string) {
	t.Helper()
	must.Do(os.CopyFS(to, os.DirFS(filepath.Join("testdata", "module"))))
}

// write writes files, of names with slashes.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		must.Do(os.MkdirAll(filepath.Dir(path), 0o777))
		must.Do(os.WriteFile(path, []byte(text), 0o666))
	}
}

// unchanged checks, when the test ends, that the directory is then as it is now.
func unchanged(t *testing.T, dir string) {
	t.Helper()
	snapshot := func() map[string]string {
		files := map[string]string{}
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			files[path] = fmt.Sprint(info.Mode(), info.ModTime())
			if !d.IsDir() {
				text, err := os.ReadFile(path)
				files[path] += string(text)
				return err
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		return files
	}
	before := snapshot()
	t.Cleanup(func() {
		after := snapshot()
		for path := range after {
			if before[path] != after[path] {
				t.Errorf("%s has changed", path)
			}
			delete(before, path)
		}
		for path := range before {
			t.Errorf("%s is gone", path)
		}
	})
}

// offline makes the go command of the test do with what is there.
func offline(t *testing.T, goflags string) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip(err)
	}
	for name, value := range map[string]string{"GOFLAGS": goflags, "GOWORK": "", "GOPROXY": "off",
		"GOTOOLCHAIN": "local", "GOENV": "off"} {
		t.Setenv(name, value)
	}
}

func open(t *testing.T, dir string) *Module {
	t.Helper()
	m := must.Get(Open(t.Context(), dir))
	return m
}

func build(t *testing.T, m *Module, p Package, order int64) (exe string) {
	t.Helper()
	exe = filepath.Join(t.TempDir(), "test.exe")
	scratch := t.TempDir()
	must.Do(m.Build(t.Context(), p, exe, scratch, order))
	if left, err := os.ReadDir(scratch); err != nil || len(left) > 0 {
		t.Errorf("left in scratch: %v, %v", left, err)
	}
	return exe
}

// pack returns the package of that name in the module's directory.
func pack(t *testing.T, m *Module, rel string) Package {
	t.Helper()
	list, _, err := m.Packages(t.Context(), []string{"./" + rel}, ".")
	if err != nil || len(list) != 1 {
		t.Fatalf("%s: %v, %v", rel, list, err)
	}
	return list[0]
}

// runsBuilds skips a test that runs what the go command builds, where it builds for
// another CPU: the test itself may be emulated.
func runsBuilds(t *testing.T) {
	t.Helper()
	env := must.Get(goEnv(t.Context(), ".", "GOHOSTARCH"))
	if host := env["GOHOSTARCH"]; host != runtime.GOARCH && !(host == "amd64" && runtime.GOARCH == "386") {
		t.Skipf("this test is built for %s, and the go command runs on %s", runtime.GOARCH, host)
	}
}

func TestPackages(t *testing.T) {
	runsBuilds(t)
	offline(t, "-tags=special")
	dir := t.TempDir()
	copyModule(t, dir)
	unchanged(t, dir)
	m := open(t, filepath.Join(dir, "kinds", "testdata")) // anywhere in it
	if real, err := filepath.EvalSymlinks(dir); err != nil || m.Dir != real || m.Path != "example.com/user" {
		t.Fatalf("module %s in %s, want example.com/user in %s", m.Path, m.Dir, real)
	}
	list, notes, err := m.Packages(t.Context(), []string{"./..."}, ".")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, p := range list {
		var names []string
		for _, b := range p.Benchmarks {
			names = append(names, fmt.Sprint(strings.TrimPrefix(b.Name, "Benchmark"),
				map[bool]string{true: " (external)"}[b.External]))
		}
		slices.Sort(names)
		got[p.Rel] = fmt.Sprintf("%s in %s: %s", p.Path, p.Name, strings.Join(names, ", "))
		if p.Dir != filepath.Join(m.Dir, filepath.FromSlash(p.Rel)) {
			t.Errorf("%s is in %s", p.Path, p.Dir)
		}
	}
	want := map[string]string{
		"broken":   "example.com/user/broken in broken: Broken",
		"cgo":      "example.com/user/cgo in cgo: Twice",
		"clash":    "example.com/user/clash in other: Clash",
		"cmd/prog": "example.com/user/cmd/prog in main: Main",
		"kinds":    "example.com/user/kinds in kinds: Exits, Fails, Goexit, Leaves, Linked, Loop, Metrics, Names, Outside (external), Panics, Parallel, Prints, Reads, Skips, Tagged, Talks",
	}
	if _, ok := got["cgo"]; !ok {
		t.Log("cgo is not enabled")
		delete(want, "cgo")
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("packages\n%q\nwant\n%q", got, want)
	}
	if want := []string{"example.com/user/kinds has a BenchmarkBoth, and so has its package kinds_test: left out"}; !slices.Equal(notes, want) {
		t.Errorf("notes %q, want %q", notes, want)
	}

	list, notes, err = m.Packages(t.Context(),
		[]string{"./kinds", "./cmd/...", "./nowhere", "./nothing/...", "./kinds/testdata/..."},
		"O[u/]tside$/x|Mai+n|^Clash")
	if err != nil || len(list) != 2 || list[0].Rel != "kinds" || list[1].Rel != "cmd/prog" ||
		len(list[0].Benchmarks) != 1 || !list[0].Benchmarks[0].External {
		t.Errorf("packages %+v, %v", list, err)
	}
	if len(notes) != 3 || !strings.Contains(notes[0], "./nowhere: ") ||
		!strings.Contains(notes[1], "./nothing/...: ") || notes[2] != "No packages match ./kinds/testdata/..." {
		t.Errorf("notes %q", notes)
	}
	if _, _, err := m.Packages(t.Context(), []string{"fmt"}, "."); err == nil ||
		err.Error() != "fmt is not a package of this module" {
		t.Errorf("fmt: %v", err)
	}
}

// TestPackagesThatDoNotList: an error of a package without tests is none of the
// gate.
func TestPackagesThatDoNotList(t *testing.T) {
	runsBuilds(t)
	offline(t, "")
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"go.mod":      "module m\n\ngo 1.20\n",
		"a/a.go":      "package a\n\nimport \n",
		"b/b_test.go": "package b\n\nimport \"testing\"\n\nfunc BenchmarkB(b *testing.B) {}\n",
	})
	m := open(t, dir)
	if list, notes, err := m.Packages(t.Context(), []string{"./..."}, "."); err != nil || len(list) != 1 ||
		len(notes) != 0 {
		t.Errorf("%v, %q, %v", list, notes, err)
	}
	write(t, dir, map[string]string{"a/a_test.go": "package a\n"})
	if _, _, err := m.Packages(t.Context(), []string{"./..."}, "."); err == nil ||
		!strings.Contains(err.Error(), "m/a: a/a.go:3:9: ") || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v", err)
	}
	write(t, dir, map[string]string{"a/a.go": "package a\n", "a/a_test.go": "package a\n\nfunc Benchmark(\n"})
	if _, _, err := m.Packages(t.Context(), []string{"./..."}, "."); err == nil ||
		!strings.Contains(err.Error(), "a_test.go:3:") || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v", err)
	}
}

func TestOpenErrors(t *testing.T) {
	runsBuilds(t)
	offline(t, "")
	dir := t.TempDir()
	refuse := func(want string) {
		t.Helper()
		if _, err := Open(t.Context(), dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	refuse("is not in a Go module: there is no go.mod")
	write(t, dir, map[string]string{"go.work": "go 1.20\n\nuse (\n\t./a\n\t./b\n)\n", "a/go.mod": "module a\n",
		"b/go.mod": "module b\n"})
	refuse("is in a workspace, but in none of its modules: -C names the directory of one, of " + dir + ": ./a, ./b")
	must.Do(os.Remove(filepath.Join(dir, "go.work")))
	write(t, dir, map[string]string{"go.mod": "module m\n\nwrong\n"})
	refuse("go.mod:3: unknown directive: wrong")
	write(t, dir, map[string]string{"go.mod": "module m\n"})
	t.Setenv("GOFLAGS", "-overlay=x")
	refuse("GOFLAGS has -overlay")
	t.Setenv("GOFLAGS", "-coverpkg=./...")
	refuse("GOFLAGS has -coverpkg")
	t.Setenv("GOFLAGS", "")
	t.Setenv("GOOS", "plan9")
	refuse("this machine cannot run such a build")
	t.Setenv("PATH", "")
	refuse(`"go"`)
}

// TestModMod: with -mod=mod the go command would write what go.mod lacks.
func TestModMod(t *testing.T) {
	runsBuilds(t)
	offline(t, "-mod=mod")
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"go.mod":         "module m\n\ngo 1.20\n\nreplace example.com/other => ./other\n",
		"m_test.go":      "package m\n\nimport (\n\t\"testing\"\n\n\t_ \"example.com/other\"\n)\n\nfunc BenchmarkM(b *testing.B) {}\n",
		"other/go.mod":   "module example.com/other\n",
		"other/other.go": "package other\n",
	})
	unchanged(t, dir)
	m := open(t, dir)
	const want = "m_test.go:6:2: module example.com/other provides package example.com/other and is replaced but not required; to add it:"
	if err := m.Build(t.Context(), pack(t, m, "."), filepath.Join(t.TempDir(), "x"), t.TempDir(), 0); err == nil ||
		!strings.HasPrefix(err.Error(), want) {
		t.Errorf("error %v", err)
	}
}

func TestPattern(t *testing.T) {
	for bench, want := range map[string]bool{
		".": true, "": true, "X/nothing": true, "Y|X/nothing|Z": true, "(Y|X/)?": true, "[/X]$": true, `[[|/X]$`: true, `Y\/|X`: true,
		"x": false, "Y/X": false, "Y/a|Z/X": false, "(Y|Z)/X": false, "[Y|Z]/X": false, `Y\|/X`: false,
	} {
		if p, err := parsePattern(bench); err != nil || p.mayMean("BenchmarkX") != want {
			t.Errorf("%q: %v, want that it matches: %v", bench, err, want)
		}
	}
	for skip, want := range map[string]bool{"": false, "X": true, "Y|X": true, "X/a": false, "X/a|Y": false,
		"X/a|X": true, "(Y|X)$": true} {
		if got := Skips(skip, "BenchmarkX"); got != want {
			t.Errorf("-skip %q skips all of it: %v, want %v", skip, got, want)
		}
	}
	for _, bench := range []string{"(", "a/(", "a|b/)", "*"} {
		if _, err := parsePattern(bench); err == nil {
			t.Errorf("%q: no error", bench)
		}
	}
}

func TestIsBenchmark(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x_test.go")
	for want, declarations := range map[bool]string{true: `
func Benchmark(b *testing.B) {}
func Benchmark_x(b *t.B) {}
func BenchmarkÄ(*B) {}
func Benchmark1(_ *testing.B) {}
`, false: `
func Benchmarkx(b *testing.B) {}
func Benchmarkä(b *testing.B) {}
func benchmarkX(b *testing.B) {}
func BenchmarkX(b testing.B) {}
func BenchmarkX(b *testing.T) {}
func BenchmarkX(a, b *testing.B) {}
func BenchmarkX(a *testing.B, n int) {}
func BenchmarkX() {}
func BenchmarkX(b *testing.B) int { return 0 }
func BenchmarkX[T any](b *testing.B) {}
func (x X) BenchmarkX(b *testing.B) {}
var BenchmarkX = func(b *testing.B) {}
`} {
		for declaration := range strings.Lines(strings.TrimSpace(declarations)) {
			must.Do(os.WriteFile(file, []byte("package x\n\n"+declaration), 0o666))
			if list, _, err := benchmarks(file); err != nil || len(list) == 1 != want {
				t.Errorf("%s: %v, %v, want %v", declaration, list, err, want)
			}
		}
	}
}

func TestInOrder(t *testing.T) {
	for goflags, want := range map[string][]string{
		"":                                       {"-ldflags=-s -w -randlayout=7"},
		"-ldflags=-s -tags=a":                    {"-ldflags=-s -w -randlayout=7", "-ldflags=-s -s -w -randlayout=7"},
		"'-ldflags=-X \"a.b=c d\"'":              {"-ldflags=-s -w -randlayout=7", `-ldflags=-X "a.b=c d" -s -w -randlayout=7`},
		"-ldflags=-s --ldflags=all=-w -ldflags=": {"-ldflags=-s -w -randlayout=7", "-ldflags=-s -s -w -randlayout=7", "-ldflags=all=-w -s -w -randlayout=7", "-ldflags=-s -w -randlayout=7"},
	} {
		list, err := split(goflags)
		m := &Module{goflags: list}
		if got := m.inOrder(7); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v, want %q", goflags, got, err, want)
		}
	}
	if _, err := split("-a 'b"); err == nil {
		t.Error("no error of a quotation that does not end")
	}
}

// TestWorker runs benchmarks of every kind.
func TestWorker(t *testing.T) {
	runsBuilds(t)
	offline(t, `-tags=special '-ldflags=-X "example.com/user/kinds.linked=two words"'`)
	dir := t.TempDir()
	copyModule(t, dir)
	unchanged(t, dir)
	m := open(t, dir)
	p := pack(t, m, "kinds")
	exe := build(t, m, p, 3)
	are := func(want ...string) func(worker.Answer) bool {
		return func(a worker.Answer) bool { return slices.Equal(lines(t, a), want) }
	}
	isWrong := func(want string) func(worker.Answer) bool {
		return func(a worker.Answer) bool { return a.Error == want }
	}
	twice := worker.Request{Benchmark: "BenchmarkNames", Bench: "^BenchmarkNames$/^same#01$", Benchtime: "3x", Count: 2}
	steps := []struct {
		q       worker.Request
		isRight func(a worker.Answer) bool
	}{
		{all("BenchmarkNames"), are("BenchmarkNames/a_b/c=1-2 2", "BenchmarkNames/same-2 2", "BenchmarkNames/same#01-2 2")},
		{twice, are("BenchmarkNames/same#01-2 3", "BenchmarkNames/same#01-2 3")},
		{twice, func(a worker.Answer) bool {
			return strings.Count(a.Output, " ns/op") == 2 && strings.Count(a.Output, " 64 B/op\t") == 2 &&
				strings.Count(a.Output, " 1 allocs/op") == 2
		}},
		{worker.Request{Benchmark: "BenchmarkNames", Bench: "Names", Skip: "/a_b", Benchtime: "3x", Count: 2}, func(a worker.Answer) bool { return len(lines(t, a)) == 4 }},
		{worker.Request{Benchmark: "BenchmarkNames", Bench: "^BenchmarkName$"}, are()},
		{worker.Request{Benchmark: "BenchmarkOutside", External: true, Bench: "."}, are("BenchmarkOutside-2 2")},
		{all("BenchmarkTagged"), are("BenchmarkTagged-2 2")},
		{all("BenchmarkLinked"), are("BenchmarkLinked-2 2 9.000 characters")},
		{all("BenchmarkLoop"), are("BenchmarkLoop-2 2")},
		{all("BenchmarkParallel"), func(a worker.Answer) bool {
			l := lines(t, a)
			return len(l) == 1 && strings.Contains(l[0], " 2.000 goroutines")
		}},
		{all("BenchmarkMetrics"), func(a worker.Answer) bool {
			l := lines(t, a)
			return len(l) == 1 && !strings.Contains(l[0], "NaN") && strings.HasSuffix(l[0], " MB/s 7.000 wonders")
		}},
		// What they print is not in the lines of results, and what they leave is not there
		// for the next.
		{all("BenchmarkPrints"), are("BenchmarkPrints/sub-2 2")},
		{all("BenchmarkLeaves"), are("BenchmarkLeaves-2 2")},
		{worker.Request{Benchmark: "BenchmarkReads", Bench: ".", Benchtime: "1x", Count: 1}, are("BenchmarkReads-2 1 100.0 gc 2.000 procs")},
		{all("BenchmarkSkips"), are()},
		{worker.Request{Benchmark: "BenchmarkSkips", Bench: ".", Verbose: true}, are("BenchmarkSkips", "--- SKIP: BenchmarkSkips/sub")},
		{all("BenchmarkFails"), are("--- FAIL: BenchmarkFails/sub", "kinds_test.go:97: a failure", "--- FAIL: BenchmarkFails")},
		{worker.Request{Benchmark: "BenchmarkTalks", Bench: "."}, func(a worker.Answer) bool {
			return a.Truncated && len(a.Output) == worker.MaxOutput &&
				strings.HasPrefix(a.Output, "--- FAIL: BenchmarkTalks\n")
		}},
		{all("BenchmarkGoexit"), are("BenchmarkGoexit-2 0")},
		{worker.Request{Benchmark: "BenchmarkNowhere", Bench: "."}, isWrong("no benchmark BenchmarkNowhere")},
		{worker.Request{Benchmark: "BenchmarkOutside", Bench: "."}, isWrong("no benchmark BenchmarkOutside")},
		{worker.Request{Benchmark: "BenchmarkNames", Bench: ".", Benchtime: "0x", Count: 1}, isWrong("invalid count")},
		{worker.Request{Benchmark: "BenchmarkNames", Bench: ".", Benchtime: "1x", Count: -1}, isWrong("parse error")},
		{all("BenchmarkLeaves"), are("BenchmarkLeaves-2 2")}, // nor for what TestMain does then
	}
	var requests []worker.Request
	for _, step := range steps {
		requests = append(requests, step.q)
	}
	s := serve(t, m, p, exe, requests...)
	if s.err != nil || len(s.answers) != len(steps) {
		t.Fatalf("%d answers to %d requests, %v: %s", len(s.answers), len(steps), s.err, s.stderr)
	}
	for i, step := range steps {
		if a := s.answers[i]; !step.isRight(a) {
			t.Errorf("%+v:\n%.2000s", step.q, fmt.Sprintf("%+v", a)) // one is of megabytes
		}
	}
	if want := []string{"as C code does", "a line without its end"}; !slices.Equal(
		slices.DeleteFunc(slices.Compact(s.others), func(s string) bool { return s == "" }), want) {
		t.Errorf("other lines %q, want %q", s.others, want)
	}
	for _, want := range []string{"an init function prints", "set up", "BenchmarkPrints-2 1 1 ns/op",
		"a logger made before", "the runtime", "a sub-benchmark", "still to be seen", "torn down"} {
		if !strings.Contains(s.stderr, want) {
			t.Errorf("standard error has no %q", want)
		}
	}
	for name, want := range map[string]string{
		"BenchmarkPanics": "panic: a panic",
		"BenchmarkExits":  "panic: unexpected call to os.Exit(0) during test",
	} {
		s := serve(t, m, p, exe, worker.Request{Benchmark: name, Bench: "."})
		if len(s.answers) > 0 || s.err == nil || !strings.Contains(s.stderr, want) {
			t.Errorf("%s: %+v", name, s)
		}
	}

	// Without a token it is a test binary as any other.
	cmd := exec.Command(exe, "-test.run=^"+worker.Test+"$", "-test.bench=Linked", "-test.benchtime=1x")
	cmd.Dir = p.Dir
	if out, err := cmd.Output(); err != nil || !bytes.Contains(out, []byte("\nset up\n")) ||
		!bytes.Contains(out, []byte("\nBenchmarkLinked")) {
		t.Errorf("without a token: %v, %s", err, out)
	}
}

// TestBuild builds packages that are not like others.
func TestBuild(t *testing.T) {
	runsBuilds(t)
	offline(t, "-mod=mod")
	dir := t.TempDir()
	copyModule(t, dir)
	unchanged(t, dir)
	m := open(t, dir)
	for name, want := range map[string]string{"clash": "BenchmarkClash-2 2",
		"cmd/prog": "BenchmarkMain-2 2 42.00 answer", "cgo": "BenchmarkTwice-2 2 2.000 twice"} {
		t.Run(name, func(t *testing.T) {
			if name == "cgo" {
				if env, err := goEnv(t.Context(), dir, "CGO_ENABLED"); err != nil || env["CGO_ENABLED"] != "1" {
					t.Skipf("this Go has no cgo: %v", err)
				}
			}
			if got := result(t, m, name); got != want {
				t.Errorf("lines %q", got)
			}
		})
	}
	t.Run("old", func(t *testing.T) { // a module of its own, with go 1.13
		if got := result(t, open(t, filepath.Join(dir, "old")), "."); got != "BenchmarkOld-2 2 2.000 revision" {
			t.Errorf("line %q", got)
		}
	})
	t.Run("broken", func(t *testing.T) {
		err := m.Build(t.Context(), pack(t, m, "broken"), filepath.Join(t.TempDir(), "x"), t.TempDir(), 0)
		if err == nil || err.Error() != "broken/broken_test.go:6:2: undefined: undefined" {
			t.Errorf("error %v", err)
		}
	})
}
