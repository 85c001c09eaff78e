// Package printable makes the name of a file, or text that comes from one, safe to
// print: on a terminal, in a log that takes some lines for commands, in a page.
package printable

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
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

// AppendJSON appends JSON that is valid UTF-8, with escape sequences in place of what Line
// replaces, so that it stays the same value. encoding/json escapes control characters, but
// not those that change the order in which text is shown.
func AppendJSON(dst, text []byte) []byte {
	for begin := 0; begin < len(text); {
		r, size := utf8.DecodeRune(text[begin:])
		switch {
		case r == '\n' || strconv.IsPrint(r):
			dst = append(dst, text[begin:begin+size]...)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			dst = fmt.Appendf(dst, `\u%04x\u%04x`, high, low)
		default:
			dst = fmt.Appendf(dst, `\u%04x`, r)
		}
		begin += size
		if n := len(dst); n >= 3 && string(dst[n-3:]) == "##[" { // only in a string
			dst = append(dst[:n-2], `\u0023[`...)
		}
	}
	return dst
}
