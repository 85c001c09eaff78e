package bench

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"

	"golang.org/x/perf/benchmath"
)

// An Estimate is a median over the rounds of a measurement, with an interval.
//
// The interval contains the true median about 95 times of 100 if the rounds are
// independent; TestSampleCovers says how often it does. It accounts for noise
// that differs between rounds. It does not account for what was the same in all
// rounds: where the arrays lay in memory, how the binary was laid out, another
// program that ran all the time.
//
// With fewer than FewestRounds rounds there is no such interval: it then goes
// from the smallest to the largest value, so with a single round it has no
// width. Without rounds, all three numbers are NaN.
type Estimate struct {
	Median, Lo, Hi float64
	N              int // rounds
	Outliers       int // rounds more than 1.5 interquartile ranges beyond the quartiles; they are not left out
}

// FewestRounds is how many rounds a 95% interval of a median takes.
const FewestRounds = 6

// estimateJSON is the JSON form of an Estimate.
type estimateJSON struct {
	Median   Number `json:"median"`
	Lo       Number `json:"lo"`
	Hi       Number `json:"hi"`
	N        int    `json:"n"`
	Outliers int    `json:"outliers"`
}

// MarshalJSON writes null for NaN and infinity.
func (e Estimate) MarshalJSON() ([]byte, error) {
	return json.Marshal(estimateJSON{Number(e.Median), Number(e.Lo), Number(e.Hi), e.N, e.Outliers})
}

// UnmarshalJSON reads what MarshalJSON writes, with NaN for null.
func (e *Estimate) UnmarshalJSON(text []byte) error {
	var j estimateJSON
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&j); err != nil {
		return err
	}
	*e = Estimate{float64(j.Median), float64(j.Lo), float64(j.Hi), j.N, j.Outliers}
	return nil
}

// A Number is a float64 that JSON can hold: NaN and infinities are written as null,
// and null is read as NaN.
type Number float64

// MarshalJSON writes null for NaN and infinity.
func (n Number) MarshalJSON() ([]byte, error) {
	if f := float64(n); math.IsNaN(f) || math.IsInf(f, 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

// UnmarshalJSON sets the number to NaN for null.
func (n *Number) UnmarshalJSON(text []byte) error {
	f := math.NaN()
	if string(text) != "null" {
		if err := json.Unmarshal(text, &f); err != nil {
			return err
		}
	}
	*n = Number(f)
	return nil
}

// Times returns the estimate of the measured quantity multiplied by f, which
// must not be negative.
func (e Estimate) Times(f float64) Estimate {
	e.Median, e.Lo, e.Hi = f*e.Median, f*e.Lo, f*e.Hi
	return e
}

// HalfWidth returns half the width of the interval, relative to the median.
func (e Estimate) HalfWidth() float64 { return (e.Hi - e.Lo) / 2 / e.Median }

const (
	confidence = 0.95
	resampled  = 20 // the bootstrap's intervals of fewer values are too narrow
)

// medianOf estimates the median of x, which it sorts. The ends of the interval
// are values of x, chosen by their rank: that assumes no distribution.
func medianOf(x []float64) Estimate {
	e := describe(x)
	if e.N >= FewestRounds {
		s := benchmath.AssumeNothing.Summary(benchmath.NewSample(x, &benchmath.DefaultThresholds), confidence)
		e.Lo, e.Hi = s.Lo, s.Hi
	}
	return e
}

// bootstrapOf estimates the median of x, which it sorts. If x has enough values,
// the ends of the interval are percentiles of the medians of resampled x.
func bootstrapOf(x []float64) Estimate {
	if len(x) < resampled || len(x) > 1000 { // with many values both intervals agree, and medianOf is quick
		return medianOf(x)
	}
	const resamples = 2000
	e := describe(x)
	r := rand.New(rand.NewPCG(uint64(e.N), resamples)) // the same data always give the same interval
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

// kth returns the k-th smallest value, counted from 0, of the sorted values x,
// where x[i] occurs counts[i] times.
func kth(x []float64, counts []int, k int) float64 {
	for i, n := range counts {
		if k -= n; k < 0 {
			return x[i]
		}
	}
	return x[len(x)-1]
}

// describe sorts x and returns its median and outliers, with an interval from
// the smallest value to the largest.
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

// quantile returns the q-quantile of the sorted values x, with linear
// interpolation between them.
func quantile(x []float64, q float64) float64 {
	at := q * float64(len(x)-1)
	i := int(at)
	if i == len(x)-1 {
		return x[i]
	}
	f := at - float64(i)
	return (1-f)*x[i] + f*x[i+1]
}
