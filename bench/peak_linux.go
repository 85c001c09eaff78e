package bench

import (
	"bytes"
	"os"
	"strconv"
)

// PeakMemory returns the most memory that the process has had in RAM so far, in
// bytes, and false where the system does not tell.
func PeakMemory() (int64, bool) {
	// Not getrusage: its figure is that of the parent, if larger, which an
	// exec does not reset.
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, false
	}
	return highWater(status)
}

// highWater finds the line "VmHWM:	   1234 kB".
func highWater(status []byte) (int64, bool) {
	for line := range bytes.Lines(status) {
		if rest, ok := bytes.CutPrefix(line, []byte("VmHWM:")); ok {
			kib, err := strconv.ParseInt(string(bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(rest), []byte("kB")))), 10, 64)
			return kib << 10, err == nil
		}
	}
	return 0, false
}
