package study

import (
	"fmt"
	"math"

	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/examples/learn/train"
	"gonum.org/v1/gonum/stat"
)

// A Summary is what a study says: the numbers of its tables and plots.
//
// Success is given as a share of what a perfect player of the game gets: 1 is as
// good as perfect. What cannot be computed, such as an interval from one seed, is
// NaN. A cell and scheme, or a comparison, of which no run is done yet is left out.
type Summary struct {
	Runs    int     // that were done
	Planned int     // more than Runs if the study was interrupted
	Seeds   int     // planned for each cell and scheme
	Seconds float64 // that the runs took, one after another

	Cells        []Cell        // that were planned, in order
	Schemes      []string      // likewise; each other one is compared with the first
	Curves       []Curve       // by cell, then by scheme
	Comparisons  []Comparison  // by cell, then by scheme without the first, then by measure
	Explanations []Explanation // by cell, then by scheme

	// Attainable is the smallest Adjusted that a comparison of this study can have,
	// with as many pairs and comparisons as there are. If it is above 0.05, the
	// study has too few seeds to show anything by its P values.
	Attainable float64
}

// A Cell is what runs have in common that are compared with each other.
type Cell struct {
	Game      string // Name of one of env.Games
	Algorithm string // grpo or ppo
	Reasoning string // none, useful or noise
}

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

// A Curve is how success grew in the runs of one cell and scheme.
type Curve struct {
	Cell
	Scheme    string
	Mean      []float64 // one element an iteration
	Low, High []float64 // 95% interval of the mean, each iteration for itself
}

// A Comparison says how a scheme differs from uniform, paired by seed.
type Comparison struct {
	Cell
	Scheme     string
	Measure    Measure
	Pairs      int     // seeds with a run of both
	Uniform    float64 // mean with uniform weights
	Reweighted float64 // mean with the scheme
	Difference float64 // mean of Reweighted - Uniform
	Low, High  float64 // 95% interval of it: Student's t with Pairs-1 degrees of freedom
	P          float64 // NaN if no run reached Level; two-sided exact permutation test: the signs of the differences are flipped in all ways
	Adjusted   float64 // P corrected for all comparisons of the study by Holm's method

	UniformCensored, ReweightedCensored int // runs that never reached Level, if Measure is Updates
}

// An Explanation is what the papers say the schemes act on, each number a mean
// over the runs of one cell and scheme. Correlations that a run does not have,
// because all its ranks are equal, are passed over.
type Explanation struct {
	Cell
	Scheme string

	Start, Final float64               // success before and after training
	Bottleneck   [3]train.Correlations // of each third of the training

	EntropyStart, EntropyEnd             float64 // of response tokens in the first and last iteration, nats
	ActionEntropyStart, ActionEntropyEnd float64 // of action tokens
	Drift                                float64 // mean over the iterations of reweight.EntropyDrift
}

// Summarize compares the results of a study of the given cells, schemes and number
// of seeds, or of as many of its runs as are done.
func Summarize(cells []Cell, schemes []string, seeds int, results []train.Result) (*Summary, error) {
	if seeds > MaxSeeds {
		return nil, fmt.Errorf("%d seeds: the exact test takes at most %d", seeds, MaxSeeds)
	}
	s := &Summary{
		Runs: len(results), Planned: len(cells) * len(schemes) * seeds, Seeds: seeds,
		Cells: cells, Schemes: schemes, Attainable: 1,
	}
	done := make(map[train.Run]train.Result, len(results))
	for _, r := range results {
		if err := check(r); err != nil {
			return nil, fmt.Errorf("%s: %w", key(r.Run), err)
		}
		done[r.Run] = r
		s.Seconds += r.Seconds
	}
	for _, cell := range cells {
		iterations, perfect := 0, 0.0 // of all runs of the cell
		for _, scheme := range schemes {
			var runs []train.Result
			for seed := 1; seed <= seeds; seed++ {
				r, ok := done[cell.run(scheme, seed)]
				if !ok {
					continue
				}
				if iterations == 0 {
					iterations, perfect = len(r.Success), r.Perfect
				}
				if len(r.Success) != iterations {
					return nil, fmt.Errorf("%s: %d iterations, others have %d", key(r.Run), len(r.Success), iterations)
				}
				if r.Perfect != perfect {
					return nil, fmt.Errorf("%s: a perfect player's success is %v, in others %v", key(r.Run), r.Perfect, perfect)
				}
				runs = append(runs, r)
			}
			if len(runs) > 0 {
				s.Curves = append(s.Curves, curve(cell, scheme, runs))
				s.Explanations = append(s.Explanations, explain(cell, scheme, runs))
			}
		}
	}
	for _, cell := range cells {
		for _, scheme := range schemes[1:] {
			var uniform, reweighted []train.Result
			for seed := 1; seed <= seeds; seed++ {
				u, okU := done[cell.run(schemes[0], seed)]
				r, okR := done[cell.run(scheme, seed)]
				if okU && okR {
					uniform, reweighted = append(uniform, u), append(reweighted, r)
				}
			}
			for _, measure := range Measures {
				if len(uniform) > 0 {
					s.Comparisons = append(s.Comparisons, compare(cell, scheme, measure, uniform, reweighted))
				}
			}
		}
	}
	p := make([]float64, len(s.Comparisons))
	tests, attainable := 0.0, 1.0
	for i, c := range s.Comparisons {
		p[i] = c.P
		if !math.IsNaN(c.P) {
			tests++
			attainable = min(attainable, math.Exp2(float64(1-c.Pairs)))
		}
	}
	if tests > 0 {
		s.Attainable = min(1, tests*attainable)
	}
	for i, adjusted := range holm(p) {
		s.Comparisons[i].Adjusted = adjusted
	}
	return s, nil
}

