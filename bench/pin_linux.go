package bench

import (
	"fmt"
	"os"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

func pin(cpu int) error {
	var set unix.CPUSet
	if cpu < 0 || cpu >= 8*int(unsafe.Sizeof(set)) {
		return fmt.Errorf("bench: pinning to CPU %d: no such CPU", cpu)
	}
	set.Set(cpu)
	if err := setAffinity(&set); err != nil {
		return fmt.Errorf("bench: pinning to CPU %d: %w", cpu, err)
	}
	return nil
}

// setAffinity lets every thread run on the CPUs of the set alone. A new thread has
// the CPUs of the thread that started it, so repeat until no new thread is found.
func setAffinity(set *unix.CPUSet) error {
	done := map[string]bool{}
	for more := true; more; {
		more = false
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		for _, task := range tasks {
			if done[task.Name()] {
				continue
			}
			done[task.Name()], more = true, true
			id, err := strconv.Atoi(task.Name())
			if err != nil {
				return err
			}
			if err := unix.SchedSetaffinity(id, set); err != nil && err != unix.ESRCH { // it may have ended
				return err
			}
		}
	}
	return nil
}
