package atomicfile

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"sync"

	"github.com/seed621a2839/reweight/internal/printable"
)

// A Temporary is a file that is being written, and has a name that nobody asked for. The
// name begins with a dot, so that a * of the shell does not stand for it.
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
	// Not os.CreateTemp, whose file only its owner may read. The name is short, because
	// the one that the file gets may be as long as the system allows.
	name := filepath.Join(dir, fmt.Sprintf(".reweight-%016x.tmp", rand.Uint64()))
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return nil, fmt.Errorf("no file can be made in %s: %w", printable.Text(dir), Cause(err))
	}
	named.Store(name, nil)
	return &Temporary{file}, nil
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
