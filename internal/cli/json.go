package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf16"
)

// WriteJSON writes a value as indented JSON. What cannot be printed is escaped, as
// printable.Line does: encoding/json escapes control characters, but not those that change
// the order in which text is shown.
func WriteJSON(w io.Writer, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, r := range string(text) {
		switch {
		case r == '\n' || strconv.IsPrint(r):
			b.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	_, err = fmt.Fprintln(w, b.String())
	return err
}
