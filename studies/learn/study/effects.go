package study

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/seed621a2839/reweight/diagnose"
	"github.com/seed621a2839/reweight/studies/learn/train"
	"gonum.org/v1/gonum/stat"
)

// alpha is the largest corrected p value that shows an effect.
const alpha = 0.05

// An Effect is what a scheme changes in a cell of a study: the mean over the seeds of the success during
// training, paired by seed.
type Effect struct {
	train.Run   // without Seed
	UniformRate float64
	Uniform     float64 // mean success with uniform weights
	Reweighted  float64 // and with the scheme
	Difference  float64
	Low, High   float64 // 95% interval of the difference, by Student's t
	P           float64 // exact test that flips signs
	Adjusted    float64 // P corrected by Holm's method for the cells of the scheme
	Median      float64 // of the differences

	UniformFinal        float64 // success after training with uniform weights
	Final               float64 // difference to it
	FinalLow, FinalHigh float64 // its 95% interval
	UniformLost, Lost   int     // runs that end below a tenth of success, with uniform weights and with the scheme

	Start, Actions, Decided float64 // of the warm starts: success, share of action tokens, D
}

// Shown says whether the effect is shown after the correction.
func (e *Effect) Shown() bool { return e.Adjusted <= alpha }

// effects compares the schemes of the runs with Uniform, each in its cells: what differs in neither
// scheme nor seed nor rate. The effects of a scheme are a family.
func effects(done Table, runs []train.Run) ([]Effect, error) {
	of := map[train.Run][]train.Result{} // by cell and scheme, in the order of the seeds
	var cells []train.Run
	var schemes []string
	for _, run := range runs {
		row, ok := done[run]
		if !ok {
			return nil, fmt.Errorf("the study is not finished: it lacks %+v", run)
		}
		cell := run
		cell.Seed, cell.Rate = 0, 0
		if of[cell] == nil {
			cells = append(cells, cell)
		}
		of[cell] = append(of[cell], row)
		if run.Scheme != Uniform && !slices.Contains(schemes, run.Scheme) {
			schemes = append(schemes, run.Scheme)
		}
	}
	var all []Effect
	for _, scheme := range schemes {
		family := len(all)
		var p []float64
		for _, cell := range cells {
			if cell.Scheme != scheme {
				continue
			}
			with := of[cell]
			cell.Scheme = Uniform
			without := of[cell]
			e := Effect{Run: with[0].Run, UniformRate: without[0].Rate}
			e.Seed = 0
			var differences, final []float64
			n := float64(len(with))
			for i, r := range with {
				u := without[i]
				differences = append(differences, r.Success-u.Success)
				final = append(final, r.Final-u.Final)
				e.UniformFinal += u.Final / n
				e.UniformLost += lost(u)
				e.Lost += lost(r)
				e.Uniform += u.Success / n
				e.Reweighted += r.Success / n
				e.Start += u.Start / n
				e.Actions += u.Actions / n
				e.Decided += u.Decided / n
			}
			e.Difference = stat.Mean(differences, nil)
			e.Low, e.High = interval(differences)
			e.P = permutation(differences)
			e.Median = median(differences)
			e.Final = stat.Mean(final, nil)
			e.FinalLow, e.FinalHigh = interval(final)
			all, p = append(all, e), append(p, e.P)
		}
		for i, adjusted := range holm(p) {
			all[family+i].Adjusted = adjusted
		}
	}
	return all, nil
}

// lost returns 1 for a run that ends with next to no success, and 0 for others.
func lost(r train.Result) int {
	if r.Final < 0.1 {
		return 1
	}
	return 0
}

// effectOf returns the effect of a scheme in the cell of a run, or nil if there is none.
func effectOf(all []Effect, cell train.Run, scheme string) *Effect {
	cell.Scheme = scheme
	for i := range all {
		if cell.Rate = all[i].Rate; all[i].Run == cell {
			return &all[i]
		}
	}
	return nil
}

// EffectsCSV returns a line for each effect. Success is a share of the episodes.
func EffectsCSV(all []Effect) []byte {
	var b bytes.Buffer
	c := csv.NewWriter(&b)
	c.Write([]string{"arm", "game", "algorithm", "fluent", "errors", "scheme",
		"uniform_rate", "rate", "uniform", "reweighted", "difference", "low", "high", "p", "adjusted_p",
		"start", "actions", "decided",
		"median", "uniform_final", "final", "final_low", "final_high", "uniform_lost", "lost"})
	for _, e := range all {
		line := []string{e.Arm, e.Game, e.Algorithm, strconv.Itoa(e.Fluent), digits(e.Errors), e.Scheme}
		for _, x := range []float64{
			e.UniformRate, e.Rate, e.Uniform, e.Reweighted, e.Difference, e.Low, e.High, e.P, e.Adjusted,
			e.Start, e.Actions, e.Decided,
			e.Median, e.UniformFinal, e.Final, e.FinalLow, e.FinalHigh, float64(e.UniformLost), float64(e.Lost),
		} {
			line = append(line, digits(x))
		}
		c.Write(line)
	}
	c.Flush()
	return b.Bytes()
}

// A Prediction is one of plan.md and what came of it.
type Prediction struct {
	Text    string
	Value   string // what decides it
	Refuted bool
}

// Verdict says what came of it.
func (p *Prediction) Verdict() string {
	if p.Refuted {
		return "refuted, " + p.Value
	}
	return "not refuted, " + p.Value
}

// Predictions holds the effects to the predictions of plan.md, in its order.
func Predictions(all []Effect) ([]Prediction, error) {
	of := func(scheme string, keep func(e Effect) bool) (lengths, differences []float64) {
		for _, e := range all {
			if e.Scheme == scheme && keep(e) {
				lengths, differences = append(lengths, float64(e.Fluent)), append(differences, e.Difference)
			}
		}
		return lengths, differences
	}
	mean := func(scheme string, keep func(e Effect) bool) float64 {
		_, differences := of(scheme, keep)
		return stat.Mean(differences, nil)
	}
	any := func(Effect) bool { return true }
	long := func(e Effect) bool { return e.Errors == 0 && e.Fluent >= 12 }
	above := slices.ContainsFunc(all, func(e Effect) bool { return e.Scheme == "actfocus" && long(e) && e.Low > 0 })
	gain := mean("actfocus", long)
	loss := mean("actfocus", func(e Effect) bool { return e.Errors == 1 })
	grows, err := diagnose.Spearman(of("actfocus", func(e Effect) bool { return e.Errors == 0 }))
	if err != nil {
		return nil, err
	}
	beta := mean(train.ActFocusWithoutBeta, any) - mean("actfocus", any)
	aem := mean("aem", any)
	hundredths := func(x float64) string { return points(x) + " hundredths" }
	return []Prediction{
		{"ActFocus is better where L is 12 or 36 and q is 0", hundredths(gain), gain < 0 || !above},
		{"ActFocus is worse where q is 1", hundredths(loss), loss > 0},
		{"ActFocus's difference grows with L where q is 0", fmt.Sprintf("Spearman's correlation %+.1f", grows.Rho), !(grows.Rho > 0)},
		{"ActFocus with beta 0 differs from ActFocus by less than 3 hundredths", hundredths(beta), math.Abs(beta) >= 0.03},
		{"AEM differs from uniform weights by less than 3 hundredths", hundredths(aem), math.Abs(aem) >= 0.03},
	}, nil
}
