package report

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"strings"

	"github.com/seed621a2839/reweight/examples/learn/study"
)

// A canvas collects the elements of an SVG picture. What has a coordinate that
// is not finite is left out. Colours, dashes and fonts are the page's, by class:
// s0 to s10 are the schemes.
type canvas struct{ body strings.Builder }

func (c *canvas) line(class string, x1, y1, x2, y2 float64) {
	if finite(x1, y1, x2, y2) {
		fmt.Fprintf(&c.body, `<line class="%s" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`+"\n", class, x1, y1, x2, y2)
	}
}

// text writes; anchor is start, middle or end.
func (c *canvas) text(class, anchor string, x, y float64, s string) {
	if finite(x, y) {
		fmt.Fprintf(&c.body, `<text class="%s" text-anchor="%s" x="%.1f" y="%.1f">%s</text>`+"\n", class, anchor, x, y, html.EscapeString(s))
	}
}

// path draws through points, and begins anew after one that is not finite.
func (c *canvas) path(class string, x, y []float64) {
	var d strings.Builder
	pen := "M"
	for i := range x {
		if !finite(x[i], y[i]) {
			pen = "M"
			continue
		}
		fmt.Fprintf(&d, "%s%.1f %.1f", pen, x[i], y[i])
		pen = "L"
	}
	if d.Len() > 0 {
		fmt.Fprintf(&c.body, `<path class="%s" d="%s"/>`+"\n", class, d.String())
	}
}

// mark draws the sign of scheme i at a point: neighbours have other shapes, so that
// colour is not all that tells them apart.
func (c *canvas) mark(class string, i int, x, y float64) {
	if !finite(x, y) {
		return
	}
	const r = 3.8
	polygon := func(corners ...float64) {
		var points []string
		for k := 0; k < len(corners); k += 2 {
			points = append(points, fmt.Sprintf("%.1f,%.1f", x+r*corners[k], y+r*corners[k+1]))
		}
		fmt.Fprintf(&c.body, `<polygon class="%s" points="%s"/>`, class, strings.Join(points, " "))
	}
	switch i % 5 {
	case 1:
		fmt.Fprintf(&c.body, `<circle class="%s" cx="%.1f" cy="%.1f" r="%.1f"/>`, class, x, y, r)
	case 2:
		fmt.Fprintf(&c.body, `<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`, class, x-r+0.4, y-r+0.4, 2*r-0.8, 2*r-0.8)
	case 3:
		polygon(0, -1.2, 1.2, 0, 0, 1.2, -1.2, 0)
	case 4:
		polygon(0, -1.2, 1.1, 0.9, -1.1, 0.9)
	default:
		polygon(0, 1.2, 1.1, -0.9, -1.1, -0.9)
	}
	c.body.WriteByte('\n')
}

// picture returns the SVG. id is its own in the page; the description is what
// those hear who do not see it.
func (c *canvas) picture(id string, w, h float64, title, description string) template.HTML {
	return template.HTML(fmt.Sprintf(`<svg role="img" viewBox="0 0 %.0f %.0f" aria-labelledby="%s-title %s-about">`+"\n"+
		`<title id="%s-title">%s</title><desc id="%s-about">%s</desc>`+"\n%s</svg>", w, h, id, id, id, html.EscapeString(title), id, html.EscapeString(description), c.body.String()))
}

// A scale maps values to coordinates.
type scale struct{ lo, hi, from, to float64 }

func (s scale) at(x float64) float64 { return s.from + (s.to-s.from)*(x-s.lo)/(s.hi-s.lo) }

// inside returns the value of the scale that is nearest to x.
func (s scale) inside(x float64) float64 { return min(max(x, s.lo), s.hi) }

// ticks returns round values within the scale, at most so many.
func (s scale) ticks(most int) []float64 {
	for step := math.Pow(10, math.Floor(math.Log10((s.hi-s.lo)/float64(most)))); ; step *= 10 {
		for _, f := range [...]float64{1, 2, 5} {
			first, last := math.Ceil(s.lo/(step*f)-1e-9), math.Floor(s.hi/(step*f)+1e-9)
			if int(last-first)+1 > most {
				continue
			}
			var all []float64
			for i := first; i <= last; i++ {
				all = append(all, i*step*f)
			}
			return all
		}
	}
}

