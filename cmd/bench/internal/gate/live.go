package gate

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/olekukonko/tablewriter/pkg/twwidth"
	"github.com/seed621a2839/reweight/internal/printable"
)

// A live table shows on a terminal what is known so far, below the line of progress.
type live struct {
	terminal io.Writer // or nil
	size     func() (columns, rows int)
	limits   limits
	shown    bool
}

// newLive returns the table of a comparison for the terminal that has the progress, if
// there is one.
func (g *gate) newLive() *live {
	l := &live{limits: g.report.Limits}
	if f, ok := g.Progress.W.(*os.File); ok {
		l.terminal = f
		l.size = func() (columns, rows int) { return terminalSize(f) }
	}
	return l
}

// show replaces the table by what is known of the comparison.
func (l *live) show(c *comparison) {
	if l.terminal == nil {
		return
	}
	columns, rows := l.size()
	lines := l.lines(c, columns, rows-2) // one is that of the progress, and one stays free
	if len(lines) == 0 {
		l.clear()
		return
	}
	l.shown = true
	// Lines are cut at the edge rather than wrapped, and the cursor goes back to where the
	// line of progress begins.
	var b strings.Builder
	b.WriteString("\x1b[?7l")
	for _, line := range lines {
		b.WriteString("\r\n\x1b[K" + line)
	}
	fmt.Fprintf(&b, "\x1b[J\x1b[%dA\r\x1b[?7h", len(lines))
	io.WriteString(l.terminal, b.String())
}

// clear removes the table and the line of progress.
func (l *live) clear() {
	if l.shown {
		io.WriteString(l.terminal, "\r\x1b[J")
		l.shown = false
	}
}

// lines are those of the table, at most so many. Functions that matter most come first.
func (l *live) lines(c *comparison, columns, most int) []string {
	r := report{Limits: l.limits}
	for _, f := range c.functions {
		r.Results = append(r.Results, f.Result)
	}
	r.sort()
	t := r.table(r.Results)
	rows := slices.Concat([][]string{t.header}, t.rows)
	if most < 2 {
		return nil
	}
	left := 0
	if len(rows) > most {
		left = len(rows) - (most - 1)
		rows = rows[:most-1]
	}
	widths := make([]int, len(t.header))
	all := 0
	for i := range t.header {
		for _, row := range rows {
			row[i] = printable.Line(row[i])
			widths[i] = max(widths[i], twwidth.Width(row[i]))
		}
		all += widths[i] + 2
	}
	all -= 2
	if all > columns { // names matter more than times, because the ratios are there
		all -= widths[t.text] + widths[t.text+1] + 4
		widths = slices.Delete(widths, t.text, t.text+2)
		for i := range rows {
			rows[i] = slices.Delete(rows[i], t.text, t.text+2)
		}
	}
	widths[0] = min(widths[0], max(columns-(all-widths[0]), 16))
	var lines []string
	for _, row := range rows {
		row[0] = shorten(row[0], widths[0])
		line := ""
		for i, cell := range row {
			blank := strings.Repeat(" ", widths[i]-twwidth.Width(cell))
			if i < t.text {
				line += cell + blank + "  "
			} else {
				line += blank + cell + "  "
			}
		}
		for line = strings.TrimRight(line, " "); twwidth.Width(line) > columns; { // or its end would overwrite the last column
			_, size := utf8.DecodeLastRuneInString(line)
			line = line[:len(line)-size]
		}
		lines = append(lines, line)
	}
	if left > 0 {
		lines = append(lines, fmt.Sprintf("and %d more rows", left))
	}
	return lines
}

// shorten returns a name without its middle, so that it is at most so wide.
func shorten(name string, most int) string {
	const gap = "..."
	runes := []rune(name)
	head, tail := (len(runes)+1)/2, len(runes)/2
	for short := name; ; short = string(runes[:head]) + gap + string(runes[len(runes)-tail:]) {
		switch {
		case twwidth.Width(short) <= most || head+tail == 0:
			return short
		case head > tail:
			head--
		default:
			tail--
		}
	}
}
