package report

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"strings"

	"github.com/seed621a2839/reweight/internal/printable"
)

// A canvas collects the elements of an SVG picture. What has a coordinate that
// is not finite is left out: a picture lacks what was not measured. Colours and
// fonts are the page's, by class.
type canvas struct {
	body strings.Builder
	w, h float64
}

// finite says whether all are numbers to draw with.
func finite(xs ...float64) bool {
	for _, x := range xs {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return false
		}
	}
	return true
}

// safe returns text for SVG and HTML. Characters that cannot be printed, which XML
// does not allow or which change the order of others, become escape sequences.
func safe(text string) string { return html.EscapeString(printable.Line(text)) }

// titled appends an element with a title, which browsers show where one points.
func (c *canvas) titled(element, title string) {
	c.body.WriteString("<" + element)
	if title == "" {
		c.body.WriteString("/>\n")
		return
	}
	name, _, _ := strings.Cut(element, " ")
	fmt.Fprintf(&c.body, "><title>%s</title></%s>\n", safe(title), name)
}

func (c *canvas) line(class string, x1, y1, x2, y2 float64) {
	if finite(x1, y1, x2, y2) {
		c.titled(fmt.Sprintf(`line class="%s" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"`, class, x1, y1, x2, y2), "")
	}
}

func (c *canvas) rect(class string, x, y, w, h float64, title string) {
	if finite(x, y, w, h) {
		c.titled(fmt.Sprintf(`rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f"`, class, x, y, max(0, w), max(0, h)), title)
	}
}

// text writes; anchor is start, middle or end.
func (c *canvas) text(class, anchor string, x, y float64, s string) {
	if finite(x, y) {
		fmt.Fprintf(&c.body, `<text class="%s" text-anchor="%s" x="%.1f" y="%.1f">%s</text>`+"\n", class, anchor, x, y, safe(s))
	}
}

// upright writes along the left edge, from below, centred at y.
func (c *canvas) upright(class string, x, y float64, s string) {
	if finite(x, y) {
		fmt.Fprintf(&c.body, `<text class="%s" text-anchor="middle" transform="translate(%.1f %.1f) rotate(-90)">%s</text>`+"\n", class, x, y, safe(s))
	}
}

// mark draws series number n at a point: each has its shape, so that colour is
// not all that tells them apart.
func (c *canvas) mark(n int, x, y float64, title string) {
	if !finite(x, y) {
		return
	}
	const r = 4.5
	class := fmt.Sprintf("mark s%d", n%series)
	switch n % series {
	case 0:
		c.titled(fmt.Sprintf(`circle class="%s" cx="%.1f" cy="%.1f" r="%.1f"`, class, x, y, r), title)
	case 1:
		c.titled(fmt.Sprintf(`rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f"`, class, x-r+0.5, y-r+0.5, 2*r-1, 2*r-1), title)
	case 2:
		c.titled(fmt.Sprintf(`path class="%s" d="M%.1f %.1fl%.1f %.1fh%.1fz"`, class, x, y-r-0.5, r+0.5, 2*r, -2*r-1), title)
	default:
		c.titled(fmt.Sprintf(`path class="%s" d="M%.1f %.1fl%.1f %.1fl%.1f %.1fl%.1f %.1fz"`, class, x, y-r-1, r+1, r+1, -r-1, r+1, -r-1, -r-1), title)
	}
}

// series is how many colours and shapes there are.
const series = 4

// picture returns the SVG. The description is its text alternative.
func (c *canvas) picture(title, description string) template.HTML {
	return template.HTML(fmt.Sprintf(`<svg role="img" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" aria-label="%s">`+"\n%s</svg>",
		c.w, c.h, c.w, c.h, safe(title+". "+description), c.body.String()))
}

// textWidth is about the width of small text.
func textWidth(s string) float64 { return 6.3 * float64(len([]rune(s))) }

// A scale maps values to coordinates.
type scale struct {
	lo, hi   float64 // values
	from, to float64 // coordinates
	log      bool
}

func (s scale) at(x float64) float64 {
	lo, hi := s.lo, s.hi
	if s.log {
		x, lo, hi = math.Log(x), math.Log(lo), math.Log(hi)
	}
	return s.from + (s.to-s.from)*(x-lo)/(hi-lo)
}

// logScale is one over the values that are positive, and a little more.
func logScale(values []float64, from, to float64) scale {
	lo, hi := math.Inf(1), math.Inf(-1)
	for _, v := range values {
		if v > 0 && finite(v) {
			lo, hi = min(lo, v), max(hi, v)
		}
	}
	if lo > hi {
		lo, hi = 1, 10
	}
	pad := max(1.25, math.Pow(hi/lo, 0.06), math.Sqrt(10*lo/hi)) // at least a decade
	return scale{lo / pad, hi * pad, from, to, true}
}

// ticks returns round values within the scale, at most about so many.
func (s scale) ticks(most int) []float64 {
	var all []float64
	if !s.log {
		step := math.Pow(10, math.Floor(math.Log10((s.hi-s.lo)/float64(most))))
		for _, f := range [...]float64{1, 2, 5, 10} {
			if all = nil; (s.hi-s.lo)/(step*f) <= float64(most) {
				for i := math.Ceil(s.lo/(step*f)-1e-9) + 0; i*step*f <= s.hi*(1+1e-9); i++ {
					all = append(all, i*step*f)
				}
				return all
			}
		}
		return all
	}
	for _, digits := range [...][]float64{{1, 2, 5}, {1, 3}, {1}} {
		for skip := 1; skip < 4; skip++ {
			if skip > 1 && len(digits) > 1 {
				continue
			}
			all = nil
			first := int(math.Floor(math.Log10(s.lo)))
			for e := first; e <= int(math.Ceil(math.Log10(s.hi))); e++ {
				if (e-first)%skip != 0 {
					continue
				}
				for _, d := range digits {
					if v := d * math.Pow(10, float64(e)); v >= s.lo && v <= s.hi {
						all = append(all, v)
					}
				}
			}
			if len(all) <= most {
				return all
			}
		}
	}
	return all
}
