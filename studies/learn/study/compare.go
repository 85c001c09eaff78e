package study

import (
	"math"

	"github.com/seed621a2839/reweight/studies/learn/train"
	"gonum.org/v1/gonum/stat"
)

// A Measure is a number that says how well a run learned.
type Measure string

const (
	Final   Measure = "final"   // success after training, as a share of a perfect player's; more is better
	Area    Measure = "area"    // mean over the iterations of success, likewise; more is better
	Updates Measure = "updates" // iterations until Recent of them have a mean of Level or more; less is better
)

// Measures lists all of them.
var Measures = []Measure{Final, Area, Updates}

// What Updates means: the number of the first iteration, counted from 1, at which
// the mean success of the Recent latest iterations is at least Level. A run that
// never gets there counts as its number of iterations, and is called censored.
const (
	Level  = 0.6
	Recent = 5
)

// A Comparison says how a scheme differs from uniform weights, paired by seed. Success is
// a share of a perfect player's; what cannot be computed, such as an interval from one
// seed, is NaN.
type Comparison struct {
	Cell
	Scheme     string
	Measure    Measure
	Pairs      int     // seeds with a run of both
	Uniform    float64 // mean with uniform weights
	Reweighted float64 // mean with the scheme
	Difference float64 // mean of Reweighted - Uniform
	Low, High  float64 // 95% interval of it: Student's t with Pairs-1 degrees of freedom
	P          float64 // two-sided exact permutation test: the signs of the differences are flipped in all ways
	Adjusted   float64 // P corrected for all comparisons of the study by Holm's method

	UniformCensored, ReweightedCensored int // runs that never reached Level, if Measure is Updates
}

// alpha is the largest Adjusted that shows a difference.
const alpha = 0.05

// Verdict says what a comparison shows after the correction for all of them: better, worse
// or, which does not mean that there is no difference, nothing.
func (c *Comparison) Verdict() string {
	switch {
	case !(c.Adjusted <= alpha):
		return ""
	case (c.Difference > 0) == (c.Measure != Updates):
		return "better"
	}
	return "worse"
}

// Compare compares the schemes with uniform weights in each of the cells, in that order
// and then by measure. If no run of both reached Level, Updates says nothing about their
// difference.
func Compare(cells []Cell, schemes []string, results []train.Result) []Comparison {
	done := map[train.Run]*train.Result{}
	seeds := 0
	for i := range results {
		done[results[i].Run] = &results[i]
		seeds = max(seeds, results[i].Seed)
	}
	var all []Comparison
	var p []float64
	for _, cell := range cells {
		for _, scheme := range schemes {
			for _, measure := range Measures {
				c := Comparison{Cell: cell, Scheme: scheme, Measure: measure}
				var uniform, reweighted, differences []float64
				for seed := 1; seed <= seeds; seed++ {
					u, r := done[cell.run(Uniform, seed)], done[cell.run(scheme, seed)]
					if u == nil || r == nil {
						continue
					}
					x, never := measure.of(u)
					if never {
						c.UniformCensored++
					}
					y, never := measure.of(r)
					if never {
						c.ReweightedCensored++
					}
					uniform, reweighted, differences = append(uniform, x), append(reweighted, y), append(differences, y-x)
				}
				c.Pairs = len(differences)
				c.Uniform, c.Reweighted, c.Difference = stat.Mean(uniform, nil), stat.Mean(reweighted, nil), stat.Mean(differences, nil)
				c.Low, c.High = interval(differences)
				c.P = permutation(differences)
				if c.UniformCensored == c.Pairs && c.ReweightedCensored == c.Pairs {
					c.Low, c.High, c.P = math.NaN(), math.NaN(), math.NaN()
				}
				all, p = append(all, c), append(p, c.P)
			}
		}
	}
	for i, adjusted := range holm(p) {
		all[i].Adjusted = adjusted
	}
	return all
}

// of returns the measure of a run, and whether it is Updates of a censored run.
func (m Measure) of(r *train.Result) (value float64, censored bool) {
	switch m {
	case Final:
		return r.Final / r.Perfect, false
	case Area:
		return stat.Mean(r.Success, nil) / r.Perfect, false
	}
	for i := Recent; i <= len(r.Success); i++ {
		sum := 0.0
		for _, success := range r.Success[i-Recent : i] {
			sum += success
		}
		if sum >= Level*Recent*r.Perfect {
			return float64(i), false
		}
	}
	return float64(len(r.Success)), true
}
