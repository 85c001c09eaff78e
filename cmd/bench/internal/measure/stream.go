package measure

import (
	"bytes"
	"math"
	"os"
	"strconv"
	"strings"
)

// BriefStream bounds Stream where all kernels are measured within a minute.
const BriefStream = 256 << 20

// Stream returns how many bytes of logits a workload streams: eight times the last
// cache, whose size is 0 if it is not known, and at least StreamBytes. At most an
// eighth of them can then come from that cache. It is no more than most, nor than an
// eighth of the memory that is free: the gradient takes twice as much, and other
// programs need some.
func Stream(cache, most int) int { return stream(cache, freeMemory(), min(most, math.MaxInt/8)) }

// LongStream bounds Stream where the time does not matter much.
const LongStream = math.MaxInt / 8

// stream is Stream where so much memory is free, 0 if that is not known.
func stream(cache int, free int64, most int) int {
	want := max(StreamBytes, 8*int64(cache))
	bound := int64(most)
	if free > 0 {
		bound = min(bound, free/8)
	} else {
		bound = min(bound, BriefStream)
	}
	if want <= bound {
		return int(want)
	}
	// Free memory changes all the time: these steps are the same in most runs, so that
	// they can be compared.
	n := int64(StreamBytes)
	for 2*n <= bound {
		n *= 2
	}
	return int(n)
}

// freeMemory returns the memory that this process can use, 0 if that is not known:
// what Linux says is available, and what a container is given.
func freeMemory() int64 {
	text, _ := os.ReadFile("/proc/meminfo")
	free := available(text)
	for _, name := range [...]string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		text, _ := os.ReadFile(name)
		if limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && free > 0 {
			free = min(free, limit)
		}
	}
	return free
}

// available returns the bytes of MemAvailable in /proc/meminfo, 0 without it.
func available(meminfo []byte) int64 {
	for line := range bytes.Lines(meminfo) {
		f := strings.Fields(string(line))
		if len(f) > 1 && f[0] == "MemAvailable:" {
			if n, err := strconv.ParseInt(f[1], 10, 64); err == nil && n < math.MaxInt64>>10 {
				return n << 10
			}
		}
	}
	return 0
}
