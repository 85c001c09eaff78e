package rollout

import (
	"errors"
	"fmt"
	"math"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/atomicfile"
	"github.com/seed621a2839/reweight/internal/printable"
)

// A Writer writes a safetensors file of trajectories that come one after another, for
// example the trajectories of Source.Next. The file is equal to the byte to what Write writes of
// the Tensors of all of them as one batch. A Writer needs the memory of one trajectory,
// however many there are. It is for one goroutine at a time.
//
// Until Close, each array is in a file of its own beside the output. Close copies one after
// another into the output and gives back the room of each, so that the disk needs room for
// the output and once more for the largest array. Where the system allows it, as Unix does,
// these files lose their names as soon as they are open, so that nothing is left of them if
// the program is killed.
type Writer struct {
	path    string
	arrays  []*Column // of reweight.Batch.Arrays; nil for those that no trajectory has had
	layouts layouts
	ids     []int32 // of the spans of one trajectory in the file

	tokens       int64
	spans        int32
	trajectories int

	err error // of every further call
}

var errWriterClosed = errors.New("rollout: the Writer is closed")

// NewWriter returns a Writer for a file of that path. The path is checked: its error is
// the one that Write would return before it writes anything.
func NewWriter(path string) (*Writer, error) {
	if err := atomicfile.Check(path); err != nil {
		return nil, err
	}
	return &Writer{path: path, arrays: make([]*Column, len(new(reweight.Batch).Arrays())), layouts: make(layouts)}, nil
}

// Add appends a trajectory. Its spans are numbered from 0, and Add numbers them on from
// those before. All trajectories must have the same arrays, and logits of one format and
// vocabulary; one without tokens has no arrays of tokens, and one without spans none of
// spans. After an error every further
// call returns it, and the files of the Writer are gone.
func (w *Writer) Add(t *Trajectory) error {
	if w.err != nil {
		return w.err
	}
	if err := w.add(t); err != nil {
		w.end(err)
		return err
	}
	return nil
}

func (w *Writer) add(t *Trajectory) error {
	here := Place(t.File, t.Line, w.trajectories)
	b := t.Batch // a copy, whose offsets and spans are changed
	T := int64(b.Tokens())
	if n := b.Trajectories(); n != 1 {
		return fmt.Errorf("%s: seq_offsets is of %d trajectories, want 1", here, n)
	}
	if err := validate(&b); err != nil {
		return fmt.Errorf("%s: %w", here, InFile(err))
	}
	if err := w.layouts.check(&b, here, reweight.PerToken, reweight.PerSpan, reweight.PerTrajectory,
		reweight.PerPart); err != nil {
		return err
	}
	if b.SpanIDs != nil && w.tokens+T > math.MaxInt32 {
		return fmt.Errorf("%s: with this trajectory there are %d tokens, want at most %d in a file with span_ids: write several files", here, w.tokens+T, math.MaxInt32)
	}
	b.SeqOffsets = []int64{w.tokens + T}
	if w.trajectories == 0 {
		b.SeqOffsets = []int64{0, T}
	}
	spans := countSpans(b.SpanIDs)
	w.ids = append(w.ids[:0], b.SpanIDs...)
	b.SpanIDs = w.ids
	renumberSpans(b.SpanIDs, w.spans)
	for i, a := range b.Arrays() {
		if a.Len() == 0 {
			continue
		}
		array := tensorOf(a, 1)
		if w.arrays[i] == nil {
			var err error
			if w.arrays[i], err = newColumn(w.path, array); err != nil {
				return err
			}
		}
		if err := w.arrays[i].add(array); err != nil {
			return err
		}
	}
	w.tokens += T
	w.spans += spans
	w.trajectories++
	return nil
}

// Close writes the file, with that metadata, as Write does: it is there when all of it
// is on disk. Without a token there is no file to write, which is an error. After
// Close nothing but the output is left, and after an error, not even that.
func (w *Writer) Close(metadata map[string]string) error {
	if w.err != nil {
		return w.err
	}
	err := w.close(metadata)
	w.end(errWriterClosed)
	return err
}

func (w *Writer) close(metadata map[string]string) error {
	if w.tokens == 0 {
		return fmt.Errorf("%s: there are no tokens to write", printable.Text(w.path))
	}
	var tensors []Tensor
	for _, c := range w.arrays {
		if c == nil {
			continue
		}
		t, err := c.Tensor()
		if err != nil {
			return err
		}
		tensors = append(tensors, t)
	}
	alignable(tensors)
	return Write(w.path, tensors, metadata)
}

// Abort removes the files of the Writer, which writes no output. After Close it does
// nothing, so that it can be deferred.
func (w *Writer) Abort() {
	if w.err == nil {
		w.end(errWriterClosed)
	}
}

// end removes the files. Every further call returns err.
func (w *Writer) end(err error) {
	w.err = err
	for _, c := range w.arrays {
		if c != nil {
			c.Close()
		}
	}
}
