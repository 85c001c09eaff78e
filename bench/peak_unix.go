//go:build unix && !linux

package bench

import (
	"runtime"

	"golang.org/x/sys/unix"
)

func peakMemory() (int64, bool) {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0, false
	}
	if runtime.GOOS == "darwin" || runtime.GOOS == "ios" {
		return int64(u.Maxrss), true
	}
	return int64(u.Maxrss) << 10, true // the other systems count kibibytes
}