// check returns an error if the result is not one that a study can be made of.
func check(r train.Result) error {
	iterations := len(r.Success)
	if iterations == 0 {
		return fmt.Errorf("no iterations")
	}
	for _, curve := range [][]float64{r.Entropy, r.ActionEntropy, r.Drift, r.ClipFraction, r.KL} {
		if len(curve) != iterations {
			return fmt.Errorf("curves of %d and %d iterations", iterations, len(curve))
		}
	}
	if len(r.Bottleneck) != 3 {
		return fmt.Errorf("correlations of %d parts of the training, want 3", len(r.Bottleneck))
	}
	if !(r.Perfect >= 0.1 && r.Perfect <= 1) { // shares of less would be too large to draw
		return fmt.Errorf("a perfect player's success is %v", r.Perfect)
	}
	for _, success := range append([]float64{r.Start, r.Final}, r.Success...) {
		if !(success >= 0 && success <= 1) {
			return fmt.Errorf("a success of %v", success)
		}
	}
	return nil
}

func curve(cell Cell, scheme string, runs []train.Result) Curve {
	c := Curve{Cell: cell, Scheme: scheme}
	for i := range runs[0].Success {
		success := each(runs, func(r train.Result) float64 { return r.Success[i] / r.Perfect })
		low, high := interval(success)
		c.Mean = append(c.Mean, stat.Mean(success, nil))
		c.Low, c.High = append(c.Low, low), append(c.High, high)
	}
	return c
}

func compare(cell Cell, scheme string, measure Measure, uniform, reweighted []train.Result) Comparison {
	u, r := make([]float64, len(uniform)), make([]float64, len(uniform))
	differences := make([]float64, len(uniform))
	c := Comparison{Cell: cell, Scheme: scheme, Measure: measure, Pairs: len(uniform)}
	for i := range uniform {
		var censored bool
		if u[i], censored = measure.of(uniform[i]); censored {
			c.UniformCensored++
		}
		if r[i], censored = measure.of(reweighted[i]); censored {
			c.ReweightedCensored++
		}
		differences[i] = r[i] - u[i]
	}
	c.Uniform, c.Reweighted, c.Difference = stat.Mean(u, nil), stat.Mean(r, nil), stat.Mean(differences, nil)
	c.Low, c.High = interval(differences)
	c.P = permutation(differences)
	if c.UniformCensored == c.Pairs && c.ReweightedCensored == c.Pairs {
		// No run of either got there, which says nothing about their difference.
		c.Low, c.High, c.P = math.NaN(), math.NaN(), math.NaN()
	}
	return c
}

// of returns the measure of a run, and whether it is Updates of a censored run.
func (m Measure) of(r train.Result) (value float64, censored bool) {
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

func explain(cell Cell, scheme string, runs []train.Result) Explanation {
	e := Explanation{Cell: cell, Scheme: scheme}
	mean := func(of func(train.Result) float64) float64 { return meanDefined(each(runs, of)) }
	e.Start = mean(func(r train.Result) float64 { return r.Start / r.Perfect })
	e.Final = mean(func(r train.Result) float64 { return r.Final / r.Perfect })
	for third := range e.Bottleneck {
		e.Bottleneck[third] = train.Correlations{
			All:       bench.Number(mean(func(r train.Result) float64 { return float64(r.Bottleneck[third].All) })),
			Reasoning: bench.Number(mean(func(r train.Result) float64 { return float64(r.Bottleneck[third].Reasoning) })),
			Action:    bench.Number(mean(func(r train.Result) float64 { return float64(r.Bottleneck[third].Action) })),
		}
	}
	last := len(runs[0].Success) - 1
	e.EntropyStart = mean(func(r train.Result) float64 { return r.Entropy[0] })
	e.EntropyEnd = mean(func(r train.Result) float64 { return r.Entropy[last] })
	e.ActionEntropyStart = mean(func(r train.Result) float64 { return r.ActionEntropy[0] })
	e.ActionEntropyEnd = mean(func(r train.Result) float64 { return r.ActionEntropy[last] })
	e.Drift = mean(func(r train.Result) float64 { return stat.Mean(r.Drift, nil) })
	return e
}

func each(runs []train.Result, of func(train.Result) float64) []float64 {
	x := make([]float64, len(runs))
	for i, r := range runs {
		x[i] = of(r)
	}
	return x
}
