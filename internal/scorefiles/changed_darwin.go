package scorefiles

import (
	"io/fs"
	"syscall"
	"time"
)

// changed returns the number of a file's inode and when the inode changed, which unlike
// the time of the content's change no program can set. ok is false if they are not known.
func changed(info fs.FileInfo) (inode uint64, at time.Time, ok bool) {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, time.Time{}, false
	}
	return s.Ino, time.Unix(int64(s.Ctimespec.Sec), int64(s.Ctimespec.Nsec)), true
}
