// Package raw returns the memory of arrays as bytes, in the byte order of the machine.
package raw

import (
	"unsafe"

	"github.com/seed621a2839/reweight"
)

// Bytes returns the memory of x.
func Bytes[E any](x []E) []byte {
	var e E
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(e)))
}

// Logits returns the memory of rows of logits.
func Logits(l reweight.Logits) []byte {
	switch l.DType() {
	case reweight.DTypeBF16:
		return Bytes(l.BF16)
	case reweight.DTypeF16:
		return Bytes(l.F16)
	}
	return Bytes(l.F32)
}
