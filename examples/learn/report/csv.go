package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"

	"github.com/seed621a2839/reweight/examples/learn/study"
	"github.com/seed621a2839/reweight/examples/learn/train"
	"github.com/seed621a2839/reweight/internal/atomicfile"
)

// csvHeader names the columns of CSV.
var csvHeader = []string{
	"game", "algorithm", "reasoning", "scheme", "measure", "pairs", "uniform", "reweighted", "difference", "low", "high", "p", "adjusted_p", "verdict",
	"uniform_censored", "reweighted_censored",
}

// CSV writes a line for each comparison with all digits: success as a share of a
// perfect player's, updates in iterations. What cannot be computed is empty.
func CSV(path string, s *study.Summary) error {
	if s.Runs == 0 {
		return errEmpty
	}
	return atomicfile.Write(path, func(w io.Writer) error { return writeCSV(w, s) })
}

// digits writes all digits of a number, and nothing for NaN.
func digits(x float64) string {
	if !finite(x) {
		return ""
	}
	return strconv.FormatFloat(x, 'g', -1, 64)
}

func writeCSV(w io.Writer, s *study.Summary) error {
	c := csv.NewWriter(w)
	c.Write(csvHeader) // the first error stays, and Error returns it
	for _, q := range s.Comparisons {
		word := verdict(q)
		if word == none {
			word = ""
		}
		row := []string{
			q.Game, q.Algorithm, q.Reasoning, q.Scheme, string(q.Measure), strconv.Itoa(q.Pairs), digits(q.Uniform), digits(q.Reweighted),
			digits(q.Difference), digits(q.Low), digits(q.High), digits(q.P), digits(q.Adjusted), word, "", "",
		}
		if q.Measure == study.Updates {
			row[14], row[15] = strconv.Itoa(q.UniformCensored), strconv.Itoa(q.ReweightedCensored)
		}
		c.Write(row)
	}
	c.Flush()
	return c.Error()
}

// Runs writes a line for each run with all digits, so that others can compare the
// runs by their own means. Success is the share of episodes, not divided by a
// perfect player's; what is called mean is one over the iterations.
func Runs(path string, results []train.Result) error {
	if len(results) == 0 {
		return errEmpty
	}
	return atomicfile.Write(path, func(w io.Writer) error { return writeRuns(w, results) })
}

func writeRuns(w io.Writer, results []train.Result) error {
	header := []string{
		"game", "algorithm", "reasoning", "scheme", "seed", "iterations", "perfect", "start", "final", "mean_success",
		"entropy_start", "entropy_end", "action_entropy_start", "action_entropy_end", "mean_drift", "mean_clip_fraction", "mean_kl",
	}
	for third := range 3 {
		for _, tokens := range [...]string{"all", "reasoning", "action"} {
			header = append(header, fmt.Sprintf("bottleneck_%s_%d", tokens, third+1))
		}
	}
	c := csv.NewWriter(w)
	c.Write(append(header, "seconds", "weights"))
	for _, r := range results {
		row := []string{
			r.Game, r.Algorithm, r.Reasoning, r.Scheme, strconv.Itoa(r.Seed), strconv.Itoa(len(r.Success)), digits(r.Perfect), digits(r.Start), digits(r.Final), mean(r.Success),
			first(r.Entropy), last(r.Entropy), first(r.ActionEntropy), last(r.ActionEntropy), mean(r.Drift), mean(r.ClipFraction), mean(r.KL),
		}
		for third := range 3 {
			if third >= len(r.Bottleneck) {
				row = append(row, "", "", "")
				continue
			}
			b := r.Bottleneck[third]
			row = append(row, digits(float64(b.All)), digits(float64(b.Reasoning)), digits(float64(b.Action)))
		}
		c.Write(append(row, digits(r.Seconds), r.Weights))
	}
	c.Flush()
	return c.Error()
}

// mean, first and last are those of a curve, nothing if it is empty.
func mean(curve []float64) string {
	sum := 0.0
	for _, x := range curve {
		sum += x
	}
	return digits(sum / float64(len(curve)))
}

func first(curve []float64) string {
	if len(curve) == 0 {
		return ""
	}
	return digits(curve[0])
}

func last(curve []float64) string {
	if len(curve) == 0 {
		return ""
	}
	return digits(curve[len(curve)-1])
}
