package scheme

import (
	"os"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/internal/test/must"
)

// TestReadme: the README's Go code, and what stands below it, is Example_arrays.
func TestReadme(t *testing.T) {
	readme := string(must.Get(os.ReadFile("../README.md")))
	_, rest, _ := strings.Cut(readme, "```go\n")
	code, rest, found := strings.Cut(rest, "```\n\n    ")
	printed, _, _ := strings.Cut(rest, "\n")
	want := "func Example_arrays() {\n\t" + strings.ReplaceAll(strings.TrimSpace(code), "\n", "\n\t") +
		"\n\t// Output: " + printed + "\n}\n"
	if !found || strings.Count(readme, "```go\n") != 1 ||
		!strings.Contains(string(must.Get(os.ReadFile("example_test.go"))), want) {
		t.Errorf("example_test.go has no\n%s", want)
	}
}
