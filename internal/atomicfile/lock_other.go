//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package atomicfile

import (
	"errors"
	"os"
)

// lock says that this system has no locks that the end of a process undoes.
func lock(*os.File) (bool, error) { return false, errors.ErrUnsupported }
