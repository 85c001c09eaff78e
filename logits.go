package reweight

import (
	"math"
	"unsafe"

	"github.com/seed621a2839/reweight/internal/problem"
)

// BF16 holds the bits of a bfloat16: the upper half of a float32.
type BF16 uint16

// F16 holds the bits of an IEEE 754 half-precision number.
type F16 uint16

// A DType is the format of logits.
type DType uint8

const (
	DTypeF32  DType = iota // IEEE 754 single precision
	DTypeBF16              // bfloat16
	DTypeF16               // IEEE 754 half precision
)

var dtypeNames = [...]string{"f32", "bf16", "f16"}

// String and MarshalText return the name of the format, as flags and reports have it, and UnmarshalText takes it.
func (d DType) String() string                   { return nameOf(d, dtypeNames[:]) }
func (d DType) MarshalText() ([]byte, error)     { return []byte(d.String()), nil }
func (d *DType) UnmarshalText(name []byte) error { return parseName(d, "DType", name, dtypeNames[:]) }

// Size returns the bytes of an element.
func (d DType) Size() int {
	if d == DTypeF32 {
		return 4
	}
	return 2
}

// Logits are rows of Vocab logits each, row after row without padding, in one
// of three formats: exactly one of the slices is set. Rows are read where they
// are, in the format they have; nothing is widened into memory. The zero value
// means no logits.
type Logits struct {
	Vocab int
	F32   []float32 // [rows * Vocab]
	BF16  []BF16    // [rows * Vocab]
	F16   []F16     // [rows * Vocab]
}

// BF16s returns the bits of bfloat16 numbers as [BF16], in the same memory.
func BF16s(bits []uint16) []BF16 { return sameMemory[BF16](bits) }

// F16s returns the bits of half-precision numbers as [F16], in the same memory.
func F16s(bits []uint16) []F16 { return sameMemory[F16](bits) }

// LogitsOf returns rows of vocab logits each that lie in data, row after row in the byte order
// of the machine, as a file or a server gave them. They stay in this memory, so data must begin
// at an address that is a multiple of the size of a logit: memory that was allocated for the
// rows does, and a part of a longer message may not and has to be copied. Other than whole
// rows is an error too.
func LogitsOf(data []byte, dtype DType, vocab int) (Logits, error) {
	l, size := Logits{Vocab: vocab}, dtype.Size()
	switch {
	case dtype > DTypeF16:
		return Logits{}, badInput("dtype", problem.NoFormat, dtype)
	case vocab < 1:
		return Logits{}, badInput("vocab", problem.CountPositive, vocab)
	case len(data)%size != 0 || len(data)/size%vocab != 0:
		return Logits{}, badInput("data", problem.WholeBytes, len(data), size, vocab)
	case uintptr(unsafe.Pointer(unsafe.SliceData(data)))%uintptr(size) != 0:
		return Logits{}, badInput("data", problem.Unaligned, size)
	}
	switch dtype {
	case DTypeF32:
		l.F32 = sameMemory[float32](data)
	case DTypeBF16:
		l.BF16 = sameMemory[BF16](data)
	case DTypeF16:
		l.F16 = sameMemory[F16](data)
	}
	return l, nil
}

// sameMemory returns the memory of x as elements of another type, of which whole ones fit.
func sameMemory[To, From any](x []From) []To {
	to, from := unsafe.Sizeof(*new(To)), unsafe.Sizeof(*new(From))
	return unsafe.Slice((*To)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(from)/int(to))
}

// Rows returns the number of rows, 0 for the zero value.
func (l Logits) Rows() int {
	if l.Vocab <= 0 {
		return 0
	}
	return l.size() / l.Vocab
}

// DType returns the format of the rows, which is the slice that is set.
func (l Logits) DType() DType {
	switch {
	case l.BF16 != nil:
		return DTypeBF16
	case l.F16 != nil:
		return DTypeF16
	}
	return DTypeF32
}

func (l Logits) size() int { return len(l.F32) + len(l.BF16) + len(l.F16) }

// empty reports whether l holds nothing at all.
func (l Logits) empty() bool { return l.Vocab == 0 && l.size() == 0 }

// check says what is wrong with l when it must hold the given number of rows.
func (l Logits) check(arg string, rows int) error {
	set := 0
	for _, there := range [...]bool{l.F32 != nil, l.BF16 != nil, l.F16 != nil} {
		if there {
			set++
		}
	}
	switch {
	case l.Vocab < 1:
		return badInput(arg, problem.NoVocab, l.Vocab)
	case set > 1:
		return badInput(arg, problem.Formats, set)
	case l.size()%l.Vocab != 0:
		return badInput(arg, problem.WholeRows, l.size(), l.Vocab)
	case l.size()/l.Vocab != rows:
		return badInput(arg, problem.OtherRows, l.size()/l.Vocab, l.Vocab, rows)
	}
	return nil
}

// row returns row r of l.
func (l Logits) row(r int) Logits { return l.slice(r*l.Vocab, (r+1)*l.Vocab) }

// slice returns elements lo to hi.
func (l Logits) slice(lo, hi int) Logits {
	switch {
	case l.F32 != nil:
		return Logits{Vocab: l.Vocab, F32: l.F32[lo:hi:hi]}
	case l.BF16 != nil:
		return Logits{Vocab: l.Vocab, BF16: l.BF16[lo:hi:hi]}
	}
	return Logits{Vocab: l.Vocab, F16: l.F16[lo:hi:hi]}
}

// at returns element i.
func (l Logits) at(i int) float32 {
	switch {
	case l.F32 != nil:
		return l.F32[i]
	case l.BF16 != nil:
		return l.BF16[i].Float32()
	}
	return l.F16[i].Float32()
}

// set stores f as element i, rounded to the format.
func (l Logits) set(i int, f float32) {
	if l.F32 != nil {
		l.F32[i] = f
	} else {
		l.BF16[i] = ToBF16(f)
	}
}

// fill sets every element to f.
func (l Logits) fill(f float32) {
	for i := range l.Vocab {
		l.set(i, f)
	}
}

// Float32 returns the value of b, exactly.
func (b BF16) Float32() float32 { return math.Float32frombits(uint32(b) << 16) }

// ToBF16 rounds f to the nearest bfloat16, ties to even; NaN stays NaN.
func ToBF16(f float32) BF16 {
	u := math.Float32bits(f)
	if f != f {
		return BF16(u>>16 | 0x40) // quiet: a payload in the lower half must not turn into infinity
	}
	return BF16((u + 0x7fff + u>>16&1) >> 16)
}

// Float32 returns the value of h, exactly.
func (h F16) Float32() float32 {
	sign := uint32(h&0x8000) << 16
	exp := uint32(h>>10) & 0x1f
	frac := uint32(h & 0x3ff)
	switch exp {
	case 0: // zero or subnormal: frac * 2^-24
		f := float32(frac) * 0x1p-24
		return math.Float32frombits(sign | math.Float32bits(f))
	case 0x1f: // infinity or NaN (made quiet, as the hardware's conversion does)
		if frac != 0 {
			frac |= 0x200
		}
		return math.Float32frombits(sign | 0x7f800000 | frac<<13)
	}
	return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
}
