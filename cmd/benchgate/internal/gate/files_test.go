package gate

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/seed621a2839/reweight/internal/test/must"
)

// put writes a file.
func put(path, text string) {
	must.Do(os.MkdirAll(filepath.Dir(path), 0o700))
	must.Do(os.WriteFile(path, []byte(text), 0o600))
}

// snapshot lists all that is below the directory, with times.
func snapshot(dir string) map[string]string {
	all := map[string]string{}
	must.Do(filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			all[path] = fmt.Sprint(info.Mode(), info.Size(), info.ModTime())
		}
		return err
	}))
	return all
}
