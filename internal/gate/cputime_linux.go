package gate

import (
	"time"

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
