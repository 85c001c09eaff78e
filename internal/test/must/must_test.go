package must

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOnlyInTests: programs and packages return their errors.
func TestOnlyInTests(t *testing.T) {
	const module = "../../.."
	files := 0
	Do(filepath.WalkDir(module, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != module && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		files++
		if strings.Contains(string(Get(os.ReadFile(path))), `reweight/internal/test/must"`) {
			t.Errorf("%s imports package must, which is for tests alone", path)
		}
		return nil
	}))
	if files < 200 {
		t.Errorf("%d files were read", files)
	}
}
