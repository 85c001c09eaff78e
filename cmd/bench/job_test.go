package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/cmd/bench/internal/machine"
	"github.com/seed621a2839/reweight/cmd/bench/internal/measure"
	"github.com/seed621a2839/reweight/cmd/bench/internal/report"
	"github.com/seed621a2839/reweight/internal/cli"
	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/internal/test/testprogram"
	"github.com/seed621a2839/reweight/kernels"
)

// quick measures as little as can be.
var quick = bench.Sampler{Block: time.Microsecond, Rounds: 1}

func quickJob() job {
	j := defaultJob(&cli.Progress{}, noGPU("none"))
	j.sizes = []int{1, 40}
	for _, p := range []*measure.Plan{&j.speed, &j.cached, &j.steps} {
		p.Sampler, p.Sizes.Vocabs, p.Sizes.Rows = quick, []int{64}, 24
	}
	return j
}

// quickPlan measures all kernels in their first format, and checks them.
func quickPlan() measure.Plan { return quickJob().speed }

// TestMainJob: the verdict comes first, then the tables, of at most 100 columns.
func TestMainJob(t *testing.T) {
	var out bytes.Buffer
	must.Do(mainCommand(t.Context(), nil, &out, quickJob()))
	text := out.String()
	rest := text
	for _, want := range []string{ // in this order
		"\nRight: every kernel agrees", "\nFast:  token_stats on ", "\nCost:  ActFocus and AEM with a KL anchor: ",
		"\nSpeed", "\nTraining steps", "times uniform", "\nactfocus+aem ", "\nRollouts of", "actfocus+aem  0.084631", "34.6%",
		"\nChecked: 42 kernels and number formats", "\nAll this took",
	} {
		_, after, ok := strings.Cut(rest, want)
		if !ok {
			t.Errorf("no %q, or not there, in\n%s", want, text)
			break
		}
		rest = after
	}
	names := machine.ISANames()
	for _, k := range kernels.All() {
		if k.Rows {
			names = append(names, "\n"+k.Name+" ")
		}
	}
	for _, want := range names {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "WRONG") || strings.ContainsAny(text, "\x1b\r") {
		t.Errorf("a wrong result, or codes for a terminal:\n%s", text)
	}
	if before, _, _ := strings.Cut(text, "\nRight: "); strings.Count(before, "\n") != 1 {
		t.Errorf("more than a line before the verdict:\n%s", before)
	}
	for line := range strings.Lines(text) {
		if strings.TrimRight(line, " \n") != strings.TrimSuffix(line, "\n") {
			t.Errorf("trailing space in %q", line)
		}
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 100 {
			t.Errorf("%d columns: %q", n, line)
		}
	}
}

// TestMainJobLate: when its time is over, the first kernel and the steps are measured, and the others not.
func TestMainJobLate(t *testing.T) {
	j := quickJob()
	j.within = 0
	var out bytes.Buffer
	must.Do(mainCommand(t.Context(), nil, &out, j))
	text := out.String()
	for _, want := range []string{"\nFast:  token_stats on ", "\nCost:  ActFocus", "\ntoken_stats ", "\nactfocus+aem ",
		"\nAfter 0s the other kernels were left out: bench run measures them.\nChecked: 42 kernels"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "row_gradient") {
		t.Errorf("a kernel that is left out in\n%s", text)
	}
}

// TestMainJobBegins: the first line is there before anything is computed.
func TestMainJobBegins(t *testing.T) {
	var out bytes.Buffer
	j := quickJob()
	j.checks.Check = func(ctx context.Context, k kernels.Kernel, dtype reweight.DType, sizes []int,
		impls []kernels.Implementation) ([]measure.Parity, error) {
		if text := out.String(); !strings.HasSuffix(text, "This takes about a minute.\n") ||
			strings.Count(text, "\n") != 1 {
			t.Errorf("when the checks begin there is %q", text)
		}
		return measure.Check(ctx, k, dtype, sizes, impls)
	}
	must.Do(mainCommand(t.Context(), nil, &out, j))
}

// planted is a check that finds min_max wrong with the first instruction set.
func planted(ctx context.Context, k kernels.Kernel, dtype reweight.DType, sizes []int,
	impls []kernels.Implementation) ([]measure.Parity, error) {
	parities, err := measure.Check(ctx, k, dtype, sizes, impls)
	if err == nil && k.Name == "min_max" {
		parities[0].Failure = "min_max f32: far off"
	}
	return parities, err
}

// TestMainJobFails: with a wrong kernel it says so, does not conclude that all
// is well, and is a failed check.
func TestMainJobFails(t *testing.T) {
	j := quickJob()
	j.checks.Check = planted
	var out bytes.Buffer
	err := mainCommand(t.Context(), nil, &out, j)
	if _, failed := errors.AsType[*cli.FailedCheck](err); !failed || !strings.Contains(err.Error(), "far off") {
		t.Errorf("error %v", err)
	}
	if text := out.String(); !strings.Contains(text, "\nRight: NO. Some results are WRONG:\nmin_max f32: far off\n") ||
		strings.Contains(text, "kernel agrees") {
		t.Errorf("output\n%s", text)
	}
}

