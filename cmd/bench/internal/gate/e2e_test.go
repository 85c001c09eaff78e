package gate

import (
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
	must := func(dir, name string, args ...string) string {
		t.Helper()
		out, err := tool.Run(t.Context(), dir, tool.Environ(), name, args...)
		if err != nil {
			t.Fatal(name, args, err)
		}
		return strings.TrimSpace(out)
	}
	must(".", "git", "clone", "--quiet", "--shared", must(".", "git", "rev-parse", "--show-toplevel"), clone)
	exe := filepath.Join(t.TempDir(), "bench.exe")
	must(clone, "go", "build", "-o", exe, "./cmd/bench")
	source := filepath.Join(clone, "kernels.go")
	original, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	gate := func() (status int, regressions []string) {
		file := filepath.Join(t.TempDir(), "report.json")
		cmd := exec.Command(exe, "gate", "-base", "HEAD", "-json", file)
		cmd.Dir = clone
		begin := time.Now()
		out, err := cmd.CombinedOutput()
		if status = cmd.ProcessState.ExitCode(); status == 2 {
			t.Fatalf("%v\n%s", err, out)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var r struct {
			Verdict string
			Results []struct {
				Kernel, DType, Verdict string
				Ratio                  struct{ Median, Lo, Hi float64 }
			}
		}
		if err := json.Unmarshal(text, &r); err != nil {
			t.Fatal(err)
		}
		for _, q := range r.Results {
			if q.Verdict == "regression" {
				regressions = append(regressions, q.Kernel)
			}
			if q.Verdict != "pass" {
				t.Logf("%s %s: %s, %.3f times (%.3f to %.3f)", q.Kernel, q.DType, q.Verdict, q.Ratio.Median, q.Ratio.Lo, q.Ratio.Hi)
			}
		}
		t.Logf("status %d, %s, %.0f s", status, r.Verdict, time.Since(begin).Seconds())
		return status, regressions
	}
	right := 0
	for range *gateRuns {
		if status, _ := gate(); status == 0 {
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
		if status, regressions := gate(); status == 1 && slices.Equal(regressions, []string{p.kernel}) {
			right++
		} else {
			t.Logf("planted in %s, found in %v", p.kernel, regressions)
		}
	}
	t.Logf("One kernel 10%% slower: %d of %d runs fail and name it alone", right, *gateRuns)
	if right < *gateRuns {
		t.Errorf("%d of %d runs name the slower kernel alone", right, *gateRuns)
	}
}
