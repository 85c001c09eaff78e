package bench

import (
	"fmt"
	"os"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Pin keeps the whole process on one CPU, from 0: its threads, and those that
// they will start. Workers then take turns, and so do the collector of garbage
// and the clock's owner; other processes may still use that CPU too. Linux only:
// elsewhere it is an error.
func Pin(cpu int) error {
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

// setAffinity sets that of every thread. A thread that is started meanwhile has
// that of the one that starts it, so it goes on until a round finds no new one.
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
