// Package bench measures the catalogue's kernels, and training steps made of
// them, so that the figures mean something on a machine with a drifting clock
// and busy neighbours: what is compared is run in turn in one process, and a
// comparison is the median of the ratios taken round by round.
package bench

import (
	"runtime"
	"slices"
	"time"
)

// A Sampler measures functions against each other. It runs a short block of
// calls of each in turn, round by round, and every other round backwards, so
// that a steady drift cancels.
type Sampler struct {
	Block  time.Duration // a block lasts at least about as long
	Rounds int           // of all functions, at least 1
	Budget time.Duration // for further rounds, without functions that take a tenth of it

	clock func() time.Duration // for tests; nil is the monotonic clock
}

// DefaultSampler spends about half a second if a call is short.
var DefaultSampler = Sampler{Block: 3 * time.Millisecond, Rounds: 3, Budget: 500 * time.Millisecond}

// Samples are nanoseconds per call, by function and round. Slow functions have
// the first rounds only.
type Samples [][]float64

// Sample measures the functions. Each is called before, to warm up and to learn
// how many calls make a block. The first error ends it.
func (s Sampler) Sample(fns ...func() error) (Samples, error) {
	if s.clock == nil {
		start := time.Now()
		s.clock = func() time.Duration { return time.Since(start) }
	}
	runtime.GC() // so that no garbage of the past is collected meanwhile
	calls := make([]int, len(fns))
	slow := make([]bool, len(fns))
	for i, f := range fns {
		var err error
		if calls[i], slow[i], err = s.calls(f); err != nil {
			return nil, err
		}
	}
	samples := make(Samples, len(fns))
	var end time.Duration
	for round := 0; ; round++ {
		more := round >= max(s.Rounds, 1)
		if more && end == 0 {
			end = s.clock() + s.Budget
		}
		if more && (s.clock() >= end || !slices.Contains(slow, false)) {
			return samples, nil
		}
		for i := range fns {
			if round%2 == 1 {
				i = len(fns) - 1 - i
			}
			if more && slow[i] {
				continue
			}
			t, err := s.block(fns[i], calls[i])
			if err != nil {
				return nil, err
			}
			samples[i] = append(samples[i], float64(t)/float64(calls[i]))
		}
	}
}

// calls warms f up and returns how many calls make a block, and whether a
// single one takes too long for many rounds.
func (s Sampler) calls(f func() error) (n int, slow bool, err error) {
	first, err := s.block(f, 1)
	if err != nil || first >= max(s.Block, s.Budget/10) {
		return 1, true, err
	}
	for n = 1; ; {
		t, err := s.block(f, n)
		if err != nil || t >= s.Block {
			return n, false, err
		}
		// A little more than the time so far suggests, but no leap from a
		// time too short to go by.
		want := 100 * n
		if t > 0 {
			want = int(1.1 * float64(n) * float64(s.Block) / float64(t))
		}
		n = min(max(want, n+1), 100*n)
	}
}

// block times n calls of f.
func (s Sampler) block(f func() error, n int) (time.Duration, error) {
	begin := s.clock()
	for range n {
		if err := f(); err != nil {
			return 0, err
		}
	}
	return s.clock() - begin, nil
}

// Median returns the median time of a call of function i, in nanoseconds.
func (s Samples) Median(i int) float64 { return median(slices.Clone(s[i])) }

// Ratio returns the median of the time of function i over that of function j in
// the same round, over the rounds that have both.
func (s Samples) Ratio(i, j int) float64 {
	ratios := make([]float64, min(len(s[i]), len(s[j])))
	for round := range ratios {
		ratios[round] = s[i][round] / s[j][round]
	}
	return median(ratios)
}

// median sorts x.
func median(x []float64) float64 {
	slices.Sort(x)
	n := len(x)
	return (x[(n-1)/2] + x[n/2]) / 2
}
