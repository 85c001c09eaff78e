package study

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"text/tabwriter"

	"github.com/seed621a2839/reweight/reference/diagnostics"
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

	Start, Actions, Decided float64 // of the warm starts: success, share of action tokens, D
}

// Shown says whether the effect is shown after the correction.
func (e *Effect) Shown() bool { return e.Adjusted <= alpha }

func lacks(run train.Run) error { return fmt.Errorf("the study is not finished: it lacks %+v", run) }

// effects compares the schemes of the runs with Uniform, each in its cells: what differs in neither
// scheme nor seed nor rate. The effects of a scheme are a family.
func effects(done Table, runs []train.Run) ([]Effect, error) {
	of := map[train.Run][]Row{} // by cell and scheme, in the order of the seeds
	var cells []train.Run
	var schemes []string
	for _, run := range runs {
		row, ok := done[run]
		if !ok {
			return nil, lacks(run)
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
			var differences []float64
			n := float64(len(with))
			for i, r := range with {
				u := without[i]
				differences = append(differences, r.Success-u.Success)
				e.Uniform += u.Success / n
				e.Reweighted += r.Success / n
				e.Start += u.Start / n
				e.Actions += u.Actions / n
				e.Decided += u.Decided / n
			}
			e.Difference = stat.Mean(differences, nil)
			e.Low, e.High = interval(differences)
			e.P = permutation(differences)
			all, p = append(all, e), append(p, e.P)
		}
		for i, adjusted := range holm(p) {
			all[family+i].Adjusted = adjusted
		}
	}
	return all, nil
}

// WriteEffects writes a line for each effect. Success is a share of the episodes.
func WriteEffects(w io.Writer, all []Effect) error {
	c := csv.NewWriter(w)
	c.Write([]string{"arm", "game", "algorithm", "fluent", "errors", "scheme", "uniform_rate", "rate", "uniform", "reweighted", "difference", "low", "high", "p", "adjusted_p",
		"start", "actions", "decided"}) // the first error stays, and Error returns it
	for _, e := range all {
		line := []string{e.Arm, e.Game, e.Algorithm, strconv.Itoa(e.Fluent), digits(e.Errors), e.Scheme}
		for _, x := range []float64{e.UniformRate, e.Rate, e.Uniform, e.Reweighted, e.Difference, e.Low, e.High, e.P, e.Adjusted, e.Start, e.Actions, e.Decided} {
			line = append(line, digits(x))
		}
		c.Write(line)
	}
	c.Flush()
	return c.Error()
}

// PrintEffects prints them as a table, in hundredths.
func PrintEffects(w io.Writer, all []Effect) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "arm\tgame\talgorithm\tL\tq\tscheme\trates\tuniform\treweighted\tdifference\t95% interval\tp, corrected")
	for _, e := range all {
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%v\t%s\t%v, %v\t%.1f\t%.1f\t%+.1f\t%+.1f to %+.1f\t%.4f\n", e.Arm, e.Game, e.Algorithm, e.Fluent, e.Errors, e.Scheme, e.UniformRate, e.Rate,
			100*e.Uniform, 100*e.Reweighted, 100*e.Difference, 100*e.Low, 100*e.High, e.Adjusted)
	}
	t.Flush()
}

// A Prediction is one of docs/plan.md and what came of it.
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

// Predictions holds the effects to those of docs/plan.md, in its order.
func Predictions(all []Effect) []Prediction {
	of := func(scheme string, keep func(e *Effect) bool) (effects []Effect) {
		for _, e := range all {
			if e.Scheme == scheme && keep(&e) {
				effects = append(effects, e)
			}
		}
		return effects
	}
	any := func(*Effect) bool { return true }
	mean := func(effects []Effect) float64 {
		sum := 0.0
		for _, e := range effects {
			sum += e.Difference
		}
		return sum / float64(len(effects))
	}
	long := of("actfocus", func(e *Effect) bool { return e.Errors == 0 && e.Fluent >= 12 })
	above := false
	for _, e := range long {
		above = above || e.Low > 0
	}
	gain := mean(long)
	loss := mean(of("actfocus", func(e *Effect) bool { return e.Errors == 1 }))
	var length, difference []float64
	for _, e := range of("actfocus", func(e *Effect) bool { return e.Errors == 0 }) {
		length, difference = append(length, float64(e.Fluent)), append(difference, e.Difference)
	}
	grows := diagnostics.Spearman(length, difference).Rho
	beta := mean(of(train.ActFocusWithoutBeta, any)) - mean(of("actfocus", any))
	aem := mean(of("aem", any))
	hundredths := func(x float64) string { return points(x) + " hundredths" }
	return []Prediction{
		{"ActFocus is better where L is 12 or 36 and q is 0", hundredths(gain), gain < 0 || !above},
		{"ActFocus is worse where q is 1", hundredths(loss), loss > 0},
		{"ActFocus's difference grows with L where q is 0", fmt.Sprintf("Spearman's correlation %+.1f", grows), !(grows > 0)},
		{"ActFocus with beta 0 differs from ActFocus by less than 3 hundredths", hundredths(beta), math.Abs(beta) >= 0.03},
		{"AEM differs from uniform weights by less than 3 hundredths", hundredths(aem), math.Abs(aem) >= 0.03},
	}
}
