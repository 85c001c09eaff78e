// Package bench measures functions against each other, and with that the
// catalogue's kernels and training steps made of them, so that the figures mean
// something on a machine with a drifting clock and busy neighbours: what is
// compared is run in turn in one process, and a comparison is the median of the
// ratios taken round by round.
package bench

import (
	"context"
	"runtime"
	"slices"
	"time"
)

// A Sampler measures functions against each other. It runs a short block of
// calls of each in turn, round by round, and every other round backwards, so
// that a steady drift cancels. A call that is not timed leads each block in: what
// the function before left in the caches is not counted.
type Sampler struct {
	Block     time.Duration // a block lasts at least about as long
	Rounds    int           // of all functions, at least 1
	Budget    time.Duration // for further rounds, without functions that take a tenth of it
	Precision float64       // half width of intervals, relative, that ends it before the budget does; 0 is none

	clock func() time.Duration // for tests; nil is the monotonic clock
}

// DefaultSampler spends at most about half a second if a call is short.
var DefaultSampler = Sampler{Block: 3 * time.Millisecond, Rounds: 3, Budget: 500 * time.Millisecond, Precision: 0.005}

// Samples are nanoseconds per call, by function and round. Slow functions have
// the first rounds only.
type Samples [][]float64

// Sample measures the functions. Each is called before, to warm up and to learn
// how many calls make a block. It ends with the budget, or before if the
// interval of each function's ratio to the first (of a single function: of its
// time) is as narrow as Precision. The first error ends it, and so does ctx:
// with what was sampled so far and the error.
func (s Sampler) Sample(ctx context.Context, fns ...func() error) (Samples, error) {
	var pairs [][2]int
	for i := 1; i < len(fns); i++ {
		pairs = append(pairs, [2]int{i, 0})
	}
	return s.sample(ctx, pairs, fns)
}

// sample is Sample with the ratios that Precision is about.
func (s Sampler) sample(ctx context.Context, pairs [][2]int, fns []func() error) (Samples, error) {
	if s.clock == nil {
		start := time.Now()
		s.clock = func() time.Duration { return time.Since(start) }
	}
	runtime.GC() // so that no garbage of the past is collected meanwhile
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
			if samples.narrow(s.Precision, pairs, slow) {
				return samples, nil
			}
			look += look/4 + 1 // seldom: each look is one more chance to stop at a narrow interval by luck
		}
		for i := range fns {
			if round%2 == 1 {
				i = len(fns) - 1 - i
			}
			if more && slow[i] {
				continue
			}
			if !slow[i] { // a slow call is too long to mind, and to be made twice
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

// narrow says whether these ratios have intervals of that half width, but for
// slow functions, which get no more rounds. The intervals are between order
// statistics: those of the bootstrap are too narrow too often, and stopping
// would pick just them.
func (s Samples) narrow(precision float64, pairs [][2]int, slow []bool) bool {
	if len(pairs) == 0 {
		return len(s) > 0 && s.Median(0).HalfWidth() <= precision
	}
	for _, p := range pairs {
		if !slow[p[0]] && !slow[p[1]] && !(medianOf(s.ratios(p[0], p[1])).HalfWidth() <= precision) {
			return false
		}
	}
	return true
}

// calls warms f up and returns how many calls make a block, and whether a
// single one takes too long for many rounds.
func (s Sampler) calls(ctx context.Context, f func() error) (n int, slow bool, err error) {
	limit := max(s.Block, s.Budget/10)
	t, err := s.least(ctx, f, 1, limit) // the first call may be slow for being the first
	if err != nil || t >= limit {
		return 1, true, err
	}
	for n = 1; ; {
		t, err := s.least(ctx, f, n, s.Block)
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

// least times n calls of f, and if that takes so long once more, in case it was
// somebody else's turn meanwhile: then it returns the lesser time.
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

// Rounds returns how many rounds all functions have.
func (s Samples) Rounds() int {
	n := 0
	for i, x := range s {
		if n = min(n, len(x)); i == 0 {
			n = len(x)
		}
	}
	return n
}

// Median estimates the time of a call of function i, in nanoseconds. Its
// interval is between order statistics of the rounds. See Estimate.
func (s Samples) Median(i int) Estimate { return medianOf(slices.Clone(s[i])) }

// Ratio estimates the time of function i over that of function j: the median of
// the ratios in the same round, over the rounds that have both. Its interval is
// the percentile bootstrap of these ratios; of fewer than 20, where that is too
// narrow, it is between order statistics. See Estimate.
func (s Samples) Ratio(i, j int) Estimate { return bootstrapOf(s.ratios(i, j)) }

// ratios are the times of function i over those of function j.
func (s Samples) ratios(i, j int) []float64 {
	ratios := make([]float64, min(len(s[i]), len(s[j])))
	for round := range ratios {
		ratios[round] = s[i][round] / s[j][round]
	}
	return ratios
}
