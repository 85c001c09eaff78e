//go:build !linux && !darwin

package scorefiles

import (
	"io/fs"
	"time"
)

// changed says that it is not known: statistics of files are made anew by each run.
func changed(fs.FileInfo) (inode uint64, at time.Time, ok bool) { return 0, time.Time{}, false }
