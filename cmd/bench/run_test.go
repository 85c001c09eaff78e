package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/cli"
	"github.com/seed621a2839/reweight/internal/machine"
	"github.com/seed621a2839/reweight/internal/measure"
	"github.com/seed621a2839/reweight/internal/report"
	"github.com/seed621a2839/reweight/internal/testprogram"
	"github.com/seed621a2839/reweight/kernels"
	"github.com/seed621a2839/reweight/scheme"
	"golang.org/x/perf/benchfmt"
)

// little is not much to measure.
var little = []string{"-kernel", "multiply,token_stats_lse", "-rows", "64", "-vocab", "128"}

// runQuickly runs bench run and returns what it prints.
func runQuickly(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := runCommand(t.Context(), append(slices.Clone(little), args...), &out, &cli.Progress{}, quick, &machine.GPU{})
	return out.String(), err
}

func TestRunFormats(t *testing.T) {
	const results = 4 // of the kernels' types
	n := results * len(reweight.AvailableISAs())
	for format, check := range map[string]func(string) int{
		"table": func(s string) int { return strings.Count(s, "\nmultiply ") + strings.Count(s, "\ntoken_stats_lse ") },
		"markdown": func(s string) int {
			return strings.Count(s, "\n| multiply |") + strings.Count(s, "\n| token_stats_lse |")
		},
		"csv": func(s string) int {
			rows, err := csv.NewReader(strings.NewReader(s)).ReadAll()
			if err != nil {
				t.Error(err)
			}
			return len(rows) - 1
		},
		"json": func(s string) int {
			var r report.Report
			decode(t, []byte(s), &r)
			return len(r.Results)
		},
		"go": func(s string) int {
			names, r := map[string]bool{}, benchfmt.NewReader(strings.NewReader(s), "")
			for r.Scan() {
				if line, ok := r.Result().(*benchfmt.Result); ok {
					names[line.Name.String()] = true
				} else {
					t.Error(r.Result())
				}
			}
			return len(names)
		},
	} {
		text, err := runQuickly(t, "-format", format)
		if err != nil {
			t.Fatal(format, err)
		}
		if got := check(text); got != n {
			t.Errorf("%s: %d results, want %d:\n%s", format, got, n, text)
		}
		if strings.ContainsAny(text, "\x1b\r") || strings.Contains(text, report.Ended) {
			t.Errorf("%s: codes for a terminal, or marked as partial", format)
		}
	}
}

// TestRunOut: the report is for people and what -baseline takes.
func TestRunOut(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "dir")
	if _, err := runQuickly(t, "-out", dir); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 3 {
		t.Fatalf("%v, %v", files, err)
	}
	saved := filepath.Join(dir, "results.json")
	r, err := report.Read(saved)
	if err != nil || r.Partial {
		t.Fatal(r.Partial, err)
	}
	if len(r.Overhead) != 6 || r.Overhead[0].Advantages != "grpo" || !(r.Overhead[0].OverUniform.Median > 0) {
		t.Errorf("training steps: %+v", r.Overhead)
	}
	if picture, err := os.ReadFile(filepath.Join(dir, "rollout.svg")); err != nil || !bytes.HasPrefix(picture, []byte("<svg")) {
		t.Errorf("the picture, %v:\n%s", err, picture)
	}
	page, err := os.ReadFile(filepath.Join(dir, "report.html"))
	if err != nil || !bytes.Contains(page, []byte("token_stats_lse")) || !bytes.Contains(page, []byte("&lt;answer&gt;")) || !bytes.Contains(page, []byte("</html>")) {
		t.Errorf("the page, %v:\n%s", err, page)
	}

	text, err := runQuickly(t, "-baseline", saved)
	if err != nil || !strings.Contains(text, "against baseline") || !strings.Contains(text, "Runs at different times drift") {
		t.Errorf("%v in\n%s", err, text)
	}
	if text, err := runQuickly(t, "-baseline", saved, "-rows", "65"); err == nil || !strings.Contains(err.Error(), "another shape: 64 then") || text != "" {
		t.Errorf("other shapes: %v, printed %q", err, text)
	}
	text, err = runQuickly(t, "-baseline", saved, "-format", "json", "-isa", "portable")
	var compared report.Report
	if decode(t, []byte(text), &compared); err != nil || compared.Results[0].Baseline == nil || !(compared.Results[0].Baseline.Ratio.Median > 0) {
		t.Errorf("%v in\n%s", err, text)
	}
}

