package history

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/guptarohit/asciigraph"
	"github.com/seed621a2839/reweight/internal/cli"
	"github.com/seed621a2839/reweight/internal/printable"
)

// fewest is how many commits a history needs to be drawn.
const fewest = 2

// short is the beginning of a commit's name that people use.
func short(commit string) string { return commit[:12] }

// Sentence says what a step is, and between which commits it is.
func (h History) Sentence(s Step) string {
	what := fmt.Sprintf("%.1f%% slower", 100*(s.Times()-1))
	switch times := s.Times(); {
	case times >= 2:
		what = fmt.Sprintf("%.2f times as long", times)
	case times < 1:
		what = fmt.Sprintf("%.1f%% faster", 100*(1-times))
	}
	last, first := h.Points[s.First-1], h.Points[s.Last]
	text := fmt.Sprintf("%s since %s (%s): git log %s..%s", what, short(h.Points[s.At].Commit),
		day(h.Points[s.At].Date), short(last.Commit), short(first.Commit))
	if n := s.Last - s.First; n > 0 {
		text += fmt.Sprintf(", of which %d measured commits may be the first", n+1)
	}
	if before, after, moved := h.moved(s); moved {
		text += fmt.Sprintf("; this may be the machine, which was %s before and %s after", before, after)
	}
	return text
}

// moved reports whether no machine of before a step is one of those after it, and names one of each.
func (h History) moved(s Step) (before, after string, moved bool) {
	begin, end := 0, len(h.Points)
	for _, other := range h.Steps {
		if other.At < s.At {
			begin = other.At
		} else if other.At > s.At {
			end = min(end, other.At)
		}
	}
	machine := func(p Point) string { return p.Machine + ", " + p.Go }
	for _, p := range h.Points[begin:s.At] {
		if slices.ContainsFunc(h.Points[s.At:end], func(q Point) bool { return machine(p) == machine(q) }) {
			return "", "", false
		}
	}
	return machine(h.Points[s.At-1]), machine(h.Points[s.At]), true
}

// day is the day of a date, which check has read.
func day(date string) string { return date[:10] }

// Title says what a chart of the history shows.
func (h History) Title() string {
	first, last := h.Points[0], h.Points[len(h.Points)-1]
	return fmt.Sprintf("%s: %s, %s to %s, against %s", h.Name(), cli.Counted(len(h.Points), "commit"), day(first.Date),
		day(last.Date), short(h.Reference))
}

// Summary counts what was found, and says which histories are too short.
func Summary(all []History) []string {
	steps, with, single, untested := 0, 0, 0, 0
	for _, h := range all {
		steps += len(h.Steps)
		with += min(1, len(h.Steps))
		if len(h.Points) < fewest {
			single++
		} else if len(h.Points) < limits[0].n {
			untested++
		}
	}
	var lines []string
	if single > 0 {
		lines = append(lines, fmt.Sprintf("%s not drawn, of a single commit: a history goes on as long as -base is the same commit",
			isAre(single, "history")))
	}
	if untested > 0 {
		lines = append(lines, fmt.Sprintf("%s too short to find steps in: that takes %d commits",
			isAre(untested, "history"), limits[0].n))
	}
	found := "no step"
	if steps > 0 {
		found = fmt.Sprintf("%s in %d of them", cli.Counted(steps, "step"), with)
	}
	return append(lines, fmt.Sprintf("%s, %s", cli.Counted(len(all), "history"), found))
}

// The size of a chart on a terminal.
const (
	chartHeight = 8
	axisWidth   = 10 // of the numbers beside it
)

// WriteText draws each history for a terminal of so many columns.
func WriteText(w io.Writer, all []History, notes []string, columns int) error {
	var b strings.Builder
	for _, h := range all {
		if len(h.Points) < fewest {
			continue
		}
		ratios := make([]float64, len(h.Points))
		for i, p := range h.Points {
			ratios[i] = p.Ratio
		}
		lo, hi := h.span()
		fmt.Fprintln(&b, printable.Line(h.Title()))
		fmt.Fprintln(&b, asciigraph.Plot(ratios, asciigraph.Height(chartHeight),
			asciigraph.Width(max(10, columns-axisWidth)),
			asciigraph.LowerBound(lo), asciigraph.UpperBound(hi), asciigraph.YAxisValueFormatter(ratio)))
		for _, s := range h.Steps {
			fmt.Fprintln(&b, printable.Line("  "+h.Sentence(s)))
		}
		fmt.Fprintln(&b)
	}
	for _, line := range append(notes, Summary(all)...) {
		fmt.Fprintln(&b, printable.Line(line))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// ratio prints one beside an axis.
func ratio(x float64) string {
	if x >= 0.1 && x < 1000 {
		return fmt.Sprintf("%.3f", x)
	}
	return fmt.Sprintf("%.3g", x)
}

// span is the range of ratios that a chart shows: all of them, and no less than two percent around the reference or
// the middle, so that noise does not look like news.
func (h History) span() (lo, hi float64) {
	lo, hi = math.Inf(1), math.Inf(-1)
	for _, p := range h.Points {
		lo, hi = min(lo, p.Ratio), max(hi, p.Ratio)
	}
	if middle := (lo + hi) / 2; hi-lo < 0.04*middle {
		lo, hi = 0.98*middle, 1.02*middle
	}
	return lo, hi
}
