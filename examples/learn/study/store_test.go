package study

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/examples/learn/train"
)

// quickRuns are those of a small study.
var quickRuns = Runs([]Cell{sampleCell, another}, DefaultSchemes, 3)

// A fake is a training that counts its runs.
type fake struct{ count atomic.Int64 }

func (f *fake) do(_ context.Context, run train.Run) (train.Result, error) {
	f.count.Add(1)
	r := sample(run, 0.1, 0.1, float64(run.Seed)/10)
	r.Bottleneck[1] = train.Correlations{All: 0.1, Action: bench.Number(math.NaN())}
	return r, nil
}

func newStore(t *testing.T) Store {
	return Store{Dir: filepath.Join(t.TempDir(), "out", "runs"), Settings: "a"}
}

func silent() *Progress { return NewProgress(io.Discard) }

// expectResults: the results are those of the runs, in order.
func expectResults(t *testing.T, results []train.Result, runs []train.Run) {
	t.Helper()
	if len(results) != len(runs) {
		t.Fatalf("%d results, want %d", len(results), len(runs))
	}
	for i, run := range runs {
		want, _ := new(fake).do(t.Context(), run)
		got := results[i]
		if !math.IsNaN(float64(got.Bottleneck[1].Action)) {
			t.Fatalf("%s: a correlation is %v, want NaN", key(run), got.Bottleneck[1].Action)
		}
		got.Bottleneck[1].Action, want.Bottleneck[1].Action = 0, 0 // NaN is not equal to itself
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%s: %+v, want %+v", key(run), got, want)
		}
		got.Bottleneck[1].Action = bench.Number(math.NaN())
	}
}

func TestStoreResumes(t *testing.T) {
	s := newStore(t)
	var f fake
	half := len(quickRuns) / 2
	for _, c := range []struct {
		runs []train.Run
		want int64 // runs that were trained by then
	}{
		{quickRuns[:half], int64(half)},
		{quickRuns, int64(len(quickRuns))},
		{quickRuns, int64(len(quickRuns))},
		{quickRuns[3:5], int64(len(quickRuns))},
	} {
		results, err := s.Do(t.Context(), c.runs, f.do, silent())
		if err != nil {
			t.Fatal(err)
		}
		if f.count.Load() != c.want {
			t.Errorf("%d runs were trained, want %d", f.count.Load(), c.want)
		}
		expectResults(t, results, c.runs)
	}
	files, err := os.ReadDir(filepath.Join(s.Dir, s.Settings))
	if err != nil || len(files) != len(quickRuns) {
		t.Errorf("%d files, want %d: %v", len(files), len(quickRuns), err)
	}
}

// TestStoreSettings: results of other settings stand beside each other.
func TestStoreSettings(t *testing.T) {
	s := newStore(t)
	for i, settings := range []string{"a", "b", "b", "a"} {
		var f fake
		s.Settings = settings
		if _, err := s.Do(t.Context(), quickRuns, f.do, silent()); err != nil {
			t.Fatal(err)
		}
		if want := []int{len(quickRuns), len(quickRuns), 0, 0}[i]; f.count.Load() != int64(want) {
			t.Errorf("settings %s: %d runs were trained, want %d", settings, f.count.Load(), want)
		}
	}
}

func TestStoreBadFile(t *testing.T) {
	s := newStore(t)
	run, other := quickRuns[1], quickRuns[2]
	if _, err := s.Do(t.Context(), quickRuns[:3], new(fake).do, silent()); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(s.path(run))
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := os.ReadFile(s.path(other))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"empty":          "",
		"cut short":      string(good[:len(good)/2]),
		"two":            string(good) + string(good),
		"not JSON":       "hello\nworld",
		"a list":         "[1, 2]",
		"another object": `{"a": 1}`,
		"another run":    string(foreign),
		"no settings":    strings.Replace(string(good), `"settings": "a"`, `"settings": ""`, 1),
		"no curve":       strings.Replace(string(good), `"success"`, `"failure"`, 1),
		"wrong success":  strings.Replace(string(good), `"final": 0.1`, `"final": 7`, 1),
	} {
		if text == string(good) {
			t.Fatalf("%s: nothing was changed", name)
		}
		if err := os.WriteFile(s.path(run), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		var f fake
		results, err := s.Do(t.Context(), quickRuns, f.do, silent())
		if err == nil || !strings.HasPrefix(err.Error(), s.path(run)+": ") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v, want one line that names %s", name, err, s.path(run))
		}
		if results != nil || f.count.Load() > 0 {
			t.Errorf("%s: %d runs were trained", name, f.count.Load())
		}
		if left, _ := os.ReadFile(s.path(run)); string(left) != text {
			t.Errorf("%s: the file was changed", name)
		}
	}
	if err := os.Truncate(s.path(run), 1<<20+1); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Do(t.Context(), quickRuns, new(fake).do, silent()); err == nil || err.Error() != s.path(run)+": 1048577 bytes, want at most 1048576" {
		t.Errorf("too large a file: error %v", err)
	}
	if err := os.Remove(s.path(run)); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(s.path(run), 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Do(t.Context(), quickRuns, new(fake).do, silent()); err == nil || !strings.HasPrefix(err.Error(), s.path(run)+": ") {
		t.Errorf("a directory: error %v", err)
	}
}

