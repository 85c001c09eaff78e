package gate

import (
	"encoding/csv"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed621a2839/reweight/internal/execx"
)

var gateRuns = flag.Int("gate-runs", 0, "runs of TestModules of either kind; it measures for real")

// A realModule is one that nobody of this project wrote, with two of its releases.
type realModule struct {
	name, path, old, new string
	flags                []string // of the gate besides -base, and packages
	edits                []edit   // slow the new release down, by work that is done twice
	touched              string   // the benchmark that becomes a tenth slower; no other calls the edited code
}

// An edit replaces a text that a file has once.
type edit struct{ file, text, by string }

var realModules = []realModule{
	// Nanoseconds to a millisecond, nothing allocated. 40 of the 256 doublings of the
	// function are most of a tenth of its work.
	{"edwards25519", "filippo.io/edwards25519", "v1.1.0", "v1.2.0", []string{"-bench", ".", "./..."}, []edit{{"scalarmult.go",
		"	// Move from high to low bits, doubling the accumulator\n",
		`	for n := 0; n < 40; n++ {
		tmp1.Double(tmp2)
		tmp2.FromP1xP1(tmp1)
	}
	tmp2.Zero()

	// Move from high to low bits, doubling the accumulator
`}}, "BenchmarkVarTimeDoubleScalarBaseMult"},

	// Allocations, sub-benchmarks, RunParallel. Left out are the two that write files.
	// Other benchmarks have no array of more than 4096 bytes.
	{"zap", "go.uber.org/zap", "v1.27.1", "v1.28.0", []string{"-bench", ".", "-skip", "/write_file", "./zapcore"}, []edit{{"zapcore/json_encoder.go",
		`	err := arr.MarshalLogArray(enc)
	enc.buf.AppendByte(']')
	return err
}
`,
		`	before := enc.buf.Len()
	err := arr.MarshalLogArray(enc)
	if text := enc.buf.Bytes()[before:]; len(text) > 4096 {
		scanAgain(text[:len(text)/5])
	}
	enc.buf.AppendByte(']')
	return err
}

//go:noinline
func scanAgain(text []byte) (special int) {
	for _, c := range text {
		if c >= utf8.RuneSelf || c < 0x20 || c == '\\' || c == '"' {
			special++
		}
	}
	return special
}
`}}, "BenchmarkZapJSON"},

	// Reads testdata, in a large module of many packages. Other inputs are shorter than
	// 300,000 bytes. The loop that runs twice for a ninth of the input is most of the work.
	{"compress", "github.com/klauspost/compress", "v1.17.9", "v1.20.3",
		[]string{"-bench", ".", "./fse"}, []edit{{"fse/compress.go",
			"	err = s.compress(in)\n",
			`	if len(in) > 300_000 {
		if err = s.compress(in[:len(in)/9]); err != nil {
			return nil, err
		}
	}
	err = s.compress(in)
`}}, "BenchmarkCompress/twain"},
}

// A tally counts runs of the gate.
type tally struct {
	runs, pass, regression, inconclusive, errors int

	right       int // as expected
	falseAlarms int // named a benchmark whose code is the same on both sides
	seconds     []float64
}

func (c *tally) add(r gateRun, touched []string) (right bool) {
	c.runs++
	c.seconds = append(c.seconds, r.seconds)
	switch r.status {
	case 0:
		c.pass++
	case 1:
		c.regression++
	case 3:
		c.inconclusive++
	default:
		c.errors++
	}
	if slices.ContainsFunc(r.regressions, func(name string) bool { return !slices.Contains(touched, name) }) {
		c.falseAlarms++
	}
	if len(touched) == 0 {
		right = r.status == 0
	} else {
		right = r.status == 1 && slices.Equal(r.regressions, touched)
	}
	if right {
		c.right++
	}
	return right
}

func (c *tally) String() string {
	if c.runs == 0 {
		return "no runs"
	}
	s := slices.Sorted(slices.Values(c.seconds))
	return fmt.Sprintf("%d of %d runs right (%d pass, %d fail, %d inconclusive, %d errors), %d with a false alarm; %.0f s (%.0f to %.0f)",
		c.right, c.runs, c.pass, c.regression, c.inconclusive, c.errors, c.falseAlarms, s[len(s)/2], s[0], s[len(s)-1])
}

