package rollout

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io"
	"math"
	"path"
	"reflect"
	"slices"
	"strings"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/atomicfile"
)

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

// newNPZ reads all arrays of a .npz file of size bytes, which take stored bytes where they
// are. name is the file's as errors spell it.
func newNPZ(name string, r io.ReaderAt, size, stored int64) (*batchReader, error) {
	file := &File{prefix: name, unmap: func() error { return nil }}
	s := &batchReader{file: file, batch: new(reweight.Batch)}
	if err := s.readNPZ(r, size, stored); err != nil {
		return nil, inContext(name, InFile(err))
	}
	return s, nil
}

func (s *batchReader) readNPZ(r io.ReaderAt, size, stored int64) error {
	limited := &limitedAt{r: r, left: maxDirectory}
	z, err := zip.NewReader(limited, size)
	if limited.left < 0 {
		return fmt.Errorf("the list of its files takes more than %d bytes, want at most that", maxDirectory)
	}
	if err != nil {
		return err
	}
	limited.left = math.MaxInt64
	arrays := s.batch.Arrays()
	files := make(map[string]*zip.File) // by the names of arrays
	expanded := uint64(0)
	for _, f := range z.File {
		name, npy := strings.CutSuffix(f.Name, ".npy")
		switch {
		case path.Base(f.Name) == "data.pkl":
			return errTorch
		case files[name] != nil:
			return fmt.Errorf("%s is there twice", name)
		case npy && slices.ContainsFunc(arrays, func(a reweight.Array) bool { return a.Name == name }):
			files[name] = f
			expanded += min(f.UncompressedSize64, math.MaxInt64-expanded)
		default:
			s.dropped = append(s.dropped, name)
		}
	}
	if err := checkRatio(int64(expanded), stored, "npz"); err != nil {
		return err
	}
	room := int64(maxBatch)
	for _, a := range arrays {
		f := files[a.Name]
		switch {
		case f == nil && (a.Field == "Role" || a.Field == "SeqOffsets"):
			return fmt.Errorf("%s is missing: each array of a batch is saved under its name", a.Name)
		case f == nil:
			continue
		}
		if err := s.readArray(a, f, &room); err != nil {
			return err
		}
	}
	return s.batch.Validate()
}

// readArray reads a file of a .npz file into an array of the batch, for which there is room.
func (s *batchReader) readArray(to reweight.Array, f *zip.File, room *int64) error {
	const encrypted = 1
	if f.Flags&encrypted != 0 {
		return fmt.Errorf("%s: is encrypted", to.Name)
	}
	data, err := f.Open()
	if err != nil {
		return inContext(to.Name, err)
	}
	defer data.Close()
	a, err := readNPY(to.Name, data, int64(f.UncompressedSize64))
	if err != nil {
		return err
	}
	if want := shapeOf(to, s.batch); !sameShape(a.shape, want) || len(want) == 2 && a.shape[1] == 0 {
		return fmt.Errorf("%s has the shape %s, want %s", to.Name, shapeString(a.shape), shapeString(want))
	}
	n, _ := product(1, a.shape) // no more than the bytes of the data
	if *room -= int64(min(n, maxBatch+1)) * memoryOf(to, a); *room < 0 {
		return fmt.Errorf("%s has the shape %s, and with it the arrays take more than %d bytes: write them as safetensors", to.Name, shapeString(a.shape), int64(maxBatch))
	}
	if err := s.fill(to, a, int64(n)); err != nil {
		return err
	}
	if a.rounded {
		s.warnings = append(s.warnings,
			fmt.Sprintf("%s has the dtype %s, and some of its elements were rounded to float32.", to.Name,
				a.dtype.name))
	}
	return a.end()
}

// memoryOf returns the bytes of an element of the array that a is read into.
func memoryOf(to reweight.Array, a *npyArray) int64 {
	if _, ok := to.Data.(*reweight.Logits); ok {
		return min(int64(a.dtype.Size()), 4)
	}
	return int64(valueOf(to).Type().Elem().Size())
}

// fill reads the n elements of a into an array of the batch.
func (s *batchReader) fill(to reweight.Array, a *npyArray, n int64) (err error) {
	switch data := to.Data.(type) {
	case *[]reweight.Role:
		if s.masked = a.dtype.name == "bool"; s.masked { // true is a response token, and no more
			*data, err = readElements(a, n, "", func(v reflect.Value) (reweight.Role, bool) {
				return reweight.Role(min(v.Uint(), 1)), true
			})
		} else {
			*data, err = readIntegers[reweight.Role](a, n, 0, int64(reweight.RoleAction))
		}
	case *[]int64:
		*data, err = readIntegers[int64](a, n, 0, math.MaxInt64-1)
	case *[]int32:
		*data, err = readIntegers[int32](a, n, math.MinInt32, math.MaxInt32)
	case *[]float32:
		*data, err = a.readFloats(n)
	case *reweight.Logits:
		data.Vocab = int(a.shape[1])
		switch {
		case !strings.HasPrefix(a.dtype.name, "float"):
			return fmt.Errorf("%s has the dtype %s, want float16, float32 or float64", to.Name, a.dtype.name)
		case a.dtype.name == "float16":
			data.F16, err = copyElements[reweight.F16](a, n)
		default:
			data.F32, err = a.readFloats(n)
		}
	}
	return err
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
