package rollout

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"unsafe"

	"github.com/seed621a2839/reweight"
)

// An npyArray is an array of a .npy file, whose elements are read one after another.
type npyArray struct {
	name  string // as errors spell it
	dtype npyDType
	big   bool // the file is big-endian
	shape []int64

	data    io.Reader // after the header
	at      int64     // elements that were read
	chunk   []byte    // the last ones
	rounded bool      // an element was not a float32
}

// An npyDType is the type of the elements of an array.
type npyDType struct {
	name string // as NumPy has it
	reflect.Type
}

// npyDTypes are the types of elements that arrays of a batch may have, by NumPy's
// letters without the byte order.
var npyDTypes = map[string]npyDType{
	"b1": {"bool", reflect.TypeFor[uint8]()},
	"i1": {"int8", reflect.TypeFor[int8]()},
	"i2": {"int16", reflect.TypeFor[int16]()},
	"i4": {"int32", reflect.TypeFor[int32]()},
	"i8": {"int64", reflect.TypeFor[int64]()},
	"u1": {"uint8", reflect.TypeFor[uint8]()},
	"u2": {"uint16", reflect.TypeFor[uint16]()},
	"u4": {"uint32", reflect.TypeFor[uint32]()},
	"u8": {"uint64", reflect.TypeFor[uint64]()},
	"f2": {"float16", reflect.TypeFor[reweight.F16]()},
	"f4": {"float32", reflect.TypeFor[float32]()},
	"f8": {"float64", reflect.TypeFor[float64]()},
}

const (
	npyMagic     = "\x93NUMPY"
	maxNPYHeader = 1 << 16 // bytes; NumPy reads at most 10,000
	npyChunk     = 1 << 16 // bytes
)

// readNPY reads the header of an array. size is the number of bytes of the file, which
// the header must agree with.
func readNPY(name string, r io.Reader, size int64) (*npyArray, error) {
	a := &npyArray{name: name, data: r}
	if err := a.readHeader(size); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return a, nil
}

func (a *npyArray) readHeader(size int64) error {
	head := make([]byte, 12)
	if _, err := io.ReadFull(a.data, head[:8]); err != nil {
		return cutOff(err)
	}
	if string(head[:6]) != npyMagic {
		return fmt.Errorf("begins with %s, want \\x93NUMPY", quote(string(head[:6])))
	}
	lengthBytes := 4
	switch major := head[6]; {
	case major < 1 || major > 3 || head[7] != 0:
		return fmt.Errorf("has version %d.%d of the format, want 1.0, 2.0 or 3.0", major, head[7])
	case major == 1:
		lengthBytes = 2
	}
	if _, err := io.ReadFull(a.data, head[8:8+lengthBytes]); err != nil {
		return cutOff(err)
	}
	length := int64(binary.LittleEndian.Uint32(head[8:])) // the bytes beyond those that were read are 0
	if length > maxNPYHeader {
		return fmt.Errorf("has a header of %d bytes, want at most %d", length, maxNPYHeader)
	}
	text := make([]byte, length)
	if _, err := io.ReadFull(a.data, text); err != nil {
		return cutOff(err)
	}
	if err := a.parseHeader(string(text)); err != nil {
		return err
	}
	want, fits := product(uint64(a.dtype.Size()), a.shape)
	if !fits {
		return fmt.Errorf("has the shape %s, which is more than 2^64 bytes", shapeString(a.shape))
	}
	if got := size - 8 - int64(lengthBytes) - length; uint64(got) != want {
		return fmt.Errorf("has the shape %s of %s, which takes %d bytes, but %d bytes of data", shapeString(a.shape),
			a.dtype.name, want, got)
	}
	return nil
}

// cutOff says so if the error is that there is no more data.
func cutOff(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return errors.New("is cut off")
	}
	return err
}

// The header is a dictionary in Python's syntax, with these keys in any order.
var (
	npyDescr   = regexp.MustCompile(`['"]descr['"]\s*:\s*['"]([^'"]*)['"]`)
	npyFortran = regexp.MustCompile(`['"]fortran_order['"]\s*:\s*(True|False)`)
	npyShape   = regexp.MustCompile(`['"]shape['"]\s*:\s*\(([0-9, ]*)\)`)
)

// parseHeader reads the header's text.
func (a *npyArray) parseHeader(text string) error {
	descr := npyDescr.FindStringSubmatch(text)
	fortran := npyFortran.FindStringSubmatch(text)
	shape := npyShape.FindStringSubmatch(text)
	if descr == nil || fortran == nil || shape == nil {
		return fmt.Errorf("has the header %s, want descr, fortran_order and shape of an array of numbers", quote(text))
	}
	if err := a.setDType(descr[1]); err != nil {
		return err
	}
	for size := range strings.FieldsFuncSeq(shape[1], func(r rune) bool { return r == ',' || r == ' ' }) {
		d, err := strconv.ParseInt(size, 10, 64)
		if err != nil {
			return fmt.Errorf("has the shape (%s), want sizes below 2^63", shape[1])
		}
		a.shape = append(a.shape, d)
	}
	if fortran[1] == "True" && len(a.shape) > 1 {
		return errors.New("is stored column by column (fortran_order), want numpy.ascontiguousarray of it")
	}
	return nil
}

