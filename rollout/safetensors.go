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
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	lengthSize   = 8           // bytes of the header's length, ahead of the header
	maxHeader    = 100_000_000 // the format's own limit, in bytes
	maxEntries   = 1 << 16     // of a JSON object: tensors, or keys of the metadata
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
	for _, d := range t.Shape {
		hi, lo := bits.Mul64(n, uint64(d))
		if hi != 0 {
			return fmt.Errorf("shape %s of %s is more than 2^64 bits", shapeString(t.Shape), t.DType)
		}
		n = lo
	}
	switch {
	case n%8 != 0:
		return fmt.Errorf("shape %s of %s ends within a byte", shapeString(t.Shape), t.DType)
	case n/8 != uint64(t.end-t.begin):
		return fmt.Errorf("shape %s of %s takes %d bytes, but data_offsets [%d, %d] hold %d",
			shapeString(t.Shape), t.DType, n/8, t.begin, t.end, t.end-t.begin)
	}
	return nil
}

func (f *File) parseHeader(header []byte) error {
	if header[0] != '{' {
		return fmt.Errorf("header begins with byte %#02x, want '{'", header[0])
	}
	if !utf8.Valid(header) {
		return errors.New("header is not UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(header))
	dec.UseNumber() // a number that float64 cannot hold is then no error that repeats it
	err := object(dec, func(name string) error {
		if name == metadataName {
			f.metadata = make(map[string]string)
			err := object(dec, func(key string) (err error) {
				f.metadata[key], err = next[string](dec, "a string")
				return err
			})
			return inContext(metadataName, err)
		}
		t := &tensor{Info: Info{Name: name}}
		if err := t.parse(dec); err != nil {
			return inContext("tensor "+quote(name), err)
		}
		f.tensors = append(f.tensors, t)
		f.byName[name] = t
		return nil
	})
	if err != nil {
		return inContext("header", err)
	}
	if end := dec.InputOffset(); len(bytes.TrimRight(header[end:], " ")) != 0 {
		return fmt.Errorf("header: bytes other than spaces after the object, which ends at byte %d", end)
	}
	return nil
}

func (t *tensor) parse(dec *json.Decoder) error {
	var dtype, shape, offsets bool
	err := object(dec, func(key string) (err error) {
		switch key {
		case "dtype":
			dtype = true
			t.DType, err = next[string](dec, "a string")
		case "shape":
			shape = true
			t.Shape, err = integers(dec)
		case "data_offsets":
			offsets = true
			var pair []int64
			pair, err = integers(dec)
			if err == nil && len(pair) != 2 {
				return fmt.Errorf("%d data_offsets, want 2", len(pair))
			}
			if err == nil {
				t.begin, t.end = pair[0], pair[1]
			}
		default:
			return fmt.Errorf("unknown key %s", quote(key))
		}
		return inContext(key, err)
	})
	switch {
	case err != nil:
		return err
	case !dtype:
		return errors.New("no dtype")
	case !shape:
		return errors.New("no shape")
	case !offsets:
		return errors.New("no data_offsets")
	}
	return nil
}

// object reads a JSON object and calls value to read the value of each key. It
// reads token by token because json.Unmarshal accepts duplicate keys.
func object(dec *json.Decoder, value func(key string) error) error {
	if d, err := next[json.Delim](dec, "an object"); err != nil {
		return err
	} else if d != '{' {
		return errWant("an object", dec)
	}
	seen := make(map[string]bool)
	for dec.More() {
		key, err := next[string](dec, "a key")
		if err != nil {
			return err
		}
		if seen[key] {
			return fmt.Errorf("duplicate key %s", quote(key))
		}
		if len(seen) == maxEntries {
			return fmt.Errorf("more than %d entries", maxEntries)
		}
		seen[key] = true
		if err := value(key); err != nil {
			return err
		}
	}
	_, err := next[json.Delim](dec, "the object's end")
	return err
}

// integers reads a JSON array of up to maxDims integers from 0 to 2^63 - 1. It
// reads the array as text, because a token for each element takes 80 times the
// memory of the text.
func integers(dec *json.Decoder) ([]int64, error) {
	var text json.RawMessage
	if err := dec.Decode(&text); err != nil {
		return nil, err
	}
	if text[0] != '[' {
		return nil, errWant("an array of integers", dec)
	}
	elements := strings.TrimSpace(string(text[1 : len(text)-1]))
	if elements == "" {
		return nil, nil
	}
	n := 1 + strings.Count(elements, ",")
	if n > maxDims {
		return nil, fmt.Errorf("%d integers, want at most %d", n, maxDims)
	}
	list := make([]int64, 0, n)
	for number := range strings.SplitSeq(elements, ",") {
		number = strings.TrimSpace(number)
		v, err := strconv.ParseUint(number, 10, 63)
		if err != nil {
			return nil, fmt.Errorf("%s, want an integer from 0 to 2^63 - 1", quote(number))
		}
		list = append(list, int64(v))
	}
	return list, nil
}

// next reads a token, which must be of type T; what says so in the error.
func next[T string | json.Delim](dec *json.Decoder, what string) (T, error) {
	token, err := dec.Token()
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	v, ok := token.(T)
	if err == nil && !ok {
		err = errWant(what, dec)
	}
	return v, err
}

func errWant(what string, dec *json.Decoder) error {
	return fmt.Errorf("want %s before byte %d", what, dec.InputOffset())
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
	var s strings.Builder
	s.WriteByte('[')
	for i, d := range shape {
		if i > 0 {
			s.WriteString(", ")
		}
		if i == 8 {
			s.WriteString("...")
			break
		}
		if d < 0 {
			s.WriteByte('?')
		} else {
			s.WriteString(strconv.FormatInt(d, 10))
		}
	}
	s.WriteByte(']')
	return s.String()
}
