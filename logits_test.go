package reweight_test

import (
	"errors"
	"math"
	"testing"
	"unsafe"

	"github.com/seed621a2839/reweight"
)

// TestLogitsOf: rows of every format stay in the memory that is given.
func TestLogitsOf(t *testing.T) {
	bits := []uint16{0x3f80, 0xc040, 0x7f80, 0x8000, 0x0001, 0x7fc1}
	wide := []float32{1, -3, float32(math.Inf(1)), float32(math.Copysign(0, -1)), 0x1p-149, 2}
	memory := func(first unsafe.Pointer, n int) []byte { return unsafe.Slice((*byte)(first), n) }
	halves := memory(unsafe.Pointer(&bits[0]), 12)
	for _, c := range []struct {
		dtype reweight.DType
		data  []byte
		want  func(l reweight.Logits, i int) bool // logit i is the one of the memory, at its place
	}{
		{reweight.DTypeF32, memory(unsafe.Pointer(&wide[0]), 24), func(l reweight.Logits, i int) bool { return &l.F32[i] == &wide[i] }},
		{reweight.DTypeBF16, halves, func(l reweight.Logits, i int) bool { return (*uint16)(&l.BF16[i]) == &bits[i] }},
		{reweight.DTypeF16, halves, func(l reweight.Logits, i int) bool { return (*uint16)(&l.F16[i]) == &bits[i] }},
	} {
		l, err := reweight.LogitsOf(c.data, c.dtype, 3)
		if err != nil || l.Vocab != 3 || l.Rows() != 2 || l.DType() != c.dtype ||
			len(l.F32)+len(l.BF16)+len(l.F16) != 6 {
			t.Errorf("%v: %+v, %v", c.dtype, l, err)
			continue
		}
		for i := range 6 {
			if !c.want(l, i) {
				t.Errorf("%v: logit %d is not at its place", c.dtype, i)
			}
		}
		if empty, err := reweight.LogitsOf(nil, c.dtype, 3); err != nil || empty.Rows() != 0 || empty.Vocab != 3 {
			t.Errorf("%v: no bytes are %+v, %v", c.dtype, empty, err)
		}
		if n := testing.AllocsPerRun(10, func() { reweight.LogitsOf(c.data, c.dtype, 3) }); n != 0 {
			t.Errorf("%v: %v allocations", c.dtype, n)
		}
	}
	for i, b := range reweight.BF16s(bits) {
		if b != reweight.BF16(bits[i]) {
			t.Errorf("BF16s: %#x, want %#x", b, bits[i])
		}
	}
	b, h := reweight.BF16s(bits), reweight.F16s(bits)
	if len(b) != 6 || (*uint16)(&b[0]) != &bits[0] || len(h) != 6 || (*uint16)(&h[5]) != &bits[5] {
		t.Error("BF16s or F16s is other memory")
	}
	if reweight.BF16s(nil) != nil || reweight.F16s(nil) != nil || len(reweight.F16s([]uint16{})) != 0 {
		t.Error("no bits are not nil")
	}
}

// TestLogitsOfErrors: bytes that are not rows of the format.
func TestLogitsOfErrors(t *testing.T) {
	data := make([]byte, 64)
	for dtype, size := range map[reweight.DType]string{reweight.DTypeF32: "4", reweight.DTypeBF16: "2",
		reweight.DTypeF16: "2"} {
		for _, c := range []struct {
			data   []byte
			vocab  int
			arg    string
			reason string
		}{
			{data[:24], 0, "vocab", "is 0, want at least 1"},
			{data[:24], -3, "vocab", "is -3, want at least 1"},
			{data[:23], 1, "data", "has 23 bytes, want whole rows of logits of " + size + " bytes, 1 in a row"},
			{data[:24], 5, "data", "has 24 bytes, want whole rows of logits of " + size + " bytes, 5 in a row"},
			{data[:24], math.MaxInt32, "data", "has 24 bytes, want whole rows of logits of " + size + " bytes, 2147483647 in a row"},
			{data[1:25], 3, "data", "begins at an address that is not a multiple of " + size + ", the bytes of a logit"},
		} {
			wantInputError(t, c.arg, c.reason, c.data, dtype, c.vocab)
		}
	}
	wantInputError(t, "dtype", "is 3, want f32, bf16 or f16", data, 3, 2)
}

func wantInputError(t *testing.T, arg, reason string, data []byte, dtype reweight.DType, vocab int) {
	t.Helper()
	l, err := reweight.LogitsOf(data, dtype, vocab)
	input, ok := errors.AsType[*reweight.InputError](err)
	if !ok || input.Arg != arg || input.Problem != reason || l.Rows() != 0 {
		t.Errorf("%v of %d: %+v, %v, want %s %s", dtype, vocab, l, err, arg, reason)
	}
}

func TestRoleNames(t *testing.T) {
	for role, want := range []string{"masked", "reasoning", "action", "3"} {
		if got := reweight.Role(role).String(); got != want {
			t.Errorf("role %d is %q, want %q", role, got, want)
		}
	}
}
