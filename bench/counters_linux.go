package bench

import (
	"encoding/binary"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// hardware are the events of Count. They are counted in user mode: a process may
// count its own if the CPU has counters and perf_event_paranoid is at most 2. Virtual
// machines often have no counters.
var hardware = [...]event{
	{unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_CPU_CYCLES},
	{unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_INSTRUCTIONS},
}

// An event is what perf_event_open can count, given by its type and number.
type event struct {
	kind   uint32
	config uint64
}

func count(f func() error) (c Counts, ok bool, err error) {
	n, ok, err := countEvents(hardware[:], f)
	if ok {
		c = Counts{Cycles: n[0], Instructions: n[1]}
	}
	return c, ok, err
}

// countEvents calls f while the events are counted as one group.
func countEvents(events []event, f func() error) (counts []uint64, ok bool, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	leader := -1
	for _, e := range events {
		attr := unix.PerfEventAttr{Type: e.kind, Config: e.config, Read_format: unix.PERF_FORMAT_GROUP | unix.PERF_FORMAT_TOTAL_TIME_ENABLED | unix.PERF_FORMAT_TOTAL_TIME_RUNNING,
			Bits: unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv}
		attr.Size = uint32(unsafe.Sizeof(attr))
		if leader < 0 {
			attr.Bits |= unix.PerfBitDisabled // the others follow it
		}
		fd, err := unix.PerfEventOpen(&attr, 0, -1, leader, unix.PERF_FLAG_FD_CLOEXEC)
		if err != nil {
			return nil, false, f()
		}
		defer unix.Close(fd)
		if leader < 0 {
			leader = fd
		}
	}
	if unix.IoctlSetInt(leader, unix.PERF_EVENT_IOC_ENABLE, unix.PERF_IOC_FLAG_GROUP) != nil {
		return nil, false, f()
	}
	err = f()
	if unix.IoctlSetInt(leader, unix.PERF_EVENT_IOC_DISABLE, unix.PERF_IOC_FLAG_GROUP) != nil {
		return nil, false, err
	}
	// The words are: the number of events, the time that counting was enabled, the
	// time that it was done, and the counts.
	buf := make([]byte, 8*(3+len(events)))
	if n, e := unix.Read(leader, buf); e != nil || n != len(buf) {
		return nil, false, err
	}
	word := func(i int) uint64 { return binary.NativeEndian.Uint64(buf[8*i:]) }
	if word(1) == 0 || word(1) != word(2) {
		// The counters were shared with another user for part of the time, so the
		// counts are incomplete.
		return nil, false, err
	}
	for i := range events {
		counts = append(counts, word(3+i))
	}
	return counts, true, err
}
