package study

import (
	"fmt"
	"math"

	"github.com/seed621a2839/reweight/studies/learn/train"
	"gonum.org/v1/gonum/stat"
)

// A Comparison is a cell of the study of plan-audit.md that trains with the weights of an audit.
type Comparison struct {
	Cell     train.Run
	Measured string // the scheme with the weights

	// Mean success during training with these weights, with uniform weights and with ActFocus.
	Success, Uniform, ActFocus float64
	Lost                       [3]int // runs of each that end below a tenth of success

	// The difference to the better of the other two, and its standard error.
	Difference, Error float64
}

// measured is the scheme with the weights that the audits of the starts of a cell name.
func (of Audited) measured(cell train.Run) (string, error) {
	name := train.Measured
	for _, part := range train.Parts {
		w, ok := of[Figure{cell.Fluent, cell.Errors, 0, "weight of " + part}]
		if !ok {
			return "", fmt.Errorf("audit.csv lacks the weight of %s at L %d, q %v", part, cell.Fluent, cell.Errors)
		}
		name += fmt.Sprintf(":%.3f", w.Value)
	}
	return name, nil
}

// compare calls f for each cell, with the scheme of its weights and those that it is compared with.
func (a Audits) compare(of Audited, f func(cell train.Run, schemes []string) error) error {
	for _, fluent := range a.Fluent {
		for _, errors := range a.Errors {
			run := atRate(cell(fluent, errors), a.Rate)
			name, err := of.measured(run)
			if err != nil {
				return err
			}
			if err := f(run, []string{name, Uniform, "actfocus"}); err != nil {
				return err
			}
		}
	}
	return nil
}

// MeasuredRuns returns the runs with the weights that the audits of the starts of a cell name, and those with uniform
// weights and ActFocus that they are compared with.
func (a Audits) MeasuredRuns(of Audited, seeds []int) (runs []train.Run, err error) {
	return runs, a.compare(of, func(run train.Run, schemes []string) error {
		for _, run.Seed = range seeds {
			for _, run.Scheme = range schemes {
				runs = append(runs, run)
			}
		}
		return nil
	})
}

// Compare returns what came of these runs in each cell.
func (a Audits) Compare(of Audited, seeds []int, done Table) (all []Comparison, err error) {
	return all, a.compare(of, func(run train.Run, schemes []string) error {
		var success [3][]float64
		var gone [3]int
		for i, scheme := range schemes {
			for _, seed := range seeds {
				run.Scheme, run.Seed = scheme, seed
				row, ok := done[run]
				if !ok {
					return fmt.Errorf("the study is not finished: it lacks %+v", run)
				}
				success[i] = append(success[i], row.Success)
				gone[i] += lost(row)
			}
		}
		run.Scheme, run.Seed = "", 0
		mean := func(i int) float64 { return stat.Mean(success[i], nil) }
		c := Comparison{run, schemes[0], mean(0), mean(1), mean(2), gone, 0, 0}
		better := success[1]
		if c.ActFocus > c.Uniform {
			better = success[2]
		}
		var differences []float64
		for i, x := range success[0] {
			differences = append(differences, x-better[i])
		}
		deviation := 0.0
		c.Difference, deviation = stat.MeanStdDev(differences, nil)
		c.Error = deviation / math.Sqrt(float64(len(differences)))
		all = append(all, c)
		return nil
	})
}

// Behind says whether the weights of the audit do worse than the better of the other two, by more than a standard
// error.
func (c *Comparison) Behind() bool { return c.Difference < -c.Error }

// MeasuredPrediction holds these cells to the fifth prediction of plan-audit.md.
func MeasuredPrediction(all []Comparison) Prediction {
	behind := 0
	for _, c := range all {
		if c.Behind() {
			behind++
		}
	}
	return Prediction{
		"`measured` is at least as good as the better of uniform weights and ActFocus, in all cells but one at most",
		fmt.Sprintf("behind in %d of %d", behind, len(all)), behind > 1,
	}
}
