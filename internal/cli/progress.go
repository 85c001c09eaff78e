package cli

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/mattn/go-isatty"
)

// A Progress is a line on a terminal that says what is being done and about how
// long the rest will take. Work is counted in units that take about the same
// time each. The zero value shows nothing.
type Progress struct {
	W     io.Writer // where the line is shown; nil if nowhere
	Done  int       // work before the current step
	Step  int       // work of the current step
	Total int       // all work, 0 if that is not known

	begin time.Time
}

// NewProgress returns a progress that is shown if the writer is a terminal.
func NewProgress(stderr io.Writer) *Progress {
	if f, ok := stderr.(*os.File); ok && isatty.IsTerminal(f.Fd()) && os.Getenv("TERM") != "dumb" {
		return &Progress{W: f}
	}
	return &Progress{}
}

// progressWidth fits narrow terminals: a line that wraps cannot be replaced.
const progressWidth = 59

// Expect says how much work there will be, starting now.
func (p *Progress) Expect(work int) {
	p.Done, p.Step, p.Total, p.begin = 0, 0, work, time.Now()
}

// Next says what the next step is, of one unit of work.
func (p *Progress) Next(format string, args ...any) { p.NextOf(1, format, args...) }

// NextOf says what the next step is and how much work it is. The time that the
// work so far took tells how long the rest will take.
func (p *Progress) NextOf(work int, format string, args ...any) {
	p.Done += p.Step
	p.Step = work
	if p.W == nil {
		return
	}
	line := fmt.Sprintf(format, args...)
	if p.Done > 0 && p.Done < p.Total {
		left := time.Duration(float64(time.Since(p.begin)) * float64(p.Total-p.Done) / float64(p.Done))
		line = fmt.Sprintf("%d%%, about %v left: %s", 100*p.Done/p.Total, left.Round(time.Second), line)
	}
	fmt.Fprintf(p.W, "\r%-*.*s", progressWidth, progressWidth, line)
}

// Clear removes the line, so that output can be printed in its place.
func (p *Progress) Clear() {
	if p.W != nil {
		fmt.Fprintf(p.W, "\r%*s\r", progressWidth, "")
	}
}
