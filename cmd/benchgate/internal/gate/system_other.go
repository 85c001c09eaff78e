//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package gate

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// Here a process is killed alone, and what a killed run has left stays.

func ownGroup() *syscall.SysProcAttr { return nil }

func killGroup(p *os.Process) error { return p.Kill() }

func lock(*os.File) error { return errors.ErrUnsupported }

func ours(fs.FileInfo) bool { return false }
