package gate

import (
	"cmp"
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

	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/cmd/benchgate/internal/execx"
	"github.com/seed621a2839/reweight/internal/test/must"
)

var gateRuns = flag.Int("gate-runs", 0, "runs of TestModules of either kind; it measures for real")

// A realModule is one that nobody of this project wrote.
type realModule struct {
	name, path     string   // with the version
	flags          []string // of the gate besides -base, and packages
	file, text, by string   // what the file has once is replaced and slows it down, by work that is done twice
	touched        string   // the benchmark that becomes a tenth slower; no other calls the edited code
}

var realModules = []realModule{
	// Nanoseconds to a millisecond, nothing allocated. 40 of the 256 doublings of the
	// function are most of a tenth of its work.
	{"edwards25519", "filippo.io/edwards25519@v1.2.0", []string{"-bench", ".", "./..."}, "scalarmult.go",
		"	// Move from high to low bits, doubling the accumulator\n",
		`	for n := 0; n < 40; n++ {
		tmp1.Double(tmp2)
		tmp2.FromP1xP1(tmp1)
	}
	tmp2.Zero()

	// Move from high to low bits, doubling the accumulator
`, "BenchmarkVarTimeDoubleScalarBaseMult"},

	// Allocations, sub-benchmarks, RunParallel. Left out are the two that write files.
	// Other benchmarks have no array of more than 4096 bytes.
	{"zap", "go.uber.org/zap@v1.28.0", []string{"-bench", ".", "-skip", "/write_file", "./zapcore"},
		"zapcore/json_encoder.go",
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
`, "BenchmarkZapJSON"},

	// Reads testdata, in a large module of many packages. Other inputs are shorter than
	// 300,000 bytes. The loop that runs twice for a ninth of the input is most of the work.
	{"compress", "github.com/klauspost/compress@v1.20.3", []string{"-bench", ".", "./fse"}, "fse/compress.go",
		"	err = s.compress(in)\n",
		`	if len(in) > 300_000 {
		if err = s.compress(in[:len(in)/9]); err != nil {
			return nil, err
		}
	}
	err = s.compress(in)
`, "BenchmarkCompress/twain"},
}

// A tally counts runs of the gate.
type tally struct {
	runs, right int         // as expected
	status      map[int]int // how many ended with each
	falseAlarms int         // named a benchmark whose code is the same in both versions
	seconds     []float64
}

func (c *tally) add(r gateRun, touched []string) {
	c.runs++
	c.seconds = append(c.seconds, r.seconds)
	c.status[r.status]++
	if slices.ContainsFunc(r.regressions, func(name string) bool { return !slices.Contains(touched, name) }) {
		c.falseAlarms++
	}
	if r.status == min(1, len(touched)) && slices.Equal(r.regressions, touched) {
		c.right++
	}
}

func (c *tally) String() string {
	s := slices.Sorted(slices.Values(c.seconds))
	return fmt.Sprintf("%d of %d runs right (%d pass, %d fail, %d inconclusive, %d errors), %d with a false alarm; %.0f s (%.0f to %.0f)",
		c.right, c.runs, c.status[0], c.status[1], c.status[3], c.runs-c.status[0]-c.status[1]-c.status[3],
		c.falseAlarms, s[len(s)/2], s[0], s[len(s)-1])
}

// TestModules runs the gate on modules that nobody of this project wrote, as their
// maintainers would do: with the same revision in both versions it passes, and with a
// benchmark that became a tenth slower it fails and names that one alone.
//
//	go test ./cmd/benchgate/internal/gate -run TestModules -gate-runs 20 -timeout 3h -v
//	go test ./cmd/benchgate/internal/gate -run TestModules/zap/planted -gate-runs 20 -timeout 1h -v
func TestModules(t *testing.T) {
	if *gateRuns == 0 {
		t.Skip("it takes an hour, a machine and the module proxy: -gate-runs 20")
	}
	exe := buildGate(t, inDir(t, ".", "git", "rev-parse", "--show-toplevel"))
	for _, m := range realModules {
		t.Run(m.name, func(t *testing.T) {
			dir := copyOf(t, m.path)
			flags := append([]string{"-base", "HEAD"}, m.flags...)
			measure := func(t *testing.T, runs int, touched []string, what string) {
				c := tally{status: map[int]int{}}
				for range runs {
					c.add(runGate(t, exe, dir, flags...), touched)
				}
				t.Logf("%s, %s: %v", m.name, what, &c)
				if c.right < c.runs {
					t.Errorf("%d of %d runs are right", c.right, c.runs)
				}
			}
			t.Run("same", func(t *testing.T) { measure(t, *gateRuns, nil, "the same revision in both versions") })
			t.Run("planted", func(t *testing.T) {
				m.plant(t, dir)
				defer inDir(t, dir, "git", "checkout", "--quiet", ".")
				measure(t, (*gateRuns+1)/2, []string{m.touched}, m.touched+" a tenth slower")
			})
		})
	}
}

// plant makes the edit in the working tree.
func (m realModule) plant(t *testing.T, dir string) {
	name := filepath.Join(dir, filepath.FromSlash(m.file))
	text := string(must.Get(os.ReadFile(name)))
	if n := strings.Count(text, m.text); n != 1 {
		t.Fatalf("%s %s: %d times %q", m.path, m.file, n, m.text)
	}
	put(name, strings.Replace(text, m.text, m.by, 1))
}

// inDir runs a program in a directory, and returns what it prints.
func inDir(t *testing.T, dir, name string, args ...string) string {
	return strings.TrimSpace(must.Get(execx.Run(t.Context(), dir, execx.Environ(), name, args...)))
}

// buildGate builds the gate of a working tree of this project.
func buildGate(t *testing.T, top string) string {
	exe := filepath.Join(t.TempDir(), "benchgate.exe")
	inDir(t, top, "go", "build", "-o", exe, "./cmd/benchgate")
	return exe
}

// A gateRun is what a run of the gate reported.
type gateRun struct {
	compared
	status      int
	seconds     float64
	regressions []string
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
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &r.compared)
	}
	if err != nil {
		t.Errorf("no report: %v\n%s", err, out)
	}
	count := map[string]int{}
	for _, q := range r.Results {
		count[q.Verdict]++
		if q.Verdict == "regression" {
			r.regressions = append(r.regressions, q.Benchmark)
		}
		if q.Verdict != "pass" {
			e := cmp.Or(q.Ratio, &bench.Estimate{})
			t.Logf("  %s: %s, %.3f times (%.3f to %.3f); %s", q.Benchmark, q.Verdict, e.Median, e.Lo, e.Hi, q.Message)
		}
	}
	t.Logf("status %d, %s, %.0f s, %v", r.status, r.Verdict, r.seconds, count)
	return r
}
