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
	badRole       code = 100 // extra: what the argument is called
	badSignal     code = 101 // extra: the signal
	badReference  code = 102
	badDifference code = 103
	badResponse   code = 104 // extra: what the argument is called
	badCount      code = 105
	// Spans, scopes and trajectories.
	badFirstOffset    code = 200
	badOffset         code = 201 // extra: the offset before it
	badLastOffset     code = 202 // extra: tokens
	badRangeStart     code = 203
	badRange          code = 204 // extra: the offset before it
	badRangeEnd       code = 205 // extra: elements
	badSpanID         code = 206 // extra: spans before it
	badSpanTrajectory code = 207 // extra: the trajectory
	badSpanMissing    code = 208 // value: the role
	badSpanCount      code = 209 // extra: how many there may be
	badSpanEmpty      code = 210
	badEntropy        code = 211 // extra: the span
	badReward         code = 212
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
		return badElement(roleNames.of(s), int(s.index), "is %d, want 0, 1 or 2", s.value)
	},
	badSignal:    func(s *status) *reweight.InputError { return s.badSignal(firstArrays) },
	badReference: func(s *status) *reweight.InputError { return s.badSignal(names{secondArray}) },
	badDifference: func(s *status) *reweight.InputError {
		return badElement(firstArrays.of(s), int(s.index),
			"is %v, too far from the reference's log-probability for float32 to hold the difference", s.float())
	},
	badResponse: func(s *status) *reweight.InputError {
		return badElement(responseNames.of(s), int(s.index), "is %v at a response token, want a finite number", s.float())
	},
	badCount: func(s *status) *reweight.InputError {
		return badInput("role", "has %d response tokens, want at least 2 to whiten", s.value)
	},
	badFirstOffset: func(s *status) *reweight.InputError {
		return badElement("SeqOffsets", 0, "is %d, want 0", s.value)
	},
	badOffset: func(s *status) *reweight.InputError {
		return badElement("SeqOffsets", int(s.index), "is %d, below the %d before it", s.value, s.extra)
	},
	badLastOffset: func(s *status) *reweight.InputError {
		return badElement("SeqOffsets", int(s.index), "is %d, want %d, the number of tokens", s.value, s.extra)
	},
	badRangeStart: func(s *status) *reweight.InputError {
		return badElement("offsets", 0, "is %d, want at least 0", s.value)
	},
	badRange: func(s *status) *reweight.InputError {
		return badElement("offsets", int(s.index), "is %d, below the %d before it", s.value, s.extra)
	},
	badRangeEnd: func(s *status) *reweight.InputError {
		return badElement("offsets", int(s.index), "is %d, want at most %d, the elements of x", s.value, s.extra)
	},
	badSpanID: func(s *status) *reweight.InputError {
		return badElement("SpanIDs", int(s.index), "is %d, want -1 to %d: spans are numbered from 0 in the order in which they appear", s.value, s.extra)
	},
	badSpanTrajectory: func(s *status) *reweight.InputError {
		return badElement("SpanIDs", int(s.index), "is %d in trajectory %d, but that span began in an earlier trajectory", s.value, s.extra)
	},
	badSpanMissing: func(s *status) *reweight.InputError {
		return badElement("SpanIDs", int(s.index), "is -1 at a response token (role %d), want its span", s.value)
	},
	badSpanCount: func(s *status) *reweight.InputError {
		return badInput("SpanIDs", "has %d spans, want at most %d, for which the workspace was made", s.value, s.extra)
	},
	badSpanEmpty: func(s *status) *reweight.InputError {
		return badInput("SpanIDs", "has no response token in span %d, want at least one in each", s.value)
	},
	badEntropy: func(s *status) *reweight.InputError {
		return badElement("Entropy", int(s.index), "is %v in span %d, want a finite number of at most %v", s.float(), s.extra, largestMean)
	},
	badReward: func(s *status) *reweight.InputError {
		return badElement("Rewards", int(s.index), "is %v, want a finite reward", s.float())
	},
}

// names are what an argument may be called; extra says which.
type names []string

// The names, in the order of tokens.cuh; those of the arrays that
// ActFocus's signals are made of in the order of reweight.Signal.
var (
	roleNames     = names{"Role", "role"}
	responseNames = names{"weights", "x"}
	firstArrays   = names{"RefEnergy", "RefEntropy", "OldLogprobs", "OldLogprobs"}
)

// secondArray is the other array of the one signal that has two.
const secondArray = "RefLogprobs"

// of returns the name that a status is about.
func (n names) of(s *status) string { return n[uint64(s.extra)%uint64(len(n))] }

// badSignal is about an array of ActFocus's signal.
func (s *status) badSignal(arrays names) *reweight.InputError {
	return badElement(arrays.of(s), int(s.index), "is %v at an action token, want a finite number", s.float())
}

// largestMean bounds the entropies of AEM; aem.cu has the same.
const largestMean = 1e30

// float returns the value of a status that is a float32.
func (s *status) float() float32 { return math.Float32frombits(uint32(s.value)) }

// Check waits until all that was queued on the workspace's stream is done and returns
// what was found wrong on the device since the last Check: an *reweight.InputError with
// the text of the CPU's, about one of the elements that are wrong, or an error of the
// driver. It must not be called while the stream is captured.
func (ws *Workspace) Check() error {
	if ws.memory == 0 {
		return errClosed
	}
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
