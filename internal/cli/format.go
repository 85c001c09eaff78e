package cli

import (
	"fmt"
	"slices"
	"strings"
)

// A Format is a way to print results, by its name.
type Format string

// The formats. Most commands have some of them.
const (
	Table    Format = "table"
	Markdown Format = "markdown"
	JSON     Format = "json"
)

// Format declares -format, which takes one of the formats; the first of them is
// the default.
func (f Flags) Format(formats ...Format) func() (Format, error) {
	var names []string
	for _, format := range formats {
		names = append(names, string(format))
	}
	name := f.String("format", names[0], "`name` of what is printed: "+strings.Join(names, ", "))
	return func() (Format, error) {
		if !slices.Contains(names, *name) {
			return "", fmt.Errorf("-format is %q, want one of %v", *name, names)
		}
		return Format(*name), nil
	}
}
