package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/seed621a2839/reweight/examples/learn/study"
	"github.com/seed621a2839/reweight/examples/learn/train"
)

// keep is a trainer that keeps nothing in the folder.
func keep(do study.Trainer) func(string, train.Settings) study.Trainer {
	return func(string, train.Settings) study.Trainer { return do }
}

// fake is a training that takes no time.
func fake(_ context.Context, run train.Run) (train.Result, error) {
	curve := []float64{0.1, 0.2, 0.3, 0.4, 0.5, 0.6}
	return train.Result{
		Run: run, Perfect: 1, Start: 0.1, Final: 0.6, Success: curve, Entropy: curve, ActionEntropy: curve,
		Drift: curve, ClipFraction: curve, KL: curve, Bottleneck: make([]train.Correlations, 3),
	}, nil
}

func TestArguments(t *testing.T) {
	for _, c := range []struct {
		args string
		want string
	}{
		{"-quick -full", "-quick and -full exclude each other"},
		{"more", `unexpected argument "more"`},
		{"-quick more", `unexpected argument "more"`},
		{"-seeds 0", "-seeds 0: want 1 to 20"},
		{"-seeds 21", "-seeds 21: want 1 to 20"},
		{"-seeds x", "-seeds"},
		{"-none", "-none"},
		{"-learning-rate 0", "-learning-rate 0: want a number above 0, at most 0.1"},
		{"-learning-rate NaN", "-learning-rate NaN: want"},
		{"-learning-rate 0.2", "-learning-rate 0.2: want"},
		{"-out=", "-out: want the name of a folder"},
		{"-game=", `-game "": this study has frozenlake4, sudoku4`},
		{"-schemes=", `no scheme is named ""; the names are uniform, actfocus, `},
		{"-schemes aem,", `no scheme is named ""; the names are uniform, actfocus, `},
		{"-schemes all,aem", `no scheme is named "all"; the names are`},
		{"-schemes AEM", `no scheme is named "AEM"; the names are`},
		{"-full -schemes aem,gtpo,aem", "aem is there twice; the names are uniform, actfocus, aem, actfocus+aem, empg, "},
		{"-schemes uniform", "there is nothing to compare with uniform; the names are"},
		{"-game chess", `-game "chess": this study has frozenlake4, sudoku4`},
	} {
		var stdout, stderr bytes.Buffer
		status := run(t.Context(), strings.Fields(c.args), &stdout, &stderr, keep(fake))
		if got := stderr.String(); status != 2 || stdout.Len() > 0 || !strings.HasPrefix(got, "learn: ") ||
			!strings.Contains(got, c.want) || strings.Count(got, "\n") != 1 {
			t.Errorf("%s: status %d, %q and %q, want 2 and %s", c.args, status, &stdout, got, c.want)
		}
	}
}

// TestLearningRate: another rate reaches the training, and its runs stand beside those
// of the default.
func TestLearningRate(t *testing.T) {
	out := t.TempDir()
	for _, rate := range []float64{train.Default.LearningRate, 1e-3} {
		var stdout, stderr bytes.Buffer
		var trained atomic.Int64
		trainer := func(_ string, settings train.Settings) study.Trainer {
			return func(ctx context.Context, run train.Run) (train.Result, error) {
				if settings.LearningRate != rate {
					t.Errorf("the rate is %v, want %v", settings.LearningRate, rate)
				}
				trained.Add(1)
				return fake(ctx, run)
			}
		}
		args := []string{"-game", "sudoku4", "-seeds", "1", "-learning-rate", fmt.Sprint(rate), "-out", out}
		if status := run(t.Context(), args, &stdout, &stderr, trainer); status != 0 || trained.Load() != 4 {
			t.Errorf("rate %v: status %d, %d runs, %s", rate, status, trained.Load(), &stderr)
		}
	}
}

func TestHelp(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if status := run(t.Context(), []string{"-h"}, &stdout, &stderr, keep(fake)); status != 0 || stderr.Len() > 0 || !strings.Contains(stdout.String(), "-seeds") {
		t.Errorf("status %d, %q and %q", status, &stdout, &stderr)
	}
}

func TestParse(t *testing.T) {
	games := []string{"frozenlake4", "sokoban", "sudoku4"}
	const papers = "uniform actfocus aem actfocus+aem"
	for _, c := range []struct {
		args         string
		cells, seeds int
		schemes      string
	}{
		{"", 2, 10, papers},
		{"-quick", 2, 10, papers},
		{"-quick -seeds 3 -game sudoku4", 1, 3, papers},
		{"-full", 3*2 + 4, 16, papers},
		{"-full -game sokoban", 2, 16, papers},
		{"-full -game sudoku4 -seeds 20", 2 + 2, 20, papers},
		{"-schemes all", 2, 10, papers + " empg gtpo entropy-mask gspo cispo sapo dppo-tv"},
		{"-full -schemes gspo,aem", 3*2 + 4, 16, "uniform aem gspo"},
		{"-schemes uniform,gtpo", 2, 10, "uniform gtpo"},
	} {
		o, err := parse(strings.Fields(c.args), games, nil)
		if err != nil || len(o.cells) != c.cells || o.seeds != c.seeds || strings.Join(o.schemes, " ") != c.schemes || o.out != "learn-out" {
			t.Errorf("%s: %+v, %v", c.args, o, err)
		}
	}
}

