package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// WriteJSON writes a value as indented JSON.
func WriteJSON(w io.Writer, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", text)
	return err
}

// maxJSON bounds the files that ReadJSON reads. The largest that bench writes
// are a thousandth of it.
const maxJSON = 1 << 28

// ReadJSON reads a file that holds one JSON value, and no fields that the type
// lacks. Errors name the file.
func ReadJSON[T any](path string) (v T, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return v, err
	}
	if !info.Mode().IsRegular() {
		return v, fmt.Errorf("%s: not a regular file", path)
	}
	if info.Size() > maxJSON {
		return v, fmt.Errorf("%s: %d bytes, want at most %d", path, info.Size(), maxJSON)
	}
	text, err := os.ReadFile(path)
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