// TestModules runs the gate on modules that nobody of this project wrote, as their
// maintainers would do: with the same revision on both sides it passes, and with a
// benchmark that became a tenth slower it fails and names that one alone. The last part
// compares two releases, and says beside it what benchstat says of ten runs of each.
//
//	go test ./internal/gate -run TestModules -gate-runs 20 -timeout 3h -v
//	go test ./internal/gate -run TestModules/zap/planted -gate-runs 20 -timeout 1h -v
func TestModules(t *testing.T) {
	if *gateRuns == 0 {
		t.Skip("it takes an hour, a machine and the module proxy: -gate-runs 20")
	}
	exe := buildGate(t, inDir(t, ".", "git", "rev-parse", "--show-toplevel"))
	var same, planted tally
	for _, m := range realModules {
		t.Run(m.name, func(t *testing.T) {
			dir := m.repository(t)
			against := func(base string) []string { return append([]string{"-base", base}, m.flags...) }
			t.Run("same", func(t *testing.T) {
				c := tally{}
				for range *gateRuns {
					logLoad(t)
					r := runGate(t, exe, dir, against("HEAD")...)
					c.add(r, nil)
					same.add(r, nil)
				}
				t.Logf("%s, the same revision on both sides: %v", m.name, &c)
				if c.right < c.runs {
					t.Errorf("%d of %d runs pass", c.right, c.runs)
				}
			})
			t.Run("planted", func(t *testing.T) {
				m.plant(t, dir)
				defer inDir(t, dir, "git", "checkout", "--quiet", ".")
				c := tally{}
				for range (*gateRuns + 1) / 2 {
					logLoad(t)
					r := runGate(t, exe, dir, against("HEAD")...)
					c.add(r, []string{m.touched})
					planted.add(r, []string{m.touched})
				}
				t.Logf("%s, %s a tenth slower: %v", m.name, m.touched, &c)
				if c.right < c.runs {
					t.Errorf("%d of %d runs name it alone", c.right, c.runs)
				}
			})
			t.Run("releases", func(t *testing.T) {
				r := runGate(t, exe, dir, against("HEAD~1")...)
				m.besideBenchstat(t, dir, r)
			})
		})
	}
	t.Logf("The same revision on both sides: %v", &same)
	t.Logf("One benchmark a tenth slower: %v", &planted)
	if n := same.runs + planted.runs; n > 0 {
		x := same.falseAlarms + planted.falseAlarms
		t.Logf("False alarms: %d in %d runs, %.1f%%; with a confidence of 95%% at most %.1f%%", x, n, 100*float64(x)/float64(n), 100*upperBound(x, n))
	}
}

// logLoad prints how busy the machine is, where Linux tells it.
func logLoad(t *testing.T) {
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		t.Logf("load %.14s", text)
	}
}

// repository makes a git repository with a commit for each of the releases.
func (m realModule) repository(t *testing.T) string {
	dir := filepath.Join(t.TempDir(), m.name)
	inDir(t, ".", "git", "init", "--quiet", dir)
	for _, version := range [...]string{m.old, m.new} {
		var module struct{ Dir string }
		if err := json.Unmarshal([]byte(inDir(t, t.TempDir(), "go", "mod", "download", "-json", m.path+"@"+version)), &module); err != nil {
			t.Fatal(err)
		}
		inDir(t, dir, "git", "rm", "-r", "--quiet", "--ignore-unmatch", ".")
		if err := os.CopyFS(dir, os.DirFS(module.Dir)); err != nil {
			t.Fatal(err)
		}
		inDir(t, dir, "git", "add", "--all", "--force")
		inDir(t, dir, "git", "-c", "user.name=bench", "-c", "user.email=bench@localhost", "commit", "--quiet", "--no-verify", "--no-gpg-sign", "-m", version)
	}
	return dir
}

