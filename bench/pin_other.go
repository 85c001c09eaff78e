//go:build !linux

package bench

import (
	"errors"
	"fmt"
	"runtime"
)

// Pin keeps the whole process on one CPU, from 0: its threads, and those that
// they will start. Workers then take turns, and so do the collector of garbage
// and the clock's owner; other processes may still use that CPU too. Linux only:
// elsewhere it is an error.
func Pin(cpu int) error {
	return fmt.Errorf("bench: pinning to CPU %d on %s: %w", cpu, runtime.GOOS, errors.ErrUnsupported)
}
