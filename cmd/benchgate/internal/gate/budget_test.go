package gate

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/cmd/benchgate/internal/gotest"
	"github.com/seed621a2839/reweight/cmd/benchgate/internal/gotest/worker"
	"github.com/seed621a2839/reweight/internal/test/must"
)

// A waitingVersion is a version whose calls wait, in the time of a test without a clock of its own.
type waitingVersion struct {
	fakeVersion
	opt    *Options
	calls  map[string]time.Duration // what one takes, by the benchmark
	vary   float64                  // every second process has so much more, and the others less
	starts *int
}

func (s waitingVersion) start(ctx context.Context, _ string, _ int) (bencher, error) {
	time.Sleep(20 * time.Millisecond)
	*s.starts++
	return waiting{s, ctx, 1 + s.vary*float64(1-*s.starts%2*2)}, ctx.Err()
}

type waiting struct {
	waitingVersion
	ctx   context.Context
	speed float64
}

func (w waiting) close() {}

func (w waiting) run(q worker.Request) (o reply, err error) {
	var calls int
	if _, err := fmt.Sscanf(q.Benchtime, "%dx", &calls); err != nil {
		return o, err
	}
	each := time.Duration(w.speed * float64(w.calls[q.Benchmark]))
	o.took = time.Duration(calls*q.Count) * each
	select {
	case <-w.ctx.Done():
		return o, newFailure("", "it was killed")
	case <-time.After(w.opt.patience()):
		why := newFailure("", "no answer in time")
		why.hung = true
		return o, why
	case <-time.After(o.took):
	}
	for range q.Count {
		o.results = append(o.results, result{q.Benchmark, map[string]float64{nanoseconds: float64(each)}})
	}
	return o, nil
}

// runWaiting runs the gate on benchmarks whose names say how long a call waits, and that wait so
// many times as long on the new version, more or less in each process. It returns how long
// that takes.
func runWaiting(t *testing.T, waits string, budget time.Duration, slower, vary float64) (g *gate, took time.Duration) {
	g = quietGate(0.01)
	defer g.steps.close()
	g.Budget, g.Bench = budget, "."
	base := waitingVersion{opt: &g.Options, calls: map[string]time.Duration{}, starts: new(int)}
	now := waitingVersion{opt: &g.Options, calls: map[string]time.Duration{}, starts: new(int), vary: vary}
	p := gotest.Package{Path: "m", Rel: "."}
	for _, wait := range strings.Fields(waits) {
		each := must.Get(time.ParseDuration(wait))
		p.Benchmarks = append(p.Benchmarks, gotest.Benchmark{Name: "Benchmark" + wait})
		base.calls["Benchmark"+wait] = each
		now.calls["Benchmark"+wait] = time.Duration(slower * float64(each))
	}
	k := g.newComparison(base, now)
	has := map[string]gotest.Package{".": p}
	begin := time.Now()
	must.Do(k.findAndCompare(t.Context(), [2]map[string]gotest.Package{has, has}, []string{"."}))
	return g, time.Since(begin)
}

// TestBudget: a run ends within the budget, finding included, whatever its benchmarks wait
// for. What is too long is left out in words, and what is not is judged.
func TestBudget(t *testing.T) {
	const all = "5ms 60ms 500ms 3s 12s 10m"
	for _, c := range []struct {
		waits          string
		budget         time.Duration
		decided, notes string // benchmarks, and parts of the notes separated by |
	}{
		{all, time.Minute, "5ms 60ms", "Left out, as a run takes longer than 6s, too long for -budget 1m0s: Benchmark12s, Benchmark10m|Left out, as they take too long for -budget 1m0s ("},
		{all, 10 * time.Minute, "5ms 60ms 500ms 3s", "Left out, as a run takes longer than 1m0s, too long for -budget 10m0s: Benchmark10m|would do for all): Benchmark12s"},
		{"5ms", 30 * time.Second, "5ms", ""},
		{"60ms", 30 * time.Second, "60ms", ""},
		{"500ms", 12 * time.Second, "", "would do for all): Benchmark500ms"},
		{"500ms", 70 * time.Second, "500ms", ""},
		{"12s", 25 * time.Second, "", "Left out, as a run takes longer than 2.5s, too long for -budget 25s: Benchmark12s"},
		{"5ms 12s 10m 3s", 20 * time.Second, "5ms", "Benchmark12s, Benchmark10m, Benchmark3s"},
		{"12s", time.Hour, "12s", ""},
		{"3s", 6 * time.Second, "", "Left out, as a run takes longer than 2s, too long for -budget 6s: Benchmark3s"},
		{"500ms", time.Second, "", "Left out, as it took longer than half of -budget 1s to find benchmarks: Benchmark500ms"},
	} {
		for _, version := range []struct {
			slower, vary float64
			want         bench.Verdict
		}{
			{1, 0, bench.Pass},
			{1.3, 0, bench.Regression},
			{1.05, 0.1, bench.Inconclusive}, // which takes all of the budget
		} {
			synctest.Test(t, func(t *testing.T) {
				g, took := runWaiting(t, c.waits, c.budget, version.slower, version.vary)
				var decided []string
				for _, q := range g.report.Results {
					if q.Verdict != version.want {
						t.Errorf("%s, budget %v: %s is %v, want %v: %s", c.waits, c.budget, q.Benchmark, q.Verdict,
							version.want, q.Message)
					}
					decided = append(decided, strings.TrimPrefix(q.Benchmark, "Benchmark"))
				}
				notes := strings.Join(g.report.Notes, "\n")
				if got := strings.Join(decided, " "); got != c.decided || took > c.budget*6/5 {
					t.Errorf("%s, %v times as long, budget %v: decided %q in %v, want %q\nnotes %s", c.waits,
						version.slower, c.budget, got, took, c.decided, notes)
				}
				for part := range strings.SplitSeq(c.notes, "|") {
					if !strings.Contains(notes, part) {
						t.Errorf("%s, budget %v: no %q in\n%s", c.waits, c.budget, part, notes)
					}
				}
			})
		}
	}
	// The new version takes much longer than what the base lets expect.
	synctest.Test(t, func(t *testing.T) {
		g, took := runWaiting(t, "100ms 101ms 102ms 103ms 104ms 105ms 106ms 107ms", time.Minute, 50, 0)
		if took > 66*time.Second || len(g.report.Results) == 0 || g.report.Results[0].Verdict != bench.Inconclusive {
			t.Errorf("%d results in %v: %v", len(g.report.Results), took, g.report.Results)
		}
	})
}