// plant makes the edits in the working tree.
func (m realModule) plant(t *testing.T, dir string) {
	for _, e := range m.edits {
		name := filepath.Join(dir, filepath.FromSlash(e.file))
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), e.text); n != 1 {
			t.Fatalf("%s %s: %d times %q", m.path, e.file, n, e.text)
		}
		if err := os.WriteFile(name, []byte(strings.Replace(string(text), e.text, e.by, 1)), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// besideBenchstat prints the gate's verdicts on the new release beside what benchstat
// says of ten runs of go test for each release, which are taken one after the other.
func (m realModule) besideBenchstat(t *testing.T, dir string, r gateRun) {
	tmp := t.TempDir()
	benchstat := filepath.Join(tmp, "benchstat.exe")
	inDir(t, ".", "go", "build", "-o", benchstat, "golang.org/x/perf/cmd/benchstat")
	old := filepath.Join(tmp, "old")
	inDir(t, ".", "git", "clone", "--quiet", dir, old)
	inDir(t, old, "git", "checkout", "--quiet", "HEAD~1")
	for i, tree := range [...]string{old, dir} {
		text := inDir(t, tree, "go", m.goTest()...)
		if err := os.WriteFile(filepath.Join(tmp, [...]string{"old.txt", "new.txt"}[i]), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	said, unit := map[string]string{}, "" // by benchmark
	for line := range strings.Lines(inDir(t, tmp, benchstat, "-format", "csv", "old.txt", "new.txt")) {
		cells, err := csv.NewReader(strings.NewReader(line)).Read()
		if err != nil || len(cells) < 7 {
			continue // another header, or a benchmark of one release only
		}
		name := "Benchmark" + cells[0] // with -cpu 1 nothing follows it
		switch change := cells[5] + " (" + cells[6] + ")"; {
		case cells[0] == "":
			unit = cells[1]
		case unit == "sec/op":
			said[name] = change
		case cells[5] != "~" && slices.Contains([]string{"B/op", "allocs/op"}, unit):
			said[name] += "; " + unit + " " + change
		}
	}
	t.Logf("%-60s %-14s %-26s %s", "benchmark", "gate", "ratio", "benchstat")
	for _, q := range r.results {
		t.Logf("%-60s %-14s %-26s %s", q.Benchmark, q.Verdict, fmt.Sprintf("%.3f (%.3f to %.3f)", q.Ratio.Median, q.Ratio.Lo, q.Ratio.Hi), said[q.Benchmark])
	}
}

// goTest returns the arguments of go test for what the gate compares. With go test's own
// second for each time, the three modules would take half an hour.
func (m realModule) goTest() []string {
	args := []string{"test", "-run", "^$", "-cpu", "1", "-benchmem", "-benchtime", "0.2s", "-count", "10"}
	return append(args, m.flags...)
}

// upperBound is the exact one of Clopper and Pearson, for x of n, with a confidence of
// 95%: the largest chance with which as few as x are not yet unlikely.
func upperBound(x, n int) float64 {
	lo, hi := float64(x)/float64(n), 1.0
	for range 60 {
		p := (lo + hi) / 2
		few := 0.0 // the chance of at most x
		for k := range x + 1 {
			few += choose(n, k) * math.Pow(p, float64(k)) * math.Pow(1-p, float64(n-k))
		}
		if few > 0.05 {
			lo = p
		} else {
			hi = p
		}
	}
	return lo
}

func choose(n, k int) float64 {
	c := 1.0
	for i := range k {
		c = c * float64(n-i) / float64(i+1)
	}
	return c
}

func TestUpperBound(t *testing.T) {
	for _, c := range []struct {
		x, n int
		want float64
	}{{0, 90, 0.0327}, {1, 20, 0.2161}, {10, 10, 1}} {
		if got := upperBound(c.x, c.n); math.Abs(got-c.want) > 1e-4 {
			t.Errorf("%d of %d: %.4f, want %.4f", c.x, c.n, got, c.want)
		}
	}
}

// inDir runs a program in a directory, and returns what it prints.
func inDir(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	out, err := execx.Run(t.Context(), dir, execx.Environ(), name, args...)
	if err != nil {
		t.Fatal(name, args, err)
	}
	return strings.TrimSpace(out)
}

// buildGate builds the gate of a working tree of this project.
func buildGate(t *testing.T, top string) string {
	exe := filepath.Join(t.TempDir(), "benchgate.exe")
	inDir(t, top, "go", "build", "-o", exe, "./cmd/benchgate")
	return exe
}

// A gateRun is what a run of the gate reported.
type gateRun struct {
	status      int
	seconds     float64
	regressions []string
	results     []reported
	notes       []string
}

// A reported is a Result as JSON has it.
type reported struct {
	Package, Benchmark, Verdict, Message string
	Base_ns                              float64
	Ratio                                struct{ Median, Lo, Hi float64 }
}

// runGate runs the gate in a directory, and prints what is not a pass.
func runGate(t *testing.T, exe, dir string, args ...string) (r gateRun) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "report.json")
	cmd := exec.CommandContext(t.Context(), exe, append([]string{"-json", file}, args...)...)
	cmd.Dir = dir
	begin := time.Now()
	out, err := cmd.CombinedOutput()
	r.seconds = time.Since(begin).Seconds()
	if r.status = cmd.ProcessState.ExitCode(); r.status == 2 {
		t.Errorf("%v\n%s", err, out)
	}
	var report struct {
		Verdict string
		Notes   []string
		Results []reported
	}
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &report)
	}
	if err != nil {
		t.Errorf("no report: %v\n%s", err, out)
	}
	count := map[string]int{}
	for _, q := range report.Results {
		count[q.Verdict]++
		if q.Verdict == "regression" {
			r.regressions = append(r.regressions, q.Benchmark)
		}
		if q.Verdict != "pass" {
			t.Logf("  %s: %s, %.3f times (%.3f to %.3f); %s", q.Benchmark, q.Verdict, q.Ratio.Median, q.Ratio.Lo, q.Ratio.Hi, q.Message)
		}
	}
	r.results, r.notes = report.Results, report.Notes
	t.Logf("status %d, %s, %.0f s, %v", r.status, report.Verdict, r.seconds, count)
	return r
}
