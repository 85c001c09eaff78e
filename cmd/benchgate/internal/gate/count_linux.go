package gate

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// cpuTime is the time that the process has had a CPU, 0 if that is not known.
func (p *process) cpuTime() time.Duration {
	const scheduled = 2 // which of the clocks of a process: see clock_getcpuclockid(3)
	var t unix.Timespec
	if unix.ClockGettime(int32(^p.cmd.Process.Pid<<3|scheduled), &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// threads returns the times of the threads of the process, as far as they are known.
func (p *process) threads() map[string]threadTime {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.cmd.Process.Pid))
	all := map[string]threadTime{}
	for _, name := range files {
		var t threadTime
		if text, err := os.ReadFile(name); err == nil { // the thread still is
			fmt.Sscan(string(text), &t.ran, &t.queued)
		}
		all[name] = t
	}
	return all
}

// counted is what perf_event_open counts: instructions in user mode.
var counted = unix.PerfEventAttr{Type: unix.PERF_TYPE_HARDWARE, Config: unix.PERF_COUNT_HW_INSTRUCTIONS}

// startCounted starts a program with a counter of it and of what it starts, which is nil
// where the machine does not allow that. The counter is one of this thread, which the
// program inherits, and which counts from its exec on.
func startCounted(cmd *exec.Cmd) (counter *os.File, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	attr := counted
	attr.Size = uint32(unsafe.Sizeof(attr))
	attr.Read_format = unix.PERF_FORMAT_TOTAL_TIME_ENABLED | unix.PERF_FORMAT_TOTAL_TIME_RUNNING
	attr.Bits = unix.PerfBitDisabled | unix.PerfBitInherit | unix.PerfBitEnableOnExec |
		unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv
	if fd, err := unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC); err == nil {
		counter = os.NewFile(uintptr(fd), "counter")
	}
	return counter, cmd.Start()
}

// readCounter returns the count by now, 0 if the CPU did not count all the time.
func readCounter(counter *os.File) uint64 {
	var b [24]byte
	if n, err := unix.Read(int(counter.Fd()), b[:]); err != nil || n != len(b) {
		return 0
	}
	word := func(i int) uint64 { return binary.NativeEndian.Uint64(b[8*i:]) }
	if word(1) != word(2) {
		return 0
	}
	return word(0)
}
