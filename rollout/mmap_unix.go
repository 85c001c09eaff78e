//go:build unix

package rollout

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// mapFile maps the first size > 0 bytes of the file, read-only. The mapping is
// shared, because a private one can count against a limit on memory.
func mapFile(f *os.File, size int) (data []byte, unmap func() error, err error) {
	data, err = unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, fmt.Errorf("mmap of %d bytes: %w", size, err)
	}
	return data, func() error { return unix.Munmap(data) }, nil
}
