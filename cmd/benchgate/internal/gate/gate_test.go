package gate

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/internal/cli"
)

// hostile is text that a worker of another revision may say.
const hostile = "far\noff\r\n::error::x\x1b[2J ##[error]y \u202e <b>|\x00"

// canStart skips a test that starts this program or one that is built for it,
// where an emulated process cannot.
func canStart(t *testing.T) {
	t.Helper()
	if err := exec.Command(os.Args[0], "-test.run", "^$").Run(); errors.Is(err, syscall.ENOEXEC) {
		t.Skip("an emulated process cannot start another")
	}
}

// TestGateQuotes: what a worker, git or a file says reaches no output as it is.
func TestGateQuotes(t *testing.T) {
	g := gate{accepted: []acceptance{{hostile, hostile, math.Inf(1), "::error::" + hostile, hostile},
		{"", "x", math.Inf(1), hostile, hostile}}}
	g.report = report{Against: "::error::" + hostile, Notes: []string{"::error::" + hostile},
		Limits: limits{1.05, 1.02, 0.01}, Results: []Result{
			{Package: hostile, relative: hostile, Benchmark: hostile, Verdict: bench.Regression, Ratio: ratioOf(1.2), Metrics: []Metric{{"::error::" + hostile, bench.Regression, 1, 2, nil, nil, "", nil}}},
			{Package: hostile, relative: ".", Benchmark: "::error::" + hostile, Verdict: bench.Regression, Message: "::error::" + hostile},
			{Package: hostile, relative: ".", Benchmark: "::error::" + hostile, Verdict: bench.Pass, Ratio: ratioOf(1), Message: "::error::" + hostile},
		}}
	for stdout := range len(Formats) + 1 { // each of the formats, and the table
		var out bytes.Buffer
		o := outputs{stdout: &out}
		if stdout < len(Formats) {
			o.names[stdout] = "-"
		}
		err := g.finish(t.Context(), errors.New("::error::"+hostile), &o)
		cli.ExitStatus("benchgate", err, &out)
		if !strings.Contains(out.String(), `far`) {
			t.Errorf("format %d lacks the message:\n%q", stdout, out.String())
		}
		for line := range strings.Lines(out.String()) {
			line = strings.TrimSuffix(line, "\n")
			if strings.HasPrefix(strings.TrimSpace(line), "::") || strings.Contains(line, "##[") ||
				strings.HasPrefix(line, "off") || strings.ContainsFunc(line, func(r rune) bool {
				return !strconv.IsPrint(r) && r != '─'
			}) {
				t.Errorf("format %d has the line %q", stdout, line)
			}
		}
	}
	if q := g.report.Results[1]; q.Accepted == "" {
		t.Errorf("%+v is not accepted", q)
	}
}

// TestGateInterrupted: what there is by then is kept, and marked.
func TestGateInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	g := quietGate(0.01)
	n := 0
	base := func(int) (bencher, error) {
		if n++; n == 3 {
			cancel()
		}
		return steady(100), nil
	}
	c := g.newComparison(fakeVersion(base), steadyVersion(100))
	c.functions = []*function{newSteady("BenchmarkX"), newSteady("BenchmarkY")}
	err := c.compare(ctx)
	var out bytes.Buffer
	if err := g.finish(ctx, err, &outputs{stdout: &out}); err != cli.ErrInterrupted ||
		!strings.Contains(out.String(), "1.000") ||
		!strings.Contains(out.String(), "INTERRUPTED, the results are partial against : 2 open") ||
		g.report.Verdict != bench.Open {
		t.Errorf("%v in\n%s", err, out.String())
	}
}
