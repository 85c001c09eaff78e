package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/cmd/bench/internal/machine"
	"github.com/seed621a2839/reweight/cmd/bench/internal/measure"
	"github.com/seed621a2839/reweight/cmd/bench/internal/report"
	"github.com/seed621a2839/reweight/internal/cli"
	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/internal/test/testprogram"
	"github.com/seed621a2839/reweight/kernels"
	"github.com/seed621a2839/reweight/scheme"
)

// little is not much to measure.
var little = []string{"-kernel", "multiply,token_stats_lse", "-rows", "64", "-vocab", "128"}

// TestRunTable: the table has a row for each type of the kernels with each instruction set.
func TestRunTable(t *testing.T) {
	var out bytes.Buffer
	must.Do(runCommand(t.Context(), little, &out, &cli.Progress{}, quick, noGPU("none")))
	text := out.String()
	if got, want := strings.Count(text, "\nmultiply ")+strings.Count(text, "\ntoken_stats_lse "),
		4*len(reweight.AvailableISAs()); got != want {
		t.Errorf("%d results, want %d:\n%s", got, want, text)
	}
	for _, want := range []string{"ns/element", "Plain read: ", "A/A null", "CPU"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.ContainsAny(text, "\x1b\r") || strings.Contains(text, report.Ended) {
		t.Errorf("codes for a terminal, or marked as partial:\n%s", text)
	}
}

// TestRunEnds: a run that an interrupt or an error ends prints what it has by then.
func TestRunEnds(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		at        int // the check that ends it
		interrupt bool
		want      error
	}{{1, true, cli.ErrInterrupted}, {2, false, broken}, {0, true, cli.ErrInterrupted}} {
		ctx, cancel := context.WithCancel(t.Context())
		if c.at == 0 {
			cancel()
		}
		w := quickPlan()
		n := 0
		w.Check = func(context.Context, kernels.Kernel, reweight.DType, []int,
			[]kernels.Implementation) ([]measure.Parity, error) {
			if n++; n < c.at {
				return nil, nil
			}
			if c.interrupt {
				cancel()
			}
			return nil, broken
		}
		var out bytes.Buffer
		err := runPlan(ctx, w, must.Get(machine.This()), false, &out)
		if err == nil || err.Error() != c.want.Error() || !strings.Contains(out.String(), report.Ended) ||
			strings.Contains(out.String(), "interrupted") {
			t.Errorf("check %d: %v after\n%s", c.at, err, out.String())
		}
		cancel()
	}
}

// interruptible ends ctx at the n-th check of parity.
func interruptible(t *testing.T, n int) (context.Context, measure.Plan) {
	ctx, cancel := context.WithCancel(t.Context())
	w := quickPlan()
	w.Check = func(ctx context.Context, k kernels.Kernel, dtype reweight.DType, sizes []int,
		impls []kernels.Implementation) ([]measure.Parity, error) {
		if n--; n == 0 {
			cancel()
		}
		return measure.Check(ctx, k, dtype, sizes, impls)
	}
	return ctx, w
}

// TestRunInterrupted: what there is is printed, and marked.
func TestRunInterrupted(t *testing.T) {
	for as, mark := range map[bool]string{false: report.Ended, true: `"partial": true`} {
		ctx, w := interruptible(t, 3)
		var out bytes.Buffer
		err := runPlan(ctx, w, must.Get(machine.This()), as, &out)
		if err != cli.ErrInterrupted {
			t.Errorf("error %v", err)
		}
		text := out.String()
		third := w.Shapes()[2].Kernel.Name // measured, but not checked
		if !strings.Contains(text, mark) || !strings.Contains(text, third) ||
			strings.Contains(text, w.Shapes()[3].Kernel.Name+" ") {
			t.Errorf("JSON %v: not three kernels, or not marked by %q:\n%s", as, mark, text)
		}
		if as {
			var r report.Report
			if decode(t, out.Bytes(), &r); len(r.Results) != 3*len(w.CPU) ||
				!math.IsNaN(float64(r.Results[len(r.Results)-1].MaxULP)) {
				t.Errorf("%d results, or errors that were not checked: %s", len(r.Results), text)
			}
		}
	}
}

// TestMainJobInterrupted: what there is by then is printed, and marked, without a
// verdict.
func TestMainJobInterrupted(t *testing.T) {
	for _, n := range []int{1, 3} {
		ctx, w := interruptible(t, n)
		j := quickJob()
		j.checks = w
		checkPartial(t, ctx, j, "Rollouts", "Speed")
	}
	for _, c := range []struct{ after, want, lacks string }{
		{"measuring token_stats", "Checked", "Training steps"},
		{"measuring training steps", "Speed", "All this took"},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		j := quickJob()
		*j.speed.Progress = cli.Progress{W: &stopper{after: c.after, cancel: cancel}}
		checkPartial(t, ctx, j, c.want, c.lacks)
		cancel()
	}
}

