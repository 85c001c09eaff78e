package gate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/seed621a2839/reweight/internal/printable"
)

// A run keeps what it makes in a directory of this prefix and a number. The owner
// file in it says whose the directory is, and is locked as long as the run lives.
const (
	dirPrefix = "benchgate-"
	ownerName = "owner"
)

// A runDir is the temporary directory of a run.
type runDir struct {
	dir   string
	owner *os.File
}

// newRunDir makes the directory of this run. It first removes the directories that
// killed runs of this user on this host have left.
func newRunDir(ctx context.Context) (*runDir, error) {
	temp, err := filepath.Abs(os.TempDir()) // git and go run in other directories than this process
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	owner := "benchgate\n" + host + "\n"
	entries, _ := os.ReadDir(temp)
	for _, e := range entries {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if isRunDir(e.Name()) {
			removeIfDead(filepath.Join(temp, e.Name()), owner)
		}
	}
	var dir string
	for n := 0; ; n++ { // at the path of an earlier run the go command finds in its cache what it compiled then
		dir = filepath.Join(temp, dirPrefix+strconv.Itoa(n))
		if err = os.Mkdir(dir, 0o700); !errors.Is(err, fs.ErrExist) {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, ownerName), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil && lock(f) == nil { // before it says whose it is; where files cannot be locked, it never does
		_, err = f.WriteString(owner)
	}
	d := &runDir{dir, f}
	if err != nil {
		d.remove()
		return nil, err
	}
	return d, nil
}

// remove removes the directory and all that is in it.
func (d *runDir) remove() { removeOwned(d.dir, d.owner) }

// isRunDir reports whether a run may have given its directory that name.
func isRunDir(name string) bool {
	number, ok := strings.CutPrefix(name, dirPrefix)
	return ok && number != "" && strings.Trim(number, "0123456789") == ""
}

// removeIfDead removes the directory if its owner file has that text and nobody
// has locked it. What is in doubt stays. An error is none of the run that calls
// it, and is not returned.
func removeIfDead(dir, owner string) {
	if checkPrivate(dir) != nil {
		return
	}
	name := filepath.Join(dir, ownerName)
	if info, err := os.Lstat(name); err != nil || !info.Mode().IsRegular() || info.Size() != int64(len(owner)) {
		return
	}
	f, err := os.OpenFile(name, os.O_RDWR, 0) // some systems lock only what can be written
	if err != nil {
		return
	}
	defer f.Close()
	if text, err := io.ReadAll(f); err == nil && string(text) == owner && lock(f) == nil && isFile(f, name) {
		removeOwned(dir, f)
	}
}

// checkPrivate returns an error if the path is not a directory of this user that
// nobody else can write to.
func checkPrivate(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() || !ours(info) || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s is not a directory that only this user can write to", printable.Text(dir))
	}
	return nil
}

// isFile reports whether the file still has that name: while this process waited
// for its lock, another may have removed the directory.
func isFile(f *os.File, name string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Lstat(name)
	return err == nil && os.SameFile(a, b)
}

// removeOwned removes a directory with its open owner file, which goes last: if
// the process is killed before, a later one removes the rest.
func removeOwned(dir string, owner *os.File) {
	if wipe(dir) != nil {
		owner.Close()
		return
	}
	name := filepath.Join(dir, ownerName)
	err := os.Remove(name)
	owner.Close()
	if err != nil { // some systems remove no file that is open
		os.Remove(name)
	}
	os.Remove(dir)
}

// wipe removes all that is in the directory but the owner file.
func wipe(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if err == nil && e.Name() != ownerName {
			err = removeAll(filepath.Join(dir, e.Name()))
		}
	}
	return err
}

// removeAll removes the path and all below, directories too that are not to be
// written to. It follows no link.
func removeAll(path string) error {
	if os.RemoveAll(path) == nil {
		return nil
	}
	filepath.WalkDir(path, func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			os.Chmod(path, 0o700)
		}
		return nil
	})
	return os.RemoveAll(path)
}