// TestMainJobStops: what cannot be written is not computed either.
func TestMainJobStops(t *testing.T) {
	for _, space := range []testprogram.FullDisk{0, 400, 2000} {
		out := &cli.FirstError{W: &space}
		if err := mainCommand(t.Context(), nil, out, quickJob()); err == nil || out.Err == nil {
			t.Errorf("error %v, output's error %v", err, out.Err)
		}
	}
}

func runReport(t *testing.T, args ...string) (r report.Report, text []byte) {
	t.Helper()
	var out bytes.Buffer
	must.Do(runCommand(t.Context(), append(args, "-format", "json"), &out, &cli.Progress{}, quick, noGPU("none")))
	decode(t, out.Bytes(), &r)
	return r, out.Bytes()
}

// TestRunJSON: the results have figures, under the names that their users know.
func TestRunJSON(t *testing.T) {
	r, text := runReport(t, "-vocab", "50", "-rows", "30")
	var keys struct{ Results []map[string]any }
	must.Do(json.Unmarshal(text, &keys))
	const known = "[allocs_per_op bytes_per_op dtype gb_per_s isa kernel max_abs max_ulp ns_per_element null " +
		"read_gb_per_s roofline_share rows times_portable times_reference vocab workers]"
	if got := fmt.Sprint(slices.Sorted(maps.Keys(keys.Results[0]))); got != known {
		t.Errorf("results have %s, want %s", got, known)
	}
	names := map[string]bool{}
	for _, q := range r.Results {
		names[q.Kernel+" "+q.DType+" "+q.ISA] = true
		k := must.Get(kernels.Find(q.Kernel))
		if want := map[bool]int{true: 50}[k.Rows]; q.Vocab != want || q.Rows != 30 || q.Workers != 1 {
			t.Errorf("%+v", q)
		}
		for _, x := range []float64{q.NsPerElement.Median, q.GBPerS, q.Share.Median, q.TimesReference.Median} {
			if !(x > 0) {
				t.Errorf("%+v has a figure that is not positive", q)
			}
		}
		if !(q.MaxULP <= 2 && q.MaxAbs <= 1e-2) {
			t.Errorf("%+v: no errors, or large ones", q)
		}
	}
	want := 0
	for _, k := range kernels.All() {
		want += len(k.DTypes) * len(reweight.AvailableISAs())
	}
	if len(names) != want || len(r.Results) != want {
		t.Errorf("%d results of %d names, want %d", len(r.Results), len(names), want)
	}
	if r.Results[0].Kernel == "token_stats" && r.Results[0].MaxULP == 0 && r.Results[0].MaxAbs == 0 {
		t.Error("token_stats without any error: was it checked?")
	}
	if r.Machine.CPU == "" || r.Machine.Go == "" {
		t.Errorf("machine %v", r.Machine)
	}
}

// TestRunFails: with a wrong kernel it still prints all, and is a failed check.
func TestRunFails(t *testing.T) {
	w := quickPlan()
	w.Check = planted
	var out bytes.Buffer
	err := runPlan(t.Context(), w, must.Get(machine.This()), true, &out)
	if _, failed := errors.AsType[*cli.FailedCheck](err); !failed || !strings.Contains(err.Error(), "far off") {
		t.Errorf("error %v", err)
	}
	var r report.Report
	decode(t, out.Bytes(), &r)
	if len(r.Results) == 0 || len(r.Failures) != 1 {
		t.Error("no results, or no failure")
	}
}

func TestRunSelects(t *testing.T) {
	r, _ := runReport(t, "-kernel", "multiply,token_stats_lse", "-isa", "portable", "-vocab", "30,20", "-rows", "8",
		"-workers", "3,1")
	var got []string
	for _, q := range r.Results {
		if q.ISA != "portable" || q.Rows != 8 {
			t.Errorf("%+v", q)
		}
		if q.DType == "f32" {
			got = append(got, strings.Join([]string{q.Kernel, string(rune('0' + q.Vocab/10)),
				string(rune('0' + q.Workers))}, " "))
		}
	}
	want := []string{"multiply 0 1", "token_stats_lse 3 3", "token_stats_lse 3 1", "token_stats_lse 2 3",
		"token_stats_lse 2 1"}
	if !slices.Equal(got, want) {
		t.Errorf("results %q, want %q", got, want)
	}
}

// TestRunPinned: figures of a process on one CPU say so.
func TestRunPinned(t *testing.T) {
	w := quickPlan()
	w.Kernels = w.Kernels[:1]
	m, cpu := must.Get(machine.This()), 5
	m.Pinned = &cpu
	var out bytes.Buffer
	if err := runPlan(t.Context(), w, m, false, &out); err != nil ||
		!strings.Contains(out.String(), ", pinned to CPU 5\n") {
		t.Errorf("%v in\n%s", err, out.String())
	}
}
