package gate

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// Steps tell what is being done: in a line for each phase and one every so often, because
// CI systems end a job that says nothing for long, and people want to know what hangs.
type steps struct {
	log   io.Writer
	begin time.Time

	mu   sync.Mutex
	line string
	end  chan struct{}
}

func newSteps(log io.Writer, every time.Duration) *steps {
	if log == nil {
		log = io.Discard
	}
	s := &steps{log: log, begin: time.Now(), end: make(chan struct{})}
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
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line = fmt.Sprintf(format, args...)
}

// phase is next for a step that every log has.
func (s *steps) phase(format string, args ...any) {
	s.next(format, args...)
	s.print()
}

func (s *steps) close() { close(s.end) }
