package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// A Rule decides from pairs of times whether a new version of a function is
// slower than its base version. It decides after few pairs where that is clear, and
// after more pairs, or not at all, where it is not.
//
// Looks are numbers of pairs. When a function has that many pairs, the rule takes
// the median of the ratios of the new version's time to the base's, and a lower and
// an upper bound of the true median. The function fails if the median is above
// Slower and the lower bound above Surely. It passes if the upper bound is below
// Slower. Otherwise the next look decides; after the last look the function is
// inconclusive.
//
// Alpha is split evenly over the looks and over the comparisons (Bonferroni), for
// each of the two bounds. A comparison is one quantity of one function: whoever
// judges the time and the allocations of ten functions makes twenty. So if pairs are
// independent, a share of at most Alpha of all runs fails something that is not
// slower than Surely, and a share of at most Alpha passes something that is slower
// than Slower.
type Rule struct {
	Looks       []int   // numbers of pairs, increasing
	Alpha       float64 // chance of a wrong verdict in a whole run, for each of the two kinds
	Comparisons int     // how many verdicts a run has
	Slower      float64 // a ratio, at least 1
	Surely      float64 // a ratio, at least 1
	Floor       float64 // nanoseconds per call that are subtracted from every slow-down first
}

// NewRule returns a rule for that many comparisons, by which something fails if the
// median of its ratios is above 1.05 and the lower bound above 1.02. The first look
// is at the fewest pairs that can give a verdict with their part of alpha. The
// others are at about 1.5, 2.5, 5, 10, 20 and 40 times as many. NewRule panics if
// alpha is not between 0 and 1.
func NewRule(comparisons int, alpha float64) Rule {
	if !(alpha > 0 && alpha < 1) {
		panic(fmt.Sprintf("bench: alpha is %v, want it between 0 and 1", alpha))
	}
	r := Rule{Looks: make([]int, 7), Alpha: alpha, Comparisons: comparisons, Slower: 1.05, Surely: 1.02, Floor: 0.5}
	first := 1
	for rank(first, r.part()) == 0 {
		first++
	}
	last := 0
	for i, times := range [...]float64{1, 1.6, 2.6, 5, 10, 20, 40} {
		n := int(times * float64(first))
		for n-1 > last && rank(n-1, r.part()) == rank(n, r.part()) {
			n-- // as many values may be beyond the bound, of fewer
		}
		r.Looks[i], last = n, n
	}
	return r
}

// A Pair is the time of a call before and after a change, in nanoseconds. Both are
// above 0, and were taken shortly after each other.
type Pair struct {
	Base float64 `json:"base"`
	New  float64 `json:"new"`
}

// TakePair measures a pair, in the order base, new, new, base, or in the order new,
// base, base, new; a coin decides. If the two do not differ, the ratio of a pair is
// then as likely to be above 1 as below, whatever the machine does meanwhile.
//
// Each of base and now (the new version) returns the nanoseconds per call of some
// short blocks of calls. The time of a version is that of its shortest block,
// because other programs can only make a block longer. repeat is the second time of the
// base divided by its first: it is near 1 on a machine without noise. A time that is
// not positive and finite is an error.
func TakePair(coin *rand.Rand, base, now func() ([]float64, error)) (p Pair, repeat float64, err error) {
	halves := [2]float64{}
	p.Base, p.New = math.Inf(1), math.Inf(1)
	order := [...]bool{true, false, false, true} // whether it is the base, unless the coin says otherwise
	flip := coin.IntN(2) == 0
	n := 0
	for _, isBase := range order {
		f, least := base, &p.Base
		if isBase == flip {
			f, least = now, &p.New
		}
		ns, err := f()
		if err != nil {
			return Pair{}, 0, err
		}
		if len(ns) == 0 {
			return Pair{}, 0, errors.New("bench: a function of a pair returned no times")
		}
		t := slices.Min(ns)
		if !(t > 0) || math.IsInf(t, 1) {
			return Pair{}, 0, fmt.Errorf("bench: a time of %v ns, want a positive number", t)
		}
		*least = min(*least, t)
		if least == &p.Base {
			halves[n] = t
			n++
		}
	}
	return p, halves[1] / halves[0], nil
}

// A Verdict is what a Rule decides about a function.
type Verdict int

const (
	Open         Verdict = iota // more pairs are needed
	Pass                        // not slower than Rule.Slower
	Regression                  // slower than Rule.Surely
	Inconclusive                // still open after the last look
)

func (v Verdict) String() string {
	if v < Open || v > Inconclusive {
		return fmt.Sprintf("Verdict(%d)", int(v))
	}
	return [...]string{"open", "pass", "regression", "inconclusive"}[v]
}

// MarshalJSON writes the name.
func (v Verdict) MarshalJSON() ([]byte, error) { return json.Marshal(v.String()) }

// Decide returns the verdict on the pairs so far, and an estimate of the ratio of
// the new version's time to the base's. The verdict is Open unless the number of
// pairs is one of Looks. The interval is that of the last look; it is infinite if
// there was no look yet, or if the look had too few pairs for its part of Alpha.
//
// Decide takes any other positive quantity of which less is better, if Floor is 0.
// If more is better, as with a rate, give it one divided by the quantity.
func (r Rule) Decide(pairs []Pair) (Verdict, Estimate) {
	e := r.estimate(r.ratios(pairs))
	return r.verdict(len(pairs), e.Median > r.Slower && e.Lo > r.Surely, e.Hi < r.Slower), e
}

