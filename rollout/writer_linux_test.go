package rollout

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/internal/must"
	"golang.org/x/sys/unix"
)

// TestWriterDiskFull: a disk that is full is an error that says so, whenever it becomes
// full, and nothing is left of the Writer. The output takes 180 KiB.
func TestWriterDiskFull(t *testing.T) {
	all := trajectories(frozenLake(t, "frozenlake-small.safetensors"))
	dir := t.TempDir()
	path := filepath.Join(dir, "x.safetensors")
	write := func() error {
		w := must.Get(NewWriter(path))
		defer w.Abort()
		for _, one := range all {
			if err := w.Add(one); err != nil {
				return err
			}
		}
		return w.Close(nil)
	}
	adding, closing, written := false, false, false
	for kib := 100; kib <= 300; kib += 4 {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dk", kib)); err != nil {
			t.Skip("no file system of its own can be mounted: ", err)
		}
		switch err := write(); {
		case err == nil:
			written = true
			expectFiles(t, dir, "x.safetensors")
		case !errors.Is(err, unix.ENOSPC) || !strings.HasSuffix(err.Error(), ": no space left on device") || !strings.HasPrefix(err.Error(), path+": "):
			t.Errorf("%d KiB: error %v", kib, err)
		default:
			adding = adding || strings.Contains(err.Error(), ": a temporary file for entropy beside it: ")
			closing = closing || strings.Contains(err.Error(), `: tensor "`)
			expectFiles(t, dir)
		}
		must.Do(unix.Unmount(dir, 0))
	}
	if !adding || !closing && unix.Getpagesize() == 4096 || !written {
		t.Errorf("full while adding %v, while closing %v; large enough %v", adding, closing, written)
	}
}
