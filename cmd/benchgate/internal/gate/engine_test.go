package gate

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/cmd/benchgate/internal/gotest"
	"github.com/seed621a2839/reweight/cmd/benchgate/internal/gotest/worker"
)

// TestUnits: which way each unit is judged, and in which words.
func TestUnits(t *testing.T) {
	for _, c := range []struct {
		unit      string
		base, now float64
		verdict   bench.Verdict
		message   string
	}{
		{"ns/op", 100, 120, bench.Regression, "takes 1.195 times as long as the base (1.195 to 1.195), 10 pairs"},
		{"ns/op", 100, 105, bench.Pass,
			"takes 1.045 times as long as the base (1.045 to 1.045), 10 pairs; 4.5% slower, just below the limit of 5%"},
		{"ns/op", 100, 104, bench.Pass,
			"takes 1.035 times as long as the base (1.035 to 1.035), 10 pairs; 3.5% slower, below the limit of 5%"},
		{"widgets", 1000, 1045, bench.Pass, "has 1.045 times as many widgets as the base (1.045 to 1.045), 10 pairs; " +
			"4.5% more widgets, just below the limit of 5%"},
		{"MB/s", 1040, 1000, bench.Pass, "the base has 1.040 times as many MB/s (1.040 to 1.040), 10 pairs; " +
			"4.0% fewer MB/s, below the limit of 5%"},
		{"ns/op", 100, 102, bench.Pass, ""},
		{"ns/op", 120, 100, bench.Pass, ""},
		{"ns/op", 0.5, 1, bench.Pass, ""}, // half a nanosecond does not count
		{"widgets", 0.5, 1, bench.Regression, "has 2.000 times as many widgets as the base (2.000 to 2.000), 10 pairs"},
		{"widgets", 1, 0.5, bench.Pass, ""},
		{"widgets", 0, 1, bench.Regression, "1 widgets, base 0, 10 pairs"},
		{"widgets", 1, 0, bench.Pass, ""},
		{"MB/s", 100, 50, bench.Regression, "the base has 2.000 times as many MB/s (2.000 to 2.000), 10 pairs"},
		{"MB/s", 50, 100, bench.Pass, ""},
		{"hits/s", 0, 100, bench.Pass, ""},
		{"hits/s", 100, 0, bench.Regression, "0 hits/s, base 100, 10 pairs"},
		{"hits/s", 0, 0, bench.Pass, ""},
		{"B/op", 64, 65, bench.Regression, "65 B/op, base 64, 10 pairs"},
		{"B/op", 64, 64, bench.Pass, ""},
		{"allocs/op", 1, 0, bench.Pass, ""},
	} {
		u := Metric{Unit: c.unit}
		for range 10 {
			u.pairs = append(u.pairs, bench.Pair{Base: c.base, New: c.now})
			u.decide(bench.NewRule(1, 0.01)) // first looks at 10 pairs
		}
		message := strings.Join(append([]string{u.message}, u.more...), "; ")
		if u.Verdict != c.verdict || message != c.message || u.Base != c.base || u.New != c.now {
			t.Errorf("%v to %v %s: %v, %q, want %v, %q", c.base, c.now, c.unit, u.Verdict, message,
				c.verdict, c.message)
		}
	}
}

// TestNeverDecided: a ratio that is the limit itself is inconclusive after the last look.
func TestNeverDecided(t *testing.T) {
	u := Metric{Unit: "widgets"}
	rule := bench.NewRule(1, 0.3)
	rule.Slower, rule.Surely = 1.25, surely(1.25)
	for u.Verdict == bench.Open {
		u.pairs = append(u.pairs, bench.Pair{Base: 1024, New: 1280})
		u.decide(rule)
	}
	const want = "has 1.250 times as many widgets as the base (1.250 to 1.250), open after "
	if u.Verdict != bench.Inconclusive || len(u.pairs) != rule.Looks[len(rule.Looks)-1] ||
		!strings.HasPrefix(u.message, want) {
		t.Errorf("%v after %d pairs: %q", u.Verdict, len(u.pairs), u.message)
	}
}

// quietGate is a gate that says nothing.
func quietGate(alpha float64) *gate {
	return &gate{Options: Options{Alpha: alpha, Slower: 1.05, Budget: time.Hour}, steps: newSteps(nil, time.Hour)}
}

// A steady is a worker by which every call takes as many nanoseconds.
type steady float64

func (s steady) run(q worker.Request) (reply, error) {
	return reply{results: []result{{q.Benchmark, map[string]float64{nanoseconds: float64(s)}}}}, nil
}

