// Package bench measures any functions against each other, on machines whose
// clock drifts and that other programs use too.
//
// A Sampler runs the functions in turn in one process. How long one takes relative
// to another is the median of the ratios within each round, an Estimate with an
// interval. PlainRead is a function to compare with: it reads memory as fast as the
// machine can. A Rule decides from pairs of times, taken by TakePair, whether
// a new version of a function is slower than an old one.
package bench

import (
	"context"
	"runtime"
	"slices"
	"time"
)

// A Sampler measures functions against each other. A round runs each function
// once, for a short block of calls. Every other round takes the functions in
// reverse order, so that a steady drift of the machine cancels. Before each block
// the function is called once without timing it, so that what the function
// before it left in the caches is not counted.
//
// A function is slow if one call takes a tenth of Budget or more. Slow functions
// take part in the first Rounds rounds only, and have no call before a block.
type Sampler struct {
	Block  time.Duration // how long a block should last at least
	Rounds int           // rounds that are always measured, at least 1
	Budget time.Duration // time for more rounds after those

	// Precision ends the measurement before the budget does, as soon as no
	// interval reaches farther from its median than this, relative to the
	// median. 0 means that only the budget ends it.
	Precision float64

	clock func() time.Duration // for tests; nil is the monotonic clock
}

// DefaultSampler takes at most about half a second where calls are short.
var DefaultSampler = Sampler{Block: 3 * time.Millisecond, Rounds: 3, Budget: 500 * time.Millisecond, Precision: 0.005}

// Samples are nanoseconds per call: Samples[i][r] is function i in round r. Slow
// functions have the first rounds only.
type Samples [][]float64

// Sample measures the functions. It first calls each of them to warm up and to
// learn how many calls make a block. With a Precision, the intervals that must be
// narrow are those of each function's ratio to the first, or, of a single
// function, that of its time.
//
// Sample ends at the first error of a function and when ctx ends, and returns
// what was sampled so far with the error.
func (s Sampler) Sample(ctx context.Context, fns ...func() error) (Samples, error) {
	if s.clock == nil {
		start := time.Now()
		s.clock = func() time.Duration { return time.Since(start) }
	}
	runtime.GC() // so that garbage made before is not collected during the measurement
	samples := make(Samples, len(fns))
	calls := make([]int, len(fns))
	slow := make([]bool, len(fns))
	for i, f := range fns {
		var err error
		if calls[i], slow[i], err = s.calls(ctx, f); err != nil {
			return samples, err
		}
	}
	var end time.Duration
	look := max(s.Rounds, firstLook) // when the intervals are looked at next
	for round := 0; ; round++ {
		more := round >= max(s.Rounds, 1)
		if more && end == 0 {
			end = s.clock() + s.Budget
		}
		if more && (s.clock() >= end || !slices.Contains(slow, false)) {
			return samples, nil
		}
		if s.Precision > 0 && round == look {
			if samples.narrow(s.Precision, slow) {
				return samples, nil
			}
			look += look/4 + 1 // seldom, because each look may find an interval that is narrow by chance
		}
		for i := range fns {
			if round%2 == 1 {
				i = len(fns) - 1 - i
			}
			if more && slow[i] {
				continue
			}
			if !slow[i] { // a call that is long hardly depends on the caches, and takes too long to make twice
				if _, err := s.block(ctx, fns[i], 1); err != nil {
					return samples, err
				}
			}
			t, err := s.block(ctx, fns[i], calls[i])
			if err != nil {
				return samples, err
			}
			samples[i] = append(samples[i], float64(t)/float64(calls[i]))
		}
	}
}

// firstLook is how many rounds there are when intervals are first looked at.
const firstLook = 12

// narrow reports whether all intervals are narrow enough, apart from those of
// slow functions, which get no more rounds. It looks at intervals whose ends are
// order statistics: the bootstrap's are too narrow too often, and stopping at a
// narrow one would select just those.
func (s Samples) narrow(precision float64, slow []bool) bool {
	if len(s) == 1 {
		return s.Median(0).HalfWidth() <= precision
	}
	for i := 1; i < len(s); i++ {
		if !slow[i] && !slow[0] && !(medianOf(s.ratios(i, 0)).HalfWidth() <= precision) {
			return false
		}
	}
	return len(s) > 0
}

// calls warms f up and returns how many calls make a block, and whether a
// single one takes too long for many rounds.
func (s Sampler) calls(ctx context.Context, f func() error) (n int, slow bool, err error) {
	limit := max(s.Block, s.Budget/10)
	t, err := s.least(ctx, f, 1, limit) // the first call may take longer than later ones
	if err != nil || t >= limit {
		return 1, true, err
	}
	for n = 1; ; {
		t, err := s.least(ctx, f, n, s.Block)
		if err != nil || t >= s.Block {
			return n, false, err
		}
		// A little more than the time so far suggests, but at most 100 times as
		// many calls, because a very short time is not exact.
		want := 100 * n
		if t > 0 {
			want = int(1.1 * float64(n) * float64(s.Block) / float64(t))
		}
		n = min(max(want, n+1), 100*n)
	}
}

// least times n calls of f. If they take as long as the given time, it times them
// again, in case another program interrupted them, and returns the shorter time.
func (s Sampler) least(ctx context.Context, f func() error, n int, long time.Duration) (time.Duration, error) {
	t, err := s.block(ctx, f, n)
	if err != nil || t < long {
		return t, err
	}
	again, err := s.block(ctx, f, n)
	return min(t, again), err
}

// block times n calls of f.
func (s Sampler) block(ctx context.Context, f func() error, n int) (time.Duration, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	begin := s.clock()
	for range n {
		if err := f(); err != nil {
			return 0, err
		}
	}
	return s.clock() - begin, nil
}

// Rounds returns the number of rounds that every function has.
func (s Samples) Rounds() int {
	n := 0
	for i, x := range s {
		if n = min(n, len(x)); i == 0 {
			n = len(x)
		}
	}
	return n
}

// Median estimates the time of a call of function i, in nanoseconds. The ends of
// its interval are order statistics of the rounds. See Estimate.
func (s Samples) Median(i int) Estimate { return medianOf(slices.Clone(s[i])) }

// Ratio estimates the time of function i over that of function j: the median of
// their ratios in each round, over the rounds that have both. The interval is the
// percentile bootstrap of these ratios. That is too narrow for fewer than 20
// rounds, for which the ends of the interval are order statistics. See Estimate.
func (s Samples) Ratio(i, j int) Estimate { return bootstrapOf(s.ratios(i, j)) }

// ratios are the times of function i over those of function j.
func (s Samples) ratios(i, j int) []float64 {
	ratios := make([]float64, min(len(s[i]), len(s[j])))
	for round := range ratios {
		ratios[round] = s[i][round] / s[j][round]
	}
	return ratios
}
