package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/mattn/go-isatty"
)

// A progress is a line on a terminal that tells what is being done, and about
// how long the rest will take.
type progress struct {
	w           io.Writer // nil if nobody watches
	done, total int       // steps; total is 0 if it is not known
	begin       time.Time

	now func() time.Time // for tests; nil is the clock
}

func newProgress(stderr io.Writer) *progress {
	if f, ok := stderr.(*os.File); ok && isatty.IsTerminal(f.Fd()) {
		return &progress{w: f}
	}
	return &progress{}
}

// progressWidth fits the narrowest terminals in use.
const progressWidth = 79

// expect says how many steps there will be, starting now.
func (p *progress) expect(steps int) {
	p.done, p.total, p.begin = 0, steps, p.time()
}

func (p *progress) time() time.Time {
	if p.now != nil {
		return p.now()
	}
	return time.Now()
}

// next says what the next step is. The steps so far tell how long the others
// will take.
func (p *progress) next(format string, args ...any) {
	left := ""
	if p.done > 0 && p.done < p.total {
		each := p.time().Sub(p.begin) / time.Duration(p.done)
		left = fmt.Sprintf(", about %v left", (each * time.Duration(p.total-p.done)).Round(time.Second))
	}
	p.done++
	if p.w != nil {
		line := fmt.Sprintf(format, args...)
		if p.total > 0 {
			line = fmt.Sprintf("%d of %d%s: %s", p.done, max(p.total, p.done), left, line)
		}
		fmt.Fprintf(p.w, "\r%-*.*s", progressWidth, progressWidth, line)
	}
}

// clear makes room for the next line of output.
func (p *progress) clear() {
	if p.w != nil {
		fmt.Fprintf(p.w, "\r%*s\r", progressWidth, "")
	}
}
