package atomicfile

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"sync"

	"github.com/seed621a2839/reweight/internal/printable"
)

// A Temporary is a file that is being written, and has a name that nobody asked for. The
// name begins with a dot, so that a * of the shell does not stand for it. Where the system
// has locks, the file is locked until it is closed: that tells it from one that a killed
// program left.
type Temporary struct{ *os.File }

// temporaryName matches the name of a Temporary.
var temporaryName = regexp.MustCompile(`^\.reweight-[0-9a-f]{16}\.tmp$`)

var (
	// named has the paths that Abandon removes.
	named sync.Map
	// ending is held for reading while a file gets, changes or loses its name. Abandon keeps
	// it for writing.
	ending sync.RWMutex
)

// NewTemporary makes an empty file in the directory. Its error does not name the file.
func NewTemporary(dir string, perm fs.FileMode) (*Temporary, error) {
	ending.RLock()
	defer ending.RUnlock()
	for {
		// Not os.CreateTemp, whose file only its owner may read. The name is short, because
		// the one that the file gets may be as long as the system allows.
		name := filepath.Join(dir, fmt.Sprintf(".reweight-%016x.tmp", rand.Uint64()))
		file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, perm)
		if err != nil {
			return nil, fmt.Errorf("no file can be made in %s: %w", printable.Text(dir), Cause(err))
		}
		if locked, err := lock(file); (locked || err != nil) && has(name, file) {
			named.Store(name, nil)
			return &Temporary{file}, nil
		}
		file.Close() // before it was locked, RemoveLeft took it for one that was left
	}
}

// has reports whether the path is that of the open file.
func has(path string, file *os.File) bool {
	info, err := os.Lstat(path)
	open, openErr := file.Stat()
	return err == nil && openErr == nil && os.SameFile(info, open)
}

// Unname takes the name from the file, which is gone once it is closed. Windows leaves it to
// Discard.
func (t *Temporary) Unname() {
	ending.RLock()
	defer ending.RUnlock()
	if os.Remove(t.Name()) == nil {
		named.Delete(t.Name())
	}
}

// Discard closes the file and removes it.
func (t *Temporary) Discard() {
	t.Close() // nothing follows from an error, nor from a second call
	t.Unname()
}

// rename gives the file its lasting path.
func (t *Temporary) rename(path string) error {
	ending.RLock()
	defer ending.RUnlock()
	if err := os.Rename(t.Name(), path); err != nil {
		return err
	}
	named.Delete(t.Name())
	return nil
}

// Abandon removes all files that are not complete. It is for a program that ends at once:
// from then on, no file gets another name, and who wants to write one waits for ever.
func Abandon() {
	ending.Lock()
	named.Range(func(name, _ any) bool {
		os.Remove(name.(string))
		return true
	})
}

// IsTemporary reports whether the path ends in the name of a Temporary.
func IsTemporary(path string) bool { return temporaryName.MatchString(filepath.Base(path)) }

// RemoveLeft removes the files of that kind in the directory that programs which were killed
// have left there, and returns how many these are.
func RemoveLeft(dir string) (int, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, Cause(err)
	}
	removed := 0
	for _, e := range entries {
		if !e.Type().IsRegular() || !IsTemporary(e.Name()) {
			continue
		}
		name := filepath.Join(dir, e.Name())
		file, err := os.OpenFile(name, os.O_RDWR, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue // its program has just ended
		}
		if err != nil {
			return removed, Cause(err)
		}
		if locked, _ := lock(file); locked {
			if err = os.Remove(name); err == nil {
				removed++
			}
		}
		file.Close()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return removed, Cause(err)
		}
	}
	return removed, nil
}

// Lock lets one program at a time write to a directory, where the system has locks. The
// error is that of a directory in which another one writes, and says which, or in which no
// file can be made. It begins with the directory. unlock ends the lock, and so does the end
// of the program.
func Lock(dir string) (unlock func(), err error) {
	name := filepath.Join(dir, ".reweight.lock")
	for {
		if info, err := os.Lstat(name); err == nil && !info.Mode().IsRegular() {
			return nil, inFile(name, errors.New("not a regular file"))
		}
		file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o666)
		if err != nil {
			return nil, inFile(dir, Cause(err))
		}
		locked, err := lock(file)
		if !locked && err == nil {
			owner, _ := io.ReadAll(io.LimitReader(file, 100))
			file.Close()
			return nil, fmt.Errorf("%s is in use by %s", printable.Text(dir), cmp.Or(printable.Line(string(owner)), "another process"))
		}
		if !has(name, file) { // the one before has removed it in the meantime
			file.Close()
			continue
		}
		host, _ := os.Hostname()
		file.Truncate(0)
		fmt.Fprintf(file, "process %d on %s", os.Getpid(), host)
		named.Store(name, nil)
		return func() {
			os.Remove(name)
			file.Close()
			named.Delete(name)
		}, nil
	}
}
