package report

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/show"
)

// roles are the names of roles in the order of their colours.
var roles = [...]string{reweight.RoleMasked: "masked", reweight.RoleReasoning: "reasoning", reweight.RoleAction: "action"}

// answered reports whether the token is one of a response, which has a factor.
func answered(t show.Token) bool { return t.Role != reweight.RoleMasked }

// rolloutFlow writes the tokens in lines as wide as the picture, each under a bar as
// high as its weight and coloured by its role. A line over the bars of a response is
// its factor.
func rolloutFlow(r show.Trajectory, width float64) *canvas {
	c := &canvas{w: width}
	const margin, tall, below, between = 16.0, 48.0, 16.0, 12.0
	const letter, space = 6.6, 3.0 // of the font of .token, and around a text
	most := 1.0
	for _, t := range r.Tokens {
		most = max(most, t.ActFocus)
		if answered(t) {
			most = max(most, t.Factor)
		}
	}
	at, top := margin, 14.0
	entry := func(text string, mark func()) {
		if at > margin && at+textWidth(text)+36 > width {
			at, top = margin, top+20
		}
		mark()
		c.text("label", "start", at+16, top+9, text)
		at += textWidth(text) + 36
	}
	for i := range roles {
		entry(weights(r, reweight.Role(i)), func() { c.rect("role"+strconv.Itoa(i), at, top, 10, 10, "") })
	}
	entry("AEM factor of the response", func() { c.line("factor", at, top+5, at+12, top+5) })
	top += 14 + between

	y := scale{lo: 0, hi: most, from: top + tall, to: top + 12}
	x := margin
	end, factor := 0.0, 0.0 // of the last token in this line
	for i, t := range r.Tokens {
		w := letter*float64(utf8.RuneCountInString(t.Text)) + space
		if x > margin && x+w > width-margin {
			x = margin
			y.from += tall + below + between
			y.to += tall + below + between
			factor = 0
		}
		about := fmt.Sprintf("token %d %s: %s, ActFocus weight %.3f", i, t.Text, t.RoleName(), t.ActFocus)
		if answered(t) {
			about += fmt.Sprintf(", AEM factor %.3f", t.Factor)
		}
		height := max(1.5, y.at(0)-y.at(t.ActFocus))
		c.rect("role"+strconv.Itoa(int(t.Role)), x, y.at(0)-height, w-1, height, about)
		class := "token"
		if t.Role == reweight.RoleMasked {
			class += " quiet"
		} else if t.Role == reweight.RoleAction {
			class += " chosen"
			c.text("tick", "middle", x+w/2, y.at(0)-height-3, fmt.Sprintf("%.2f", t.ActFocus))
		}
		c.text(class, "middle", x+w/2, y.at(0)+12, t.Text)
		if answered(t) {
			from := x
			if t.Factor == factor {
				from = end
			} else if t.Role != reweight.RoleAction { // over an action stands its weight
				c.text("tick", "start", x, y.at(t.Factor)-3, fmt.Sprintf("x %.2f", t.Factor))
			}
			c.line("factor", from, y.at(t.Factor), x+w-1, y.at(t.Factor))
		}
		end, factor = x+w-1, t.Factor
		x += w
	}
	c.h = y.from + below + 8
	return c
}

// weights names a role and the weights that its tokens have.
func weights(r show.Trajectory, role reweight.Role) string {
	lo, hi := math.Inf(1), math.Inf(-1)
	for _, t := range r.Tokens {
		if t.Role == role {
			lo, hi = min(lo, t.ActFocus), max(hi, t.ActFocus)
		}
	}
	switch {
	case lo > hi:
		return roles[role]
	case lo == hi:
		return fmt.Sprintf("%s: weight %.3g", roles[role], lo)
	}
	return fmt.Sprintf("%s: weight %.3g to %.3g", roles[role], lo, hi)
}

const rolloutDescription = "The tokens of a rollout, each under a bar: its height is the weight of the token in the loss by ActFocus, " +
	"its colour the role. A line over a response is the factor of its advantage by AEM."

// pictureStyle is that of the page, for a picture of its own.
const pictureStyle = `
.card { fill: #ffffff; } text { fill: #1c1e21; font: 12px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; }
.token { font: 11px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
.tick, .quiet { fill: #565c64; } .tick { font-size: 10px; } .chosen { font-weight: 700; }
.role0 { fill: #a8adb4; } .role1 { fill: #0072b2; } .role2 { fill: #c2410c; } .factor { stroke: #1c1e21; stroke-width: 1.5; }
@media (prefers-color-scheme: dark) {
.card { fill: #0d1117; } text { fill: #e8e9eb; } .tick, .quiet { fill: #a5abb3; }
.role0 { fill: #626973; } .role1 { fill: #56b4e9; } .role2 { fill: #f59e4b; } .factor { stroke: #e8e9eb; }
}
`

// WriteSVG writes the trajectory as a picture of its own, which depends on nothing else.
func WriteSVG(w io.Writer, r show.Trajectory) error {
	const width, caption = 900, 30.0
	c := rolloutFlow(r, width)
	c.text("label", "start", 16, c.h+10, "Height: the token's weight in the loss by ActFocus. Colour: its role. Line: the factor of the response's advantage by AEM.")
	c.h += caption
	_, err := fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-labelledby="title about" viewBox="0 0 %d %.0f" width="%d" height="%.0f">
<title id="title">%s</title>
<desc id="about">%s</desc>
<style>%s</style>
<rect class="card" width="%d" height="%.0f" rx="8"/>
%s</svg>
`, width, c.h, width, c.h, safe(r.Title), rolloutDescription, pictureStyle, width, c.h, c.body.String())
	return err
}
