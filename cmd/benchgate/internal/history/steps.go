package history

import (
	"math"
	"slices"
	"sync"
)

// A Step is a place in a history from which on a benchmark takes another time.
type Step struct {
	At int // the first value after it
	// First and Last are the earliest and the latest value that may be the first after it.
	First, Last   int
	Before, After float64 // the medians of the values from and to the next steps
}

// Times is how many times as long a call takes after the step.
func (s Step) Times() float64 { return s.After / s.Before }

// mostTested is how many values of a history are tested for steps: the newest.
const mostTested = 300

// limits are what the scores of n values without a step are above in one of 2,000 histories: that of the best split
// in two, and that of the best stretch within. TestLimits computes them.
var limits = []limit{
	{16, 8.99, 9.47},
	{18, 9.83, 10.69},
	{20, 9.88, 11.75},
	{25, 10.60, 12.52},
	{30, 10.73, 13.10},
	{40, 11.02, 13.42},
	{50, 11.20, 13.87},
	{70, 11.36, 14.37},
	{100, 11.50, 14.82},
	{150, 11.65, 15.44},
	{200, 12.25, 15.90},
	{300, 12.30, 16.30},
}

type limit struct {
	n              int
	split, stretch float64
}

// limitsOf returns the limits for n values: of numbers between two of the table, the larger ones.
func limitsOf(n int) (split, stretch float64) {
	if n < limits[0].n {
		return math.Inf(1), math.Inf(1) // no order of so few values is beyond chance
	}
	i, _ := slices.BinarySearchFunc(limits, n, func(l limit, n int) int { return l.n - n })
	i = min(i, len(limits)-1)
	before := limits[max(0, i-1)]
	return max(limits[i].split, before.split), max(limits[i].stretch, before.stretch)
}

// A stretch is the values from begin to the one before end, and the score of their ranks.
type stretch struct {
	begin, end int
	score      float64
}

// exact is up to how many values, on the smaller side, the chance of a rank sum is counted; of more it is that of a
// normal distribution.
const exact = 15

// A null is what rank sums are by chance: of n values, chances[m][s] is minus the logarithm of the chance that the sum
// of m ranks is s or less.
type null struct {
	n       int
	chances [exact + 1][]float64
}

var nulls sync.Map // of *null, by n

// nullOf returns the null of n values.
func nullOf(n int) *null {
	if d, ok := nulls.Load(n); ok {
		return d.(*null)
	}
	d := &null{n: n}
	most := exact * n
	var ways [exact + 1][]float64 // to take so many ranks of that sum
	for m := range ways {
		ways[m] = make([]float64, most+1)
	}
	ways[0][0] = 1
	for rank := 1; rank <= n; rank++ {
		for m := min(exact, rank); m > 0; m-- {
			for sum := rank; sum <= most; sum++ {
				ways[m][sum] += ways[m-1][sum-rank]
			}
		}
	}
	for m := 1; m <= exact; m++ {
		all := 0.0
		for _, w := range ways[m] {
			all += w
		}
		below := 0.0
		d.chances[m] = make([]float64, most+1)
		for sum, w := range ways[m] {
			below += w
			d.chances[m][sum] = -math.Log(below / all)
		}
	}
	nulls.Store(n, d)
	return d
}

// score is minus the logarithm of the chance that a sum of m of the ranks is so far below its mean, or as far above:
// half the p-value of Wilcoxon's rank sum test.
func (d *null) score(sum float64, m int) float64 {
	off := math.Abs(sum - float64(m*(d.n+1))/2)
	if m = min(m, d.n-m); m <= exact {
		return d.chances[m][int(math.Ceil(float64(m*(d.n+1))/2-off))]
	}
	z := off / math.Sqrt(float64(m*(d.n-m)*(d.n+1))/12)
	return -math.Log(math.Erfc(z/math.Sqrt2) / 2)
}

// scan returns the stretch of ranks with the highest score that begins at the first one, which splits them in two, and
// the one that neither begins there nor ends at the last one.
func scan(ranks []float64) (split, within stretch) {
	n := len(ranks)
	chance := nullOf(n)
	for begin := range n {
		sum := 0.0
		for end := begin + 1; end < n; end++ {
			sum += ranks[end-1]
			best := &within
			if begin == 0 {
				best = &split
			}
			if s := chance.score(sum, end-begin); s > best.score {
				*best = stretch{begin, end, s}
			}
		}
	}
	return split, within
}

