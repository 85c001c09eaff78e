package bench

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// A fakeMachine is a clock that only work moves on: each unit of work takes
// longer as time passes, or as the machine stumbles.
type fakeMachine struct {
	now    time.Duration
	drift  float64 // relative, per second
	hiccup int     // every so many calls, one takes ten times as long
	calls  int
}

func (m *fakeMachine) clock() time.Duration { return m.now }

func (m *fakeMachine) work(unit time.Duration) func() error {
	return func() error {
		m.calls++
		cost := float64(unit) * (1 + m.drift*m.now.Seconds())
		if m.hiccup > 0 && m.calls%m.hiccup == 0 {
			cost *= 10
		}
		m.now += time.Duration(cost)
		return nil
	}
}

// sample measures functions by the clock of the machine.
func (m *fakeMachine) sample(t *testing.T, s Sampler, fns ...func() error) Samples {
	t.Helper()
	s.Block, s.clock = time.Millisecond, m.clock
	samples, err := s.Sample(t.Context(), fns...)
	if err != nil {
		t.Fatal(err)
	}
	return samples
}

func near(t *testing.T, what string, got, want, relative float64) {
	t.Helper()
	if !(math.Abs(got-want) <= relative*want) {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

func TestSampleOnASteadyMachine(t *testing.T) {
	m := &fakeMachine{}
	s := Sampler{Rounds: 5, Budget: 100 * time.Millisecond}
	samples := m.sample(t, s, m.work(100), m.work(7000), m.work(2*time.Millisecond))
	for i, want := range []float64{100, 7000, 2e6} {
		near(t, "median", samples.Median(i).Median, want, 1e-12)
	}
	near(t, "ratio", samples.Ratio(1, 0).Median, 70, 1e-12)
	if n := len(samples[0]); n < 20 || n > 30 { // of rounds of about 4 ms
		t.Errorf("%d rounds in 100 ms", n)
	}
}

// TestSampleOnADriftingMachine: the machine gets twice as slow in the course of
// the measurement, and stumbles.
func TestSampleOnADriftingMachine(t *testing.T) {
	for _, m := range []*fakeMachine{{drift: 5}, {drift: -1}, {hiccup: 1009}, {drift: 5, hiccup: 101}} {
		s := Sampler{Rounds: 3, Budget: 200 * time.Millisecond}
		samples := m.sample(t, s, m.work(1000), m.work(1050), m.work(1000))
		near(t, "ratio of 1.05", samples.Ratio(1, 0).Median, 1.05, 0.015) // a block has 9 stumbles or 10
		near(t, "ratio of 1", samples.Ratio(2, 0).Median, 1, 0.015)
	}
}

// TestSampleAlternates: every other round runs backwards.
func TestSampleAlternates(t *testing.T) {
	m := &fakeMachine{}
	var order []int
	fns := make([]func() error, 3)
	for i := range fns {
		work := m.work(20 * time.Millisecond)
		fns[i] = func() error { order = append(order, i); return work() }
	}
	m.sample(t, Sampler{Rounds: 4}, fns...)
	want := []int{0, 0, 1, 1, 2, 2, 0, 1, 2, 2, 1, 0, 0, 1, 2, 2, 1, 0} // each twice to warm up
	if !slices.Equal(order, want) {
		t.Errorf("calls of %v, want %v", order, want)
	}
}

// TestSampleSlowFunctions: they get the first rounds only, the others more.
func TestSampleSlowFunctions(t *testing.T) {
	m := &fakeMachine{}
	samples := m.sample(t, Sampler{Rounds: 3, Budget: 100 * time.Millisecond}, m.work(1000),
		m.work(10*time.Millisecond))
	if len(samples[1]) != 3 || len(samples[0]) < 80 {
		t.Errorf("%d and %d rounds, want about 93 and 3", len(samples[0]), len(samples[1]))
	}
	near(t, "ratio", samples.Ratio(1, 0).Median, 1e4, 1e-12)
}

func TestSampleBlocksAreLongEnough(t *testing.T) {
	m := &fakeMachine{}
	calls := 0
	work := m.work(300)
	s := Sampler{Block: time.Millisecond, Rounds: 1, clock: m.clock}
	n, slow, err := s.calls(t.Context(), func() error { calls++; return work() })
	if err != nil || slow {
		t.Fatal(slow, err)
	}
	if took := time.Duration(n) * 300; took < s.Block || took > 2*s.Block {
		t.Errorf("blocks of %v, want about %v", took, s.Block)
	}
	if calls > 3*n {
		t.Errorf("%d calls to learn that %d make a block", calls, n)
	}
}

// TestSampleCoarseClock: a clock that does not see single calls.
func TestSampleCoarseClock(t *testing.T) {
	m := &fakeMachine{}
	s := Sampler{Block: 10 * time.Millisecond, Rounds: 3, clock: func() time.Duration {
		return m.now.Truncate(time.Millisecond)
	}}
	samples, err := s.Sample(t.Context(), m.work(100))
	if err != nil {
		t.Fatal(err)
	}
	near(t, "median", samples.Median(0).Median, 100, 0.1)
}

func TestSampleStopsAtAnError(t *testing.T) {
	broken := errors.New("broken")
	for _, last := range []int{0, 1, 5} { // calls that go well
		m := &fakeMachine{}
		calls := 0
		work := m.work(time.Millisecond)
		s := Sampler{Block: time.Millisecond, Rounds: 10, clock: m.clock}
		_, err := s.Sample(t.Context(), func() error {
			if calls++; calls > last {
				return broken
			}
			return work()
		})
		if err != broken || calls != last+1 {
			t.Errorf("error %v after %d calls, want %v after %d", err, calls, broken, last+1)
		}
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		x    []float64
		want float64
	}{{[]float64{3}, 3}, {[]float64{9, 1}, 5}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 100, 2}, 3}} {
		s := Samples{slices.Clone(c.x)}
		if got := s.Median(0).Median; got != c.want || !slices.Equal(s[0], c.x) {
			t.Errorf("median of %v = %v, want %v; samples are now %v", c.x, got, c.want, s[0])
		}
	}
}

