package rollout

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/atomicfile"
)

// An arraysReader reads the trajectories of arrays that NumPy has saved in a .npz file. It holds the arrays per trajectory, and of the
// others those of one trajectory.
type arraysReader struct {
	name    string // of the file, as errors spell it
	arrays  map[string]*npyArray
	dropped []string

	offsets  []int64
	groupIDs []int32
	rewards  []float32
	parts    []float32 // of the rewards

	trajectory int   // the next one
	spans      int32 // in those before
}

// An entry is a .npy file, of its own or in a .npz file.
type entry struct {
	name string // of the file: "role.npy"
	open func() (data io.ReadCloser, size int64, err error)
}

// maxDirectory bounds the list of files in a .npz file, in bytes: reading it takes some
// times as much memory.
const maxDirectory = 8 << 20

// openNPZ reads a .npz file where it is, and one that is compressed or a pipe in memory.
func openNPZ(s *stream, name string, _ *Options) (reader, error) {
	if s.file != nil {
		return newNPZ(name, s.file, s.size, s.size)
	}
	data, err := s.content()
	if err != nil {
		return nil, inContext(name, err)
	}
	return newNPZ(name, bytes.NewReader(data), int64(len(data)), s.raw.n)
}

// newNPZ reads a .npz file of size bytes, which take stored bytes where they are. name is the
// file's as errors spell it.
func newNPZ(name string, r io.ReaderAt, size, stored int64) (*arraysReader, error) {
	limited := &limitedAt{r: r, left: maxDirectory}
	z, err := zip.NewReader(limited, size)
	if err != nil {
		if limited.left < 0 {
			err = fmt.Errorf("the list of its files takes more than %d bytes, want at most that", maxDirectory)
		}
		return nil, inContext(name, err)
	}
	limited.left = math.MaxInt64
	var entries []entry
	var expanded int64 // of the arrays that were opened
	for _, f := range z.File {
		if path.Base(f.Name) == "data.pkl" {
			return nil, inContext(name, errTorch)
		}
		entries = append(entries, entry{f.Name, func() (io.ReadCloser, int64, error) {
			const encrypted = 1
			switch {
			case f.Flags&encrypted != 0:
				return nil, 0, errors.New("is encrypted")
			case f.Method != zip.Store && f.Method != zip.Deflate:
				return nil, 0, fmt.Errorf("is compressed by method %d of the zip format, want none or deflate", f.Method)
			case f.UncompressedSize64 > math.MaxInt64-uint64(expanded):
				return nil, 0, fmt.Errorf("has %d bytes, want at most 2^63 - 1 in all arrays", f.UncompressedSize64)
			}
			expanded += int64(f.UncompressedSize64)
			if err := checkRatio(expanded, stored, "npz"); err != nil {
				return nil, 0, err
			}
			data, err := f.Open()
			return data, int64(f.UncompressedSize64), err
		}})
	}
	return newArrays(name, entries)
}

// limitedAt reads until so many bytes were read. It is an error to read on.
type limitedAt struct {
	r    io.ReaderAt
	left int64
}

func (l *limitedAt) ReadAt(p []byte, off int64) (int, error) {
	if l.left -= int64(len(p)); l.left < 0 {
		return 0, io.ErrShortBuffer
	}
	n, err := l.r.ReadAt(p, off)
	return n, atomicfile.Cause(err)
}

// newArrays reads the headers of the arrays, and the arrays per trajectory.
func newArrays(name string, entries []entry) (*arraysReader, error) {
	a := &arraysReader{name: name, arrays: make(map[string]*npyArray)}
	if err := a.readAll(entries); err != nil {
		a.Close() // its error would hide err
		return nil, inContext(name, err)
	}
	return a, nil
}

func (a *arraysReader) readAll(entries []entry) error {
	arrays := new(reweight.Batch).Arrays()
	for _, e := range entries {
		name, npy := strings.CutSuffix(e.name, ".npy")
		if !npy || !slices.ContainsFunc(arrays[:], func(x reweight.Array) bool { return x.Name == name }) {
			a.dropped = append(a.dropped, name)
			continue
		}
		if a.arrays[name] != nil {
			return fmt.Errorf("%s is there twice", name)
		}
		data, size, err := e.open()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		array, err := readNPY(name, data, size)
		if err != nil {
			data.Close()
			return err
		}
		a.arrays[name] = array
	}
	for _, need := range [...]string{"role", "seq_offsets"} {
		if a.arrays[need] == nil {
			return fmt.Errorf("%s is missing: each array of a batch is saved under its name", need)
		}
	}
	if err := a.readOffsets(); err != nil {
		return err
	}
	return a.checkShapes(arrays[:])
}

