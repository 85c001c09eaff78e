//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package gate

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// Here a process is killed alone, what a killed run has left stays, and there is
// no cache.

func ownGroup() *syscall.SysProcAttr { return nil }

func killGroup(p *os.Process) error { return p.Kill() }

const canLock = false

func lock(*os.File) error { return errors.ErrUnsupported }

func tryLockShared(*os.File) error { return errors.ErrUnsupported }

func lockShared(*os.File) error { return errors.ErrUnsupported }

func ours(fs.FileInfo) bool { return false }
