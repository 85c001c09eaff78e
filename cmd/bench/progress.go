package main

import (
	"fmt"
	"io"
	"os"
)

// A progress is a line on a terminal that tells what is being done.
type progress struct {
	w io.Writer // nil if nobody watches
}

func newProgress(stderr io.Writer) *progress {
	f, ok := stderr.(*os.File)
	if !ok {
		return &progress{}
	}
	if info, err := f.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return &progress{}
	}
	return &progress{f}
}

// progressWidth fits the narrowest terminals in use.
const progressWidth = 79

func (p *progress) say(format string, args ...any) {
	if p.w != nil {
		fmt.Fprintf(p.w, "\r%-*.*s", progressWidth, progressWidth, fmt.Sprintf(format, args...))
	}
}

// clear makes room for the next line of output.
func (p *progress) clear() {
	if p.w != nil {
		fmt.Fprintf(p.w, "\r%*s\r", progressWidth, "")
	}
}
