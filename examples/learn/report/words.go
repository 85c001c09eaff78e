// Package report shows what a study found: in a terminal, as one page and as a
// file of comma-separated values.
package report

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/seed621a2839/reweight/examples/learn/env"
	"github.com/seed621a2839/reweight/examples/learn/study"
	"github.com/seed621a2839/reweight/internal/printable"
)

// alpha is the largest adjusted p value that shows a difference.
const alpha = 0.05

// none is what stands in place of a number that cannot be computed.
const none = "–"

var errEmpty = errors.New("no run of the study is done, so there is nothing to report")

// The words that say what a comparison shows.
const (
	better  = "better"
	worse   = "worse"
	unshown = "no difference shown"
)

// verdict says what a comparison shows, after the correction for all of them.
func verdict(c study.Comparison) string {
	switch more := c.Difference > 0; {
	case math.IsNaN(c.Adjusted) || math.IsNaN(c.Difference):
		return none
	case c.Adjusted > alpha:
		return unshown
	case more == (c.Measure != study.Updates):
		return better
	}
	return worse
}

// shown says whether a comparison shows a difference.
func shown(c study.Comparison) bool { v := verdict(c); return v == better || v == worse }

// A style is how a scheme is named and drawn.
type style struct {
	name         string // of train.Schemes
	title, short string
	plot         string // in a terminal
	about        string // what it does, for the page
	number       int    // of the page's classes: its place in styles
}

// styles are those of train.Schemes, in their order.
var styles = []style{
	{name: "uniform", title: "uniform weights", short: "uniform", plot: "·",
		about: "Each token the agent writes has the same weight. The loss is the clipped surrogate of PPO, with DAPO's wider upper bound and verl's dual clip."},
	{name: "actfocus", title: "ActFocus", short: "ActFocus", plot: "f",
		about: "arXiv 2605.14558. A reasoning token weighs 0.1 and an action token 1 to 1.5: the more, the higher its energy is among those of the batch's action tokens."},
	{name: "aem", title: "AEM", short: "AEM", plot: "e",
		about: "arXiv 2605.00425. The advantages of a response are multiplied by a factor, which is the larger, the lower the response's mean entropy is among those of its group. " +
			"The factors of a group have a mean of 1."},
	{name: "actfocus+aem", title: "ActFocus + AEM", short: "both", plot: "b",
		about: "AEM's factors of the advantages, and ActFocus's weights of the tokens."},
	{name: "empg", title: "EMPG", short: "EMPG", plot: "m",
		about: "arXiv 2509.09265. The advantages of a response are multiplied by a factor like AEM's, but within the whole batch; a response before one of low entropy gets a bonus."},
	{name: "gtpo", title: "GTPO", short: "GTPO", plot: "t",
		about: "arXiv 2508.04349. The advantages are made anew, from rewards that are shaped by the entropy of each token. It does not use those of GRPO or PPO. " +
			"With the formula of its paper, about half of the tokens of each success get a negative one."},
	{name: "entropy-mask", title: "entropy mask", short: "mask", plot: "k",
		about: "arXiv 2506.01939. Only the fifth of the tokens with the highest entropy counts."},
	{name: "gspo", title: "GSPO", short: "GSPO", plot: "g",
		about: "arXiv 2507.18071. Uniform weights; the probability ratio that the loss clips is that of the whole episode, not of each token."},
	{name: "cispo", title: "CISPO", short: "CISPO", plot: "c",
		about: "arXiv 2506.13585. Uniform weights; the clipped ratio is a constant factor, so that a clipped token still has a gradient."},
	{name: "sapo", title: "SAPO", short: "SAPO", plot: "s",
		about: "arXiv 2511.20347. Uniform weights; a soft clip, by a sigmoid of the ratio, takes the place of the hard one."},
	{name: "dppo-tv", title: "DPPO-TV", short: "DPPO-TV", plot: "d",
		about: "arXiv 2602.04879. Uniform weights; a token is left out where its probability, not the ratio, has changed by more than a bound."},
}

// styleOf returns the style of a scheme: each has the same in all studies.
func styleOf(name string) style {
	i := slices.IndexFunc(styles, func(s style) bool { return s.name == name })
	if i < 0 {
		return style{name: name, title: printable.Line(name), short: printable.Line(name), plot: "?"}
	}
	s := styles[i]
	s.number = i
	return s
}

// many is the number of schemes beyond which the page is drawn for many: tables
// have a row for each scheme, and charts are wider and have one band.
const many = 5