func (a *npyArray) setDType(descr string) error {
	if len(descr) > 1 {
		known := false
		a.dtype, known = npyDTypes[descr[1:]]
		a.big = descr[0] == '>'
		if known && (strings.IndexByte("<>", descr[0]) >= 0 || descr[0] == '|' && a.dtype.Size() == 1) {
			return nil
		}
		if descr[1] == 'O' {
			return errors.New("has the dtype object, which is a pickle and is not read: save an array of numbers")
		}
	}
	return fmt.Errorf("has the dtype %s, want bool, an integer of 8 to 64 bits, float16, float32 or float64", quote(descr))
}

// next reads up to n elements, at least one, in the byte order of the machine.
func (a *npyArray) next(n int64) ([]byte, error) {
	if a.chunk == nil {
		a.chunk = make([]byte, npyChunk)
	}
	size := int(a.dtype.Size())
	raw := a.chunk[:size*int(min(n, int64(npyChunk/size)))]
	if _, err := io.ReadFull(a.data, raw); err != nil {
		return nil, fmt.Errorf("%s: %w", a.name, cutOff(err))
	}
	if a.big != bigEndian {
		reverseEach(raw, size)
	}
	return raw, nil
}

// end wants no more data, and a checksum that is right where there is one.
func (a *npyArray) end() error {
	switch n, err := io.ReadFull(a.data, make([]byte, 1)); {
	case n != 0:
		return fmt.Errorf("%s: has more data than its shape %s says", a.name, shapeString(a.shape))
	case err != io.EOF:
		return fmt.Errorf("%s: %w", a.name, err)
	}
	return nil
}

// readElements reads n elements. convert reports whether it can convert one, and want says
// which it can.
func readElements[E any](a *npyArray, n int64, want string, convert func(v reflect.Value) (E, bool)) ([]E, error) {
	elements := make([]E, 0, min(n, npyChunk)) // grows with what is there, not with what the header says
	for end := a.at + n; a.at < end; {
		raw, err := a.next(end - a.at)
		if err != nil {
			return nil, err
		}
		for i := 0; i < len(raw); i += int(a.dtype.Size()) {
			v := reflect.NewAt(a.dtype.Type, unsafe.Pointer(&raw[i])).Elem()
			e, ok := convert(v)
			if !ok {
				return nil, fmt.Errorf("%s[%d] is %v, want %s", a.name, a.at, v, want)
			}
			elements = append(elements, e)
			a.at++
		}
	}
	return elements, nil
}

// copyElements reads n elements of the type that they have in the file.
func copyElements[E any](a *npyArray, n int64) ([]E, error) {
	elements := make([]E, 0, min(n, npyChunk)) // as in readElements
	for end := a.at + n; a.at < end; {
		raw, err := a.next(end - a.at)
		if err != nil {
			return nil, err
		}
		read := unsafe.Slice((*E)(unsafe.Pointer(&raw[0])), len(raw)/int(a.dtype.Size()))
		elements = append(elements, read...)
		a.at += int64(len(read))
	}
	return elements, nil
}

// readIntegers reads n elements, which must be integers from lo to hi, below 2^63 - 1.
func readIntegers[E reweight.Role | int32 | int64](a *npyArray, n, lo, hi int64) ([]E, error) {
	if !strings.Contains(a.dtype.name, "int") {
		return nil, fmt.Errorf("%s has the dtype %s, want integers", a.name, a.dtype.name)
	}
	return readElements(a, n, fmt.Sprintf("%d to %d", lo, hi), func(v reflect.Value) (E, bool) {
		var x int64
		if v.CanUint() {
			x = int64(min(v.Uint(), math.MaxInt64))
		} else {
			x = v.Int()
		}
		return E(x), lo <= x && x <= hi
	})
}

// readFloats reads n elements. Those that are no float32 are rounded.
func (a *npyArray) readFloats(n int64) ([]float32, error) {
	if a.dtype.name == "bool" {
		return nil, fmt.Errorf("%s has the dtype bool, want numbers", a.name)
	}
	if a.dtype.name == "float32" {
		return copyElements[float32](a, n)
	}
	return readElements(a, n, "a number that float32 holds", func(v reflect.Value) (f float32, ok bool) {
		exact := true
		switch {
		case a.dtype.name == "float16":
			return reweight.F16(v.Uint()).Float32(), true
		case v.CanFloat():
			f = float32(v.Float())
			exact = float64(f) == v.Float() || v.Float() != v.Float()
		case v.CanUint():
			f = float32(v.Uint())
			exact = f < 1<<64 && uint64(f) == v.Uint()
		default:
			f = float32(v.Int())
			exact = f < 1<<63 && int64(f) == v.Int()
		}
		a.rounded = a.rounded || !exact
		return f, exact || !math.IsInf(float64(f), 0)
	})
}

// npyHead returns what comes before the data of an array in a .npy file. Equal
// arguments give equal bytes, whose number is a multiple of 64.
func npyHead(descr string, shape []int64) []byte {
	var h bytes.Buffer
	h.WriteString(npyMagic + "\x01\x00\x00\x00")
	fmt.Fprintf(&h, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr)
	for _, d := range shape {
		fmt.Fprintf(&h, "%d,", d)
	}
	h.WriteString("), }")
	for h.Len()%64 != 63 {
		h.WriteByte(' ')
	}
	h.WriteByte('\n')
	binary.LittleEndian.PutUint16(h.Bytes()[8:], uint16(h.Len()-10)) // maxDims keeps it small
	return h.Bytes()
}