// TestRunOutFails: what cannot be written is told in one line, but printed
// first; a directory that takes no file is refused before the measuring.
func TestRunOutFails(t *testing.T) {
	notDir := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(notDir, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if text, err := runQuickly(t, "-out", notDir); err == nil || !strings.Contains(err.Error(), "-out: ") || text != "" {
		t.Errorf("%v, printed %q", err, text)
	}
	block := func(dir, name string) {
		if err := os.Mkdir(filepath.Join(dir, name), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"results.json", "report.html", "results.partial.json", "report.partial.html", "rollout.svg"} {
		dir := t.TempDir()
		block(dir, name)
		if text, err := runQuickly(t, "-out", dir); err == nil || !strings.Contains(err.Error(), name+": not a regular file") || text != "" {
			t.Errorf("%v, printed %q", err, text)
		}
		if files, err := os.ReadDir(dir); len(files) != 1 {
			t.Errorf("left %v, %v", files, err)
		}
	}
	dir := t.TempDir() // now they come while it measures
	w := quickPlan()
	w.Kernels = w.Kernels[:1]
	w.Check = func(ctx context.Context, k kernels.Kernel, dtype reweight.DType, sizes []int, impls []kernels.Implementation) ([]measure.Parity, error) {
		block(dir, "results.json")
		block(dir, "report.html")
		return measure.Check(ctx, k, dtype, sizes, impls)
	}
	var out bytes.Buffer
	err := runPlan(t.Context(), w, runOptions{dir: dir}, &out)
	if err == nil || strings.Count(err.Error(), "not a regular file") != 2 || strings.Contains(err.Error(), "\n") || !strings.Contains(out.String(), w.Kernels[0].Name) {
		t.Errorf("%v, printed %q", err, out.String())
	}
	if files, err := os.ReadDir(dir); len(files) != 3 {
		t.Errorf("left %v, %v", files, err)
	}
}

// TestRunEnds: a run that an interrupt or an error ends leaves an earlier report
// as it was, and a run without results writes nothing.
func TestRunEnds(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		at        int // the check that ends it
		interrupt bool
		files     []string
		want      error
	}{
		{1, true, []string{"report.html", "report.partial.html", "results.json", "results.partial.json", "rollout.svg"}, cli.ErrInterrupted},
		{2, false, []string{"report.html", "report.partial.html", "results.json", "results.partial.json", "rollout.svg"}, errors.New("broken")},
		{0, true, []string{"report.html", "results.json"}, cli.ErrInterrupted},
	} {
		dir := t.TempDir()
		for _, name := range []string{"results.json", "report.html"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		if c.at == 0 {
			cancel()
		}
		w := quickPlan()
		n := 0
		w.Check = func(context.Context, kernels.Kernel, reweight.DType, []int, []kernels.Implementation) ([]measure.Parity, error) {
			if n++; n < c.at {
				return nil, nil
			}
			if c.interrupt {
				cancel()
			}
			return nil, broken
		}
		var out bytes.Buffer
		err := runPlan(ctx, w, runOptions{dir: dir}, &out)
		if err == nil || err.Error() != c.want.Error() || !strings.Contains(out.String(), report.Ended) || strings.Contains(out.String(), "interrupted") {
			t.Errorf("check %d: %v after\n%s", c.at, err, out.String())
		}
		var names []string
		files, _ := os.ReadDir(dir)
		for _, f := range files {
			names = append(names, f.Name())
		}
		if !slices.Equal(names, c.files) {
			t.Errorf("check %d: files %v, want %v", c.at, names, c.files)
		}
		for _, name := range []string{"results.json", "report.html"} {
			if text, err := os.ReadFile(filepath.Join(dir, name)); string(text) != name {
				t.Errorf("%s is lost: %q, %v", name, text, err)
			}
		}
		cancel()
	}
}

// interruptible ends ctx at the n-th check of parity.
func interruptible(t *testing.T, n int) (context.Context, measure.Plan) {
	ctx, cancel := context.WithCancel(t.Context())
	w := quickPlan()
	w.Check = func(ctx context.Context, k kernels.Kernel, dtype reweight.DType, sizes []int, impls []kernels.Implementation) ([]measure.Parity, error) {
		if n--; n == 0 {
			cancel()
		}
		return measure.Check(ctx, k, dtype, sizes, impls)
	}
	return ctx, w
}

// TestRunInterrupted: what there is is printed and saved, and marked.
func TestRunInterrupted(t *testing.T) {
	for _, as := range []cli.Format{cli.Table, cli.Markdown, cli.CSV, cli.JSON, cli.Go} {
		ctx, w := interruptible(t, 3)
		dir := t.TempDir()
		var out bytes.Buffer
		err := runPlan(ctx, w, runOptions{format: as, dir: dir}, &out)
		if err != cli.ErrInterrupted {
			t.Errorf("error %v", err)
		}
		text := out.String()
		mark := map[cli.Format]string{cli.JSON: `"partial": true`, cli.CSV: ",true\n"}[as]
		if mark == "" {
			mark = report.Ended
		}
		third := w.Shapes()[2].Kernel.Name // measured, but not checked
		if !strings.Contains(text, mark) || !strings.Contains(text, third) || strings.Contains(text, w.Shapes()[3].Kernel.Name+" ") {
			t.Errorf("%s: not three kernels, or not marked by %q:\n%s", as, mark, text)
		}
		r, err := report.Read(filepath.Join(dir, "results.partial.json"))
		if err != nil || !r.Partial || len(r.Results) != 3*len(w.CPU) || r.Overhead != nil {
			t.Errorf("saved %d results, %v", len(r.Results), err)
		}
		if q := r.Results[len(r.Results)-1]; q.MaxULP == q.MaxULP {
			t.Errorf("errors that were not checked: %v", q.MaxULP)
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
	if text := out.String(); err != cli.ErrInterrupted || !strings.HasSuffix(text, "\n"+report.Ended+"\n") || strings.Contains(text, "kernel agrees") ||
		!strings.Contains(text, want) || strings.Contains(text, lacks) {
		t.Errorf("%v after\n%s", err, text)
	}
	out.Reset() // nothing but the rollouts
	err = mainCommand(ctx, []string{"-v"}, &out, j)
	if text := out.String(); err != cli.ErrInterrupted || !strings.HasSuffix(text, "\n"+report.Ended+"\n") || !strings.Contains(text, "Action bottleneck") || strings.Contains(text, "Parity") {
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
	return overheadCommand(ctx, append([]string{"-rows", "40", "-vocab", "30"}, args...), out, &cli.Progress{}, quick, &machine.GPU{})
}

func TestOverhead(t *testing.T) {
	type row struct {
		step, advantages string
		kl               bool
	}
	var out bytes.Buffer
	if err := overheadQuickly(t.Context(), &out, "-format", "json", "-isa", "portable", "-workers", "1,2"); err != nil {
		t.Fatal(err)
	}
	var r report.Overhead
	decode(t, out.Bytes(), &r)
	seen := map[row]int{}
	for _, o := range r.Overhead {
		seen[row{o.Step, o.Advantages, o.KL}]++
		if !(o.OverUniform.Median > 0) || o.Verdict == "" || o.ISA != "portable" || o.Tokens != 40 || o.Vocab != 30 || o.Workers == 1 && o.ExtraBytes <= 0 {
			t.Errorf("%+v", o)
		}
	}
	if len(seen) != 12 || len(r.Overhead) != 24 || r.Partial || r.Machine.CPU == "" {
		t.Errorf("%d rows of %d kinds, want 24 of 12", len(r.Overhead), len(seen))
	}
	for format, want := range map[string]string{"table": "\nactfocus+aem ppo ", "markdown": "\n| actfocus+aem | ppo | yes |", "csv": "\nactfocus+aem,ppo,true,"} {
		out.Reset()
		if err := overheadQuickly(t.Context(), &out, "-format", format); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%v, no %q in\n%s", err, want, out.String())
		}
		if rows, err := csv.NewReader(&out).ReadAll(); format == "csv" && (err != nil || len(rows) != 13) {
			t.Errorf("%d rows, %v", len(rows), err)
		}
	}
}

// TestOverheadSchemes: a row for each scheme with and without an anchor, and no GPU.
func TestOverheadSchemes(t *testing.T) {
	var out bytes.Buffer
	if err := overheadQuickly(t.Context(), &out, "-format", "json", "-isa", "portable", "-scheme", "all"); err != nil {
		t.Fatal(err)
	}
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
	if err := overheadQuickly(t.Context(), &out, "-scheme", "gtpo,aem+sapo"); err != nil || strings.Contains(out.String(), "Cost:") || !strings.Contains(out.String(), "\naem+sapo grpo KL ") || !strings.Contains(out.String(), "\nKL is an anchor: ") || !strings.Contains(out.String(), "\nNull is ") {
		t.Errorf("%v\n%s", err, out.String())
	}
	if err := overheadQuickly(t.Context(), io.Discard, "-rows", "8", "-scheme", "rloo"); err == nil || err.Error() != "-rows is 8, want at least 28 tokens with -scheme: a whole group of rollouts" {
		t.Error(err)
	}
	g := &machine.GPU{Open: withGPU(t)}
	err := overheadCommand(t.Context(), []string{"-isa", "cuda", "-scheme", "gspo"}, io.Discard, &cli.Progress{}, quick, g)
	if err == nil || err.Error() != "-scheme means nothing to -isa cuda: a GPU has the steps of ActFocus and AEM only" {
		t.Error(err)
	}
}

func TestOverheadInterrupted(t *testing.T) {
	for format, mark := range map[string]string{"table": report.Ended, "markdown": report.Ended, "json": `"partial": true`} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var out bytes.Buffer
		if err := overheadQuickly(ctx, &out, "-format", format); err != cli.ErrInterrupted || !strings.Contains(out.String(), mark) {
			t.Errorf("%s: %v after\n%s", format, err, out.String())
		}
	}
}

// TestMain lets a test run this program as a process of its own.
func TestMain(m *testing.M) { testprogram.Main(m, main) }