// checkPartial runs the main job, which ctx ends.
func checkPartial(t *testing.T, ctx context.Context, j job, want, lacks string) {
	t.Helper()
	var out bytes.Buffer
	err := mainCommand(ctx, nil, &out, j)
	if text := out.String(); err != cli.ErrInterrupted || !strings.HasSuffix(text, "\n"+report.Ended+"\n") ||
		strings.Contains(text, "kernel agrees") ||
		!strings.Contains(text, want) || strings.Contains(text, lacks) {
		t.Errorf("%v after\n%s", err, text)
	}
}

// A stopper cancels when it has been written some text.
type stopper struct {
	text   bytes.Buffer
	after  string
	cancel func()
}

func (s *stopper) Write(b []byte) (int, error) {
	s.text.Write(b)
	if strings.Contains(s.text.String(), s.after) {
		s.cancel()
	}
	return len(b), nil
}

func overheadQuickly(ctx context.Context, out io.Writer, args ...string) error {
	return overheadCommand(ctx, append([]string{"-rows", "40", "-vocab", "30"}, args...), out, &cli.Progress{}, quick,
		noGPU("none"))
}

func TestOverhead(t *testing.T) {
	type row struct {
		step, advantages string
		kl               bool
	}
	var out bytes.Buffer
	must.Do(overheadQuickly(t.Context(), &out, "-format", "json", "-isa", "portable", "-workers", "1,2"))
	var r report.Overhead
	decode(t, out.Bytes(), &r)
	seen := map[row]int{}
	for _, o := range r.Overhead {
		seen[row{o.Step, o.Advantages, o.KL}]++
		if !(o.OverUniform.Median > 0) || o.Verdict == "" || o.ISA != "portable" || o.Tokens != 40 || o.Vocab != 30 ||
			o.Workers == 1 && o.ExtraBytes <= 0 {
			t.Errorf("%+v", o)
		}
	}
	if len(seen) != 12 || len(r.Overhead) != 24 || r.Partial || r.Machine.CPU == "" {
		t.Errorf("%d rows of %d kinds, want 24 of 12", len(r.Overhead), len(seen))
	}
	out.Reset()
	if err := overheadQuickly(t.Context(), &out); err != nil || !strings.Contains(out.String(), "\nactfocus+aem ppo ") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// TestOverheadSchemes: a row for each scheme with and without an anchor, and no GPU.
func TestOverheadSchemes(t *testing.T) {
	var out bytes.Buffer
	must.Do(overheadQuickly(t.Context(), &out, "-format", "json", "-isa", "portable", "-scheme", "all"))
	var r report.Overhead
	decode(t, out.Bytes(), &r)
	seen := map[string]int{}
	for _, o := range r.Overhead {
		seen[o.Step]++
		advantages := "grpo"
		if scheme.MustParse(o.Step).OwnAdvantages() {
			advantages = "own"
		}
		if o.Advantages != advantages || !(o.OverUniform.Median > 0) || o.Verdict == "" || o.Allocs != 0 {
			t.Errorf("%+v", o)
		}
	}
	if len(seen) != len(scheme.All()) || len(r.Overhead) != 2*len(seen) {
		t.Errorf("%d rows of %d schemes", len(r.Overhead), len(seen))
	}
	out.Reset()
	if err := overheadQuickly(t.Context(), &out, "-scheme", "gtpo,aem+sapo"); err != nil ||
		strings.Contains(out.String(), "Cost:") || !strings.Contains(out.String(), "\naem+sapo grpo KL ") ||
		!strings.Contains(out.String(), "\nKL is an anchor: ") || !strings.Contains(out.String(), "\nNull is ") {
		t.Errorf("%v\n%s", err, out.String())
	}
	if err := overheadQuickly(t.Context(), io.Discard, "-rows", "8", "-scheme", "rloo"); err == nil ||
		err.Error() != "-rows is 8, want at least 28 tokens with -scheme: a whole group of rollouts" {
		t.Error(err)
	}
	g := withGPU(t)
	err := overheadCommand(t.Context(), []string{"-isa", "cuda", "-scheme", "gspo"}, io.Discard,
		&cli.Progress{}, quick, g)
	if err == nil || err.Error() != "-scheme means nothing to -isa cuda: a GPU has the steps of ActFocus and AEM only" {
		t.Error(err)
	}
}

func TestOverheadInterrupted(t *testing.T) {
	for format, mark := range map[string]string{"table": report.Ended, "json": `"partial": true`} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var out bytes.Buffer
		if err := overheadQuickly(ctx, &out, "-format", format); err != cli.ErrInterrupted ||
			!strings.Contains(out.String(), mark) {
			t.Errorf("%s: %v after\n%s", format, err, out.String())
		}
	}
}

// TestMain lets a test run this program as a process of its own.
func TestMain(m *testing.M) { testprogram.Main(m, main) }
