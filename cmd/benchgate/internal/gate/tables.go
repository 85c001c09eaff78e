package gate

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/seed621a2839/reweight/bench"
)

// mostPasses is how many passes the table on a terminal shows. Of more, it says how many
// there are.
const mostPasses = 30

// header is that of tables of benchmarks, of which the first columns are text.
var header = []string{"benchmark", "verdict", "old", "new", "ratio", "interval", "pairs", "took"}

const textColumns = 2

// rows are those of some benchmarks. Each has a row, and after it one for every
// other unit that differs, or that was asked for.
func (r report) rows(results []Result) (rows [][]string) {
	for _, q := range results {
		word, pairs, took := r.word(q), "0", fmt.Sprintf("%.1f s", q.Seconds)
		if !q.failed && q.Ratio != nil && q.Time != q.Verdict && slices.ContainsFunc(q.Metrics, func(m Metric) bool {
			return m.Verdict == q.Verdict // the verdict is that of another unit
		}) {
			word = q.Time.String()
		}
		switch {
		case q.Ratio != nil && q.Ratio.N > 0:
			pairs = fmt.Sprint(q.Ratio.N)
			rows = append(rows, []string{q.name(), word, duration(q.BaseNs), duration(q.NewNs),
				fmt.Sprintf("%.3f", q.Ratio.Median), interval(*q.Ratio), pairs, took})
		case len(q.Metrics) > 0: // it reports no time
			pairs = fmt.Sprint(len(q.Metrics[0].pairs))
			rows = append(rows, []string{q.name(), word, "-", "-", "-", "-", pairs, took})
		default:
			rows = append(rows, []string{q.name(), word, "-", "-", "-", "-", pairs, "-"})
		}
		for _, m := range q.Metrics {
			if m.Base == m.New && kindOf(m.Unit) == count {
				continue
			}
			ratio, in := "-", "-"
			switch e := m.Ratio; {
			case e == nil && m.Base > 0:
				ratio = fmt.Sprintf("%.3f", m.New/m.Base)
			case e != nil && kindOf(m.Unit) == higher: // the table has new to old
				ratio, in = fmt.Sprintf("%.3f", 1/e.Median), interval(bench.Estimate{Lo: 1 / e.Hi, Hi: 1 / e.Lo})
				if math.IsInf(e.Lo, 0) {
					in = "-"
				}
			case e != nil:
				ratio, in = fmt.Sprintf("%.3f", e.Median), interval(*e)
			}
			word := m.Verdict.String()
			if q.Accepted != "" && m.Verdict == bench.Regression {
				word = "accepted"
			}
			rows = append(rows, []string{q.name() + " " + m.Unit, word, quantity(m.Base), quantity(m.New), ratio, in,
				pairs, ""})
		}
	}
	return rows
}

// split returns the results that are worth a look, and the passes that there is nothing to
// say about.
func (r report) split() (worth, passes []Result) {
	for _, q := range r.Results {
		if r.word(q) == "pass" && q.Message == "" && q.Ratio != nil {
			passes = append(passes, q)
		} else {
			worth = append(worth, q)
		}
	}
	return worth, passes
}

// duration prints nanoseconds with four digits and a unit.
func duration(ns float64) string {
	units := []string{"ns", "µs", "ms", "s"}
	for ns >= 1e3 && len(units) > 1 {
		ns, units = ns/1e3, units[1:]
	}
	if ns >= 1e15 { // ReportMetric takes any
		return quantity(ns) + " " + units[0]
	}
	return digits(ns) + " " + units[0]
}

// quantity prints a number of any unit.
func quantity(x float64) string {
	if x == math.Trunc(x) && math.Abs(x) < 1e15 {
		return fmt.Sprintf("%.0f", x)
	}
	if math.Abs(x) >= 1e-3 && math.Abs(x) < 1e15 {
		return digits(x)
	}
	return fmt.Sprintf("%.4g", x)
}

// digits prints four digits, or all before the decimal point and one after it.
func digits(x float64) string {
	decimals := 1
	for limit := 100.0; decimals < 6 && math.Abs(x) < limit; limit /= 10 {
		decimals++
	}
	return fmt.Sprintf("%.*f", decimals, x)
}

// remark is a line about a result, with this message, or empty.
func (q Result) remark(message string) string {
	var parts []string
	if message != "" {
		parts = append(parts, message)
	}
	if q.Profile != "" {
		parts = append(parts, "by CPU profiles "+q.Profile)
	}
	if q.Accepted != "" {
		parts = append(parts, "accepted: "+q.Accepted)
	}
	if len(parts) == 0 {
		return ""
	}
	return q.name() + ": " + strings.Join(parts, "; ")
}
