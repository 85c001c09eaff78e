package gate

import (
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/cmd/benchgate/internal/gotest/worker"
	"github.com/seed621a2839/reweight/internal/test/must"
)

// A counting is a worker whose times vary too much to decide, and that counts instructions.
type counting struct {
	noisy  func() float64
	counts float64 // a call's instructions; 0 is a machine that does not count
}

func (w counting) run(q worker.Request) (reply, error) {
	o, err := fixedCost{each: w.counts}.run(q)
	o.results[0].metrics[nanoseconds] = w.noisy()
	return o, err
}

func (w counting) close() {}

// TestCountInstructions: a count decides what time leaves open, unless time speaks against it.
func TestCountInstructions(t *testing.T) {
	for _, c := range []struct {
		time, base, now float64 // the median ratio of times, and counts of the versions
		verdict         bench.Verdict
		message         string
	}{
		{1, 1000, 1000, bench.Pass, "has 1.000 times as many instructions/op as the base"},
		{1.04, 1000, 1200, bench.Regression, "has 1.200 times as many instructions/op as the base"},
		{1, 1000, 1200, bench.Inconclusive, "has 1.200 times as many instructions/op as the base"},
		{1.2, 1000, 1000, bench.Inconclusive, "has 1.000 times as many instructions/op as the base"},
		{1, 0, 0, bench.Inconclusive, "open after "},
	} {
		n := 0
		vary := func(median float64) func() float64 { // around the median, and beyond both limits
			return func() float64 {
				n++
				return 100 * median * [...]float64{1, 2, 0.5, 2, 0.5, 2, 0.5, 2, 0.5, 2, 0.5}[(n-1)/2%11]
			}
		}
		of := func(noisy func() float64, counts float64) version {
			return fakeVersion(func(int) (bencher, error) { return counting{noisy, counts}, nil })
		}
		g := quietGate(0.3)
		k := g.newComparison(of(func() float64 { return 100 }, c.base), of(vary(c.time), c.now))
		f, worse := newSteady("BenchmarkX"), newSteady("BenchmarkY") // which fails by another unit
		worse.Verdict, worse.units[0].pairs = bench.Regression, []bench.Pair{{Base: 1, New: 1}}
		k.functions = []*function{f, worse}
		must.Do(k.compare(t.Context()))
		if f.Verdict != c.verdict || !strings.Contains(f.Message, c.message) {
			t.Errorf("%+v: %v, %q", c, f.Verdict, f.Message)
		}
		if noted := slices.ContainsFunc(g.report.Notes,
			func(s string) bool { return strings.Contains(s, "perf_event_open") }); noted != (c.base == 0) ||
			(f.Instructions == nil) != noted {
			t.Errorf("%+v: notes %q, %v", c, g.report.Notes, f.Instructions)
		}
		if worse.Instructions != nil || worse.Verdict != bench.Regression {
			t.Errorf("%+v: what fails already is %v, by %v", c, worse.Verdict, worse.Instructions)
		}
	}
}

// TestCountTurn: what testing does beside the calls is not counted.
func TestCountTurn(t *testing.T) {
	f := newSteady("BenchmarkX")
	f.calls, f.units[0].Unit = 7, instructions
	if got, err := takeSample(fixedCost{80e6, 100}, f); err != nil || got[instructions] != 100 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := takeSample(fixedCost{0, 0}, f); err != errNotCounted {
		t.Error(err)
	}
}
