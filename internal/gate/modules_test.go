package gate

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed621a2839/reweight/internal/execx"
	"github.com/seed621a2839/reweight/internal/must"
)

var gateRuns = flag.Int("gate-runs", 0, "runs of TestModules of either kind; it measures for real")

// A realModule is one that nobody of this project wrote.
type realModule struct {
	name, path string   // with the version
	flags      []string // of the gate besides -base, and packages
	edits      []edit   // slow it down, by work that is done twice
	touched    string   // the benchmark that becomes a tenth slower; no other calls the edited code
}

// An edit replaces a text that a file has once.
type edit struct{ file, text, by string }

var realModules = []realModule{
	// Nanoseconds to a millisecond, nothing allocated. 40 of the 256 doublings of the
	// function are most of a tenth of its work.
	{"edwards25519", "filippo.io/edwards25519@v1.2.0", []string{"-bench", ".", "./..."}, []edit{{"scalarmult.go",
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
	{"zap", "go.uber.org/zap@v1.28.0", []string{"-bench", ".", "-skip", "/write_file", "./zapcore"}, []edit{{"zapcore/json_encoder.go",
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
	{"compress", "github.com/klauspost/compress@v1.20.3", []string{"-bench", ".", "./fse"}, []edit{{"fse/compress.go",
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
// benchmark that became a tenth slower it fails and names that one alone.
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
			dir := copyOf(t, m.path)
			flags := append([]string{"-base", "HEAD"}, m.flags...)
			t.Run("same", func(t *testing.T) {
				c := tally{}
				for range *gateRuns {
					logLoad(t)
					r := runGate(t, exe, dir, flags...)
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
					r := runGate(t, exe, dir, flags...)
					c.add(r, []string{m.touched})
					planted.add(r, []string{m.touched})
				}
				t.Logf("%s, %s a tenth slower: %v", m.name, m.touched, &c)
				if c.right < c.runs {
					t.Errorf("%d of %d runs name it alone", c.right, c.runs)
				}
			})
		})
	}
	t.Logf("The same revision on both sides: %v", &same)
	t.Logf("One benchmark a tenth slower: %v", &planted)
}

// logLoad prints how busy the machine is, where Linux tells it.
func logLoad(t *testing.T) {
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		t.Logf("load %.14s", text)
	}
}

// plant makes the edits in the working tree.
func (m realModule) plant(t *testing.T, dir string) {
	for _, e := range m.edits {
		name := filepath.Join(dir, filepath.FromSlash(e.file))
		text := must.Get(os.ReadFile(name))
		if n := strings.Count(string(text), e.text); n != 1 {
			t.Fatalf("%s %s: %d times %q", m.path, e.file, n, e.text)
		}
		must.Do(os.WriteFile(name, []byte(strings.Replace(string(text), e.text, e.by, 1)), 0o666))
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
	Pairs                                []struct{ Base float64 }
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