// DecideCounts decides about counts, such as the bytes or the allocations of a
// call. Unlike times, they may be 0, are often the same in all pairs, and any
// increase counts: the function fails if the lower bound of the differences, new
// minus base, is above 0. This is an exact sign test. It passes if it does not fail and
// the upper bound of the count is at most Slower times the base's. So counts that do
// not vary decide at the first look, equal ones for a pass, and those that do vary are
// decided as soon as they are surely more, or surely little more at most.
//
// The estimate is of the differences. Otherwise DecideCounts is as Decide.
func (r Rule) DecideCounts(pairs []Pair) (Verdict, Estimate) {
	differences, excess := make([]float64, len(pairs)), make([]float64, len(pairs))
	for i, p := range pairs {
		differences[i] = p.New - p.Base
		excess[i] = differences[i] - (r.Slower-1)*math.Abs(p.Base)
	}
	e := r.estimate(differences)
	return r.verdict(len(pairs), e.Lo > 0, r.estimate(excess).Hi <= 0), e
}

// Wanted estimates from the pairs so far of an open comparison at which of Looks
// Decide will give a verdict: pass or regression. It is 0 without pairs, and if none
// of the looks will, by more than chance: the ratios vary too much, or their median is
// too near to Slower. Few pairs that vary much tell little.
func (r Rule) Wanted(pairs []Pair) int {
	if len(pairs) == 0 {
		return 0
	}
	ratios := r.ratios(pairs)
	fails := describe(ratios).Median > r.Slower
	against := 0 // ratios on the wrong side of the limit that a bound must pass
	for _, x := range ratios {
		if fails && x <= r.Surely || !fails && x >= r.Slower {
			against++
		}
	}
	share := float64(against) / float64(len(pairs))
	for i, look := range r.Looks {
		if i == len(r.Looks)-1 {
			share -= math.Sqrt(share * (1 - share) / float64(len(pairs))) // its standard error
		}
		// A bound passes the limit if fewer than rank ratios are against it.
		if look >= len(pairs) && share*float64(look) < float64(rank(look, r.part())) {
			return look
		}
	}
	return 0
}

// ratios returns the new version's times divided by the base's, after Floor is
// subtracted from slow-downs.
func (r Rule) ratios(pairs []Pair) []float64 {
	ratios := make([]float64, len(pairs))
	for i, p := range pairs {
		slowdown := p.New - p.Base
		if slowdown > 0 {
			slowdown = max(0, slowdown-r.Floor)
		}
		ratios[i] = 1 + slowdown/p.Base
	}
	return ratios
}

// look returns the last look at n pairs or fewer, 0 if there is none.
func (r Rule) look(n int) int {
	last := 0
	for _, look := range r.Looks {
		if look <= n {
			last = look
		}
	}
	return last
}

// verdict returns the verdict on n pairs whose bounds fail, or pass, a function.
func (r Rule) verdict(n int, fails, passes bool) Verdict {
	switch look := r.look(n); {
	case look == 0 || look != n:
		return Open
	case fails:
		return Regression
	case passes:
		return Pass
	case look == r.Looks[len(r.Looks)-1]:
		return Inconclusive
	}
	return Open
}

// part returns the share of Alpha of one bound at one look.
func (r Rule) part() float64 { return r.Alpha / float64(len(r.Looks)*max(1, r.Comparisons)) }

// estimate sorts x and returns its median, with the bounds of the last look.
func (r Rule) estimate(x []float64) Estimate {
	lo, hi := r.bounds(slices.Clone(x[:r.look(len(x))]))
	e := describe(x)
	e.Lo, e.Hi = lo, hi
	return e
}

// bounds returns a lower and an upper bound of the median that x, which it
// sorts, is drawn from; infinite where x has too few values.
//
// The bounds are values of x. The number of values below the true median is
// binomial, whatever the distribution, so the chance that the median is not
// between the k-th smallest and the k-th largest value is known exactly. For chances
// of 1e-4 and below that is necessary: the bootstrap knows nothing of values beyond
// those that it has, and benchmath approximates the binomial by a normal
// distribution for more than 30 values, which is meant for 95% and not for 99.99%.
func (r Rule) bounds(x []float64) (lo, hi float64) {
	slices.Sort(x)
	k := rank(len(x), r.part())
	if k == 0 {
		return math.Inf(-1), math.Inf(1)
	}
	return x[k-1], x[len(x)-k]
}

// rank returns the largest k for which the k-th smallest of n values is above
// their median with a chance of at most alpha: P(Binomial(n, 1/2) < k) <= alpha.
// It is 0 if there is none, and at most the middle.
func rank(n int, alpha float64) int {
	all, _ := math.Lgamma(float64(n + 1))
	sum, k := 0.0, 0
	for k < (n+1)/2 {
		// P(Binomial = k), by logarithms, because 2^-n is 0 in float64 for large n.
		below, _ := math.Lgamma(float64(k + 1))
		above, _ := math.Lgamma(float64(n - k + 1))
		if sum += math.Exp(all - below - above - float64(n)*math.Ln2); sum > alpha {
			break
		}
		k++
	}
	return k
}
