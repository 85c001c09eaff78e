//go:build !unix && !windows

package cli

import "os"

// columnsOf returns 0: the width of a terminal is not known here.
func columnsOf(*os.File) int { return 0 }
