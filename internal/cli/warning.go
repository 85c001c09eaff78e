package cli

import (
	"fmt"
	"io"
)

// Warning prints a line that people should not overlook, coloured where it may be.
func Warning(w io.Writer, line string) {
	if Coloured(w) {
		line = coloured(line)
	}
	fmt.Fprintln(w, line)
}

// coloured returns the text in bold yellow, which can be read on light and on dark.
func coloured(text string) string { return "\x1b[1;33m" + text + "\x1b[0m" }
