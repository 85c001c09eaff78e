package ptx

import (
	"encoding/binary"
	"slices"
	"testing"
	"unsafe"

	"github.com/seed621a2839/reweight/internal/must"
)

// TestVariables reads variables with values and parameters of all sizes.
func TestVariables(t *testing.T) {
	d := open(t, `.const .b8 one = 5; .const .b32 words[3] = {1, -2, 0x10}; .const .f64 half = 0d3FE0000000000000;
.visible .global .align 4 .b8 bytes[8] = {0, 0, 128, 63, 255}; .global .u16 zeros[2];
.visible .entry k(.param .u8 small, .param .u64 out, .param .u16 short, .param .align 8 .b8 last[12]) {
.reg .b32 %r<4>; .reg .b64 %rd<4>, %out; ld.param.u64 %out, [out];
ld.const.u8 %r0, [one]; st.global.u32 [%out], %r0;
mov.u32 %r1, words; ld.const.u32 %r0, [%r1+4]; st.global.u32 [%out+4], %r0; ld.const.u32 %r0, [words+8]; st.global.u32 [%out+8], %r0;
ld.const.f64 %rd0, [half]; st.global.u64 [%out+16], %rd0;
mov.u64 %rd1, bytes+4; ld.global.u32 %r0, [bytes]; st.global.u32 [%out+24], %r0; ld.global.u32 %r0, [%rd1]; st.global.u32 [%out+28], %r0;
ld.global.u32 %r0, [zeros]; st.global.u32 [%out+32], %r0;
ld.param.u8 %r0, [small]; st.global.u32 [%out+36], %r0; ld.param.u16 %r0, [short]; st.global.u32 [%out+40], %r0; ld.param.u32 %r0, [last+8]; st.global.u32 [%out+44], %r0; st.global.u32 [%out+12], 0; }
`, 1)
	out := upload(t, d, make([]byte, 48))
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
	var got []uint32
	for b := download(t, d, out, 48); len(b) > 0; b = b[4:] {
		got = append(got, binary.LittleEndian.Uint32(b))
	}
	want := []uint32{5, 0xfffffffe, 16, 0, 0, 0x3fe00000, 0x3f800000, 255, 0, 200, 50000, 0x04030201}
	if !slices.Equal(got, want) {
		t.Errorf("%#x, want %#x", got, want)
	}
}

// TestSpecialRegisters sees which thread a thread is told to be.
func TestSpecialRegisters(t *testing.T) {
	d := open(t, `.visible .entry k(.param .u64 out) { .reg .b32 %r<9>; .reg .b64 %rd<4>; .reg .pred %p;
ld.param.u64 %rd0, [out]; mov.u32 %r0, %tid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %nctaid.x; mov.u32 %r4, %laneid;
mad.lo.u32 %r5, %r2, %r1, %r0; mul.wide.u32 %rd1, %r5, 32; add.s64 %rd1, %rd0, %rd1;
mov.u32 %r6, %tid.y; mov.u32 %r7, %nctaid.z; add.u32 %r7, %r7, WARP_SZ;
st.global.v4.u32 [%rd1], {%r0, %r1, %r2, %r3}; st.global.v4.u32 [%rd1+16], {%r4, %r5, %r6, %r7}; }
`, 1)
	const grid, threads = 3, 64
	out := upload(t, d, make([]byte, 32*grid*threads))
	must.Do(launch(t, d, "k", grid, threads, 0, uint64(out)))
	b := download(t, d, out, 32*grid*threads)
	for i := range uint32(grid * threads) {
		for j, want := range []uint32{i % threads, threads, i / threads, grid, i % 32, i, 0, 33} {
			if got := binary.LittleEndian.Uint32(b[32*int(i)+4*j:]); got != want {
				t.Fatalf("thread %d: value %d is %d, want %d", i, j, got, want)
			}
		}
	}
}
