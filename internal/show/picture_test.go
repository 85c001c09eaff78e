package show

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"flag"
	"fmt"
	"html"
	"io"
	"math"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/printable"
	"github.com/seed621a2839/reweight/rollout"
	"github.com/seed621a2839/reweight/testdata"
)

var update = flag.Bool("update", false, "write docs/rollout.svg")

// TestPicture: the picture of the README has the weights that the library computes.
// go test ./internal/show -run TestPicture -update writes it.
func TestPicture(t *testing.T) {
	const path = "../../docs/rollout.svg"
	r := example(t)
	got := picture(r)
	if *update {
		if err := os.WriteFile(path, got, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("docs/rollout.svg is stale (%v)", err)
	}
	decoder := xml.NewDecoder(bytes.NewReader(got))
	for {
		if _, err := decoder.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, token := range r.Tokens {
		if !strings.Contains(string(got), ">"+safe(token.Text)+"</text>") {
			t.Errorf("no token %q", token.Text)
		}
	}
}

// example returns the longest of the embedded rollouts that reached the goal, with the
// weights and factors that it has in its batch.
func example(t *testing.T) Trajectory {
	file, err := rollout.Parse(testdata.FrozenLakeSmall)
	if err != nil {
		t.Fatal(err)
	}
	b, err := file.Batch()
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	if err := json.Unmarshal([]byte(file.Metadata()["vocab"]), &words); err != nil {
		t.Fatal(err)
	}
	credit, err := NewCredit(b, reweight.SignalEnergy)
	if err != nil {
		t.Fatal(err)
	}
	best := 0
	length := func(s int) int64 { return b.SeqOffsets[s+1] - b.SeqOffsets[s] }
	for s, reward := range b.Rewards {
		if reward > b.Rewards[best] || reward == b.Rewards[best] && length(s) > length(best) {
			best = s
		}
	}
	from, to := b.SeqOffsets[best], b.SeqOffsets[best+1]
	var texts []string
	for _, id := range b.TokenIDs[from:to] {
		texts = append(texts, words[id])
	}
	r := NewTrajectory(b, credit, from, to, texts)
	r.Title = fmt.Sprintf("Rollout %d of the embedded batch: a trained policy on slippery FrozenLake, %d tokens, reward %g.", best, length(best), b.Rewards[best])
	return r
}

// safe returns text for SVG.
func safe(text string) string { return html.EscapeString(printable.Line(text)) }

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

// picture writes the tokens in lines, each under a bar as high as its weight and coloured
// by its role. A line over the bars of a response is its factor.
func picture(r Trajectory) []byte {
	const width, margin, tall, below, between = 900, 16.0, 48.0, 16.0, 12.0
	const letter, space = 6.6, 3.0 // of the font of .token, and around a text
	var body bytes.Buffer
	text := func(class, anchor string, x, y float64, s string) {
		fmt.Fprintf(&body, `<text class="%s" text-anchor="%s" x="%.1f" y="%.1f">%s</text>`+"\n", class, anchor, x, y, safe(s))
	}
	bar := func(role reweight.Role, x, y, w, h float64, title string) {
		fmt.Fprintf(&body, `<rect class="role%d" x="%.1f" y="%.1f" width="%.1f" height="%.1f"><title>%s</title></rect>`+"\n", role, x, y, w, h, safe(title))
	}
	line := func(x1, x2, y float64) {
		fmt.Fprintf(&body, `<line class="factor" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`+"\n", x1, y, x2, y)
	}
	const top = 14.0
	at := margin
	entry := func(label string) {
		text("label", "start", at+16, top+9, label)
		at += 6.3*float64(len(label)) + 36
	}
	for i, name := range roleNames {
		label := legendOf(r, reweight.Role(i))
		bar(reweight.Role(i), at, top, 10, 10, name)
		entry(label)
	}
	line(at, at+12, top+5)
	entry("AEM factor of the response")

	most := 1.0
	for _, t := range r.Tokens {
		most = max(most, t.ActFocus, or0(t.Factor))
	}
	bottom := top + 14 + between + tall
	height := func(value float64) float64 { return value / most * (tall - 12) }
	x, end, factor := margin, 0.0, 0.0 // end and factor are of the last token in this line
	for i, t := range r.Tokens {
		w := letter*float64(utf8.RuneCountInString(t.Text)) + space
		if x > margin && x+w > width-margin {
			x, factor = margin, 0
			bottom += tall + below + between
		}
		answered := t.Role != reweight.RoleMasked
		about := fmt.Sprintf("token %d %s: %s, ActFocus weight %.3f", i, t.Text, t.RoleName(), t.ActFocus)
		if answered {
			about += fmt.Sprintf(", AEM factor %.3f", t.Factor)
		}
		h := max(1.5, height(t.ActFocus))
		bar(t.Role, x, bottom-h, w-1, h, about)
		class := "token"
		switch t.Role {
		case reweight.RoleMasked:
			class += " quiet"
		case reweight.RoleAction:
			class += " chosen"
			text("tick", "middle", x+w/2, bottom-h-3, fmt.Sprintf("%.2f", t.ActFocus))
		}
		text(class, "middle", x+w/2, bottom+12, t.Text)
		if answered {
			from, y := x, bottom-height(t.Factor)
			if t.Factor == factor {
				from = end
			} else if t.Role != reweight.RoleAction { // over an action stands its weight
				text("tick", "start", x, y-3, fmt.Sprintf("x %.2f", t.Factor))
			}
			line(from, x+w-1, y)
		}
		x += w
		end, factor = x-1, t.Factor
	}
	bottom += below + 18
	text("label", "start", 16, bottom, "Height: the token's weight in the loss by ActFocus. Colour: its role. Line: the factor of the response's advantage by AEM.")
	bottom += 20
	return fmt.Appendf(nil, `<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-labelledby="title about" viewBox="0 0 %d %.0f" width="%d" height="%.0f">
<title id="title">%s</title>
<desc id="about">The tokens of a rollout, each under a bar: its height is the weight of the token in the loss by ActFocus, its colour the role. A line over a response is the factor of its advantage by AEM.</desc>
<style>%s</style>
<rect class="card" width="%d" height="%.0f" rx="8"/>
%s</svg>
`, width, bottom, width, bottom, safe(r.Title), pictureStyle, width, bottom, &body)
}

// or0 returns 0 for what is not known.
func or0(x float64) float64 {
	if math.IsNaN(x) {
		return 0
	}
	return x
}

// legendOf names a role and the weights that its tokens have.
func legendOf(r Trajectory, role reweight.Role) string {
	_, lo, hi := over(r.Tokens, func(t Token) float64 {
		if t.Role != role {
			return math.NaN()
		}
		return t.ActFocus
	})
	switch {
	case lo > hi:
		return roleNames[role]
	case lo == hi:
		return fmt.Sprintf("%s: weight %.3g", roleNames[role], lo)
	}
	return fmt.Sprintf("%s: weight %.3g to %.3g", roleNames[role], lo, hi)
}