// TestRatioIsOfRounds: not the ratio of the medians, and of the rounds that
// both functions have.
func TestRatioIsOfRounds(t *testing.T) {
	s := Samples{{2, 20, 300}, {1, 20, 100, 1, 1}}
	if got := s.Ratio(0, 1).Median; got != 2 {
		t.Errorf("ratio %v, want 2", got)
	}
	if got := s.Ratio(1, 0).Median; got != 0.5 {
		t.Errorf("ratio %v, want 0.5", got)
	}
}

// TestSampleEndsWhenNarrow: on a steady machine long before the budget, on a
// noisy one later or never.
func TestSampleEndsWhenNarrow(t *testing.T) {
	rounds := func(noise float64) int {
		m := &fakeMachine{}
		r := rand.New(rand.NewPCG(1, 2))
		noisy := func(unit float64) func() error {
			return func() error { m.now += time.Duration(unit * math.Exp(noise*r.NormFloat64())); return nil }
		}
		s := Sampler{Rounds: 3, Budget: 10 * time.Second, Precision: 0.01}
		return m.sample(t, s, noisy(1e6), noisy(2e6)).Rounds()
	}
	steady, noisy, hopeless := rounds(0), rounds(0.03), rounds(2)
	if steady > 20 || noisy < 2*steady || noisy > 1000 || hopeless < noisy {
		t.Errorf("%d rounds on a steady machine, %d on a noisy one, %d on a hopeless one", steady, noisy, hopeless)
	}
	m := &fakeMachine{}
	s := Sampler{Rounds: 1, Budget: time.Second, Precision: 0.01}
	if n := m.sample(t, s, m.work(time.Millisecond)).Rounds(); n > 20 {
		t.Errorf("%d rounds of a single steady function", n)
	}
}