// readOffsets reads where trajectories begin.
func (a *arraysReader) readOffsets() (err error) {
	tokens := a.arrays["role"].shape
	if len(tokens) != 1 || tokens[0] == 0 {
		return fmt.Errorf("role has the shape %s, want [T] with at least 1 token", shapeString(tokens))
	}
	offsets := a.arrays["seq_offsets"]
	if len(offsets.shape) != 1 || offsets.shape[0] < 2 {
		return fmt.Errorf("seq_offsets has the shape %s, want [S+1] of at least 1 trajectory", shapeString(offsets.shape))
	}
	if n := offsets.shape[0]; n > maxCopied/8 {
		return fmt.Errorf("seq_offsets has %d elements, want at most %d", n, maxCopied/8)
	}
	if a.offsets, err = readIntegers[int64](offsets, offsets.shape[0], 0, tokens[0]); err != nil {
		return err
	}
	if a.offsets[0] != 0 {
		return fmt.Errorf("seq_offsets[0] is %d, want 0", a.offsets[0])
	}
	for s := 1; s < len(a.offsets); s++ {
		if a.offsets[s] < a.offsets[s-1] {
			return fmt.Errorf("seq_offsets[%d] is %d, below the %d before it", s, a.offsets[s], a.offsets[s-1])
		}
	}
	if last := len(a.offsets) - 1; a.offsets[last] != tokens[0] {
		return fmt.Errorf("seq_offsets[%d] is %d, want %d, the number of tokens", last, a.offsets[last], tokens[0])
	}
	return nil
}

// checkShapes wants arrays of as many elements as there are tokens or trajectories, and
// trajectories that memory can hold. It reads the arrays per trajectory.
func (a *arraysReader) checkShapes(arrays []reweight.Array) error {
	T, S := a.offsets[len(a.offsets)-1], int64(len(a.offsets)-1)
	perToken := int64(0) // bytes
	for _, x := range arrays {
		array := a.arrays[x.Name]
		if array == nil || x.Per == reweight.PerBoundary {
			continue
		}
		_, logits := x.Data.(*reweight.Logits)
		want, width := []int64{T}, int64(4)
		switch {
		case x.Field == "Role":
			width = 1
		case x.Per == reweight.PerTrajectory:
			want = []int64{S}
		case x.Per == reweight.PerPart:
			want = []int64{S, anySize}
		case x.Per == reweight.PerSpan: // how many there are is known in the end
			want = []int64{anySize}
		case logits:
			want = []int64{T, anySize}
			width = min(int64(array.dtype.Size()), 4)
		}
		same := func(got, want int64) bool {
			return got == want || want == anySize && (got > 0 || x.Per == reweight.PerSpan)
		}
		if !slices.EqualFunc(array.shape, want, same) {
			return fmt.Errorf("%s has the shape %s, want %s", x.Name, shapeString(array.shape), shapeString(want))
		}
		if logits {
			if !strings.HasPrefix(array.dtype.name, "float") {
				return fmt.Errorf("%s has the dtype %s, want float16, float32 or float64", x.Name, array.dtype.name)
			}
			if array.shape[1] > maxCopied/4 {
				return fmt.Errorf("%s has %d logits in a row, want at most %d", x.Name, array.shape[1], maxCopied/4)
			}
			width *= array.shape[1]
		}
		if x.Per == reweight.PerSpan && array.shape[0] > 0 && a.arrays["span_ids"] == nil {
			return fmt.Errorf("%s has %d elements, want none for tokens without span ids", x.Name, array.shape[0])
		}
		if x.Per == reweight.PerPart {
			if array.shape[1] > maxCopied/4/S {
				return fmt.Errorf("%s has the shape %s, want at most %d elements", x.Name, shapeString(array.shape), maxCopied/4)
			}
		} else if x.Per != reweight.PerTrajectory { // a token has one span at most
			perToken += width
		}
	}
	for s := range S {
		if n := a.offsets[s+1] - a.offsets[s]; n > maxCopied/perToken {
			return fmt.Errorf("trajectory %d has %d tokens of %d bytes in all arrays, want at most %d bytes: write it as safetensors", s, n, perToken, maxCopied)
		}
	}
	var err error
	if x := a.arrays["group_ids"]; x != nil {
		if a.groupIDs, err = readIntegers[int32](x, S, math.MinInt32, math.MaxInt32); err != nil {
			return err
		}
	}
	if x := a.arrays["rewards"]; x != nil {
		if a.rewards, err = x.readFloats(S); err != nil {
			return err
		}
	}
	if x := a.arrays["reward_parts"]; x != nil {
		a.parts, err = x.readFloats(S * x.shape[1])
	}
	return err
}

