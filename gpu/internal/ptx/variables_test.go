package ptx

import (
	"bytes"
	"encoding/binary"
	"testing"
	"unsafe"

	"github.com/seed621a2839/reweight/internal/test/must"
)

// TestParameters reads parameters of all sizes.
func TestParameters(t *testing.T) {
	d := open(t, `.visible .entry k(.param .u8 small, .param .u64 out, .param .u16 short, .param .align 8 .b8 last[12]) {
.reg .b32 %r; .reg .b64 %out; ld.param.u64 %out, [out];
ld.param.u8 %r, [small]; st.global.u32 [%out], %r; ld.param.u16 %r, [short]; st.global.u32 [%out+4], %r; ld.param.u32 %r, [last+8]; st.global.u32 [%out+8], %r; }
`, 1)
	out := upload(t, d, make([]byte, 12))
	params := struct {
		small uint8
		_     [7]byte
		out   uint64
		short uint16
		_     [6]byte
		last  [12]byte
	}{small: 200, out: uint64(out), short: 50000, last: [12]byte{8: 1, 9: 2, 10: 3, 11: 4}}
	f, _, err := d.Function("k", 32, 0)
	if err != nil {
		t.Fatal(err)
	}
	must.Do(d.Launch(f, 1, 32, 0, unsafe.Pointer(&params), unsafe.Offsetof(params.last)+12, 0))
	want := []byte{200, 0, 0, 0, 50000 & 0xff, 50000 >> 8, 0, 0, 1, 2, 3, 4}
	if got := download(t, d, out, 12); !bytes.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestSpecialRegisters sees which thread a thread is told to be.
func TestSpecialRegisters(t *testing.T) {
	const grid, threads = 3, 64
	b := run(t, `.visible .entry k(.param .u64 in, .param .u64 out) { .reg .b32 %r<5>; .reg .b64 %rd<2>;
ld.param.u64 %rd0, [out]; mov.u32 %r0, %tid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %nctaid.x;
mad.lo.u32 %r4, %r2, %r1, %r0; mul.wide.u32 %rd1, %r4, 16; add.s64 %rd1, %rd0, %rd1;
st.global.v4.u32 [%rd1], {%r0, %r1, %r2, %r3}; }
`, 1, grid, threads, make([]byte, 4), 16*grid*threads)
	for i := range uint32(grid * threads) {
		for j, want := range []uint32{i % threads, threads, i / threads, grid} {
			if got := binary.LittleEndian.Uint32(b[16*int(i)+4*j:]); got != want {
				t.Fatalf("thread %d: value %d is %d, want %d", i, j, got, want)
			}
		}
	}
}
