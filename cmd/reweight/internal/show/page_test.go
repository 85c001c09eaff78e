package show

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/test/must"
	"pgregory.net/rapid"
)

// An element of a page: its name, attributes and text.
type element struct {
	name, text string
	attributes map[string]string
}

// parse reads a page by the rules of XML, which are stricter than those of HTML, and
// returns its elements.
func parse(html string) ([]*element, error) {
	d := xml.NewDecoder(strings.NewReader(html))
	var all, open []*element
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		switch token := token.(type) {
		case xml.StartElement:
			e := &element{name: token.Name.Local, attributes: map[string]string{}}
			for _, a := range token.Attr {
				e.attributes[a.Name.Local] = a.Value
			}
			all, open = append(all, e), append(open, e)
		case xml.EndElement:
			open = open[:len(open)-1]
		case xml.CharData:
			if len(open) > 0 {
				open[len(open)-1].text += string(token)
			}
		}
	}
}

var outside = regexp.MustCompile(`(?i)https?:|<script.+src|<link|<img|<iframe|@import|url\(|\bon[a-z]+=`)

func TestPage(t *testing.T) {
	p := pageOf(masked("ask"), reasoning("so"), action("Left", 1.5), action("&\n", 1), masked("end"))
	p.Estimated, p.Notes = true, []string{"A <note>."}
	var b bytes.Buffer
	must.Do(p.WriteHTML(&b))
	all := must.Get(parse(b.String()))
	if at := outside.FindString(b.String()); at != "" {
		t.Errorf("the page reaches outside itself: %q", at)
	}
	var tokens, headings, cells []string
	for _, e := range all {
		switch {
		case strings.HasPrefix(e.attributes["class"], "token "):
			tokens = append(tokens,
				e.text+"|"+e.attributes["class"]+"|"+e.attributes["style"]+"|"+e.attributes["title"])
		case strings.HasPrefix(e.name, "h"):
			headings = append(headings, e.text)
		case e.name == "td":
			cells = append(cells, e.text)
		}
	}
	want := []string{
		"so|token reasoning|--height: 0.0667|token 1: reasoning, entropy ~0.5, log-probability -0.25, ActFocus weight 0.1, AEM factor ~0.8, weight ~0.08, advantage -1",
		"Left|token action marked|--height: 1.0000|token 2: action, entropy ~1, log-probability -0.75, ActFocus weight 1.5, AEM factor ~0.8, weight ~1.2, advantage -1",
		`&\n|token action marked|--height: 0.6667|token 3: action, entropy ~1, log-probability -0.75, ActFocus weight 1, AEM factor ~0.8, weight ~0.8, advantage -1`,
	}
	if got := strings.Join(tokens, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("the tokens are\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
	if got := strings.ReplaceAll(strings.Join(headings, "|"), "\n", ""); got !=
		"||Rollouts|Trajectory 0 of a file.|Turn 1|Turn 2" {
		t.Errorf("headings %q", headings)
	}
	if got, want := strings.Join(cells[9:18], "|"), "1|so|reasoning|~0.5|-0.25|0.1|~0.8|~0.08|-1"; got != want {
		t.Errorf("the row of a token is %s, want %s", got, want)
	}
	for _, want := range []string{"prefers-color-scheme: dark", "max-width: 760px", "A &lt;note&gt;.", `tabindex="0"`,
		`<div class="said">ask</div>`, "<i>~1.20</i>Left", `\n</span><br/>`} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %s", want)
		}
	}
}

// TestLongObservationOnPage: the middle is there, behind a line that says how long it is.
func TestLongObservationOnPage(t *testing.T) {
	var tokens []Token
	for i := range 200 {
		tokens = append(tokens, masked("w"+strconv.Itoa(i)))
	}
	var b bytes.Buffer
	must.Do(pageOf(tokens...).WriteHTML(&b))
	if want := "w59 <details><summary>80 tokens left out</summary>w60 "; !strings.Contains(b.String(), want) {
		t.Errorf("no %q", want)
	}
	if want := "w139 </details>w140 "; !strings.Contains(b.String(), want) {
		t.Errorf("no %q", want)
	}
}

// TestPageOfAnything: texts are never taken for tags, and all can be printed.
func TestPageOfAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPage(t)
		text := rapid.SampledFrom(hostile)
		p.Title, p.Trajectories[0].Title, p.Notes = text.Draw(t, "title"), text.Draw(t, "name"),
			[]string{text.Draw(t, "note")}
		var b bytes.Buffer
		must.Do(p.WriteHTML(&b))
		all := must.Get(parse(b.String()))
		for line := range strings.Lines(b.String()) {
			line = strings.TrimSuffix(line, "\n")
			if strings.ContainsFunc(line, func(r rune) bool { return !strconv.IsPrint(r) }) ||
				strings.HasPrefix(strings.TrimSpace(line), "::") {
				t.Fatalf("%q", line)
			}
		}
		var texts []string
		scripts := 0
		for _, e := range all {
			if strings.HasPrefix(e.attributes["class"], "token ") {
				texts = append(texts, e.text)
			}
			if e.name == "script" {
				scripts++
			}
		}
		if scripts != 1 {
			t.Fatalf("%d scripts", scripts)
		}
		r := p.Trajectories[0]
		for _, turn := range r.Turns {
			for _, token := range r.Tokens[turn.Agent:turn.End] {
				if token.Role != reweight.RoleMasked && (len(texts) == 0 || texts[0] != printed(token.Text)) {
					t.Fatalf("the page has %q, want %q next", texts, printed(token.Text))
				}
				texts = texts[1:]
			}
		}
		if len(texts) > 0 {
			t.Fatalf("%q are too many", texts)
		}
	})
}