func (a *arraysReader) next() (*record, error) {
	if a.trajectory == len(a.offsets)-1 {
		for _, x := range new(reweight.Batch).Arrays() {
			if from := a.arrays[x.Name]; x.Per == reweight.PerSpan && from != nil && from.shape[0] != int64(a.spans) {
				return nil, fmt.Errorf("%s: %s has %d elements, want %d, one per span", a.name, x.Name, from.shape[0], a.spans)
			}
		}
		for _, x := range a.arrays {
			if err := x.end(); err != nil {
				return nil, inContext(a.name, err)
			}
		}
		return nil, io.EOF
	}
	r := new(record)
	if err := a.read(r); err != nil {
		return nil, inContext(a.name, err)
	}
	s := a.trajectory
	if a.rewards != nil {
		r.Rewards = a.rewards[s : s+1 : s+1]
	}
	if n := len(a.parts) / (len(a.offsets) - 1); n > 0 {
		r.RewardParts = a.parts[n*s : n*(s+1) : n*(s+1)]
	}
	if a.groupIDs != nil {
		r.group = strconv.Itoa(int(a.groupIDs[s]))
	}
	if s == 0 {
		r.dropped = a.dropped
	}
	a.trajectory++
	return r, nil
}

// read reads the arrays per token and per span of the next trajectory.
func (a *arraysReader) read(r *record) error {
	n := a.offsets[a.trajectory+1] - a.offsets[a.trajectory]
	if err := a.readUnit(r, reweight.PerToken, n); err != nil {
		return err
	}
	first := a.spans
	if err := a.renumber(r); err != nil {
		return err
	}
	return a.readUnit(r, reweight.PerSpan, int64(a.spans-first))
}

// readUnit reads the next n elements of the arrays that have one for each of the unit.
func (a *arraysReader) readUnit(r *record, unit reweight.Unit, n int64) error {
	for _, x := range r.Arrays() {
		from := a.arrays[x.Name]
		if from == nil || x.Per != unit {
			continue
		}
		if unit == reweight.PerSpan && n > from.shape[0]-from.at {
			return fmt.Errorf("%s has %d elements, want at least %d, one per span", x.Name, from.shape[0], a.spans)
		}
		var err error
		switch data := x.Data.(type) {
		case *[]reweight.Role:
			if from.dtype.name == "bool" { // which tokens are of a response, and no more
				r.mask, err = from.readBooleans(n)
			} else {
				*data, err = readIntegers[reweight.Role](from, n, 0, int64(reweight.RoleAction))
			}
		case *[]int32:
			*data, err = readIntegers[int32](from, n, math.MinInt32, math.MaxInt32)
		case *[]float32:
			*data, err = from.readFloats(n)
		case *reweight.Logits:
			data.Vocab = int(from.shape[1])
			if from.dtype.name == "float16" {
				data.F16, err = copyElements[reweight.F16](from, n*from.shape[1])
			} else {
				data.F32, err = from.readFloats(n * from.shape[1])
			}
		}
		if err != nil {
			return err
		}
		if from.rounded && !from.noted {
			from.noted = true
			r.warnings = append(r.warnings, fmt.Sprintf("%s has the dtype %s, and some of its elements were rounded to float32.", x.Name, from.dtype.name))
		}
	}
	return nil
}

// renumber numbers the spans of a trajectory from 0.
func (a *arraysReader) renumber(r *record) error {
	first := a.spans
	for t, id := range r.SpanIDs {
		if id < -1 || id >= 0 && id < first || id > a.spans || id == math.MaxInt32 {
			return fmt.Errorf("span_ids[%d] is %d, want -1 or %d to %d: spans are numbered in the order in which they appear, each in one trajectory",
				a.offsets[a.trajectory]+int64(t), id, first, a.spans)
		}
		if id >= 0 {
			r.SpanIDs[t] = id - first
			a.spans = max(a.spans, id+1)
		}
	}
	return nil
}

// Close closes the arrays.
func (a *arraysReader) Close() error {
	var first error
	for _, x := range a.arrays {
		if err := x.data.Close(); first == nil {
			first = atomicfile.Cause(err)
		}
	}
	clear(a.arrays)
	return first
}
