// Package printable makes text that comes from a file, or names one, safe to
// print: on a terminal, in a log that reads commands, in a page.
package printable

import (
	"strconv"
	"unicode/utf8"
)

// Text returns s itself if it is not empty and all of it can be printed, else s
// quoted as a Go string. The result is one line without control characters and
// without those that change the order in which text is shown, such as U+202E.
func Text(s string) string {
	if s == "" || !utf8.ValidString(s) {
		return strconv.Quote(s)
	}
	for _, r := range s {
		if !strconv.IsPrint(r) {
			return strconv.Quote(s)
		}
	}
	return s
}
