package rollout

import (
	"encoding/binary"
	"slices"
	"unsafe"

	"github.com/seed621a2839/reweight"
)

// element lists the types of the elements of a batch's arrays.
type element interface {
	uint8 | reweight.Role | int32 | int64 | float32 | reweight.BF16 | reweight.F16
}

// bigEndian reports whether this machine is; the format is little-endian.
var bigEndian = binary.NativeEndian.Uint16([]byte{0, 1}) == 1

// viewable reports whether view returns the data's own memory.
func viewable[E element](data []byte) bool {
	p := unsafe.Pointer(unsafe.SliceData(data))
	return (!bigEndian || unsafe.Sizeof(*new(E)) == 1) && uintptr(p)%unsafe.Alignof(*new(E)) == 0
}

// view returns little-endian data as elements: the same memory if it is viewable,
// else a copy. The length of data is a multiple of the element size.
func view[E element](data []byte) []E {
	size := int(unsafe.Sizeof(*new(E)))
	n := len(data) / size
	if viewable[E](data) {
		return unsafe.Slice((*E)(unsafe.Pointer(unsafe.SliceData(data))), n)
	}
	copied := make([]E, n)
	raw := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(copied))), n*size)
	copy(raw, data)
	if bigEndian {
		reverseEach(raw, size)
	}
	return copied
}

// reverseEach changes the byte order of each element.
func reverseEach(raw []byte, size int) {
	for element := range slices.Chunk(raw, size) {
		slices.Reverse(element)
	}
}
