package reweight

import (
	"fmt"
	"math"
)

// BF16 holds the bits of a bfloat16: the upper half of a float32.
type BF16 uint16

// F16 holds the bits of an IEEE 754 half-precision number.
type F16 uint16

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

// Rows returns the number of rows, 0 for the zero value.
func (l Logits) Rows() int {
	if l.Vocab <= 0 {
		return 0
	}
	return l.size() / l.Vocab
}

func (l Logits) size() int { return len(l.F32) + len(l.BF16) + len(l.F16) }

// empty reports whether l holds nothing at all.
func (l Logits) empty() bool { return l.Vocab == 0 && l.size() == 0 }

// check says what is wrong with l when it must hold the given number of rows.
func (l Logits) check(name string, rows int) error {
	set := 0
	for _, there := range [...]bool{l.F32 != nil, l.BF16 != nil, l.F16 != nil} {
		if there {
			set++
		}
	}
	switch {
	case l.Vocab < 1:
		return fmt.Errorf("reweight: %s.Vocab = %d, want at least 1", name, l.Vocab)
	case set > 1:
		return fmt.Errorf("reweight: %s has %d formats set, want one", name, set)
	case l.size()%l.Vocab != 0:
		return fmt.Errorf("reweight: %s holds %d elements, want a multiple of Vocab = %d", name, l.size(), l.Vocab)
	case l.size()/l.Vocab != rows:
		return fmt.Errorf("reweight: %s holds %d rows of %d, want %d rows", name, l.size()/l.Vocab, l.Vocab, rows)
	}
	return nil
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
