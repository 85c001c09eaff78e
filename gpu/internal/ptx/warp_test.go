package ptx

import (
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"
)

// A warpCheck says what an instruction must give that the lanes of a warp run together.
// The text sets %d from %x0 and %x1, all of 32 bits.
type warpCheck struct {
	text   string
	source func(r *rand.Rand) [2]uint64
	want   func(x *[warpSize][2]uint64, lane int) uint64
}

func anything(r *rand.Rand) [2]uint64 { return [2]uint64{r.Uint64() & fullMask, r.Uint64() & 63} }

// few gives values of which many are the same.
func few(r *rand.Rand) [2]uint64 { return [2]uint64{r.Uint64() % 3} }

// same gives one value, mostly.
func same(r *rand.Rand) [2]uint64 { return [2]uint64{truth(r.IntN(100) == 0)} }

func warpChecks() map[string]warpCheck {
	ones := func(x *[warpSize][2]uint64) (n int) {
		for i := range x {
			n += int(x[i][0])
		}
		return n
	}
	return map[string]warpCheck{
		"shfl.sync.bfly.b32": {"shfl.sync.bfly.b32 %d, %x0, %x1, 31, -1;", anything,
			func(x *[warpSize][2]uint64, lane int) uint64 { return x[lane^int(x[lane][1]&31)][0] }},
		"shfl.sync.idx.b32": {"shfl.sync.idx.b32 %d, %x0, %x1, 31, 0xffffffff;", anything,
			func(x *[warpSize][2]uint64, lane int) uint64 { return x[x[lane][1]&31][0] }},
		"vote.sync.ballot.b32": {"setp.ne.u32 %p, %x0, 0; vote.sync.ballot.b32 %d, %p, -1;", same,
			func(x *[warpSize][2]uint64, lane int) (v uint64) {
				for i := range x {
					v |= x[i][0] << i
				}
				return v
			}},
		"vote.sync.all.pred": {"setp.eq.u32 %p, %x0, 0; vote.sync.all.pred %p, %p, -1; selp.u32 %d, 1, 0, %p;", same,
			func(x *[warpSize][2]uint64, lane int) uint64 { return truth(ones(x) == 0) }},
		"vote.sync.any.pred": {"setp.ne.u32 %p, %x0, 0; vote.sync.any.pred %p, %p, -1; selp.u32 %d, 1, 0, %p;", same,
			func(x *[warpSize][2]uint64, lane int) uint64 { return truth(ones(x) > 0) }},
		"match.any.sync.b32": {"match.any.sync.b32 %d, %x0, -1;", few,
			func(x *[warpSize][2]uint64, lane int) (d uint64) {
				for i := range x {
					d |= truth(x[i][0] == x[lane][0]) << i
				}
				return d
			}},
	}
}

func testWarp(t *testing.T, met map[string]bool) {
	const warps = 400
	r := rand.New(rand.NewPCG(5, 6))
	for name, c := range warpChecks() {
		met[name] = true
		x := make([][warpSize][2]uint64, warps)
		var in []byte
		for w := range x {
			for lane := range x[w] {
				x[w][lane] = c.source(r)
				for _, v := range x[w][lane] {
					in = binary.LittleEndian.AppendUint32(in, uint32(v))
				}
			}
		}
		text := `.visible .entry k(.param .u64 in, .param .u64 out) { .reg .b32 %t<3>, %x<2>, %d; .reg .b64 %a<3>; .reg .pred %p;
mov.u32 %t0, %tid.x; mov.u32 %t1, %ntid.x; mov.u32 %t2, %ctaid.x; mad.lo.u32 %t0, %t1, %t2, %t0;
ld.param.u64 %a0, [in]; ld.param.u64 %a1, [out]; mul.wide.u32 %a2, %t0, 8; add.s64 %a0, %a0, %a2; mul.wide.u32 %a2, %t0, 4; add.s64 %a1, %a1, %a2;
ld.global.b32 %x0, [%a0]; ld.global.b32 %x1, [%a0+4]; ` + c.text + " st.global.u32 [%a1], %d; }\n"
		out := run(t, text, 5, warps/4, 128, in, 4*warpSize*warps)
	compare:
		for w := range x {
			for lane := range warpSize {
				got, want := binary.LittleEndian.Uint32(out), uint32(c.want(&x[w], lane))
				out = out[4:]
				if got != want {
					t.Errorf("%s: lane %d has %#x, want %#x, of %x", name, lane, got, want, x[w])
					break compare
				}
			}
		}
	}
}

