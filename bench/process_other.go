//go:build !linux

package bench

import (
	"errors"
	"fmt"
	"runtime"
)

func pin(cpu int) error {
	return fmt.Errorf("bench: pinning to CPU %d on %s: %w", cpu, runtime.GOOS, errors.ErrUnsupported)
}
