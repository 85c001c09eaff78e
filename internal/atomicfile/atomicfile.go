// Package atomicfile writes files whole or not at all.
package atomicfile

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// Write gives the file of that path the contents that fill writes, or on an
// error leaves everything as it was.
func Write(path string, fill func(io.Writer) error) error {
	// A rename would replace a device, or a link and not what it points to.
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", path)
	}
	// Not os.CreateTemp, whose file only its owner may read.
	temp := fmt.Sprintf("%s.%016x.tmp", path, rand.Uint64())
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	err = fill(f)
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		os.Remove(temp) // err says what matters
		return err
	}
	syncDir(filepath.Dir(path))
	return nil
}

// syncDir makes a rename in the directory last, where the system can: Windows
// and some network file systems cannot. The rename is done by then, so there
// is no error to return.
func syncDir(dir string) {
	if d, err := os.Open(dir); err == nil {
		d.Sync()
		d.Close()
	}
}
