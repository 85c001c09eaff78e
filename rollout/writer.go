package rollout

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/atomicfile"
	"github.com/seed621a2839/reweight/internal/printable"
)

// A Writer writes a safetensors file of trajectories that come one after another, for
// example those of Source.Next. The file is equal to the byte to what Write writes of
// the Tensors of all of them as one batch. A Writer needs the memory of one trajectory,
// however many there are. It is for one goroutine at a time.
//
// Until Close, each array is in a file of its own beside the output. Close copies one after
// another into the output and gives back the room of each, so that the disk needs room for
// the output and once more for the largest array. Where the system allows it, as Unix does,
// these files lose their names as soon as they are open, so that nothing is left of them if
// the program is killed.
type Writer struct {
	path   string
	arrays []*spool // of reweight.Batch.Arrays; nil for those that no trajectory has had
	ids    []int32  // of the spans of one trajectory in the file

	tokens, spans int64
	trajectories  int
	before        [reweight.PerSpan + 1]string // the Place of the last trajectory with elements of this unit

	err error // of every further call
}

var errWriterClosed = errors.New("rollout: the Writer is closed")

// NewWriter returns a Writer for a file of that path. The path is checked: its error is
// the one that Write would return before it writes anything.
func NewWriter(path string) (*Writer, error) {
	if err := atomicfile.Check(path); err != nil {
		return nil, err
	}
	return &Writer{path: path, arrays: make([]*spool, len(new(reweight.Batch).Arrays()))}, nil
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
	T := b.Tokens()
	if n := b.Trajectories(); n != 1 {
		return fmt.Errorf("%s: seq_offsets is of %d trajectories, want 1", here, n)
	}
	if T > 0 {
		if err := b.Validate(); err != nil {
			return fmt.Errorf("%s: %w", here, InFile(err))
		}
	}
	if b.SpanIDs != nil && w.tokens+int64(T) > math.MaxInt32 {
		return fmt.Errorf("%s: with this trajectory there are %d tokens, want at most %d in a file with span_ids: write several files", here, w.tokens+int64(T), math.MaxInt32)
	}
	b.SeqOffsets = []int64{w.tokens + int64(T)}
	if w.trajectories == 0 {
		b.SeqOffsets = []int64{0, int64(T)}
	}
	spans := w.spans
	w.ids = append(w.ids[:0], b.SpanIDs...)
	for i, id := range w.ids {
		if id >= 0 {
			w.ids[i] += int32(w.spans)
			spans = max(spans, w.spans+int64(id)+1)
		}
	}
	b.SpanIDs = w.ids
	for i, a := range b.Arrays() {
		if a.Per == reweight.PerToken && T == 0 || a.Per == reweight.PerSpan && spans == w.spans {
			continue
		}
		if err := w.append(&w.arrays[i], a, here); err != nil {
			return err
		}
	}
	w.before[reweight.PerTrajectory], w.before[reweight.PerPart], w.before[reweight.PerBoundary] = here, here, here
	if T > 0 {
		w.before[reweight.PerToken] = here
	}
	if spans > w.spans {
		w.before[reweight.PerSpan] = here
	}
	w.tokens += int64(T)
	w.trajectories++
	w.spans = spans
	return nil
}

// append appends the elements of an array to its spool. The trajectories before had
// elements of that unit if there are any.
func (w *Writer) append(to **spool, a reweight.Array, here string) error {
	seen := int64(w.trajectories)
	switch a.Per {
	case reweight.PerToken:
		seen = w.tokens
	case reweight.PerSpan:
		seen = w.spans
	}
	n, s := a.Len(), *to
	switch {
	case n == 0 && s == nil:
		return nil
	case n == 0:
		return fmt.Errorf("%s: %s is missing, but it is there at %s", here, a.Name, w.before[a.Per])
	case s == nil && seen > 0:
		return fmt.Errorf("%s: %s is there, but it is missing at %s", here, a.Name, w.before[a.Per])
	case a.Per == reweight.PerTrajectory && n != 1:
		return fmt.Errorf("%s: %s has %d elements, want 1", here, a.Name, n)
	}
	t := tensorOf(a, 1)
	if s == nil {
		var err error
		if s, err = newSpool(w.path, t); err != nil {
			return err
		}
		*to = s
	}
	if dtype := dtypeOf(t.Data); dtype != s.dtype || !slices.Equal(t.Shape[1:], s.shape[1:]) {
		return fmt.Errorf("%s: %s has %s in rows of %d, but at %s it has %s in rows of %d", here, a.Name, dtype, t.Shape[1], w.before[a.Per], s.dtype, s.shape[1])
	}
	if err := s.write(dataOf(t.Data)); err != nil {
		return inSpool(w.path, a.Name, err)
	}
	s.shape[0] += t.Shape[0]
	return nil
}

func inSpool(path, array string, err error) error {
	return fmt.Errorf("%s: a temporary file for %s beside it: %w", printable.Text(path), array, atomicfile.Cause(err))
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
	for i, a := range new(reweight.Batch).Arrays() {
		if s := w.arrays[i]; s != nil {
			if err := s.rewind(); err != nil {
				return inSpool(w.path, a.Name, err)
			}
			tensors = append(tensors, Tensor{Name: a.Name, Shape: s.shape, Data: s})
		}
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
	for _, s := range w.arrays {
		if s != nil {
			s.close()
		}
	}
}

// A spool is the data of a tensor that grows, in a file.
type spool struct {
	dtype string
	shape []int64 // of what was written
	size  int64   // in bytes
	file  *atomicfile.Temporary
	buf   *bufio.Writer
}

// newSpool returns an empty spool, beside path, for what is like the tensor.
func newSpool(path string, t Tensor) (*spool, error) {
	file, err := atomicfile.NewTemporary(filepath.Dir(path), 0o600)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", printable.Text(path), err)
	}
	file.Unname() // what has no name is gone when the program ends
	shape := slices.Clone(t.Shape)
	shape[0] = 0
	return &spool{dtype: dtypeOf(t.Data), shape: shape, file: file, buf: bufio.NewWriterSize(file, 1<<16)}, nil
}

func (s *spool) write(data []byte) error {
	_, err := s.buf.Write(data)
	s.size += int64(len(data))
	return err
}

// rewind makes the spool ready for copyTo.
func (s *spool) rewind() error {
	if err := s.buf.Flush(); err != nil {
		return err
	}
	_, err := s.file.Seek(0, io.SeekStart)
	return err
}

// copyTo writes the data and gives back the room that it takes on disk.
func (s *spool) copyTo(w io.Writer) error {
	n, err := io.Copy(w, s.file)
	s.close()
	if err == nil && n != s.size {
		err = fmt.Errorf("its temporary file has %d bytes, want %d", n, s.size)
	}
	return err
}

func (s *spool) close() { s.file.Discard() }
