package gate

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/seed621a2839/reweight/internal/cli"
)

// Steps tell what is being done: on a terminal in a line that is replaced, and elsewhere in
// a line for each phase and one every so often, because CI systems end a job that says
// nothing for long, and people want to know what hangs.
type steps struct {
	terminal *cli.Progress
	log      io.Writer // or nil
	begin    time.Time

	mu   sync.Mutex
	line string
	end  chan struct{}
}

// newSteps begins to tell. The log is for what is no terminal.
func newSteps(terminal *cli.Progress, log io.Writer, every time.Duration) *steps {
	s := &steps{terminal: terminal, log: log, begin: time.Now(), end: make(chan struct{})}
	if terminal.W != nil || log == nil {
		s.log = nil
		return s
	}
	go func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				s.print()
			case <-s.end:
				return
			}
		}
	}()
	return s
}

func (s *steps) print() {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.log, "%4.0f s  %s\n", time.Since(s.begin).Seconds(), s.line)
}

// next says what the next step is.
func (s *steps) next(format string, args ...any) {
	s.terminal.Next(format, args...)
	s.mu.Lock()
	s.line = fmt.Sprintf(format, args...)
	s.mu.Unlock()
}

// phase is next for a step that every log has.
func (s *steps) phase(format string, args ...any) {
	s.next(format, args...)
	if s.log != nil {
		s.print()
	}
}

func (s *steps) close() {
	s.terminal.Clear()
	close(s.end)
}
