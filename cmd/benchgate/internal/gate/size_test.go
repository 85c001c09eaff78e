package gate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/cmd/benchgate/internal/gotest/worker"
	"github.com/seed621a2839/reweight/internal/test/must"
)

// TestSize: a block has enough calls for what grows with them to count, whatever a fixed cost
// is, and no more than needed. Where none would do, a shorter block is subtracted.
func TestSize(t *testing.T) {
	const ms = 1e6
	for _, c := range []struct {
		what        string
		each        func(calls int) float64 // ns of a call
		timed, idle float64                 // ns of set-up that is timed, and that is not
		least, most int
		short       bool
		grows       bool
	}{
		{"plain", func(int) float64 { return 100 }, 0, 0, 1400, 1600, false, false},
		{"timed set-up of 50 µs", func(int) float64 { return 100 }, 50e3, 0, 8e3, 2e5, false, false},
		{"timed set-up of 20 ms", func(int) float64 { return 100 }, 20 * ms, 0, 2e5, 1e6, true, false},
		{"timed set-up of 80 ms", func(int) float64 { return 100 }, 80 * ms, 0, 2e5, 1e6, true, false},
		{"other set-up of 80 ms", func(int) float64 { return 20 }, 0, 80 * ms, 7e3, 8e3, false, false},
		{"a call of 3 ms", func(int) float64 { return 3 * ms }, 0, 0, 1, 1, false, false},
		{"a call of 2.5 s", func(int) float64 { return 2500 * ms }, 0, 0, 1, 1, false, false},
		{"what does not heed b.N", func(int) float64 { return 0 }, ms, 0, 1, 1, false, false},
		{"state that grows", func(calls int) float64 {
			if calls > 10_000 {
				return 500
			}
			return 100
		}, 0, 0, 10_001, 1e6, false, true},
	} {
		longest := 0.0
		at := func(calls int) (point, error) {
			ns := c.timed + c.each(calls)*float64(calls)
			took := 2*c.idle + ns + c.timed
			p := point{calls, ns, took, took, 1}
			longest = max(longest, p.took)
			return p, nil
		}
		f := newSteady("BenchmarkX")
		d := discovery{comparison: &comparison{gate: &gate{}}}
		must.Do(d.size(f, at))
		if f.short == 0 {
			must.Do(d.grow(f, at, func(calls, n int) (point, error) {
				p, err := at(calls)
				return point{n * calls, float64(n) * p.ns, float64(n) * p.took, float64(n) * p.work, 1}, err
			}))
		}
		if f.calls < c.least || f.calls > c.most || (f.short > 0) != c.short || c.grows != (len(d.report.Notes) > 0) ||
			longest > max(3000*ms, 4*c.each(1)) {
			t.Errorf("%s: %d calls, %d of a short block, the longest of %.0f ms, notes %q", c.what, f.calls, f.short,
				longest/ms, d.report.Notes)
		}
		if !c.short && c.timed > 0.07*c.each(f.calls)*float64(f.calls) && c.each(1) > 0 {
			t.Errorf("%s: at %d calls a fixed cost is %.2f of a block", c.what, f.calls,
				c.timed/c.each(f.calls)/float64(f.calls))
		}
	}
	// A single call may be a cold one.
	f := newSteady("BenchmarkX")
	f.calls = 1
	cold := func(calls int) (point, error) {
		ns := 0.9*ms + 0.7*ms*float64(calls)
		return point{calls, ns, ns, ns, 1}, nil
	}
	short, _ := cold(1)
	if p, err := new(discovery).lengthen(f, short, cold); err != nil || f.calls != 64 || p.calls != 64 {
		t.Errorf("%d calls after a cold one, %v", f.calls, err)
	}
	// Nothing is known, and said, of calls that there was no time for.
	d := discovery{comparison: &comparison{gate: &gate{}}}
	if err := d.grow(f, func(int) (point, error) { return point{}, errTimeUp }, nil); err != errTimeUp ||
		len(d.report.Notes) > 0 {
		t.Errorf("%v, notes %q", err, d.report.Notes)
	}
	f = newSteady("BenchmarkX")
	d = discovery{comparison: &comparison{gate: &gate{Options: Options{Benchtime: Benchtime{Calls: 777}}}}}
	must.Do(d.size(f, func(calls int) (point, error) { return point{calls, 1, 1, 1, 1}, nil }))
	if f.calls != 777 || f.short != 0 {
		t.Errorf("%+v", f)
	}
	// A call that takes three times as long counts so, beside a set-up that does not.
	f = newSteady("BenchmarkX")
	f.calls, f.short = 400_000, 50_000
	slow := func(each float64) float64 {
		t, err := takeSample(fixedCost{80 * ms, each}, f)
		if err != nil {
			return math.NaN()
		}
		return t[nanoseconds]
	}
	if ratio := slow(300) / slow(100); math.Abs(ratio-3) > 1e-6 {
		t.Errorf("3 times as long is %v", ratio)
	}
}

