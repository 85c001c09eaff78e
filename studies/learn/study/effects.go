package study

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"strconv"
	"text/tabwriter"

	"github.com/seed621a2839/reweight/reference/diagnostics"
	"github.com/seed621a2839/reweight/studies/learn/train"
	"gonum.org/v1/gonum/stat"
)

// An Effect is what a scheme changes in one cell of a map: the mean over the seeds of the success
// during training, paired by seed, each side at its own best rate.
type Effect struct {
	Game   string
	Fluent int
	Errors float64
	Scheme string

	UniformRate, Rate float64
	Uniform           float64 // mean success with uniform weights
	Reweighted        float64 // and with the scheme
	Difference        float64
	Low, High         float64 // 95% interval of the difference, by Student's t
	P                 float64 // exact test that flips signs
	Adjusted          float64 // P corrected by Holm's method for the cells of the scheme

	Start, Actions, Decided float64 // of the warm starts: success, share of action tokens, D
}

// Shown says whether the effect is shown after the correction.
func (e *Effect) Shown() bool { return e.Adjusted <= alpha }

// Effects compares the schemes with the first one. Of a map that is not finished it is an error.
func (m Map) Effects(done map[train.Run]MapRun) ([]Effect, error) {
	comparing := m.Comparing(done)
	for _, run := range append(m.Choosing(), comparing...) {
		if _, ok := done[run]; !ok {
			return nil, fmt.Errorf("the map is not finished: it lacks %+v", run)
		}
	}
	type cell struct {
		game   string
		fluent int
		errors float64
		scheme string
	}
	runs := map[cell][]MapRun{} // in the order of the seeds
	var cells []cell            // of the first seed
	for _, run := range comparing {
		c := cell{run.Game, run.Fluent, run.Errors, run.Scheme}
		if runs[c] == nil {
			cells = append(cells, c)
		}
		runs[c] = append(runs[c], done[run])
	}
	var all []Effect
	for _, scheme := range m.Schemes[1:] {
		var p []float64
		family := len(all)
		for _, c := range cells {
			if c.scheme != scheme {
				continue
			}
			base := runs[cell{c.game, c.fluent, c.errors, m.Schemes[0]}]
			e := Effect{Game: c.game, Fluent: c.fluent, Errors: c.errors, Scheme: scheme, UniformRate: base[0].Rate, Rate: runs[c][0].Rate}
			var differences []float64
			n := float64(len(base))
			for i, r := range runs[c] {
				differences = append(differences, r.Success-base[i].Success)
				e.Uniform += base[i].Success / n
				e.Reweighted += r.Success / n
				e.Start += base[i].Start / n
				e.Actions += base[i].Actions / n
				e.Decided += base[i].Decided / n
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
	c.Write([]string{"game", "fluent", "errors", "scheme", "uniform_rate", "rate", "uniform", "reweighted", "difference", "low", "high", "p", "adjusted_p",
		"start", "actions", "decided"}) // the first error stays, and Error returns it
	for _, e := range all {
		line := []string{e.Game, strconv.Itoa(e.Fluent), digits(e.Errors), e.Scheme}
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
	fmt.Fprintln(t, "scheme\tL\tq\trates\tuniform\treweighted\tdifference\t95% interval\tp, corrected")
	for _, e := range all {
		fmt.Fprintf(t, "%s\t%d\t%v\t%v, %v\t%.1f\t%.1f\t%+.1f\t%+.1f to %+.1f\t%.4f\n", e.Scheme, e.Fluent, e.Errors, e.UniformRate, e.Rate,
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
