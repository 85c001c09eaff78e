package cli

import (
	"os"

	"golang.org/x/sys/windows"
)

// columnsOf returns the width of the terminal, or 0 if it is not known.
func columnsOf(f *os.File) int {
	var info windows.ConsoleScreenBufferInfo
	if err := windows.GetConsoleScreenBufferInfo(windows.Handle(f.Fd()), &info); err != nil {
		return 0
	}
	return int(info.Window.Right-info.Window.Left) + 1
}