// TestGrow: on a machine whose neighbour comes and goes, blocks grow for what is slower after 4,000 calls,
// seldom to much more than that, and not for what is not.
func TestGrow(t *testing.T) {
	const runs, first = 200, 1500
	for _, stay := range []float64{3e5, 3e6, 1e8, 1e9} { // ns of the neighbour
		for _, after := range []float64{1, 1.5} { // how slow it is then
			rand := rand.New(rand.NewPCG(1, 2))
			grown, far := 0, 0
			for range runs {
				now, until, slow := 0.0, 0.0, 1.0
				work := func(ns float64) {
					for now+ns*slow > until {
						ns -= (until - now) / slow
						now, until, slow = until, until+stay*rand.ExpFloat64(), 1+0.7*float64(rand.IntN(2))
					}
					now += ns * slow
				}
				blocks := func(calls, n int) (p point, err error) {
					for range n {
						work(400e3) // what package testing does
						begin := now
						work(100 * (float64(calls) + (after-1)*float64(max(0, calls-4000))))
						p.ns += now - begin
					}
					p.calls, p.took, p.work, p.own = n*calls, p.ns, p.ns, 1
					return p, nil
				}
				f := newSteady("BenchmarkX")
				f.calls = first
				d := discovery{comparison: &comparison{gate: &gate{}}}
				must.Do(d.grow(f, func(calls int) (least point, err error) {
					for i := range 3 {
						if p, _ := blocks(calls, 1); i == 0 || p.ns < least.ns {
							least = p
						}
					}
					return least, nil
				}, blocks))
				if f.calls > first {
					grown++
				}
				if f.calls > 24_000 {
					far++
				}
			}
			if after == 1 && grown > runs/20 || after > 1 && (grown < runs*8/10 || far > runs/20) {
				t.Errorf("a neighbour of %v ns, %v times as slow: %d of %d grow, %d far", stay, after, grown, runs, far)
			}
		}
	}
}

// TestShorterTookLonger: where noise makes the shorter block take longer than the whole one, nothing is subtracted, and
// so never less than nothing.
func TestShorterTookLonger(t *testing.T) {
	f := newSteady("BenchmarkX")
	f.calls, f.short = 800, 100
	for _, c := range []struct{ long, short, want float64 }{ // nanoseconds of all calls
		{180e3, 110e3, 100}, // as it should be: 100 ns a call beside 100 µs
		{180e3, 180e3, 225},
		{180e3, 10e6, 225},
	} {
		b := lengths{800: c.long, 100: c.short}
		if got, err := takeSample(b, f); err != nil || math.Abs(got[nanoseconds]-c.want) > 1e-9 {
			t.Errorf("%+v: %v ns, %v", c, got[nanoseconds], err)
		}
	}
}

// lengths are what so many calls take together.
type lengths map[int]float64

func (l lengths) run(q worker.Request) (o reply, err error) {
	var calls int
	if _, err := fmt.Sscanf(q.Benchtime, "%dx", &calls); err != nil {
		return o, err
	}
	o.results = []result{{q.Benchmark, map[string]float64{nanoseconds: l[calls] / float64(calls)}}}
	return o, nil
}

func (lengths) close() {}

// TestBenchtime: as go test reads it.
func TestBenchtime(t *testing.T) {
	for s, want := range map[string]Benchtime{"100ms": {Time: 1e8}, "1s": {Time: 1e9}, "10000x": {Calls: 10000}} {
		if got, err := ParseBenchtime(s); err != nil || got != want {
			t.Errorf("%s: %+v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "0x", "0s", "-1x", "-1s", "x", "3", "many"} {
		if _, err := ParseBenchtime(s); err == nil || !strings.Contains(err.Error(), "neither a time") {
			t.Errorf("%q: %v", s, err)
		}
	}
}

// A fixedCost is a benchmark with set-up that is timed.
type fixedCost struct{ setup, each float64 }

func (b fixedCost) run(q worker.Request) (o reply, err error) {
	var calls int
	if _, err := fmt.Sscanf(q.Benchtime, "%dx", &calls); err != nil {
		return o, err
	}
	o.results = []result{{q.Benchmark, map[string]float64{nanoseconds: b.each + b.setup/float64(calls)}}}
	o.instructions = uint64(b.setup + b.each*float64(calls))
	return o, nil
}

func (b fixedCost) close() {}
