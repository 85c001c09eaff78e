// Package golden reads the golden answers that lie beside it, for the tests of
// other packages. ../README.md says what they are.
package golden

import (
	"embed"
	"encoding/json"
	"math"
	"testing"
)

//go:embed *.json
var files embed.FS

// Read reads the file of that name into the value that into points at.
func Read(t testing.TB, name string, into any) {
	t.Helper()
	b, err := files.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// A Number is a float64 that JSON may have as "nan", "inf" or "-inf".
type Number float64

// UnmarshalJSON reads a number, or one of the three strings.
func (n *Number) UnmarshalJSON(b []byte) error {
	switch string(b) {
	case `"nan"`:
		*n = Number(math.NaN())
	case `"inf"`:
		*n = Number(math.Inf(1))
	case `"-inf"`:
		*n = Number(math.Inf(-1))
	default:
		return json.Unmarshal(b, (*float64)(n))
	}
	return nil
}

// Small is an array of small numbers, such as roles: package json takes a slice
// of bytes for base64.
type Small[E ~uint8] []E

// UnmarshalJSON reads an array of numbers.
func (s *Small[E]) UnmarshalJSON(b []byte) error {
	var wide []uint16
	if err := json.Unmarshal(b, &wide); err != nil {
		return err
	}
	*s = make(Small[E], len(wide))
	for i, v := range wide {
		(*s)[i] = E(v)
	}
	return nil
}
