package cli

import (
	"encoding/json"
	"io"

	"github.com/seed621a2839/reweight/internal/printable"
)

// WriteJSON writes a value as indented JSON, in which what cannot be printed is escaped.
func WriteJSON(w io.Writer, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(printable.AppendJSON(nil, text), '\n'))
	return err
}
