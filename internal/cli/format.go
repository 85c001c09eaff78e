package cli

import "fmt"

// Format declares -format, which is table or json. The function reports whether it is json.
func (f Flags) Format() func() (asJSON bool, err error) {
	name := f.String("format", "table", "`name` of what is printed: table, or json for programs")
	return func() (bool, error) {
		if *name != "table" && *name != "json" {
			return false, fmt.Errorf("-format is %q, want table or json", *name)
		}
		return *name == "json", nil
	}
}
