package bench

import (
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

func TestHighWater(t *testing.T) {
	for text, want := range map[string]int64{
		"Name:\tx\nVmHWM:\t    1234 kB\nVmRSS:\t 99 kB\n": 1234 << 10,
		"VmHWM:\t7 kB":            7 << 10,
		"VmRSS:\t 99 kB\n":        -1,
		"":                        -1,
		"VmHWM:\t many kB\n":      -1,
		"xVmHWM:\t 5 kB\nVmHWM\n": -1,
	} {
		if got, ok := highWater([]byte(text)); ok != (want >= 0) || ok && got != want {
			t.Errorf("%q: %d, %v, want %d", text, got, ok, want)
		}
	}
}

// TestCountSoftware counts page faults, for which no CPU needs a counter.
func TestCountSoftware(t *testing.T) {
	event := []event{{unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_PAGE_FAULTS}, {unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_TASK_CLOCK}}
	const pages = 100
	size := pages * os.Getpagesize()
	memory, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(memory)
	unix.Madvise(memory, unix.MADV_NOHUGEPAGE)
	counts, ok, err := countEvents(event, func() error {
		for i := 0; i < size; i += os.Getpagesize() {
			memory[i] = 1
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if !ok {
		t.Skip("perf_event_open is not allowed here")
	}
	if counts[0] < pages || counts[0] > pages+50 || counts[1] == 0 {
		t.Errorf("%d page faults in %d ns, want %d", counts[0], counts[1], pages)
	}
}

// TestCountAbsent: where an event cannot be counted, f is called and there is no
// error.
func TestCountAbsent(t *testing.T) {
	for _, events := range [][]event{{{1 << 30, 0}}, {{unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_TASK_CLOCK}, {1 << 30, 0}}} {
		calls := 0
		if _, ok, err := countEvents(events, func() error { calls++; return nil }); ok || err != nil || calls != 1 {
			t.Errorf("counted: %v, error %v, %d calls", ok, err, calls)
		}
	}
}

// TestPin: the threads of the process are pinned, and those that start later.
func TestPin(t *testing.T) {
	var old unix.CPUSet
	if err := unix.SchedGetaffinity(0, &old); err != nil {
		t.Fatal(err)
	}
	cpu := 0
	for !old.IsSet(cpu) {
		cpu++
	}
	if err := Pin(cpu); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := setAffinity(&old); err != nil {
			t.Fatal(err)
		}
	}()
	var wg, ready sync.WaitGroup
	release := make(chan bool)
	for range 20 { // threads of their own
		ready.Add(1)
		wg.Go(func() { runtime.LockOSThread(); ready.Done(); <-release })
	}
	ready.Wait()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil || len(tasks) < 20 {
		t.Fatal(len(tasks), err)
	}
	for _, task := range tasks {
		status, err := os.ReadFile("/proc/self/task/" + task.Name() + "/status")
		if err != nil {
			continue // it ended
		}
		_, allowed, _ := strings.Cut(string(status), "Cpus_allowed_list:\t")
		if allowed, _, _ = strings.Cut(allowed, "\n"); strings.ContainsAny(allowed, ",-") {
			t.Errorf("thread %s may run on %s", task.Name(), allowed)
		}
	}
	close(release)
	wg.Wait()
	for _, bad := range []int{-1, -1000, 1023, 1 << 20} {
		if err := Pin(bad); err == nil || !strings.Contains(err.Error(), "CPU") {
			t.Errorf("CPU %d: %v", bad, err)
		}
	}
}
