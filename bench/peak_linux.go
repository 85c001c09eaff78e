package bench

import (
	"bytes"
	"os"
	"strconv"
)

// peakMemory reads /proc. getrusage is not used: after exec it still reports the
// parent's peak if that was larger.
func peakMemory() (int64, bool) {
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
			kib, err := strconv.ParseInt(string(bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(rest), []byte("kB")))),
				10, 64)
			return kib << 10, err == nil
		}
	}
	return 0, false
}
