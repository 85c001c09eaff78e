package show

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/clipperhouse/displaywidth"
	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/cli"
	"github.com/seed621a2839/reweight/internal/printable"
)

// printed returns a token's text as it is shown: what cannot be printed is an escape
// sequence, and so is what would take no room. Unlike printable.Line it leaves a :: at
// the begin, which is for what begins a line.
func printed(text string) string {
	if text == "" {
		return `""`
	}
	if !utf8.ValidString(text) { // a part of a character
		quoted := strconv.Quote(text)
		text = quoted[1 : len(quoted)-1]
	}
	text = printable.Line("|" + text)[1:]
	if displaywidth.String(text) == 0 {
		quoted := strconv.QuoteToASCII(text)
		text = quoted[1 : len(quoted)-1]
	}
	return text
}

// Write prints the page as text in lines of at most that many columns, except for what
// is longer by itself. Colours are added to the same text, which says all without
// them.
func (p Page) Write(w io.Writer, columns int, coloured bool) error {
	l := &layout{w: w, columns: columns, coloured: coloured, spaced: p.Spaced(), step: p.Step()}
	for _, sentence := range p.Summary {
		l.paragraph(sentence)
	}
	for i, r := range p.Trajectories {
		if i > 0 || p.Summary != nil {
			l.line("")
		}
		l.paragraph(r.Title)
		for n, turn := range r.Turns {
			l.line("")
			l.heading(fmt.Sprintf("Turn %d", n+1), p.Figures(r, turn))
			from, to := turn.LeftOut()
			l.tokens("env", r.Tokens[turn.Start:from])
			if from < to {
				l.line(gutter("env") + l.styled(dim, "... "+cli.Counted(to-from, "token")+" left out ..."))
			}
			l.tokens("env", r.Tokens[to:turn.Agent])
			l.tokens("agent", r.Tokens[turn.Agent:turn.End])
		}
	}
	l.line("")
	l.legend(p)
	for _, note := range p.Notes {
		l.paragraph(note)
	}
	return l.err
}

// The colours of the levels are numbers of the palette of 256 colours. They go from blue
// to orange, which those who cannot tell red from green see too, and each can be read on
// light and on dark.
var colours = [levels]int{31, 67, 61, 97, 96, 132, 131, 130, 166, 202}

const dim = "2" // of the parameters of the escape sequence that sets the style

// A layout writes lines until the first error.
type layout struct {
	w        io.Writer
	columns  int
	coloured bool
	spaced   bool
	step     float64
	err      error

	text, under strings.Builder // of the line at hand: tokens, and what stands below them
	at, marked  int             // columns of each
	last        string          // the end of the text, without styles
}

func (l *layout) line(text string) {
	if l.err == nil {
		_, l.err = fmt.Fprintln(l.w, text)
	}
}