// TestSlowStart: a package whose processes take too long to start is left out, as a benchmark
// is that takes too long. If the base starts soon, the new version fails.
func TestSlowStart(t *testing.T) {
	for _, c := range []struct {
		base, now time.Duration
		notes     string
		results   int
	}{
		{time.Minute, time.Minute, "Left out, as a run takes longer than 2s, too long for -budget 20s: all benchmarks", 0},
		{time.Second, time.Minute, "Left out, as a run takes longer than 2s, too long for -budget 20s: all benchmarks", 0},
		{time.Millisecond, time.Minute, "", 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := quietGate(0.01)
			defer g.steps.close()
			g.Budget, g.Bench = 20*time.Second, "."
			version := func(start time.Duration) fakeVersion {
				return func(int) (bencher, error) {
					time.Sleep(min(start, g.patience()))
					if start > g.patience() {
						return nil, &failure{what: "no answer in time", hung: true}
					}
					return steady(100), nil
				}
			}
			k := g.newComparison(version(c.base), version(c.now))
			has := map[string]gotest.Package{".": {Path: "m", Rel: ".",
				Benchmarks: []gotest.Benchmark{{Name: "BenchmarkX"}}}}
			err := k.findAndCompare(t.Context(), [2]map[string]gotest.Package{has, has}, []string{"."})
			if notes := strings.Join(g.report.Notes, "\n"); err != nil || notes != c.notes ||
				len(g.report.Results) != c.results {
				t.Errorf("%+v: %v, %+v, notes %s", c, err, g.report.Results, notes)
			}
		})
	}
}

// TestQueued: what a thread of the runtime waits for a CPU is not taken for what the work does.
func TestQueued(t *testing.T) {
	const ms = time.Millisecond
	before := map[string]threadTime{"work": {100 * ms, 10 * ms}, "runtime": {5 * ms, 1000 * ms}}
	for _, c := range []struct {
		what  string
		after map[string]threadTime
		want  time.Duration
	}{
		{"a sleep", map[string]threadTime{"work": {102 * ms, 11 * ms}, "runtime": {6 * ms, 1500 * ms}}, ms},
		{"others have half of the CPU", map[string]threadTime{"work": {150 * ms, 60 * ms}, "runtime": {6 * ms, 1500 * ms}}, 50 * ms},
		{"a new thread", map[string]threadTime{"work": {100 * ms, 10 * ms}, "new": {3 * ms, 2 * ms}}, 2 * ms},
		{"nothing is known", nil, 0},
	} {
		if got := queued(before, c.after); got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}

// TestWaits: a benchmark that waits has as many calls in a block as one that is busy for as
// long, and no more than the longest block has room for.
func TestWaits(t *testing.T) {
	old, now := twoVersions(t, map[string]string{"x_test.go": `package x

import (
	"testing"
	"time"
)

func BenchmarkSleep(b *testing.B) {
	for i := 0; i < b.N; i++ {
		time.Sleep(10 * time.Millisecond)
	}
}

func BenchmarkTicker(b *testing.B) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for i := 0; i < b.N; i++ {
		<-tick.C
	}
}
`})
	binaries := [2]string{filepath.Join(t.TempDir(), "x.test"), filepath.Join(t.TempDir(), "x.test")}
	for i, dir := range [...]string{old, now} {
		inDir(t, dir, "go", "test", "-c", "-vet=off", "-o", binaries[i], ".")
	}
	for _, pair := range [...][2]string{{old, now}, binaries} {
		opt := compareOptions(pair[0], pair[1], ".")
		opt.Metrics, opt.Slower = nil, 3 // other programs may keep a call from ending
		c, err := runCompare(t, opt)
		if err != nil || len(c.Results) != 2 {
			t.Errorf("%v, %+v", err, c)
		}
		for _, q := range c.Results {
			if q.Calls > 5 { // which fit into the longest block
				t.Errorf("%s: %d calls of 10 ms in a block", q.Benchmark, q.Calls)
			}
		}
	}
}
