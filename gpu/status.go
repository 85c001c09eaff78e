package gpu

import (
	"fmt"
	"math"

	"github.com/seed621a2839/reweight"
)

// A status is the first thing that was found wrong on the device; common.cuh has the
// same struct and codes.
type status struct {
	taken uint32 // whether the rest is set
	code  code
	index int64
	value int64
	extra int64
}

// A code says what was found wrong.
type code uint32

// The codes; common.cuh has the same.
const (
	// Rows of logits.
	badID    code = 1 // extra: the vocabulary
	badIndex code = 2 // extra: rows in memory
	// Tokens.
	badRole code = 100
	// Spans and scopes.
)

// problems say what each code means.
var problems = map[code]func(s *status) *reweight.InputError{
	badID: func(s *status) *reweight.InputError {
		return badElement("ids", int(s.index), "is %d, want 0 to %d, for rows of %d logits", s.value, s.extra-1, s.extra)
	},
	badIndex: func(s *status) *reweight.InputError {
		return badElement("logits.Index", int(s.index), "is %d, want 0 to %d, for %d rows of logits", s.value, s.extra-1, s.extra)
	},
	badRole: func(s *status) *reweight.InputError {
		return badElement("Role", int(s.index), "is %d, want 0, 1 or 2", s.value)
	},
}

// float returns the value of a status that is a float32.
func (s *status) float() float32 { return math.Float32frombits(uint32(s.value)) }

// Check waits until all that was queued on the workspace's stream is done and returns
// what was found wrong on the device since the last Check: an *reweight.InputError with
// the text of the CPU's, about one of the elements that are wrong, or an error of the
// driver. It must not be called while the stream is captured.
func (ws *Workspace) Check() error {
	if err := Download(ws.dev, ws.found[:], ws.status, ws.stream); err != nil {
		return fmt.Errorf("gpu: %w", err)
	}
	s := &ws.found[0]
	if s.taken == 0 {
		return nil
	}
	if err := ws.dev.drv.Fill(ws.status, 0, len(bytesOf(ws.found[:])), ws.stream); err != nil {
		return fmt.Errorf("gpu: %w", err)
	}
	problem, ok := problems[s.code]
	if !ok {
		return fmt.Errorf("gpu: the device reports error %d, which is not known", s.code)
	}
	return problem(s)
}