func (s steady) close() {}

// A fakeVersion is a version whose workers this function starts. It builds nothing.
type fakeVersion func(order int) (bencher, error)

func (s fakeVersion) start(ctx context.Context, _ string, order int) (bencher, error) {
	b, err := s(order)
	return b, cmp.Or(err, ctx.Err())
}

func (s fakeVersion) build(context.Context, string, int) error { return nil }

func (s fakeVersion) profile(context.Context, *function, int) (string, error) {
	return "", errors.New("it takes none")
}

// steadyVersion is a version of steady workers.
func steadyVersion(ns float64) fakeVersion {
	return func(int) (bencher, error) { return steady(ns), nil }
}

// newSteady is a function that they measure.
func newSteady(name string) *function {
	return &function{Result: Result{Benchmark: name, relative: "."},
		runnable: runnable{Benchmark: gotest.Benchmark{Name: name}, full: name}, calls: 1, blocks: 1, cost: 1,
		slower: 1.05,
		units:  []*Metric{{Unit: nanoseconds}}}
}

// A builder is a fakeVersion that builds something.
type builder struct {
	fakeVersion
	built func() error
}

func (s builder) build(context.Context, string, int) error { return s.built() }

// TestTurn: of a rate the highest value is the best, and of other units the lowest.
func TestTurn(t *testing.T) {
	best := sample{}
	for _, v := range []float64{4, 2, 3} {
		best.keep("MB/s", v)
		best.keep(nanoseconds, v)
	}
	if best["MB/s"] != 4 || best[nanoseconds] != 2 {
		t.Error(best)
	}
}

// TestLimit: a benchmark may have a limit of its own.
func TestLimit(t *testing.T) {
	k := quietGate(0.01).newComparison(steadyVersion(100), steadyVersion(120))
	f, lenient := newSteady("BenchmarkX"), newSteady("BenchmarkY")
	lenient.slower = 1.3
	k.functions = []*function{f, lenient}
	if err := k.compare(t.Context()); err != nil || f.Verdict != bench.Regression || lenient.Verdict != bench.Pass {
		t.Errorf("%v, %v, %v", err, f.Verdict, lenient.Verdict)
	}
}

// TestReordered: what is slower with one order of functions only is no regression, and
// what cannot be measured again is one that says so.
func TestReordered(t *testing.T) {
	for _, c := range []struct {
		linked, random float64 // the times of the new build, of 100 of the base
		broken         error   // of a build in random order
		late           bool
		verdict        bench.Verdict
		message        string
	}{
		{120, 100, nil, false, bench.Pass, "takes 1.195 times as long as the base (1.195 to 1.195), 10 pairs; only by where the linker puts functions: 1.000 times (1.000 to 1.000), 10 pairs, with functions in random orders"},
		{120, 130, nil, false, bench.Regression, "takes 1.195 times as long as the base (1.195 to 1.195), 10 pairs; 1.295 times (1.295 to 1.295), 10 pairs, with functions in random orders"},
		{120, 100, nil, true, bench.Regression, "takes 1.195 times as long as the base (1.195 to 1.195), 10 pairs; not measured to the end with functions in random orders"},
		{120, 100, errors.New("no -randlayout"), false, bench.Regression, "takes 1.195 times as long as the base (1.195 to 1.195), 10 pairs; this may be only by where the linker puts functions, as there is no build in random orders: no -randlayout"},

		{100, 120, errors.New("built without need"), false, bench.Pass, ""},
	} {
		var k comparison
		var once sync.Once
		of := func(linked, random float64) version {
			start := func(order int) (bencher, error) {
				if order > 0 {
					return steady(random), nil
				}
				return steady(linked), nil
			}
			return builder{start, func() error {
				if c.late { // both versions are built at the same time
					once.Do(func() { k.deadline = time.Now().Add(-time.Second) })
				}
				return c.broken
			}}
		}
		f := newSteady("BenchmarkX")
		g := quietGate(0.01)
		k = g.newComparison(of(100, 100), of(c.linked, c.random))
		k.functions = []*function{f}
		err := k.compare(t.Context())
		if err != nil || f.Verdict != c.verdict || f.Message != c.message ||
			c.late != strings.Contains(strings.Join(g.report.Notes, "\n"), "With -budget ") {
			t.Errorf("%v, then %v: %v, %v, %q, notes %q, want %v, %q", c.linked, c.random, err, f.Verdict, f.Message,
				g.report.Notes, c.verdict, c.message)
		}
	}
}
