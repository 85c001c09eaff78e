package rollout

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"unicode/utf8"
	"unsafe"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/atomicfile"
)

// A Tensor is one tensor to write.
type Tensor struct {
	Name  string
	Shape []int64 // outermost dimension first; none for a single element
	Data  any     // []uint8, []reweight.Role, []int32, []int64, []float32, []reweight.BF16 or []reweight.F16
}

// Write writes a safetensors file of the tensors, in the order given. Equal
// arguments give equal files. The data begins at a multiple of 8 bytes, so
// every tensor is aligned to its element size if tensors of larger elements come
// first.
//
// The file gets its path when all of it is on disk: until then an old file of that
// path stays as it was. The new file has the permission bits of the old one. If
// Write fails, it leaves no file behind; if the program is killed within Write, a
// file named .reweight-*.tmp can remain in the same directory.
func Write(path string, tensors []Tensor, metadata map[string]string) error {
	return atomicfile.Write(path, func(w io.Writer) error { return encode(w, tensors, metadata) })
}

// encode writes the file's contents.
func encode(w io.Writer, tensors []Tensor, metadata map[string]string) error {
	header, err := encodeHeader(tensors, metadata)
	if err != nil {
		return err
	}
	if _, err := w.Write(header); err != nil {
		return err
	}
	for _, t := range tensors {
		var err error
		if c, ok := t.Data.(*Column); ok {
			err = c.copyTo(w)
		} else {
			_, err = w.Write(dataOf(t.Data))
		}
		if err != nil {
			return fmt.Errorf("tensor %s: %w", quote(t.Name), err)
		}
	}
	return nil
}

// encodeHeader returns the header with its length before it, padded so that
// both end at a multiple of 8 bytes.
func encodeHeader(tensors []Tensor, metadata map[string]string) ([]byte, error) {
	var h bytes.Buffer
	h.Write(make([]byte, lengthSize))
	h.WriteByte('{')
	comma := ""
	if len(metadata) > 0 {
		for key, value := range metadata {
			if !utf8.ValidString(key) || !utf8.ValidString(value) {
				return nil, fmt.Errorf("metadata %s: not UTF-8", quote(key))
			}
		}
		fmt.Fprintf(&h, `%s:%s`, marshal(metadataName), marshal(metadata)) // the keys come out sorted
		comma = ","
	}
	seen := map[string]bool{metadataName: true}
	pos := int64(0)
	for _, t := range tensors {
		size, err := t.check(seen)
		if err != nil {
			return nil, fmt.Errorf("tensor %s: %w", quote(t.Name), err)
		}
		shape := append([]int64{}, t.Shape...) // nil would become null
		fmt.Fprintf(&h, `%s%s:{"dtype":"%s","shape":%s,"data_offsets":[%d,%d]}`,
			comma, marshal(t.Name), dtypeOf(t.Data), marshal(shape), pos, pos+size)
		comma = ","
		pos += size
	}
	h.WriteByte('}')
	for h.Len()%8 != 0 {
		h.WriteByte(' ')
	}
	n := h.Len() - lengthSize
	if n > maxHeader {
		return nil, fmt.Errorf("header of %d bytes is above the format's limit of %d", n, maxHeader)
	}
	binary.LittleEndian.PutUint64(h.Bytes(), uint64(n))
	return h.Bytes(), nil
}

// marshal returns the JSON of a value that can always be encoded.
func marshal(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

// check checks the tensor, whose name must be new to seen, and returns the bytes of its
// data.
func (t Tensor) check(seen map[string]bool) (size int64, err error) {
	dtype := dtypeOf(t.Data)
	if dtype == "" {
		return 0, fmt.Errorf("data is %T, want []uint8, []reweight.Role, []int32, []int64, []float32, []reweight.BF16 or []reweight.F16", t.Data)
	}
	if c, ok := t.Data.(*Column); ok {
		size = c.size
	} else {
		size = int64(len(dataOf(t.Data)))
	}
	want, fits := product(elementBits[dtype]/8, t.Shape)
	switch {
	case !fits:
		return 0, fmt.Errorf("shape %v is not a shape", t.Shape)
	case want != uint64(size):
		return 0, fmt.Errorf("shape %v of %s takes %d bytes, but data has %d", t.Shape, dtype, want, size)
	case !utf8.ValidString(t.Name):
		return 0, errors.New("name is not UTF-8")
	case len(t.Shape) > maxDims:
		return 0, fmt.Errorf("%d dimensions, want at most %d", len(t.Shape), maxDims)
	case seen[t.Name]:
		return 0, errors.New("name is taken")
	}
	seen[t.Name] = true
	return size, nil
}

// dtypes are the format's names for the types of a tensor's data.
var dtypes = map[reflect.Type]string{
	reflect.TypeFor[[]uint8]():         "U8",
	reflect.TypeFor[[]reweight.Role](): "U8",
	reflect.TypeFor[[]int32]():         "I32",
	reflect.TypeFor[[]int64]():         "I64",
	reflect.TypeFor[[]float32]():       "F32",
	reflect.TypeFor[[]reweight.BF16](): "BF16",
	reflect.TypeFor[[]reweight.F16]():  "F16",
}

// dtypeOf returns the format's name for the element type, "" if it has none.
func dtypeOf(data any) string {
	if c, ok := data.(*Column); ok {
		return c.dtype
	}
	return dtypes[reflect.TypeOf(data)]
}

// dataOf returns a slice of one of dtypes as the format stores it: the same memory on a
// little-endian machine, else a copy.
func dataOf(data any) []byte {
	v := reflect.ValueOf(data)
	size := int(v.Type().Elem().Size())
	raw := unsafe.Slice((*byte)(v.UnsafePointer()), v.Len()*size)
	if bigEndian {
		raw = slices.Clone(raw)
		reverseEach(raw, size)
	}
	return raw
}
