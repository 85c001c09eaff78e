// Package printable makes the name of a file, or text that comes from one, safe to
// print: on a terminal, in a log that takes some lines for commands, in a page.
package printable

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Text returns s itself if it is not empty and all of it can be printed, else s
// quoted as a Go string. The result is what Line leaves as it is.
func Text(s string) string {
	if s != "" && utf8.ValidString(s) && Line(s) == s {
		return s
	}
	return Line(strconv.Quote(s))
}

// Line returns s with escape sequences in place of what cannot be printed. The
// result is one line without control characters and without those that change the
// order in which text is shown, such as U+202E. It is also none that GitHub takes
// for a command in the log of a job: those begin with ::, or have ##[ anywhere.
func Line(s string) string {
	var b strings.Builder
	for _, r := range s {
		if strconv.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRune(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	s = strings.ReplaceAll(b.String(), "##[", `#\x23[`)
	if text := strings.TrimLeft(s, " "); strings.HasPrefix(text, "::") {
		s = s[:len(s)-len(text)] + `\x3a` + text[1:]
	}
	return s
}
