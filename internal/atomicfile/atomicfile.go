// Package atomicfile writes files whole or not at all.
package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/seed621a2839/reweight/internal/printable"
)

// Write gives the file of that path the contents that fill writes, or on an
// error leaves everything as it was. A file that is there keeps its permission
// bits. A path that is there and is not a regular file is an error. Every error
// begins with the path, and that of fill is wrapped.
//
// Until it is complete, the new file lies under another name, reweight-*.tmp, in
// the same directory. A program killed within Write can leave it there.
func Write(path string, fill func(io.Writer) error) error {
	temp, err := create(path)
	if err != nil {
		return inFile(path, err)
	}
	err = fill(output{temp})
	if err == nil {
		err = cause(temp.Sync())
	}
	if closeErr := temp.Close(); err == nil {
		err = cause(closeErr)
	}
	if err == nil {
		err = cause(os.Rename(temp.Name(), path))
	}
	if err != nil {
		os.Remove(temp.Name()) // err says what matters
		return inFile(path, err)
	}
	syncDir(filepath.Dir(path))
	return nil
}

// Check returns the error that Write would return for the path before it calls
// fill: there is no file name, something else than a regular file has it, or no
// file can be made in its directory. It leaves nothing behind. What it cannot know
// is whether the disk has room, and whether the system lets the new file replace
// one of another user.
func Check(path string) error {
	temp, err := create(path)
	if err != nil {
		return inFile(path, err)
	}
	temp.Close()
	return inFile(path, cause(os.Remove(temp.Name())))
}

// create makes an empty file next to path that can take its place.
func create(path string) (*os.File, error) {
	if path == "" || os.IsPathSeparator(path[len(path)-1]) {
		return nil, errors.New("not the name of a file")
	}
	perm := fs.FileMode(0o666)
	old, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, cause(err)
	case !old.Mode().IsRegular(): // a rename would replace a device, or a link and not what it points to
		return nil, errors.New("not a regular file")
	default:
		perm = old.Mode().Perm()
	}
	dir := filepath.Dir(path)
	// Short, because path may have as long a name as the system allows. Not
	// os.CreateTemp, whose file only its owner may read.
	name := filepath.Join(dir, fmt.Sprintf("reweight-%016x.tmp", rand.Uint64()))
	temp, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return nil, fmt.Errorf("no file can be made in %s: %w", printable.Text(dir), cause(err))
	}
	if old != nil {
		if err := setPermissions(temp, perm); err != nil {
			temp.Close()
			os.Remove(name)
			return nil, fmt.Errorf("its permission bits %v cannot be kept: %w", perm, cause(err))
		}
	}
	return temp, nil
}

// setPermissions does nothing where it is not needed: some systems and file
// systems have no permission bits to set.
func setPermissions(f *os.File, perm fs.FileMode) error {
	info, err := f.Stat()
	if err != nil || info.Mode().Perm() == perm {
		return err
	}
	return f.Chmod(perm)
}

// output is the file that fill writes to. Its errors do not show the file's
// name, which is not the one that the caller knows.
type output struct{ file *os.File }

func (o output) Write(p []byte) (int, error) {
	n, err := o.file.Write(p)
	return n, cause(err)
}

// cause returns what the system said, without the operation and the file's name.
func cause(err error) error {
	switch err := err.(type) {
	case *fs.PathError:
		return err.Err
	case *os.LinkError:
		return err.Err
	}
	return err
}

func inFile(path string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", printable.Text(path), err)
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