// styled returns the text in a style, which is empty for none.
func (l *layout) styled(style, text string) string {
	if !l.coloured || style == "" {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

// paragraph writes words in lines, each of which may begin with any of them.
func (l *layout) paragraph(text string) {
	var parts [][2]string
	for word := range strings.FieldsSeq(printable.Line(text)) {
		parts = append(parts, [2]string{"", printable.Line(word)})
	}
	l.parts("", " ", parts)
}

// heading writes the name of a turn and its figures.
func (l *layout) heading(name string, figures [][2]string) {
	parts := [][2]string{{"1", name + ":"}}
	for i, f := range figures {
		text := f[0] + " " + f[1]
		if i < len(figures)-1 {
			text += ","
		}
		parts = append(parts, [2]string{"", text})
	}
	l.parts("", " ", parts)
}

// parts writes parts, each a style and a text, with sep between those in a line.
func (l *layout) parts(indent, sep string, parts [][2]string) {
	line, at := indent, len(indent)
	for i, part := range parts {
		width := displaywidth.String(part[1])
		if i > 0 {
			if at+len(sep)+width > l.columns {
				l.line(line)
				line, at = indent, len(indent)
			} else {
				line += sep
				at += len(sep)
			}
		}
		line += l.styled(part[0], part[1])
		at += width
	}
	l.line(line)
}

// legend explains the weights and the digits under actions.
func (l *layout) legend(p Page) {
	l.paragraph(p.Meaning())
	actions := false
	for t := range p.tokens() {
		actions = actions || t.Role == reweight.RoleAction
	}
	switch {
	case !actions:
		return
	case !p.Weighed():
		l.paragraph("A ^ stands under each action token.")
		return
	}
	l.paragraph("Under each action token stands the step of its weight. The steps begin at:")
	var steps [][2]string
	for i := range levels {
		steps = append(steps, [2]string{l.style(i), fmt.Sprintf("%d: %s", i, number(float64(i)*l.step))})
	}
	l.parts("  ", "  ", steps)
}

func (l *layout) style(level int) string { return "38;5;" + strconv.Itoa(colours[level]) }

// gutter begins a line of tokens. So no line begins with a token.
func gutter(label string) string { return fmt.Sprintf("%5s | ", label) }

// A cell is a token in a line.
type cell struct {
	text, style string
	width       int
	mark        string // what stands under it
	ends        bool   // the line ends after it
}

func (l *layout) cellOf(t Token) cell {
	c := cell{text: printed(t.Text), style: dim, ends: strings.Contains(t.Text, "\n")}
	c.width = displaywidth.String(c.text)
	w := t.Weight()
	if t.Role != reweight.RoleMasked {
		c.style = ""
		if !math.IsNaN(w) {
			c.style = l.style(level(w, l.step))
		}
	}
	if t.Role == reweight.RoleAction {
		c.mark = "^"
		if !math.IsNaN(w) {
			c.mark = strconv.Itoa(level(w, l.step))
		}
		c.style = strings.TrimPrefix(c.style+";1", ";")
	}
	return c
}

// tokens writes tokens in lines, which break before a word where they can.
func (l *layout) tokens(label string, tokens []Token) {
	room := max(1, l.columns-len(gutter(label)))
	for len(tokens) > 0 {
		word, width := []cell(nil), 0
		for len(tokens) > 0 && (len(word) == 0 || !l.spaced && !beginsWord(tokens[0].Text) && !word[len(word)-1].ends &&
			width < room) {
			c := l.cellOf(tokens[0])
			word, width = append(word, c), width+c.width
			tokens = tokens[1:]
		}
		if l.at > 0 {
			sep := 0
			if l.spaced {
				sep = 1
			}
			if l.at+sep+width > room {
				l.flush(label)
			} else {
				l.append("", strings.Repeat(" ", sep), sep)
			}
		}
		for _, c := range word {
			l.put(label, c, room)
		}
	}
	if l.at > 0 {
		l.flush(label)
	}
}

// put appends a token, which goes on in the next line if it must.
func (l *layout) put(label string, c cell, room int) {
	if l.last = l.last[max(0, len(l.last)-2):]; strings.Contains(l.last+c.text, "##[") { // see printable.Line
		c.text = strings.Replace(c.text, "[", `\x5b`, 1)
	}
	part, width := "", 0
	blank := strings.Trim(c.text, " ") == ""
	graphemes := displaywidth.StringGraphemes(c.text)
	for graphemes.Next() {
		if l.at+width+graphemes.Width() > room && l.at+width > 0 {
			l.append(c.style, part, width)
			l.flush(label)
			part, width = "", 0
		}
		if c.mark != "" && (blank || graphemes.Value() != " ") {
			l.under.WriteString(strings.Repeat(" ", max(0, l.at+width-l.marked)) + c.mark)
			l.marked = l.at + width + 1
			c.mark = ""
		}
		part += graphemes.Value()
		width += graphemes.Width()
	}
	l.append(c.style, part, width)
	l.last += c.text
	if c.ends {
		l.flush(label)
	}
}

func (l *layout) append(style, text string, width int) {
	if text != "" {
		l.text.WriteString(l.styled(style, text))
		l.at += width
	}
}

// flush writes the line at hand, and the marks under it.
func (l *layout) flush(label string) {
	l.line(gutter(label) + l.text.String())
	if l.marked > 0 {
		l.line(gutter("") + l.under.String())
	}
	l.text.Reset()
	l.under.Reset()
	l.at, l.marked, l.last = 0, 0, ""
}
