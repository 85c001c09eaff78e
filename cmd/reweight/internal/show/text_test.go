package show

import (
	"bytes"
	"errors"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/clipperhouse/displaywidth"
	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/internal/test/testprogram"
	"pgregory.net/rapid"
)

var nan = math.NaN()

func masked(text string) Token {
	return Token{text, reweight.RoleMasked, nan, nan, 0, nan, nan}
}

func reasoning(text string) Token {
	return Token{text, reweight.RoleReasoning, 0.5, -0.25, 0.1, 0.8, -1}
}

func action(text string, focus float64) Token {
	return Token{text, reweight.RoleAction, 1, -0.75, focus, 0.8, -1}
}

// pageOf is a page with a trajectory, whose turns are those of its roles.
func pageOf(tokens ...Token) Page {
	var roles []reweight.Role
	for _, t := range tokens {
		roles = append(roles, t.Role)
	}
	return Page{Title: "Rollouts",
		Trajectories: []Trajectory{{Title: "Trajectory 0 of a file.", Tokens: tokens, Turns: turns(roles, nil)}}}
}

func written(t *testing.T, p Page, columns int, coloured bool) string {
	t.Helper()
	var b bytes.Buffer
	must.Do(p.Write(&b, columns, coloured))
	return b.String()
}

func TestWrite(t *testing.T) {
	p := pageOf(
		masked("Where"), masked(" is"), masked(" it"), masked("?\n"), masked("Say"), masked("!"),
		reasoning("It"), reasoning(" is"), reasoning(" there"), reasoning(",\n\n"), reasoning("I"), reasoning(" think"),
		reasoning("."),
		action(" go", 1.5), action("To", 1), action("(东京", 2), action(" ", 1.25), action("\u0301", 1.25),
		action(")", 3.4), reasoning("\x1b[31m"), reasoning("\xff"),
		masked("::no"), masked("##"), masked("["),
	)
	p.Notes = []string{"A note."}
	const want = `Trajectory 0 of a file.

Turn 1: tokens read 6,
tokens written 15, mean entropy 0.7,
mean surprisal 0.45, AEM factor 0.8,
advantage -1, reasoning weighs 0.08,
action weighs 0.8 to 2.72
  env | Where is it?\n
  env | Say!
agent | It is there,\n\n
agent | I think. goTo(东京
      |          2 1 3
agent |  \u0301)\x1b[31m\xff
      | 22     5

Turn 2: tokens read 3
  env | ::no##\x5b

The weight of a token is its ActFocus
weight times its AEM factor; uniform
training weighs each token 1.
Under each action token stands the step
of its weight. The steps begin at:
  0: 0  1: 0.5  2: 1  3: 1.5  4: 2
  5: 2.5  6: 3  7: 3.5  8: 4  9: 4.5
A note.
`
	if got := written(t, p, 40, false); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

var style = regexp.MustCompile(`\x1b\[[0-9;]+m`)

// TestColours: colours change nothing else, each token has that of its step, and what
// was masked is dim.
func TestColours(t *testing.T) {
	p := pageOf(masked("a"), reasoning("b"), action("c", 1.2), action("d", 1))
	plain, coloured := written(t, p, 40, false), written(t, p, 40, true)
	if got := style.ReplaceAllString(coloured, ""); got != plain {
		t.Errorf("without its colours the text is\n%s\nwant\n%s", got, plain)
	}
	for _, want := range []string{"\x1b[2ma\x1b[0m", "\x1b[38;5;31mb\x1b[0m", "\x1b[38;5;202;1mc\x1b[0m",
		"\x1b[38;5;166;1md\x1b[0m", "\x1b[38;5;202m9: 0.9\x1b[0m"} {
		if !strings.Contains(coloured, want) {
			t.Errorf("no %q in\n%q", want, coloured)
		}
	}
	if strings.Contains(plain, "\x1b") {
		t.Errorf("%q", plain)
	}
}

// TestLongObservation: the middle of what the environment said is counted and left out.
func TestLongObservation(t *testing.T) {
	var tokens []Token
	for i := range 1121 {
		tokens = append(tokens, masked(strconv.Itoa(i)))
	}
	text := written(t, pageOf(append(tokens, reasoning("so"))...), 80, false)
	for _, want := range []string{" 59\n  env | ... 1,001 tokens left out ...\n  env | 1061 ", " 1120\nagent | so\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// TestUnknown: what is not known is left out.
func TestUnknown(t *testing.T) {
	p := pageOf(Token{"a", reweight.RoleMasked, nan, nan, nan, nan, nan},
		Token{"b", reweight.RoleReasoning, nan, nan, nan, nan, nan},
		Token{"c", reweight.RoleAction, nan, nan, nan, nan, nan})
	const want = `Trajectory 0 of a file.

Turn 1: tokens read 1, tokens written 2
  env | a
agent | b c
      |   ^

The weights of the tokens are not known.
A ^ stands under each action token.
`
	if got := written(t, p, 80, false); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	p = pageOf(masked("a"))
	if got := written(t, p, 80, false); strings.Contains(got, "agent") || strings.Contains(got, "Under") {
		t.Error(got)
	}
}

// hostile are texts of tokens that are hard to show.
var hostile = []string{
	"", " ", "\n", "a\nb", "\r", "\t", "\x1b[2J", "\x00", "\x7f", "\u009b", "\u202e", "\u2028", "\u200d", "\u0301", "e\u0301", "\ufe0f", "👩\u200d💻", "🇩", "東京", "ｱ", "ᄀ", "ᅡ",
	"::", "::error::x", "##", "[", "##[", "#", "\xe6", "\xb1\xb1", "<script>", "&", `"`, "'", "\\", "{{.}}", " word", "word", "^", "0", strings.Repeat("long", 60), strings.Repeat("長", 60),
}

func drawPage(t *rapid.T) Page {
	figure := rapid.OneOf(rapid.Just(nan), rapid.Float64Range(0, 5))
	token := rapid.Custom(func(t *rapid.T) Token {
		return Token{
			rapid.SampledFrom(hostile).Draw(t, "text"), rapid.SampledFrom([]reweight.Role{0, 1, 2}).Draw(t, "role"),
			figure.Draw(t, "entropy"), -figure.Draw(t, "logprob"), figure.Draw(t, "weight"), figure.Draw(t, "factor"),
			figure.Draw(t, "advantage"),
		}
	})
	return pageOf(rapid.SliceOfN(token, 1, 200).Draw(t, "tokens")...)
}

// TestLines: whatever the tokens, every line can be printed, fits, and is no command to
// the log of a job; every action token has its mark.
func TestLines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPage(t)
		columns := rapid.IntRange(24, 90).Draw(t, "columns")
		p.Trajectories[0].Title = "A title that is longer than a line " +
			strings.Join(rapid.SliceOf(rapid.SampledFrom(hostile)).Draw(t, "title"), " ")
		var plain, coloured bytes.Buffer
		must.Do(errors.Join(p.Write(&plain, columns, false), p.Write(&coloured, columns, true)))
		if got := style.ReplaceAllString(coloured.String(), ""); got != plain.String() {
			t.Fatalf("colours change the text:\n%s\n%s", got, plain.String())
		}
		marks := 0
		for line := range strings.Lines(plain.String()) {
			line = strings.TrimSuffix(line, "\n")
			if strings.ContainsFunc(line, func(r rune) bool { return !strconv.IsPrint(r) }) ||
				strings.HasPrefix(strings.TrimSpace(line), "::") || strings.Contains(line, "##[") {
				t.Fatalf("%q", line)
			}
			gutter, rest, ok := strings.Cut(line, " | ")
			if !ok || len(gutter) > 5 {
				continue
			}
			if w := displaywidth.String(line); w > columns {
				t.Fatalf("%d columns of %d: %q", w, columns, line)
			}
			if strings.TrimSpace(gutter) == "" {
				marks += len(strings.ReplaceAll(rest, " ", ""))
			}
		}
		actions := 0
		for _, token := range p.Trajectories[0].Tokens {
			if token.Role == reweight.RoleAction {
				actions++
			}
		}
		if marks != actions {
			t.Fatalf("%d marks under %d actions:\n%s", marks, actions, plain.String())
		}
	})
}

func TestWriteErrors(t *testing.T) {
	p := pageOf(masked("a"), reasoning("b"), action("c", 1))
	for _, room := range []testprogram.FullDisk{0, 30, 100} {
		text, html := room, room
		for _, err := range []error{p.Write(&text, 80, false), p.WriteHTML(&html)} {
			if err == nil || !strings.Contains(err.Error(), "no space left") {
				t.Errorf("in %d bytes: %v", room, err)
			}
		}
	}
}
