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
	w                 io.Writer // nil if nobody watches
	done, step, total int       // work, that of the step that is on too; total is 0 if it is not known
	begin             time.Time

	now func() time.Time // for tests; nil is the clock
}

// Work of steps that differ, about: a check of parity at all sizes is 1.
const (
	checkWork    = 1
	measureWork  = 9
	sweepWork    = 5
	overheadWork = 17
)

func newProgress(stderr io.Writer) *progress {
	if f, ok := stderr.(*os.File); ok && isatty.IsTerminal(f.Fd()) && os.Getenv("TERM") != "dumb" {
		return &progress{w: f}
	}
	return &progress{}
}

// progressWidth fits narrow terminals: a line that wraps could not be replaced.
const progressWidth = 59

// expect says how much work there will be, starting now.
func (p *progress) expect(work int) {
	p.done, p.step, p.total, p.begin = 0, 0, work, p.time()
}

func (p *progress) time() time.Time {
	if p.now != nil {
		return p.now()
	}
	return time.Now()
}

// next says what the next step is, of work 1.
func (p *progress) next(format string, args ...any) { p.nextOf(1, format, args...) }

// nextOf says what the next step is. The work so far tells how long the rest
// will take.
func (p *progress) nextOf(work int, format string, args ...any) {
	p.done += p.step
	p.step = work
	if p.w == nil {
		return
	}
	line := fmt.Sprintf(format, args...)
	if p.done > 0 && p.done < p.total {
		left := time.Duration(float64(p.time().Sub(p.begin)) * float64(p.total-p.done) / float64(p.done))
		line = fmt.Sprintf("%d%%, about %v left: %s", 100*p.done/p.total, left.Round(time.Second), line)
	}
	fmt.Fprintf(p.w, "\r%-*.*s", progressWidth, progressWidth, line)
}

// clear makes room for the next line of output.
func (p *progress) clear() {
	if p.w != nil {
		fmt.Fprintf(p.w, "\r%*s\r", progressWidth, "")
	}
}
