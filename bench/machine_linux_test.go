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