// testControl runs kernels that count in %n and store it to out.
func testControl(t *testing.T, met map[string]bool) {
	for _, c := range []struct {
		opcodes, body string
		want          uint32
	}{
		{"bra ret", "mov.u32 %n, 0; AGAIN: add.u32 %n, %n, 1; setp.lt.u32 %p, %n, 10; @%p bra AGAIN; st.global.u32 [%out], %n; ret; st.global.u32 [%out], 0;", 10},
		{"bra.uni", "mov.u32 %n, 3; bra.uni OVER; mov.u32 %n, 4; OVER: st.global.u32 [%out], %n;", 3},
		{"bra", "mov.u32 %n, 3; setp.eq.u32 %p, %t, 0; @!%p mov.u32 %n, 4; @%p add.u32 %n, %n, 8; setp.ne.u32 %p, %t, 0; @%p bra DONE; st.global.u32 [%out], %n; DONE: ret;", 11},
		{"bar.sync", "setp.eq.u32 %p, %t, 40; mov.u32 %n, 9; @%p st.shared.u32 [%s], %n; bar.sync 0; ld.shared.u32 %n, [%s]; st.global.u32 [%out], %n;", 9},
		{"bar.warp.sync", "setp.eq.u32 %p, %t, 5; mov.u32 %n, 9; @%p st.shared.u32 [%s], %n; bar.warp.sync -1; setp.lt.u32 %p, %t, 32; @%p ld.shared.u32 %n, [%s]; st.global.u32 [%out], %n;", 9},
	} {
		text := ".visible .entry k(.param .u64 in, .param .u64 out) {\n.shared .align 16 .b8 room[16];\n.reg .b32 %t, %n, %s; .reg .pred %p; .reg .b64 %out;\n" +
			"mov.u32 %t, %tid.x; mov.u32 %s, room; ld.param.u64 %out, [out];\n" + c.body + "\n}\n"
		for seed := range uint64(20) {
			if got := binary.LittleEndian.Uint32(run(t, text, seed, 3, 64, make([]byte, 4), 4)); got != c.want {
				t.Fatalf("%s: %d, want %d", c.body, got, c.want)
			}
		}
		for _, opcode := range strings.Fields(c.opcodes) {
			met[opcode] = true
		}
	}
}

// testAsync copies pieces in groups.
func testAsync(t *testing.T, met map[string]bool) {
	for _, c := range []struct {
		opcodes, body string
		want          string // of the 16 bytes
	}{
		{"cp.async.cg.shared.global cp.async.commit_group cp.async.wait_group", "cp.async.cg.shared.global [%s], [%in], 16; cp.async.commit_group; cp.async.wait_group 0;", "0123456789abcdef"},
		{"", "cp.async.cg.shared.global [%s], [%in], 16, 5; cp.async.commit_group; cp.async.wait_group 0;", "01234\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"},
		{"", "cp.async.cg.shared.global [%s], [%in+64], 16, 0; cp.async.commit_group; cp.async.wait_group 0;", "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"},
		// The second group may still be on its way, and empty groups count.
		{"", "cp.async.cg.shared.global [%s], [%in], 16; cp.async.commit_group; cp.async.cg.shared.global [%s+16], [%in], 16; cp.async.commit_group; cp.async.wait_group 1;", "0123456789abcdef"},
		{"", "cp.async.cg.shared.global [%s], [%in], 16; cp.async.commit_group; cp.async.commit_group; cp.async.commit_group; cp.async.wait_group 2;", "0123456789abcdef"},
		{"", "cp.async.cg.shared.global [%s+16], [%in], 16; cp.async.commit_group; cp.async.wait_group 0; cp.async.cg.shared.global [%s], [%in], 16; cp.async.commit_group; cp.async.wait_group 0;", "0123456789abcdef"},
	} {
		text := ".visible .entry k(.param .u64 in, .param .u64 out) {\n.shared .align 16 .b8 room[32];\n" + onlyFirst +
			".reg .b32 %s; .reg .b64 %in, %out, %v<2>; mov.u32 %s, room; ld.param.u64 %in, [in]; ld.param.u64 %out, [out];\n" + c.body +
			"\nld.shared.v2.b64 {%v0, %v1}, [%s]; st.global.v2.b64 [%out], {%v0, %v1};\n}\n"
		for seed := range uint64(10) {
			if got := run(t, text, seed, 2, 32, []byte("0123456789abcdef"), 16); string(got) != c.want {
				t.Fatalf("%s: %q, want %q", c.body, got, c.want)
			}
		}
		for _, opcode := range strings.Fields(c.opcodes) {
			met[opcode] = true
		}
	}
}