// ranksOf returns the rank of each value, of equal ones the mean of theirs.
func ranksOf(x []float64) []float64 {
	sorted := slices.Sorted(slices.Values(x))
	ranks := make([]float64, len(x))
	for i, v := range x {
		below, _ := slices.BinarySearch(sorted, v)
		above, _ := slices.BinarySearch(sorted, math.Nextafter(v, math.Inf(1)))
		ranks[i] = float64(below+above+1) / 2
	}
	return ranks
}

// Find finds the steps in the newest values of a history.
//
// It looks at the ranks of the values, so that a few bad ones matter little and no distribution is assumed: if nothing
// changes, each order of the values is as likely as any other. If the best split in two or the best stretch within is
// beyond its limit, the values are cut there, and both parts are looked at in the same way. A cut that is none between
// the cuts beside it, as where an earlier one was a little off, is dropped.
func Find(x []float64) (steps []Step) {
	skip := max(0, len(x)-mostTested)
	x = x[skip:]
	ends := []int{0}
	var look func(begin, end int)
	look = func(begin, end int) {
		if k := cut(x[begin:end]); k > 0 {
			look(begin, begin+k)
			ends = append(ends, begin+k)
			look(begin+k, end)
		}
	}
	look(0, len(x))
	ends = append(ends, len(x))
	for i := 1; i < len(ends)-1; {
		begin, end := ends[i-1], ends[i+1]
		at, _, _ := place(x[begin:end])
		ends[i] = begin + at
		if most, _ := limitsOf(end - begin); contrast(x[begin:end], at) > most {
			i++
		} else {
			ends = slices.Delete(ends, i, i+1)
			i = max(1, i-1) // the one before has another end now
		}
	}
	for i := 1; i < len(ends)-1; i++ {
		begin := ends[i-1]
		at, first, last := place(x[begin:ends[i+1]])
		ends[i] = begin + at
		steps = append(steps, Step{At: skip + ends[i], First: skip + begin + first, Last: skip + begin + last})
	}
	for i := range steps {
		steps[i].Before, steps[i].After = median(x[ends[i]:ends[i+1]]), median(x[ends[i+1]:ends[i+2]])
	}
	return steps
}

// cut returns where to cut values in two, or 0 if no step is in them.
func cut(x []float64) int {
	most, mostWithin := limitsOf(len(x))
	if math.IsInf(most, 1) {
		return 0
	}
	split, within := scan(ranksOf(x))
	switch {
	case split.score > most:
		at, _, _ := place(x)
		return at
	case within.score <= mostWithin:
		return 0
	case contrast(x[:within.end], within.begin) >= contrast(x[within.begin:], within.end-within.begin):
		return within.begin
	}
	return within.end
}

// contrast is the score of the ranks of the first k values.
func contrast(x []float64, k int) float64 {
	sum := 0.0
	for _, r := range ranksOf(x)[:k] {
		sum += r
	}
	return nullOf(len(x)).score(sum, k)
}

// unsure is how much worse a place may fit than the best one, in mean deviations, to be one where the step may be.
const unsure = 3

// place returns where values fit two medians best, one before and one from there on, and the first and the last place
// where they fit about as well.
func place(x []float64) (at, first, last int) {
	fits, best := make([]float64, len(x)), math.Inf(1)
	for k := 1; k < len(x); k++ {
		if fits[k] = deviation(x[:k]) + deviation(x[k:]); fits[k] < best {
			at, best = k, fits[k]
		}
	}
	for k := len(x) - 1; k > 0; k-- {
		if fits[k] <= best+unsure*best/float64(len(x)) {
			first, last = k, max(last, k)
		}
	}
	return at, first, last
}

// deviation is the sum of the distances of values to their median.
func deviation(x []float64) (sum float64) {
	m := median(x)
	for _, v := range x {
		sum += math.Abs(v - m)
	}
	return sum
}

func median(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	return (x[(len(x)-1)/2] + x[len(x)/2]) / 2
}
