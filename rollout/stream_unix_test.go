//go:build unix

package rollout

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/seed621a2839/reweight/internal/test/must"
	"golang.org/x/sys/unix"
)

// fifo makes a pipe that has a name.
func fifo(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "pipe.jsonl")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Skip("a pipe cannot be made: ", err)
	}
	return path
}

func TestNamedPipe(t *testing.T) {
	data := must.Get(os.ReadFile("../testdata/frozenlake-small.safetensors"))
	path := fifo(t, t.TempDir())
	written := make(chan error)
	go func() { written <- os.WriteFile(path, zstandard(t, data), 0o600) }()
	s := must.Get(Open(path))
	if b, err := s.Batch(); err != nil || b.Tokens() != 6272 {
		t.Errorf("%v, %v", b, err)
	}
	if err := s.Close(); err != nil { // now the writer need not wait for a reader
		t.Error(err)
	}
	if err := <-written; err != nil {
		t.Error(err)
	}
}

// What is neither a file nor a pipe is not opened, nor is a pipe in a directory, which
// nobody may write to.
func TestNoFile(t *testing.T) {
	dir := t.TempDir()
	path := fifo(t, dir)
	for name, want := range map[string]string{
		os.DevNull: os.DevNull + ": not a regular file",
		dir:        path + ": not a regular file",
	} {
		if _, err := Open(name); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := OpenFile(path); err == nil || err.Error() != path+": not a regular file" {
		t.Errorf("OpenFile: %v", err)
	}
	link := filepath.Join(t.TempDir(), "link.jsonl")
	must.Do(os.Symlink(filepath.Join(dir, "none"), link))
	if _, err := Open(filepath.Dir(link)); err == nil || err.Error() != link+": no such file or directory" {
		t.Error(err)
	}
}
