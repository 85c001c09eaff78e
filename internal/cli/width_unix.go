//go:build unix

package cli

import (
	"os"

	"golang.org/x/sys/unix"
)

// columnsOf returns the width of the terminal, or 0 if it is not known.
func columnsOf(f *os.File) int {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}
