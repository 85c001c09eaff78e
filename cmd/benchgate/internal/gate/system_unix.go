//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package gate

import (
	"io/fs"
	"os"
	"syscall"
)

// ownGroup gives a process a process group of its own, for killGroup.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// killGroup kills a process of ownGroup and those that it has started.
func killGroup(p *os.Process) error { return syscall.Kill(-p.Pid, syscall.SIGKILL) }

// lock locks the file for this process alone, until it is closed by all that have
// it open, which the end of a process does too. If another process has locked it,
// that is an error.
func lock(f *os.File) error {
	for {
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != syscall.EINTR {
			return err
		}
	}
}

// ours reports whether the file belongs to the user of this process.
func ours(info fs.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(s.Uid) == os.Getuid()
}