// TestSampleInterrupted: what was sampled so far is returned.
func TestSampleInterrupted(t *testing.T) {
	for _, last := range []int{0, 1, 2, 3, 4, 5, 10, 11} { // calls before it ends, the first four to warm up
		ctx, cancel := context.WithCancel(t.Context())
		m := &fakeMachine{}
		calls := 0
		work := m.work(20 * time.Millisecond)
		f := func() error {
			if calls++; calls == last {
				cancel()
			}
			return work()
		}
		if last == 0 {
			cancel()
		}
		s := Sampler{Block: time.Millisecond, Rounds: 1000, clock: m.clock}
		samples, err := s.Sample(ctx, f, f)
		if !errors.Is(err, context.Canceled) || calls != last {
			t.Errorf("error %v after %d calls, want one after %d", err, calls, last)
		}
		if got, want := len(samples[0])+len(samples[1]), max(0, last-4); got != want || samples.Rounds() != want/2 {
			t.Errorf("%d samples, %d rounds, want %d", got, samples.Rounds(), want)
		}
		cancel()
	}
}

// TestSampleLeadsIn: what a function costs more after another than after itself
// is not counted.
func TestSampleLeadsIn(t *testing.T) {
	m := &fakeMachine{}
	last := -1
	work := func(i int) func() error {
		f := m.work(5 * time.Millisecond)
		return func() error {
			if i/2 != last/2 { // 0 and 1 have the same memory, and 2 and 3
				m.now += time.Millisecond
			}
			last = i
			return f()
		}
	}
	s := Sampler{Rounds: 5, Budget: 200 * time.Millisecond}
	for _, times := range m.sample(t, s, work(0), work(1), work(2), work(3)) {
		for _, ns := range times {
			near(t, "time", ns, 5e6, 1e-12)
		}
	}
}

// TestSampleFirstCallSlow: a function is not slow for a slow first call, nor are
// its blocks short for an interruption while they are tried.
func TestSampleFirstCallSlow(t *testing.T) {
	m := &fakeMachine{}
	calls := 0
	f := func() error {
		if calls++; calls == 1 || calls == 4 { // the first, and one when blocks are tried
			m.now += 60 * time.Millisecond
		}
		m.now += 10 * time.Microsecond
		return nil
	}
	s := Sampler{Block: time.Millisecond, Rounds: 3, Budget: 100 * time.Millisecond, clock: m.clock}
	n, slow, err := s.calls(t.Context(), f)
	if err != nil || slow || n < 100 || n > 200 {
		t.Errorf("%d calls make a block, slow: %v, %v", n, slow, err)
	}
}

// TestSampleCovers states how often the interval of a ratio contains it if
// narrow intervals end the sampling early: go test ./bench -run TestSampleCovers -v
func TestSampleCovers(t *testing.T) {
	runs := 100
	if *long {
		runs = 400
	}
	for _, noise := range []float64{0.005, 0.01, 0.015, 0.03} {
		r := rand.New(rand.NewPCG(7, 8))
		contained, early, rounds := 0, 0, 0
		for range runs {
			m := &fakeMachine{}
			block := func() error {
				m.now += time.Duration(2e6 * math.Exp(noise*r.NormFloat64()))
				return nil
			}
			s := Sampler{Rounds: 3, Budget: 640 * time.Millisecond, Precision: 0.005}
			e := m.sample(t, s, block, block).Ratio(1, 0)
			if e.Lo <= 1 && 1 <= e.Hi {
				contained++
			}
			rounds += e.N
			if m.now < 640*time.Millisecond {
				early++
			}
		}
		p := float64(contained) / float64(runs)
		t.Logf("noise %.1f%%: %.3f of intervals contain the ratio; %.0f%% ended early, %d rounds on average", 100*noise, p, 100*float64(early)/float64(runs), rounds/runs)
		if p < 0.9 || p > 0.99 {
			t.Errorf("noise %v: %v of intervals contain the ratio, want about 0.95", noise, p)
		}
	}
}

func TestSampleOfNothing(t *testing.T) {
	samples, err := DefaultSampler.Sample(t.Context())
	if len(samples) != 0 || err != nil || samples.Rounds() != 0 {
		t.Errorf("%v, %v", samples, err)
	}
}
