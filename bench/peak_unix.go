//go:build unix && !linux

package bench

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// PeakMemory returns the most memory that the process has had in RAM so far, in
// bytes, and false where the system does not tell.
func PeakMemory() (int64, bool) {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0, false
	}
	if runtime.GOOS == "darwin" || runtime.GOOS == "ios" {
		return int64(u.Maxrss), true
	}
	return int64(u.Maxrss) << 10, true // everybody else counts kibibytes
}
