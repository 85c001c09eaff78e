package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf16"

	"github.com/seed621a2839/reweight/internal/atomicfile"
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

// maxJSON bounds the files that ReadJSON reads.
const maxJSON = 4 << 20

// ReadJSON reads a file of one JSON value. A field that the type lacks is an error.
// Errors name the file.
func ReadJSON[T any](path string) (v T, err error) {
	text, err := atomicfile.Read(path, maxJSON)
	if err != nil {
		return v, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		return v, fmt.Errorf("%s: %w", path, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return v, fmt.Errorf("%s: more than one JSON value", path)
	}
	return v, nil
}
