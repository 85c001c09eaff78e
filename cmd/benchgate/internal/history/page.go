package history

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"

	"github.com/seed621a2839/reweight/internal/printable"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

// The size of a chart on the page, in its own units, and what is left for the axes.
const (
	width, height           = 800, 220
	left, right, above, low = 60, 10, 10, 24
)

// A chart is a history with the places of what the page draws.
type chart struct {
	Title  string
	Steps  []string
	Points []mark
	Line   string // through all points
	Levels []bar  // the medians between steps
	Ranges []bar  // where steps may be
	Ticks  []tick // of ratios
	First  string // commit
	Last   string
}

type mark struct {
	X, Y, Lo, Hi float64
	Text         string
}

type bar struct{ X1, X2, Y float64 }

type tick struct {
	Y    float64
	Text string
}

// WriteHTML writes a page with a chart of each history. All of it is in the file, nothing runs, and text of the file
// of lines is quoted.
func WriteHTML(w io.Writer, all []History, notes []string) error {
	content := struct {
		Notes         []string
		Charts        []chart
		Width, Height int
		Left, Right   int // of the area of points
		Top, Bottom   int
	}{nil, nil, width, height, left, width - right, above, height - low}
	for _, line := range append(notes, Summary(all)...) {
		content.Notes = append(content.Notes, printable.Line(line))
	}
	for _, h := range all {
		if len(h.Points) >= fewest {
			content.Charts = append(content.Charts, h.chart())
		}
	}
	return page.Execute(w, content)
}

// chart places the history.
func (h History) chart() chart {
	lo, hi := h.span()
	room := (hi - lo) / 10
	lo, hi = lo-room, hi+room
	x := func(i float64) float64 {
		return tenth(left + 8 + i*(width-left-right-16)/float64(len(h.Points)-1))
	}
	y := func(at float64) float64 {
		at = max(lo, min(hi, at)) // bounds may be far outside
		return tenth(above + (hi-at)/(hi-lo)*(height-above-low))
	}
	c := chart{Title: printable.Line(h.Title()), First: short(h.Points[0].Commit),
		Last: short(h.Points[len(h.Points)-1].Commit)}
	for i, p := range h.Points {
		m := mark{x(float64(i)), y(p.Ratio), y(p.Lo), y(p.Hi), printable.Line(fmt.Sprintf(
			"%s, %s: %.4g (%.4g to %.4g), %.4g ns over %.4g ns, %s, %s", short(p.Commit), day(p.Date), p.Ratio,
			p.Lo, p.Hi,
			p.Ns, p.ReferenceNs, p.Machine, p.Go))}
		c.Points = append(c.Points, m)
		c.Line += fmt.Sprintf("%g,%g ", m.X, m.Y)
	}
	begin := 0
	for i, s := range h.Steps {
		c.Steps = append(c.Steps, printable.Line(h.Sentence(s)))
		c.Ranges = append(c.Ranges, bar{X1: x(float64(s.First - 1)), X2: x(float64(s.Last))})
		c.Levels = append(c.Levels, bar{x(float64(begin)), x(float64(s.At - 1)), y(s.Before)})
		if begin = s.At; i == len(h.Steps)-1 {
			c.Levels = append(c.Levels, bar{x(float64(begin)), x(float64(len(h.Points) - 1)), y(s.After)})
		}
	}
	for i := range 5 {
		at := lo + (hi-lo)*(0.5+float64(i))/5
		c.Ticks = append(c.Ticks, tick{y(at), ratio(at)})
	}
	return c
}

func tenth(x float64) float64 { return math.Round(10*x) / 10 }