// gameTitle returns the title of a game. It and the other names here are safe to
// print, and have no character that XML does not allow, whatever a file says.
func gameTitle(name string) string {
	for _, g := range env.Games {
		if g.Name == name {
			return g.Title
		}
	}
	return printable.Line(name)
}

func algorithmTitle(name string) string { return strings.ToUpper(printable.Line(name)) }

func reasoningTitle(name string) string {
	switch name {
	case "none":
		return "no reasoning"
	case "noise":
		return "noise as reasoning"
	}
	return printable.Line(name) + " reasoning"
}

// cellTitle names a cell, and its reasoning where the study varies it.
func cellTitle(s *study.Summary, c study.Cell) string {
	title := gameTitle(c.Game) + ", " + algorithmTitle(c.Algorithm)
	for _, other := range s.Cells {
		if other.Reasoning != s.Cells[0].Reasoning {
			return title + ", " + reasoningTitle(c.Reasoning)
		}
	}
	return title
}

var measureTitles = map[study.Measure]string{
	study.Final:   "Success after training",
	study.Area:    "Mean success during training",
	study.Updates: fmt.Sprintf("Iterations until %.0f%% success", 100*study.Level),
}

// percent shows a share.
func percent(x float64) string { return number("%.0f%%", 100*x) }

// number shows a number that may be NaN. A minus sign is as wide as a plus sign, and
// what rounds to 0 has none.
func number(format string, x float64) string {
	if !finite(x) {
		return none
	}
	text := fmt.Sprintf(format, x)
	if !strings.ContainsAny(text, "123456789") {
		return strings.TrimLeft(text, "+-")
	}
	return strings.Replace(text, "-", "−", 1)
}

// value shows a value of a measure.
func value(m study.Measure, x float64) string {
	if m == study.Updates {
		return number("%.1f", x)
	}
	return number("%.1f%%", 100*x)
}

// points returns a difference as it is shown: in iterations, or in hundredths of
// a perfect player's success.
func points(m study.Measure, x float64) float64 {
	if m == study.Updates {
		return x
	}
	return 100 * x
}

// interval shows a difference with its interval.
func interval(c study.Comparison) string {
	show := func(x float64) string { return number("%+.1f", points(c.Measure, x)) }
	if !finite(c.Low, c.High) {
		return show(c.Difference)
	}
	return fmt.Sprintf("%s [%s, %s]", show(c.Difference), show(c.Low), show(c.High))
}

// pValue shows a p value.
func pValue(p float64) string {
	if p < 0.001 {
		return "<0.001"
	}
	return number("%.3f", p)
}

// duration shows seconds in the unit that suits.
func duration(seconds float64) string {
	switch {
	case seconds < 120:
		return number("%.0f seconds", seconds)
	case seconds < 2*3600:
		return number("%.0f minutes", seconds/60)
	}
	return number("%.1f hours", seconds/3600)
}

// list joins names as a sentence does.
func list(names []string) string {
	if n := len(names); n > 1 {
		return strings.Join(names[:n-1], ", ") + " and " + names[n-1]
	}
	return strings.Join(names, "")
}

// finite says whether all are numbers to show.
func finite(xs ...float64) bool {
	for _, x := range xs {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return false
		}
	}
	return true
}

// curve returns that of a cell and scheme, and an empty one if none of its runs is done.
func curve(s *study.Summary, cell study.Cell, scheme string) study.Curve {
	for _, c := range s.Curves {
		if c.Cell == cell && c.Scheme == scheme {
			return c
		}
	}
	return study.Curve{Cell: cell, Scheme: scheme}
}

// comparison returns that of a cell, scheme and measure, and one of NaNs if its runs are not done.
func comparison(s *study.Summary, cell study.Cell, scheme string, m study.Measure) study.Comparison {
	for _, c := range s.Comparisons {
		if c.Cell == cell && c.Scheme == scheme && c.Measure == m {
			return c
		}
	}
	nan := math.NaN()
	return study.Comparison{
		Cell: cell, Scheme: scheme, Measure: m,
		Uniform: nan, Reweighted: nan, Difference: nan, Low: nan, High: nan, P: nan, Adjusted: nan,
	}
}

// iterations returns the length of the longest curve.
func iterations(s *study.Summary) int {
	n := 0
	for _, c := range s.Curves {
		n = max(n, len(c.Mean))
	}
	return n
}
