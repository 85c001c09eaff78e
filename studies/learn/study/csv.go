package study

import (
	"encoding/csv"
	"io"
	"math"
	"strconv"

	"github.com/seed621a2839/reweight/studies/learn/train"
	"gonum.org/v1/gonum/stat"
)

// digits returns all digits of a number, and nothing for NaN.
func digits(x float64) string {
	if math.IsNaN(x) {
		return ""
	}
	return strconv.FormatFloat(x, 'g', -1, 64)
}

// WriteComparisons writes a line for each comparison: success as a share of a perfect
// player's, updates in iterations.
func WriteComparisons(w io.Writer, all []Comparison) error {
	c := csv.NewWriter(w)
	c.Write([]string{"game", "algorithm", "reasoning", "scheme", "measure", "pairs", "uniform", "reweighted", "difference", "low", "high",
		"p", "adjusted_p", "verdict", "uniform_censored", "reweighted_censored"}) // the first error stays, and Error returns it
	for i := range all {
		q := &all[i]
		c.Write([]string{q.Game, q.Algorithm, q.Reasoning, q.Scheme, string(q.Measure), strconv.Itoa(q.Pairs), digits(q.Uniform), digits(q.Reweighted),
			digits(q.Difference), digits(q.Low), digits(q.High), digits(q.P), digits(q.Adjusted), q.Verdict(),
			strconv.Itoa(q.UniformCensored), strconv.Itoa(q.ReweightedCensored)})
	}
	c.Flush()
	return c.Error()
}

// A RunWriter writes a line for each run, so that others can compare the runs by their
// own means, and what is done is there whenever the program ends. Success is the share of
// episodes, not divided by a perfect player's; what is called mean is one over the
// iterations.
type RunWriter struct{ csv *csv.Writer }

// NewRunWriter writes the names of the columns.
func NewRunWriter(w io.Writer) RunWriter {
	c := csv.NewWriter(w)
	c.Write([]string{"game", "algorithm", "reasoning", "scheme", "seed", "iterations", "perfect", "start", "final", "mean_success", "updates",
		"entropy_start", "entropy_end", "action_entropy_start", "action_entropy_end", "mean_drift", "mean_clip_fraction", "mean_kl",
		"bottleneck_all_1", "bottleneck_reasoning_1", "bottleneck_action_1", "bottleneck_all_2", "bottleneck_reasoning_2", "bottleneck_action_2",
		"bottleneck_all_3", "bottleneck_reasoning_3", "bottleneck_action_3", "seconds", "weights"})
	return RunWriter{c}
}

// Write writes the line of a run.
func (w RunWriter) Write(r train.Result) error {
	mean := func(curve []float64) string { return digits(stat.Mean(curve, nil)) }
	last := len(r.Success) - 1
	updates, _ := Updates.of(&r)
	row := []string{r.Game, r.Algorithm, r.Reasoning, r.Scheme, strconv.Itoa(r.Seed), strconv.Itoa(len(r.Success)), digits(r.Perfect), digits(r.Start),
		digits(r.Final), mean(r.Success), digits(updates), digits(r.Entropy[0]), digits(r.Entropy[last]), digits(r.ActionEntropy[0]), digits(r.ActionEntropy[last]),
		mean(r.Drift), mean(r.ClipFraction), mean(r.KL)}
	for _, b := range r.Bottleneck {
		row = append(row, digits(b.All), digits(b.Reasoning), digits(b.Action))
	}
	w.csv.Write(append(row, digits(r.Seconds), r.Weights))
	w.csv.Flush()
	return w.csv.Error()
}
