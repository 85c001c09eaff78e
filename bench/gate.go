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
// Alpha is split evenly over the looks and over the functions compared
// (Bonferroni), for each of the two bounds. So if pairs are independent, a share of
// at most Alpha of all runs fails a function that is not slower than Surely, and a
// share of at most Alpha passes one that is slower than Slower.
type Rule struct {
	Looks     []int   // numbers of pairs, increasing
	Alpha     float64 // chance of a wrong verdict in a whole run, for each of the two kinds
	Functions int     // how many are compared
	Slower    float64 // a ratio, at least 1
	Surely    float64 // a ratio, at least 1
	Floor     float64 // nanoseconds per call that are subtracted from every slow-down first
}

// DefaultRule returns a rule for that number of functions. A function fails if the
// median of its ratios is above 1.05 and the lower bound above 1.02.
func DefaultRule(functions int) Rule {
	return Rule{Looks: []int{12, 24, 48, 96, 192}, Alpha: 0.01, Functions: functions, Slower: 1.05, Surely: 1.02, Floor: 5}
}

// A Pair is the time of a call before and after a change, in nanoseconds. Both are
// above 0, and were taken shortly after each other.
type Pair struct{ Base, New float64 }

// TakePair measures a pair, in the order base, new, new, base, or in the order new,
// base, base, new; a coin decides. If the two do not differ, the ratio of a pair is
// then as likely to be above 1 as below, whatever the machine does meanwhile.
//
// Each of base and now (the new version) returns the nanoseconds per call of some
// short blocks of calls. The time of a version is that of its shortest block,
// because other programs can only make a block longer. again is the base's second
// time divided by its first: it is near 1 on a machine without noise. A time that is
// not positive and finite is an error.
func TakePair(coin *rand.Rand, base, now func() ([]float64, error)) (p Pair, again float64, err error) {
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
			return Pair{}, 0, errors.New("bench: a side of a pair without times")
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
func (r Rule) Decide(pairs []Pair) (Verdict, Estimate) {
	ratios := make([]float64, len(pairs))
	for i, p := range pairs {
		ratios[i] = r.ratio(p)
	}
	look := 0
	for _, n := range r.Looks {
		if n <= len(pairs) {
			look = n
		}
	}
	lo, hi := r.bounds(slices.Clone(ratios[:look]))
	e := describe(ratios)
	e.Lo, e.Hi = lo, hi
	switch {
	case look == 0 || look != len(pairs):
		return Open, e
	case e.Median > r.Slower && lo > r.Surely:
		return Regression, e
	case hi < r.Slower:
		return Pass, e
	case look == r.Looks[len(r.Looks)-1]:
		return Inconclusive, e
	}
	return Open, e
}

// ratio returns the new version's time divided by the base's, after Floor is
// subtracted from a slow-down.
func (r Rule) ratio(p Pair) float64 {
	slowdown := p.New - p.Base
	if slowdown > 0 {
		slowdown = max(0, slowdown-r.Floor)
	}
	return 1 + slowdown/p.Base
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
	k := rank(len(x), r.Alpha/float64(len(r.Looks)*max(1, r.Functions)))
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
