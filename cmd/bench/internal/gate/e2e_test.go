package gate

import (
	"cmp"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed621a2839/reweight/cmd/bench/internal/tool"
)

var gateRuns = flag.Int("gate-runs", 0, "runs of TestGateEndToEnd of either kind; it measures for real")

// plants make a kernel do a tenth of its work twice, by a call of the method on
// a tenth of its input before the one that was asked for.
var plants = []struct{ kernel, signature, tenth string }{
	{"surrogate", "Surrogate(grad, logprobs, old, advantages, weights []float32, role []Role, scale float64, opt LossOptions) (SurrogateSums, error)",
		"n := len(role) / 10\n\tws.planted(grad[:n], logprobs[:n], old[:n], advantages[:n], weights[:min(n, len(weights))], role[:n], scale, opt)\n\treturn ws.planted(grad, logprobs, old, advantages, weights, role, scale, opt)"},
	{"masked_moments", "MaskedMoments(x []float32, role []Role, roles RoleSet, shift float64) (Moments, error)",
		"n := len(x) / 10\n\tws.planted(x[:n], role[:n], roles, shift)\n\treturn ws.planted(x, role, roles, shift)"},
	{"actfocus_weights", "ActFocusWeights(dst, signal []float32, role []Role, mean, sigma float64, opt ActFocusOptions) error",
		"n := len(dst) / 10\n\tws.planted(dst[:n], signal[:n], role[:n], mean, sigma, opt)\n\treturn ws.planted(dst, signal, role, mean, sigma, opt)"},
	{"exp_scale", "ExpScale(dst, x []float32, lo float32, rate float64) error",
		"n := len(dst) / 10\n\tws.planted(dst[:n], x[:n], lo, rate)\n\treturn ws.planted(dst, x, lo, rate)"},
	{"min_max", "MinMax(lo, hi, x []float32, offsets []int32) error",
		"n := len(lo) / 10\n\tws.planted(lo[:n], hi[:n], x, offsets[:n+1])\n\treturn ws.planted(lo, hi, x, offsets)"},
}

// TestGateEndToEnd runs the gate as CI does, on a clone: against the same
// revision it passes, and against one in which a kernel was a tenth faster it
// fails and names that kernel alone.
//
//	go test ./cmd/bench/internal/gate -run TestGateEndToEnd -gate-runs 20 -timeout 60m -v
func TestGateEndToEnd(t *testing.T) {
	if *gateRuns == 0 {
		t.Skip("it takes minutes and a machine: -gate-runs 20")
	}
	clone := filepath.Join(t.TempDir(), "clone")
	inDir(t, ".", "git", "clone", "--quiet", "--shared", inDir(t, ".", "git", "rev-parse", "--show-toplevel"), clone)
	exe := buildBench(t, clone)
	source := filepath.Join(clone, "kernels.go")
	original, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	right := 0
	for range *gateRuns {
		if runGate(t, exe, clone, "-base", "HEAD").status == 0 {
			right++
		}
	}
	t.Logf("The same revision on both sides: %d of %d runs pass", right, *gateRuns)
	if right < *gateRuns {
		t.Errorf("%d of %d runs against the same revision pass", right, *gateRuns)
	}
	right = 0
	for run := range *gateRuns {
		p := plants[run%len(plants)]
		header := "func (ws *Workspace) " + p.signature + " {\n"
		_, rest, _ := strings.Cut(p.signature, "(")
		before, after, ok := strings.Cut(string(original), header)
		if !ok {
			t.Fatalf("kernels.go has no %s", p.signature)
		}
		planted := before + header + "\t" + p.tenth + "\n}\n\nfunc (ws *Workspace) planted(" + rest + " {\n" + after
		if err := os.WriteFile(source, []byte(planted), 0o666); err != nil {
			t.Fatal(err)
		}
		if r := runGate(t, exe, clone, "-base", "HEAD"); r.status == 1 && slices.Equal(r.regressions, []string{p.kernel}) {
			right++
		} else {
			t.Logf("planted in %s, found in %v", p.kernel, r.regressions)
		}
	}
	t.Logf("One kernel 10%% slower: %d of %d runs fail and name it alone", right, *gateRuns)
	if right < *gateRuns {
		t.Errorf("%d of %d runs name the slower kernel alone", right, *gateRuns)
	}
}

// inDir runs a program in a directory, and returns what it prints.
func inDir(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	out, err := tool.Run(t.Context(), dir, tool.Environ(), name, args...)
	if err != nil {
		t.Fatal(name, args, err)
	}
	return strings.TrimSpace(out)
}

// buildBench builds the bench of a working tree of this project.
func buildBench(t *testing.T, top string) string {
	exe := filepath.Join(t.TempDir(), "bench.exe")
	inDir(t, top, "go", "build", "-o", exe, "./cmd/bench")
	return exe
}

// A gateRun is what a run of the gate reported.
type gateRun struct {
	status      int
	seconds     float64
	regressions []string
	results     []reported
}

// A reported is a Result as JSON has it.
type reported struct {
	Kernel, DType, Package, Benchmark, Verdict, Message string
	Ratio                                               struct{ Median, Lo, Hi float64 }
}

func (r reported) name() string { return cmp.Or(r.Benchmark, r.Kernel) }

// runGate runs the gate in a directory, and prints what is not a pass.
func runGate(t *testing.T, exe, dir string, args ...string) (r gateRun) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "report.json")
	cmd := exec.CommandContext(t.Context(), exe, append([]string{"gate", "-json", file}, args...)...)
	cmd.Dir = dir
	begin := time.Now()
	out, err := cmd.CombinedOutput()
	r.seconds = time.Since(begin).Seconds()
	if r.status = cmd.ProcessState.ExitCode(); r.status == 2 {
		t.Errorf("%v\n%s", err, out)
	}
	var report struct {
		Verdict string
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
			r.regressions = append(r.regressions, q.name())
		}
		if q.Verdict != "pass" {
			t.Logf("  %s: %s, %.3f times (%.3f to %.3f); %s", strings.TrimSpace(q.name()+" "+q.DType), q.Verdict, q.Ratio.Median, q.Ratio.Lo, q.Ratio.Hi, q.Message)
		}
	}
	r.results = report.Results
	t.Logf("status %d, %s, %.0f s, %v", r.status, report.Verdict, r.seconds, count)
	return r
}
