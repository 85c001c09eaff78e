// Package atomicfile writes files whole or not at all, and says in a few words
// why a file cannot be read or written.
package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/seed621a2839/reweight/internal/printable"
)

// Write gives the file of that path the contents that fill writes, or leaves
// everything as it was and returns an error. An old file of that path is replaced,
// and its permission bits are kept; anything else of that path, such as a
// directory or a link, is an error. Every error begins with the path, and that of
// fill is wrapped.
//
// Until it is complete, the new file is a Temporary in the same directory. If the program
// is killed within Write, it can remain there.
func Write(path string, fill func(io.Writer) error) error {
	temp, err := create(path)
	if err != nil {
		return inFile(path, err)
	}
	complete := false
	defer func() { // also if fill panics; err says what matters, and not what fails here
		if !complete {
			temp.Discard()
		}
	}()
	err = fill(output{temp.File})
	if err == nil {
		err = Cause(temp.Sync())
	}
	if err == nil && runtime.GOOS == "windows" { // which renames no open file, and has no locks that closing would end
		err = Cause(temp.Close())
	}
	if err == nil {
		err = Cause(temp.rename(path))
	}
	if err != nil {
		return inFile(path, err)
	}
	complete = true
	temp.Close() // all of it is on the disk
	syncDir(filepath.Dir(path))
	return nil
}

// Check returns the error that Write would return for the path before it calls
// fill: the path does not end in a name, something other than a regular file has
// it, or no file can be made in its directory. Check leaves no file behind. It
// cannot know whether the disk has room, and whether the system lets the new file
// replace one of another user.
func Check(path string) error {
	temp, err := create(path)
	if err != nil {
		return inFile(path, err)
	}
	temp.Discard()
	return nil
}

// create makes an empty file next to path that can take its place.
func create(path string) (*Temporary, error) {
	if path == "" || os.IsPathSeparator(path[len(path)-1]) {
		return nil, errors.New("not the name of a file")
	}
	perm := fs.FileMode(0o666)
	old, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, Cause(err)
	default:
		// A rename would replace a device, or a link and not what it points to.
		if err := CheckRegular(old); err != nil {
			return nil, err
		}
		perm = old.Mode().Perm()
	}
	temp, err := NewTemporary(filepath.Dir(path), perm)
	if err != nil {
		return nil, err
	}
	if old != nil {
		if err := setPermissions(temp.File, perm); err != nil {
			temp.Discard()
			return nil, fmt.Errorf("its permission bits %v cannot be kept: %w", perm, Cause(err))
		}
	}
	return temp, nil
}

// setPermissions sets the file's permission bits if they differ: some systems and
// file systems have none to set.
func setPermissions(f *os.File, perm fs.FileMode) error {
	info, err := f.Stat()
	if err != nil || info.Mode().Perm() == perm {
		return err
	}
	return f.Chmod(perm)
}

// output is the file that fill writes to. Its errors do not name the file: its
// name is not the one that the caller knows.
type output struct{ file *os.File }

func (o output) Write(p []byte) (int, error) {
	n, err := o.file.Write(p)
	return n, Cause(err)
}

// Cause returns the reason of an error of package os, without the operation and
// the path: "permission denied".
func Cause(err error) error {
	switch err := err.(type) {
	case *fs.PathError:
		return err.Err
	case *os.LinkError:
		return err.Err
	}
	return err
}

// CheckRegular returns an error if the file is not a regular one.
func CheckRegular(info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return errors.New("not a regular file")
	}
	return nil
}

func inFile(path string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", printable.Text(path), err)
}

// Read returns the contents of a regular file of at most so many bytes: a wrong file
// can neither fill the memory nor, like a pipe, keep the program waiting. Every error
// begins with the path.
func Read(path string, most int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err == nil {
		err = CheckRegular(info)
	}
	if err == nil && info.Size() > most {
		err = fmt.Errorf("%d bytes, want at most %d", info.Size(), most)
	}
	var data []byte
	if err == nil {
		data, err = os.ReadFile(path)
	}
	return data, inFile(path, Cause(err))
}

// syncDir writes a rename in the directory to disk, so that it survives a crash.
// Windows and some network file systems cannot do that. The rename is done by then,
// so an error of syncDir is not one of Write.
func syncDir(dir string) {
	if d, err := os.Open(dir); err == nil {
		d.Sync()
		d.Close()
	}
}
