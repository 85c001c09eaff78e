// Package rollout reads the rollouts that trainers and servers write, as one batch or
// trajectory by trajectory, and writes them. It also derives arrays from the logits that
// a file has in their place.
//
// Open reads files of all formats: safetensors, npz, JSON Lines, the dumps of trainers
// and the responses of servers. docs/formats.md lists them. What a source lacks and can
// be computed is computed, and Source.Report says so.
//
// OpenFile reads one safetensors file, and Write writes one. There each array of a batch
// is the tensor of its Name in reweight.Batch.Arrays, and File.Batch says which dtypes
// it may have. Other tensors have no effect.
//
// An error about a file begins with the file's path. If an array of a batch is
// wrong, the error names the array as the file does: "rewards[3] is NaN, want a
// finite reward".
package rollout

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/seed621a2839/reweight/rollout/internal/jsonscan"
)

const (
	lengthSize   = 8           // bytes of the header's length, ahead of the header
	maxHeader    = 100_000_000 // the format's own limit, in bytes
	maxDims      = 64          // of a tensor: as many as NumPy and PyTorch take
	metadataName = "__metadata__"
)

// elementBits are the bits of an element, for every dtype of the format.
var elementBits = map[string]uint64{
	"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
	"BOOL": 8, "U8": 8, "I8": 8,
	"F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
	"U16": 16, "I16": 16, "F16": 16, "BF16": 16,
	"U32": 32, "I32": 32, "F32": 32,
	"U64": 64, "I64": 64, "F64": 64, "C64": 64,
}

// Info describes one tensor of a file. Its text comes from the file and can be
// anything, control characters included: quote it before you print it.
type Info struct {
	Name  string
	DType string // as the file spells it: U8, I32, I64, F32, BF16, F16, ...
	Shape []int64
}

type tensor struct {
	Info
	begin, end int64  // data_offsets
	data       []byte // aliases the file
}

// Tensors lists the file's tensors in the order of their data.
func (f *File) Tensors() []Info {
	infos := make([]Info, len(f.tensors))
	for i, t := range f.tensors {
		infos[i] = t.Info
		infos[i].Shape = slices.Clone(t.Shape)
	}
	return infos
}

// Metadata returns a copy of the file's metadata. Like the text of Info, it can be
// anything.
func (f *File) Metadata() map[string]string { return maps.Clone(f.metadata) }

func errTooShort(size int64) error {
	return fmt.Errorf("%d bytes, want at least %d for the header's length", size, lengthSize)
}

// parseData reads the header and finds each tensor's data. It allocates in
// proportion to the length of the header. What the header says of the data is
// checked against the data before it is used.
func (f *File) parseData() error {
	data := f.data
	if len(data) < lengthSize {
		return errTooShort(int64(len(data)))
	}
	n := binary.LittleEndian.Uint64(data)
	data = data[lengthSize:]
	switch {
	case n == 0:
		return errors.New("header length 0, want at least 2")
	case n > maxHeader:
		return fmt.Errorf("header length %d is above the format's limit of %d", n, maxHeader)
	case n > uint64(len(data)):
		return fmt.Errorf("header length %d, but only %d bytes follow it", n, len(data))
	}
	f.byName = make(map[string]*tensor)
	if err := f.parseHeader(data[:n]); err != nil {
		return err
	}
	return f.layOut(data[n:])
}

// layOut gives each tensor its part of the data. Every byte of the data must
// belong to exactly one tensor.
func (f *File) layOut(data []byte) error {
	slices.SortStableFunc(f.tensors, func(a, b *tensor) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end))
	})
	size := int64(len(data))
	pos := int64(0)
	last := "" // the tensor that ends at pos
	for _, t := range f.tensors {
		var problem string
		switch {
		case t.begin > t.end:
			problem = "end before they begin"
		case t.end > size:
			problem = fmt.Sprintf("reach beyond the %d bytes of data", size)
		case t.begin < pos:
			problem = "overlap tensor " + quote(last)
		case t.begin > pos:
			problem = fmt.Sprintf("leave a hole from byte %d", pos)
		}
		if problem != "" {
			return fmt.Errorf("tensor %s: data_offsets [%d, %d] %s", quote(t.Name), t.begin, t.end, problem)
		}
		if err := t.checkSize(); err != nil {
			return fmt.Errorf("tensor %s: %w", quote(t.Name), err)
		}
		t.data = data[t.begin:t.end:t.end]
		pos, last = t.end, t.Name
	}
	switch {
	case pos == size:
		return nil
	case len(f.tensors) == 0:
		return fmt.Errorf("no tensors, but %d bytes of data", size)
	}
	return fmt.Errorf("tensor %s is the last and ends at byte %d of %d bytes of data", quote(last), pos, size)
}

