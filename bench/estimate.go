package bench

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"

	"golang.org/x/perf/benchmath"
)

// An Estimate is a median over rounds and an interval for it.
//
// The interval covers the noise that came and went between the rounds of this
// run, about 95 times of 100 where rounds are independent (TestSampleCovers says
// how often). It does not cover what was
// the same in all of them: the place of the arrays in memory, the layout of the
// binary, a neighbour that stayed. Fewer than six rounds cannot give such an
// interval; theirs is from the smallest to the largest. One round has no width,
// and none at all has NaN.
type Estimate struct {
	Median, Lo, Hi float64
	N              int // rounds
	Outliers       int // of them; counted by Tukey's fences, and kept
}

// MarshalJSON writes null for NaN and infinity.
func (e Estimate) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Median   Number `json:"median"`
		Lo       Number `json:"lo"`
		Hi       Number `json:"hi"`
		N        int    `json:"n"`
		Outliers int    `json:"outliers"`
	}{Number(e.Median), Number(e.Lo), Number(e.Hi), e.N, e.Outliers})
}

// Times returns the estimate in other units: f of the new one make an old one.
func (e Estimate) Times(f float64) Estimate {
	e.Median, e.Lo, e.Hi = f*e.Median, f*e.Lo, f*e.Hi
	return e
}

// HalfWidth returns half the width of the interval, relative to the median.
func (e Estimate) HalfWidth() float64 { return (e.Hi - e.Lo) / 2 / e.Median }

const (
	confidence = 0.95
	fewest     = 6  // values that an interval for the median at 95% takes
	resampled  = 20 // values from which on the bootstrap's is as wide as it should be
)

// medianOf estimates the median of x, which it sorts: its interval is between
// order statistics and assumes no distribution.
func medianOf(x []float64) Estimate {
	e := describe(x)
	if e.N >= fewest {
		s := benchmath.AssumeNothing.Summary(benchmath.NewSample(x, &benchmath.DefaultThresholds), confidence)
		e.Lo, e.Hi = s.Lo, s.Hi
	}
	return e
}

// bootstrapOf estimates the median of x, which it sorts: its interval is between
// percentiles of the medians of resampled x, where there is enough of it.
func bootstrapOf(x []float64) Estimate {
	if len(x) < resampled || len(x) > 1000 { // of many the two agree, and this one takes no time
		return medianOf(x)
	}
	const resamples = 2000
	e := describe(x)
	r := rand.New(rand.NewPCG(uint64(e.N), resamples)) // the same data, the same interval
	medians, counts := make([]float64, resamples), make([]int, e.N)
	for i := range medians {
		clear(counts)
		for range x {
			counts[r.IntN(e.N)]++
		}
		medians[i] = (kth(x, counts, (e.N-1)/2) + kth(x, counts, e.N/2)) / 2
	}
	slices.Sort(medians)
	tail := int(resamples * (1 - confidence) / 2)
	e.Lo, e.Hi = medians[tail], medians[resamples-1-tail]
	return e
}

// kth returns the k-th smallest, from 0, of sorted values that come so
// often each.
func kth(x []float64, counts []int, k int) float64 {
	for i, n := range counts {
		if k -= n; k < 0 {
			return x[i]
		}
	}
	return x[len(x)-1]
}

// describe sorts x and returns all but the interval, for which it has the
// extremes.
func describe(x []float64) Estimate {
	slices.Sort(x)
	n := len(x)
	if n == 0 {
		return Estimate{Median: math.NaN(), Lo: math.NaN(), Hi: math.NaN()}
	}
	e := Estimate{Median: quantile(x, 0.5), Lo: x[0], Hi: x[n-1], N: n}
	q1, q3 := quantile(x, 0.25), quantile(x, 0.75)
	fence := 1.5 * (q3 - q1)
	for _, v := range x {
		if v < q1-fence || v > q3+fence {
			e.Outliers++
		}
	}
	return e
}

// quantile interpolates between the sorted values of x.
func quantile(x []float64, q float64) float64 {
	at := q * float64(len(x)-1)
	i := int(at)
	if i == len(x)-1 {
		return x[i]
	}
	f := at - float64(i)
	return (1-f)*x[i] + f*x[i+1]
}