// learning draws the learning curves of a cell. top is the highest success that
// the page's charts show, and width the number of iterations.
func learning(id string, s *study.Summary, cell study.Cell, top float64, width int) template.HTML {
	const w, h, left, right, above, below = 330.0, 196.0, 36.0, 64.0, 8.0, 34.0
	var c canvas
	x, y := scale{1, float64(max(width, 2)), left, w - right}, scale{0, top, h - below, above}
	for _, share := range [...]float64{0, 0.25, 0.5, 0.75, 1} {
		class := "grid"
		if share == 1 {
			class = "perfect"
		}
		c.line(class, left, y.at(share), w-right, y.at(share))
		if share != 0.25 && share != 0.75 {
			c.text("tick", "end", left-5, y.at(share)+3.5, percent(share))
		}
	}
	for i, tick := range append([]float64{1}, x.ticks(5)...) {
		if i > 0 && tick < x.lo+0.1*(x.hi-x.lo) { // too near to the first
			continue
		}
		c.line("axis", x.at(tick), h-below, x.at(tick), h-below+4)
		c.text("tick", "middle", x.at(tick), h-below+15, number("%.0f", tick))
	}
	c.text("tick", "middle", (left+w-right)/2, h-4, "iteration")

	var about []string
	var ends []float64
	var labels []int
	curves := make([]study.Curve, len(s.Schemes))
	xs := make([][]float64, len(curves))
	for i, scheme := range s.Schemes {
		q := curve(s, cell, scheme)
		curves[i] = q
		for j := range q.Mean {
			xs[i] = append(xs[i], x.at(float64(j+1)))
		}
		if i == 0 || len(s.Schemes) <= many {
			c.band(fmt.Sprintf("band s%d", styleOf(scheme).number), xs[i], q, y)
		}
	}
	for i, q := range curves {
		if len(q.Mean) == 0 {
			continue
		}
		ys := make([]float64, len(q.Mean))
		for j, mean := range q.Mean {
			ys[j] = y.at(mean)
		}
		c.path(fmt.Sprintf("curve s%d", styleOf(q.Scheme).number), xs[i], ys)
		if end := q.Mean[len(q.Mean)-1]; finite(end) {
			ends, labels = append(ends, ys[len(ys)-1]), append(labels, i)
			about = append(about, fmt.Sprintf("%s: from %s to %s", styleOf(q.Scheme).title, percent(q.Mean[0]), percent(end)))
		}
	}
	if len(ends) == 0 {
		c.text("note", "middle", (left+w-right)/2, (above+h-below)/2, "no run is done")
	}
	for k, at := range spread(ends, 12, above+4, h-below) {
		i := labels[k]
		look := styleOf(s.Schemes[i])
		end := xs[i][len(xs[i])-1]
		c.line(fmt.Sprintf("leader s%d", look.number), end+2, ends[k], w-right+12, at)
		c.text(fmt.Sprintf("label s%d", look.number), "start", w-right+14, at+3.8, look.short)
	}
	return c.picture(id, w, h, cellTitle(s, cell), "Success in each iteration as a share of a perfect player's. "+strings.Join(about, "; ")+".")
}

// band draws the interval around a curve, where it has one.
func (c *canvas) band(class string, x []float64, q study.Curve, y scale) {
	if len(q.Low) != len(x) || len(q.High) != len(x) {
		return
	}
	var d strings.Builder
	for from := 0; from < len(x); from++ {
		to := from
		for to < len(x) && finite(q.Low[to], q.High[to]) {
			to++
		}
		if to-from > 1 {
			pen := "M"
			for j := from; j < to; j++ {
				fmt.Fprintf(&d, "%s%.1f %.1f", pen, x[j], y.at(y.inside(q.High[j])))
				pen = "L"
			}
			for j := to - 1; j >= from; j-- {
				fmt.Fprintf(&d, "L%.1f %.1f", x[j], y.at(y.inside(q.Low[j])))
			}
			d.WriteByte('z')
		}
		from = to
	}
	if d.Len() > 0 {
		fmt.Fprintf(&c.body, `<path class="%s" d="%s"/>`+"\n", class, d.String())
	}
}

// spread moves coordinates as little as it can so that they are at least gap
// apart and within lo and hi, and keeps their order.
func spread(at []float64, gap, lo, hi float64) []float64 {
	order := make([]int, len(at))
	for i := range order {
		order[i] = i
		for j := i; j > 0 && at[order[j]] < at[order[j-1]]; j-- {
			order[j], order[j-1] = order[j-1], order[j]
		}
	}
	moved := append([]float64{}, at...)
	for range 50 { // neighbours push each other away, half each
		for k := 1; k < len(order); k++ {
			a, b := order[k-1], order[k]
			if lack := gap - (moved[b] - moved[a]); lack > 0 {
				moved[a] -= lack / 2
				moved[b] += lack / 2
			}
		}
		for k, i := range order {
			n := float64(len(order) - 1 - k)
			moved[i] = min(max(moved[i], lo+float64(k)*gap), hi-n*gap)
		}
	}
	return moved
}

