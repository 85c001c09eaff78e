package rollout

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"strconv"
	"strings"

	"github.com/seed621a2839/reweight"
)

// An npyArray is an array of a .npy file, whose elements are read one after another.
type npyArray struct {
	name  string // as errors spell it
	dtype npyDType
	shape []int64

	data    io.ReadCloser // after the header
	at      int64         // elements that were read
	chunk   []byte        // the last ones, as they stand in the file
	rounded bool          // an element was not a float32
	noted   bool          // and the source's report says so
}

// An npyDType is the type of the elements of an array.
type npyDType struct {
	kind byte // b boolean, i integer, u integer without a sign, f floating point
	size int  // bytes
	big  bool // big-endian
}

const (
	npyMagic     = "\x93NUMPY"
	maxNPYHeader = 1 << 16 // bytes; NumPy reads at most 10,000
	npyChunk     = 1 << 16 // bytes
)

// readNPY reads the header of an array. size is the number of bytes of the file, which
// the header must agree with.
func readNPY(name string, r io.ReadCloser, size int64) (*npyArray, error) {
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
	h, err := parseNPYHeader(string(text))
	if err != nil {
		return err
	}
	if a.dtype, err = parseNPYDType(h.descr); err != nil {
		return err
	}
	a.shape = h.shape
	if h.fortran && len(a.shape) > 1 {
		return errors.New("is stored column by column (fortran_order), want numpy.ascontiguousarray of it")
	}
	want := uint64(a.dtype.size)
	for _, d := range a.shape {
		hi, lo := bits.Mul64(want, uint64(d))
		if hi != 0 {
			return fmt.Errorf("has the shape %s, which is more than 2^64 bytes", shapeString(a.shape))
		}
		want = lo
	}
	if got := size - 8 - int64(lengthBytes) - length; uint64(got) != want {
		return fmt.Errorf("has the shape %s of %s, which takes %d bytes, but %d bytes of data", shapeString(a.shape), a.dtype, want, got)
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

// An npyHeader is what the header of an array says.
type npyHeader struct {
	descr   string
	fortran bool
	shape   []int64
}

// parseNPYHeader reads the header's text, a dictionary in Python's syntax.
func parseNPYHeader(text string) (npyHeader, error) {
	h := npyHeader{}
	p := &literal{text: text}
	bad := func(want string) (npyHeader, error) {
		return h, fmt.Errorf("has a header with %s at byte %d, want %s", quote(p.text[p.at:min(len(p.text), p.at+16)]), p.at, want)
	}
	if !p.take('{') {
		return bad("{")
	}
	seen := make(map[string]bool)
	for !p.take('}') {
		key, ok := p.quoted()
		if !ok || seen[key] || !p.take(':') {
			return bad("descr, fortran_order and shape, each once")
		}
		seen[key] = true
		switch key {
		case "descr":
			if h.descr, ok = p.quoted(); !ok {
				if p.take('[') {
					return h, errors.New("is a structured array, want numbers")
				}
				return bad("the dtype")
			}
		case "fortran_order":
			if h.fortran = p.word("True"); !h.fortran && !p.word("False") {
				return bad("True or False")
			}
		case "shape":
			if h.shape, ok = p.shape(); !ok {
				return bad("a shape")
			}
		default:
			return bad("descr, fortran_order and shape, each once")
		}
		if !p.take(',') {
			if p.take('}') {
				break
			}
			return bad("a comma or }")
		}
	}
	if p.space(); p.at < len(p.text) || len(seen) != 3 {
		return bad("descr, fortran_order and shape, each once")
	}
	return h, nil
}

// A literal is text in Python's syntax, read up to a byte.
type literal struct {
	text string
	at   int
}

func (p *literal) space() {
	p.at = len(p.text) - len(strings.TrimLeft(p.text[p.at:], " \n"))
}

// take reports whether c comes next, and reads it then.
func (p *literal) take(c byte) bool { return p.word(string(c)) }

func (p *literal) word(w string) bool {
	p.space()
	if !strings.HasPrefix(p.text[p.at:], w) {
		return false
	}
	p.at += len(w)
	return true
}

// quoted reads a string in quotation marks, without escape sequences.
func (p *literal) quoted() (string, bool) {
	p.space()
	for _, mark := range []string{"'", `"`} {
		if rest, ok := strings.CutPrefix(p.text[p.at:], mark); ok {
			s, _, ok := strings.Cut(rest, mark)
			if !ok || strings.Contains(s, `\`) {
				return "", false
			}
			p.at += len(s) + 2
			return s, true
		}
	}
	return "", false
}

// shape reads a tuple of numbers.
func (p *literal) shape() ([]int64, bool) {
	shape := []int64{}
	if !p.take('(') {
		return nil, false
	}
	for !p.take(')') {
		p.space()
		rest := p.text[p.at:]
		digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
		d, err := strconv.ParseInt(rest[:digits], 10, 64)
		if err != nil || len(shape) == maxDims {
			return nil, false
		}
		p.at += digits
		shape = append(shape, d)
		if !p.take(',') {
			return shape, p.take(')') && len(shape) > 1 // (3) is no tuple
		}
	}
	return shape, true
}

// npyDTypes are the types of elements that arrays of a batch may have, by NumPy's
// letters without the byte order.
var npyDTypes = map[string]npyDType{
	"b1": {kind: 'b', size: 1},
	"i1": {kind: 'i', size: 1}, "i2": {kind: 'i', size: 2}, "i4": {kind: 'i', size: 4}, "i8": {kind: 'i', size: 8},
	"u1": {kind: 'u', size: 1}, "u2": {kind: 'u', size: 2}, "u4": {kind: 'u', size: 4}, "u8": {kind: 'u', size: 8},
	"f2": {kind: 'f', size: 2}, "f4": {kind: 'f', size: 4}, "f8": {kind: 'f', size: 8},
}

func parseNPYDType(descr string) (npyDType, error) {
	if len(descr) > 1 {
		d, ok := npyDTypes[descr[1:]]
		d.big = descr[0] == '>'
		if ok && (strings.IndexByte("<>", descr[0]) >= 0 || descr[0] == '|' && d.size == 1) {
			return d, nil
		}
		if descr[1] == 'O' {
			return d, errors.New("has the dtype object, which is a pickle and is not read: save an array of numbers")
		}
	}
	return npyDType{}, fmt.Errorf("has the dtype %s, want bool, an integer of 8 to 64 bits, float16, float32 or float64", quote(descr))
}

// String returns NumPy's name of the type.
func (d npyDType) String() string {
	name := map[byte]string{'b': "bool", 'i': "int", 'u': "uint", 'f': "float"}[d.kind]
	if d.kind != 'b' {
		name += strconv.Itoa(8 * d.size)
	}
	return name
}

// next reads up to n elements, at least one, as they stand in the file, but
// little-endian.
func (a *npyArray) next(n int64) ([]byte, error) {
	if a.chunk == nil {
		a.chunk = make([]byte, npyChunk)
	}
	raw := a.chunk[:min(n, int64(npyChunk/a.dtype.size))*int64(a.dtype.size)]
	if _, err := io.ReadFull(a.data, raw); err != nil {
		return nil, fmt.Errorf("%s: %w", a.name, cutOff(err))
	}
	if a.dtype.big {
		reverseEach(raw, a.dtype.size)
	}
	a.at += int64(len(raw) / a.dtype.size)
	return raw, nil
}

// first returns the place of the first element of a chunk that next returned.
func (a *npyArray) first(raw []byte) int64 { return a.at - int64(len(raw)/a.dtype.size) }

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

// readElements reads n elements, of which decode appends those of a chunk.
func readElements[E any](a *npyArray, n int64, decode func(to []E, raw []byte) ([]E, error)) ([]E, error) {
	elements := make([]E, 0, min(n, npyChunk)) // grows with what is there, not with what the header says
	for n > 0 {
		raw, err := a.next(n)
		if err == nil {
			elements, err = decode(elements, raw)
		}
		if err != nil {
			return nil, err
		}
		n -= int64(len(raw) / a.dtype.size)
	}
	return elements, nil
}

// readIntegers reads n elements, which must be integers from lo to hi.
func readIntegers[E reweight.Role | int32 | int64](a *npyArray, n, lo, hi int64) ([]E, error) {
	if a.dtype.kind != 'i' && a.dtype.kind != 'u' {
		return nil, fmt.Errorf("%s has the dtype %s, want integers", a.name, a.dtype)
	}
	return readElements(a, n, func(to []E, raw []byte) ([]E, error) {
		for i := 0; i < len(raw); i += a.dtype.size {
			v, ok := a.dtype.integer(raw[i:])
			if !ok || v < lo || v > hi {
				return nil, fmt.Errorf("%s[%d] is %s, want %d to %d", a.name, a.first(raw)+int64(i/a.dtype.size), a.dtype.text(raw[i:]), lo, hi)
			}
			to = append(to, E(v))
		}
		return to, nil
	})
}

// integer returns an element, and whether it fits 64 bits with a sign.
func (d npyDType) integer(raw []byte) (v int64, ok bool) {
	switch d.kind {
	case 'b', 'u':
		switch d.size {
		case 1:
			return int64(raw[0]), true
		case 2:
			return int64(binary.LittleEndian.Uint16(raw)), true
		case 4:
			return int64(binary.LittleEndian.Uint32(raw)), true
		}
		v = int64(binary.LittleEndian.Uint64(raw))
		return v, v >= 0
	}
	switch d.size {
	case 1:
		return int64(int8(raw[0])), true
	case 2:
		return int64(int16(binary.LittleEndian.Uint16(raw))), true
	case 4:
		return int64(int32(binary.LittleEndian.Uint32(raw))), true
	}
	return int64(binary.LittleEndian.Uint64(raw)), true
}

// text returns an element as errors show it.
func (d npyDType) text(raw []byte) string {
	if d.kind == 'f' {
		return strconv.FormatFloat(math.Float64frombits(binary.LittleEndian.Uint64(raw)), 'g', -1, 64)
	}
	v, ok := d.integer(raw)
	if !ok {
		return strconv.FormatUint(uint64(v), 10)
	}
	return strconv.FormatInt(v, 10)
}

// readBooleans reads n elements.
func (a *npyArray) readBooleans(n int64) ([]bool, error) {
	return readElements(a, n, func(to []bool, raw []byte) ([]bool, error) {
		for _, b := range raw {
			to = append(to, b != 0)
		}
		return to, nil
	})
}

// readFloats reads n elements. Those that are no float32 are rounded.
func (a *npyArray) readFloats(n int64) ([]float32, error) {
	if a.dtype.kind == 'b' {
		return nil, fmt.Errorf("%s has the dtype bool, want numbers", a.name)
	}
	return readElements(a, n, func(to []float32, raw []byte) ([]float32, error) {
		switch a.dtype {
		case npyDType{'f', 4, a.dtype.big}:
			return append(to, view[float32](raw)...), nil
		case npyDType{'f', 2, a.dtype.big}:
			for _, h := range view[reweight.F16](raw) {
				to = append(to, h.Float32())
			}
			return to, nil
		}
		for i := 0; i < len(raw); i += a.dtype.size {
			f, exact := a.dtype.float32(raw[i:])
			if math.IsInf(float64(f), 0) && !exact {
				return nil, fmt.Errorf("%s[%d] is %s, want a number that float32 holds", a.name, a.first(raw)+int64(i/a.dtype.size), a.dtype.text(raw[i:]))
			}
			a.rounded = a.rounded || !exact
			to = append(to, f)
		}
		return to, nil
	})
}

// float32 returns an integer or a float64 as float32, and whether it is one.
func (d npyDType) float32(raw []byte) (f float32, exact bool) {
	if d.kind == 'f' {
		v := math.Float64frombits(binary.LittleEndian.Uint64(raw))
		return float32(v), float64(float32(v)) == v || v != v
	}
	v, ok := d.integer(raw)
	if !ok {
		return float32(uint64(v)), false
	}
	const most = 1 << 53 // up to which a float64 holds every integer
	return float32(v), -most <= v && v <= most && float64(float32(v)) == float64(v)
}

// readF16 reads n elements of float16.
func (a *npyArray) readF16(n int64) ([]reweight.F16, error) {
	return readElements(a, n, func(to []reweight.F16, raw []byte) ([]reweight.F16, error) {
		return append(to, view[reweight.F16](raw)...), nil
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