// TestInterruptAndResume: an interrupted study says so, and the same command goes
// on from there.
func TestInterruptAndResume(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2)) // so the runs of the first seeds are done before those of the third
	out := filepath.Join(t.TempDir(), "out")
	args := []string{"-seeds", "4", "-out", out}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var count atomic.Int64
	var stdout, stderr bytes.Buffer
	status := run(ctx, args, &stdout, &stderr, keep(func(ctx context.Context, run train.Run) (train.Result, error) {
		if run.Seed == 3 {
			cancel()
			return train.Result{}, ctx.Err()
		}
		count.Add(1)
		return fake(ctx, run)
	}))
	lines := strings.Split(strings.TrimSuffix(stderr.String(), "\n"), "\n")
	if last := lines[len(lines)-1]; status != 130 || !strings.HasPrefix(last, "learn: interrupted: ") || !strings.Contains(last, " of 32 runs are done") {
		t.Errorf("status %d, %s", status, &stderr)
	}
	if !strings.Contains(stdout.String(), "learn.html") {
		t.Errorf("what was found is not printed: %s", &stdout)
	}

	stdout.Reset()
	stderr.Reset()
	status = run(t.Context(), args, &stdout, &stderr, keep(func(ctx context.Context, run train.Run) (train.Result, error) {
		count.Add(1)
		return fake(ctx, run)
	}))
	if status != 0 || count.Load() != 32 || !strings.Contains(stdout.String(), "learn.csv") || !strings.Contains(stdout.String(), "runs.csv") {
		t.Errorf("status %d, %d runs were trained, %s", status, count.Load(), &stderr)
	}
	if text, err := os.ReadFile(filepath.Join(out, "runs.csv")); err != nil || bytes.Count(text, []byte("\n")) != 1+32 {
		t.Errorf("runs.csv: %v\n%s", err, text)
	}
	if files, err := os.ReadDir(filepath.Join(out, "runs", train.Default.Fingerprint())); err != nil || len(files) != 32 {
		t.Errorf("%d files, want 32: %v", len(files), err)
	}
}

// TestInterruptBeforeFirst: there is nothing to show.
func TestInterruptBeforeFirst(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout, stderr bytes.Buffer
	if status := run(ctx, []string{"-out", t.TempDir()}, &stdout, &stderr, keep(fake)); status != 130 || stdout.Len() > 0 {
		t.Errorf("status %d, %q", status, &stdout)
	}
}

// TestBadFolder: what could not be written in the end is found before the first run.
func TestBadFolder(t *testing.T) {
	for _, name := range []string{"learn.html", "learn.csv", "runs.csv", ""} {
		out := filepath.Join(t.TempDir(), "out")
		bad := filepath.Join(out, name)
		if name == "" {
			if err := os.WriteFile(out, nil, 0o666); err != nil {
				t.Fatal(err)
			}
		} else if err := os.MkdirAll(bad, 0o777); err != nil {
			t.Fatal(err)
		}
		var stdout, stderr bytes.Buffer
		status := run(t.Context(), []string{"-out", out}, &stdout, &stderr, keep(func(context.Context, train.Run) (train.Result, error) {
			t.Error("a run was trained")
			return train.Result{}, errors.New("no")
		}))
		if got := stderr.String(); status != 1 || stdout.Len() > 0 || !strings.HasPrefix(got, "learn: "+bad+": ") || strings.Count(got, "\n") != 1 {
			t.Errorf("%s: status %d, %q", bad, status, got)
		}
	}
}

func TestFailure(t *testing.T) {
	var stdout, stderr bytes.Buffer
	status := run(t.Context(), []string{"-out", t.TempDir()}, &stdout, &stderr, keep(func(context.Context, train.Run) (train.Result, error) {
		return train.Result{}, errors.New("two\nlines")
	}))
	lines := strings.Split(strings.TrimSuffix(stderr.String(), "\n"), "\n")
	if status != 1 || len(lines) != 2 || !strings.HasPrefix(lines[1], "learn: frozenlake4-grpo-useful-") || !strings.HasSuffix(lines[1], `two\nlines`) {
		t.Errorf("status %d, %q", status, stderr.String())
	}
}
