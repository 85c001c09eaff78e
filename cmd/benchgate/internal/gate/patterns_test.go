package gate

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/seed621a2839/reweight/internal/test/must"
)

// TestFromRoot: patterns of packages mean what they mean to the go command in the
// directory.
func TestFromRoot(t *testing.T) {
	root := must.Get(filepath.EvalSymlinks(t.TempDir()))
	must.Do(os.MkdirAll(filepath.Join(root, "a", "b"), 0o700))
	given := []string{".", "./...", "./c", "..", "../d/...", "example.com/x", "all"}
	for dir, want := range map[string][]string{
		".":   {".", "./...", "./c", "./..", "./../d/...", "example.com/x", "all"},
		"a":   {"./a", "./a/...", "./a/c", ".", "./d/...", "example.com/x", "all"},
		"a/b": {"./a/b", "./a/b/...", "./a/b/c", "./a", "./a/d/...", "example.com/x", "all"},
	} {
		got, err := fromRoot(root, filepath.Join(root, dir), given)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("in %s: %q, %v, want %q", dir, got, err, want)
		}
	}
}
