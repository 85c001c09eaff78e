package study

import (
	"fmt"
	"io"
	"os"
	"time"
)

// A Progress says how many runs are done and about how long the rest will take: in
// one line that is replaced on a terminal, in a line for each tenth of the runs
// elsewhere.
type Progress struct {
	w        io.Writer
	terminal bool

	start       time.Time
	stored      int // runs that were done before
	done, total int
}

// NewProgress returns a progress that is shown on w.
func NewProgress(w io.Writer) *Progress {
	p := &Progress{w: w}
	if f, ok := w.(*os.File); ok && os.Getenv("TERM") != "dumb" {
		info, err := f.Stat()
		p.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return p
}

func (p *Progress) begin(stored, total int) {
	p.start, p.stored, p.done, p.total = time.Now(), stored, stored, total
	fmt.Fprintf(p.w, "%d runs, %d of them done before. Ctrl-C stops, and the same command goes on.\n", total, stored)
}

// add says that one more run is done.
func (p *Progress) add() {
	p.done++
	line := fmt.Sprintf("%d of %d runs", p.done, p.total)
	if p.done < p.total {
		left := time.Since(p.start) / time.Duration(p.done-p.stored) * time.Duration(p.total-p.done)
		line += fmt.Sprintf(", about %v left", left.Round(time.Second))
	}
	if p.terminal {
		fmt.Fprintf(p.w, "\r%-50s", line)
	} else if p.done*10/p.total > (p.done-1)*10/p.total {
		fmt.Fprintln(p.w, line)
	}
}

// end ends the line, if one is shown.
func (p *Progress) end() {
	if p.terminal && p.done > p.stored {
		fmt.Fprintln(p.w)
	}
}