func TestStoreBadFolder(t *testing.T) {
	s := newStore(t)
	s.Dir = filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(s.Dir, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	var f fake
	if _, err := s.Do(t.Context(), quickRuns, f.do, silent()); err == nil || !strings.HasPrefix(err.Error(), s.Dir+": ") || f.count.Load() > 0 {
		t.Errorf("error %v after %d runs", err, f.count.Load())
	}
}

// TestStoreInterrupted: when ctx ends, runs in progress end, finished ones are in
// the store, and the next call does the rest.
func TestStoreInterrupted(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2)) // so at most one of the first runs is not begun
	s := newStore(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var f fake
	results, err := s.Do(ctx, quickRuns, func(ctx context.Context, run train.Run) (train.Result, error) {
		if run.Seed == 2 && run.Scheme == "aem" { // the interrupt comes while this one runs
			cancel()
			<-ctx.Done()
			return train.Result{}, ctx.Err()
		}
		return f.do(ctx, run)
	}, silent())
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v, want %v", err, context.Canceled)
	}
	if len(results) < 9 || len(results) == len(quickRuns) || int64(len(results)) != f.count.Load() {
		t.Errorf("%d results of %d finished runs", len(results), f.count.Load())
	}
	before := f.count.Load()
	results, err = s.Do(t.Context(), quickRuns, f.do, silent())
	if err != nil {
		t.Fatal(err)
	}
	expectResults(t, results, quickRuns)
	if again := f.count.Load() - before; again != int64(len(quickRuns))-before {
		t.Errorf("%d runs were trained, want %d", again, int64(len(quickRuns))-before)
	}
}

// TestStoreInterruptedBefore: nothing is begun.
func TestStoreInterruptedBefore(t *testing.T) {
	s := newStore(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var f fake
	if results, err := s.Do(ctx, quickRuns, f.do, silent()); !errors.Is(err, context.Canceled) || len(results) > 0 || f.count.Load() > 0 {
		t.Errorf("%d results, %d runs, error %v", len(results), f.count.Load(), err)
	}
}

// TestStoreFailure: the first failure is the error and names its run; what was
// finished is kept.
func TestStoreFailure(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2)) // so at most one of the first runs is not begun
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		do   func(context.Context, train.Run) (train.Result, error)
		want string
	}{
		"error": {func(context.Context, train.Run) (train.Result, error) { return train.Result{}, boom }, "boom"},
		"another run": {func(ctx context.Context, run train.Run) (train.Result, error) {
			return new(fake).do(ctx, quickRuns[0])
		}, "the result is that of " + key(quickRuns[0])},
		"no result": {func(_ context.Context, run train.Run) (train.Result, error) { return train.Result{Run: run}, nil }, "no iterations"},
		"NaN": {func(ctx context.Context, run train.Run) (train.Result, error) {
			r, err := new(fake).do(ctx, run)
			r.Entropy = []float64{math.NaN(), 0}
			return r, err
		}, "json: unsupported value: NaN"},
	} {
		s := newStore(t)
		bad := quickRuns[10]
		var f fake
		results, err := s.Do(t.Context(), quickRuns, func(ctx context.Context, run train.Run) (train.Result, error) {
			if run == bad {
				return c.do(ctx, run)
			}
			return f.do(ctx, run)
		}, silent())
		if want := key(bad) + ": " + c.want; err == nil || err.Error() != want {
			t.Errorf("%s: error %v, want %s", name, err, want)
		}
		if len(results) < 9 || len(results) == len(quickRuns) || int64(len(results)) != f.count.Load() {
			t.Errorf("%s: %d results of %d runs", name, len(results), f.count.Load())
		}
		files, _ := os.ReadDir(filepath.Join(s.Dir, s.Settings))
		if len(files) != len(results) {
			t.Errorf("%s: %d files, want %d", name, len(files), len(results))
		}
	}
}

// TestStoreWorkers: as many runs at a time as there are CPUs, and not more.
func TestStoreWorkers(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
	var f fake
	var mu sync.Mutex
	running, most := 0, 0
	full := make(chan struct{}) // is closed when three are running
	results, err := newStore(t).Do(t.Context(), quickRuns, func(ctx context.Context, run train.Run) (train.Result, error) {
		mu.Lock()
		running++
		if running == 3 && most < 3 {
			close(full)
		}
		most = max(most, running)
		mu.Unlock()
		<-full
		result, err := f.do(ctx, run)
		mu.Lock()
		running--
		mu.Unlock()
		return result, err
	}, silent())
	if err != nil {
		t.Fatal(err)
	}
	expectResults(t, results, quickRuns)
	if most != 3 {
		t.Errorf("%d runs at a time, want 3", most)
	}
}

// TestProgress: a line for each tenth of the runs where there is no terminal, and
// each run where there is one.
func TestProgress(t *testing.T) {
	s := newStore(t)
	var f fake
	var out bytes.Buffer
	if _, err := s.Do(t.Context(), quickRuns[:4], f.do, NewProgress(&out)); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(out.String(), "\n"); got != 1+4 {
		t.Errorf("%d lines:\n%s", got, &out)
	}
	out.Reset()
	if _, err := s.Do(t.Context(), quickRuns, f.do, NewProgress(&out)); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if !strings.HasPrefix(lines[0], "24 runs, 4 of them done before.") || len(lines) != 1+9 || lines[9] != "24 of 24 runs" ||
		!strings.HasPrefix(lines[1], "5 of 24 runs, about ") || !strings.HasSuffix(lines[1], " left") {
		t.Errorf("progress:\n%s", strings.Join(lines, "\n"))
	}
	out.Reset()
	p := &Progress{w: &out, terminal: true}
	p.begin(0, 2)
	p.add()
	p.add()
	p.end()
	if got := out.String(); strings.Count(got, "\r") != 2 || strings.Count(got, "\n") != 2 || !strings.HasSuffix(got, "\n") {
		t.Errorf("progress on a terminal: %q", got)
	}
}