// top returns the highest success that the charts must show: a perfect player's,
// or more where luck gave a batch more.
func top(s *study.Summary) float64 {
	most := 1.0
	for _, q := range s.Curves {
		for _, mean := range q.Mean {
			if finite(mean) {
				most = max(most, mean)
			}
		}
	}
	return most
}

// forest draws the differences of all cells and schemes in a measure, each with
// its interval.
func forest(id string, s *study.Summary, m study.Measure) template.HTML {
	const w, left, right, above, row, head = 330.0, 62.0, 12.0, 34.0, 14.0, 17.0
	cells := len(s.Cells)
	h := above + float64(cells)*(head+row*float64(len(s.Schemes)-1)+5) + 24
	x := forestScale(s, m, left, w-right)
	low, high := worse, better
	if m == study.Updates {
		low, high = better, worse
	}
	var c canvas
	for _, tick := range x.ticks(5) {
		class := "grid"
		if tick == 0 {
			class = "zero"
		}
		c.line(class, x.at(tick), above-6, x.at(tick), h-20)
		for _, y := range [...]float64{above - 10, h - 8} {
			c.text("tick", "middle", x.at(tick), y, number("%+.0f", tick))
		}
	}
	c.text("note", "end", x.at(0)-8, 11, "← "+low)
	c.text("note", "start", x.at(0)+8, 11, high+" →")
	y, found := above, 0
	for _, cell := range s.Cells {
		c.text("head", "start", 0, y+11, cellTitle(s, cell))
		y += head
		for _, scheme := range s.Schemes[1:] {
			q := comparison(s, cell, scheme, m)
			c.forestRow(x, y+row/2, w, q)
			if shown(q) {
				found++
			}
			y += row
		}
		y += 5
	}
	unit := "hundredths of a perfect player's success"
	if m == study.Updates {
		unit = "iterations"
	}
	return c.picture(id, w, h, measureTitles[m]+": differences to uniform weights",
		fmt.Sprintf("Differences in %s with 95%% intervals. %d of %d comparisons show a difference. The table below has all numbers.", unit, found, cells*(len(s.Schemes)-1)))
}

// forestRow draws one comparison. An interval that leaves the scale ends with an arrow.
func (c *canvas) forestRow(x scale, y, w float64, q study.Comparison) {
	look := styleOf(q.Scheme)
	c.text(fmt.Sprintf("label s%d", look.number), "end", x.from-8, y+3.8, look.short)
	fmt.Fprintf(&c.body, "<g><title>%s</title>\n", html.EscapeString(fmt.Sprintf("%s: %s, adjusted p %s, %s", look.title, interval(q), pValue(q.Adjusted), verdict(q))))
	at := points(q.Measure, q.Difference)
	if !finite(at) {
		c.text("note", "middle", x.at(0), y+3.8, none)
	}
	low, high := points(q.Measure, q.Low), points(q.Measure, q.High)
	if finite(low, high) {
		class := fmt.Sprintf("interval s%d", look.number)
		from, to := x.at(x.inside(low)), x.at(x.inside(high))
		c.line(class, from, y, to, y)
		if low < x.lo {
			c.path(class, []float64{from + 4, from, from + 4}, []float64{y - 3, y, y + 3})
		}
		if high > x.hi {
			c.path(class, []float64{to - 4, to, to - 4}, []float64{y - 3, y, y + 3})
		}
	}
	state := "open"
	if shown(q) {
		state = "shown"
	}
	c.mark(fmt.Sprintf("mark %s s%d", state, look.number), look.number, x.at(at), y)
	c.body.WriteString("</g>\n")
}

// forestScale holds 0, all differences and their intervals, as far as differences
// can be: no success differs by more than a perfect player's, and no number of
// iterations by more than all.
func forestScale(s *study.Summary, m study.Measure, from, to float64) scale {
	limit := points(m, 1)
	if m == study.Updates {
		limit = float64(iterations(s))
	}
	lo, hi := 0.0, 0.0
	for _, q := range s.Comparisons {
		if q.Measure != m {
			continue
		}
		for _, end := range [...]float64{q.Difference, q.Low, q.High} {
			if p := points(m, end); finite(p) {
				lo, hi = min(lo, max(p, -limit)), max(hi, min(p, limit))
			}
		}
	}
	pad := max(0.05*(hi-lo), 1)
	return scale{lo - pad, hi + pad, from, to}
}
