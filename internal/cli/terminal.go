package cli

import (
	"io"
	"os"
	"strconv"

	"github.com/mattn/go-isatty"
)

// Coloured reports whether what is written may have colours: it is shown on a terminal
// that knows them, and NO_COLOR is not in the environment.
func Coloured(w io.Writer) bool {
	f := fileOf(w)
	return f != nil && isatty.IsTerminal(f.Fd()) && os.Getenv("TERM") != "dumb" && os.Getenv("NO_COLOR") == ""
}

// minColumns is the least width that Columns returns.
const minColumns = 24

// Columns returns how many columns a line may have: COLUMNS in the environment, else the
// width of the terminal, else 80.
func Columns(w io.Writer) int {
	n, err := strconv.Atoi(os.Getenv("COLUMNS"))
	if err != nil || n <= 0 {
		n = 0
		if f := fileOf(w); f != nil {
			n = columnsOf(f)
		}
	}
	if n <= 0 {
		return 80
	}
	return max(n, minColumns)
}

// fileOf returns the file that is written to, or nil if it is none.
func fileOf(w io.Writer) *os.File {
	switch w := w.(type) {
	case *FirstError:
		return fileOf(w.W)
	case *os.File:
		return w
	}
	return nil
}