// checkSize compares the length of the data with the shape, unless the dtype is not
// one of the format's: the size of its elements is then not known.
func (t *tensor) checkSize() error {
	n, known := elementBits[t.DType]
	if !known {
		return nil
	}
	n, fits := product(n, t.Shape)
	switch {
	case !fits:
		return fmt.Errorf("shape %s of %s is more than 2^64 bits", shapeString(t.Shape), t.DType)
	case n%8 != 0:
		return fmt.Errorf("shape %s of %s ends within a byte", shapeString(t.Shape), t.DType)
	case n/8 != uint64(t.end-t.begin):
		return fmt.Errorf("shape %s of %s takes %d bytes, but data_offsets [%d, %d] hold %d",
			shapeString(t.Shape), t.DType, n/8, t.begin, t.end, t.end-t.begin)
	}
	return nil
}

// product returns n times the dimensions of the shape, and whether that fits 64 bits. The
// product with a negative dimension does not.
func product(n uint64, shape []int64) (p uint64, fits bool) {
	for _, d := range shape {
		hi, lo := bits.Mul64(n, uint64(d))
		if d < 0 || hi != 0 {
			return 0, false
		}
		n = lo
	}
	return n, true
}

func (f *File) parseHeader(header []byte) error {
	if header[0] != '{' {
		return fmt.Errorf("header begins with byte %#02x, want '{'", header[0])
	}
	if !utf8.Valid(header) {
		return errors.New("header is not UTF-8")
	}
	var s jsonscan.Scanner
	s.Reset(header)
	err := s.Object(func(name []byte) error {
		if string(name) == metadataName {
			f.metadata = make(map[string]string)
			return s.Object(func(key []byte) (err error) {
				f.metadata[string(key)], err = s.String()
				return err
			})
		}
		t := &tensor{Info: Info{Name: string(name)}}
		f.tensors = append(f.tensors, t)
		f.byName[t.Name] = t
		return t.parse(&s)
	})
	if err != nil {
		return inContext("header", err)
	}
	if end := s.Offset(); len(bytes.TrimRight(header[end:], " ")) != 0 {
		return fmt.Errorf("header: bytes other than spaces after the object, which ends at byte %d", end)
	}
	return nil
}

func (t *tensor) parse(s *jsonscan.Scanner) error {
	var offsets []int64
	keys := 0
	err := s.Object(func(key []byte) (err error) {
		keys++
		switch string(key) {
		case "dtype":
			t.DType, err = s.String()
		case "shape":
			t.Shape, err = integers(s)
		case "data_offsets":
			if offsets, err = integers(s); err == nil && len(offsets) != 2 {
				err = s.Errorf("has %d integers, want 2", len(offsets))
			}
		default:
			err = s.Errorf("is no key of a tensor")
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case keys != 3: // no key is there twice
		return s.Errorf("has %d of the keys dtype, shape and data_offsets, want all", keys)
	}
	t.begin, t.end = offsets[0], offsets[1]
	return nil
}

// integers reads an array of up to maxDims integers from 0 to 2^63 - 1.
func integers(s *jsonscan.Scanner) (list []int64, err error) {
	err = s.Array(func(i int) error {
		n, err := s.Int64()
		switch {
		case err != nil:
			return err
		case n < 0:
			return s.Errorf("is %d, want at least 0", n)
		case i == maxDims:
			return s.Errorf("is one integer more than the %d that there may be", maxDims)
		}
		list = append(list, n)
		return nil
	})
	return list, err
}

// inContext puts what an error is about before it; nil stays nil.
func inContext(where string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", where, err)
}

// quote returns text from a file, which can be hostile, as one short line.
func quote(s string) string {
	if len(s) > 64 {
		s = s[:64] + "..."
	}
	return strconv.Quote(s)
}

// shapeString returns the shape as "[2, 3]", with ? for any size, and cut off after
// eight dimensions.
func shapeString(shape []int64) string {
	var sizes []string
	for _, d := range shape[:min(len(shape), 8)] {
		if d == anySize {
			sizes = append(sizes, "?")
		} else {
			sizes = append(sizes, strconv.FormatInt(d, 10))
		}
	}
	if len(shape) > 8 {
		sizes = append(sizes, "...")
	}
	return "[" + strings.Join(sizes, ", ") + "]"
}
