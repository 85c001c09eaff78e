package gate

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed621a2839/reweight/internal/test/must"
)

// TestCounter: the counter of a program counts its threads and what it starts, and nothing
// of this process. Where there is no counter of instructions, one of time stands for it.
func TestCounter(t *testing.T) {
	canStart(t)
	if os.Getenv("GATE_TEST_SPINS") != "" {
		done := make(chan bool)
		go func() { // on another thread
			for begin := time.Now(); time.Since(begin) < 50*time.Millisecond; {
			}
			done <- true
		}()
		<-done
		return
	}
	self := must.Get(os.Executable())
	old := counted
	defer func() { counted = old }()
	for _, attr := range []unix.PerfEventAttr{old,
		{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_TASK_CLOCK}} {
		counted = attr
		cmd := exec.CommandContext(t.Context(), "sh", "-c", `"$0" -test.run='^TestCounter$'; exit 0`, self)
		cmd.Env = append(os.Environ(), "GATE_TEST_SPINS=1")
		p := process{mark: "x"}
		must.Do(p.run(t.Context(), cmd))
		if p.counter == nil {
			t.Logf("type %d: not allowed here", attr.Type)
			p.close()
			continue
		}
		must.Do(p.close())
		used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		switch n := float64(p.instructions()); {
		case attr.Type == unix.PERF_TYPE_SOFTWARE && (n < 0.8*float64(used) || n > 1.2*float64(used)+1e7):
			t.Errorf("%v ns, and the time is %v", n, used)
		case attr.Type == unix.PERF_TYPE_HARDWARE && n < 1e6:
			t.Errorf("%v instructions", n)
		}
	}
}
