package study

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/seed621a2839/reweight/studies/learn/train"
)

// Figure draws the effects as an SVG: a panel for each scheme, a column for each number of
// fluent words, a row for each share of the decision in the reasoning. Blue cells gain and red ones
// lose, the stronger the more; an effect that is shown after the correction is bold.
func (m Map) Figure(all []Effect) []byte {
	const wide, high, left, top, gap = 76, 44, 92, 70, 40
	schemes, lengths, errors := m.Schemes[1:], m.Fluent, m.Errors
	columns := min(2, len(schemes))
	panelWide, panelHigh := len(lengths)*wide, len(errors)*high
	width := left + columns*(panelWide+gap)
	height := top + (len(schemes)+columns-1)/columns*(panelHigh+top)
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="14">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", width, height)
	text := func(x, y int, style, s string) {
		fmt.Fprintf(&b, `<text x="%d" y="%d"%s>%s</text>`+"\n", x, y, style, s)
	}
	text(left, 22, ` font-weight="bold"`, "Success during training against uniform weights, in hundredths")
	for i, scheme := range schemes {
		x0, y0 := left+i%columns*(panelWide+gap), top+i/columns*(panelHigh+top)
		text(x0, y0-8, ` font-weight="bold"`, schemeTitles[scheme])
		for row, q := range errors {
			if i%columns == 0 {
				text(x0-8, y0+row*high+high/2+5, ` text-anchor="end"`,
					map[float64]string{0: "nothing", 0.5: "half", 1: "all"}[q])
			}
		}
		if i%columns == 0 {
			text(x0-8, y0-8, ` text-anchor="end" font-size="11"`, "decided in")
			text(x0-8, y0+4, ` text-anchor="end" font-size="11"`, "reasoning")
		}
		for column, length := range lengths {
			text(x0+column*wide+wide/2, y0+panelHigh+18, ` text-anchor="middle" font-size="12"`,
				fmt.Sprintf("%d words", length))
		}
		for _, e := range all {
			if e.Scheme != scheme {
				continue
			}
			x, y := x0+slices.Index(lengths, e.Fluent)*wide, y0+slices.Index(errors, e.Errors)*high
			bold := ""
			if e.Shown() {
				bold = ` font-weight="bold"`
			}
			fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" fill="%s"><title>%s to %s</title></rect>`+"\n",
				x, y, wide-2, high-2, shade(e.Difference), points(e.Low), points(e.High))
			text(x+wide/2-1, y+high/2+4, ` text-anchor="middle"`+bold, points(e.Difference))
		}
	}
	text(left, height-12, ` font-size="12"`, "Words that mean nothing before each answer. Each scheme at its best rate. Bold: p at most 0.05, by Holm's method.")
	fmt.Fprintln(&b, "</svg>")
	return b.Bytes()
}

// schemeTitles are the names of the plan's schemes on its page.
var schemeTitles = map[string]string{
	"actfocus": "ActFocus", train.ActFocusWithoutBeta: "ActFocus, beta 0",
	train.ActFocusBySurprisal: "ActFocus by surprisal", "aem": "AEM",
}

// shade is white at 0, and full blue or red at 20 hundredths.
func shade(difference float64) string {
	light := 255 - int(155*min(1, max(difference, -difference)/0.2))
	if difference > 0 {
		return fmt.Sprintf("#%02x%02xff", light, light)
	}
	return fmt.Sprintf("#ff%02x%02x", light, light)
}

// points returns a share in hundredths, with a sign.
func points(x float64) string {
	text := strings.Replace(fmt.Sprintf("%+.1f", 100*x), "-", "−", 1)
	if !strings.ContainsAny(text, "123456789") {
		return strings.TrimLeft(text, "+−")
	}
	return text
}
