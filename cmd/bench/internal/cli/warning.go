package cli

import (
	"fmt"
	"io"
	"os"

	"github.com/mattn/go-isatty"
)

// Warning prints a line that people should not overlook: on a terminal it is
// coloured, unless NO_COLOR is in the environment.
func Warning(w io.Writer, line string) {
	if onTerminal(w) && os.Getenv("NO_COLOR") == "" {
		line = coloured(line)
	}
	fmt.Fprintln(w, line)
}

// coloured returns the text in bold yellow, which can be read on light and on dark.
func coloured(text string) string { return "\x1b[1;33m" + text + "\x1b[0m" }

// onTerminal reports whether what is written is shown on a terminal that knows
// colours.
func onTerminal(w io.Writer) bool {
	switch w := w.(type) {
	case *FirstError:
		return onTerminal(w.W)
	case *os.File:
		return isatty.IsTerminal(w.Fd()) && os.Getenv("TERM") != "dumb"
	}
	return false
}
