package ptx

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"strings"
	"testing"
)

// A warpCheck says what an instruction must give that the lanes of a warp run together.
// The text sets %d of 32 bits and %p from %x0 and %x1 of 32 bits and %y of 64 bits.
type warpCheck struct {
	text   string
	source func(r *rand.Rand) [3]uint64
	want   func(x *[warpSize][3]uint64, lane int) (d, p uint64)
}

func anything(r *rand.Rand) [3]uint64 {
	return [3]uint64{r.Uint64() & fullMask, r.Uint64() & 63, r.Uint64()}
}

// few gives values of which many are the same.
func few(r *rand.Rand) [3]uint64 {
	v := r.Uint64() % 3
	return [3]uint64{v, 0, v << 40}
}

// same gives one value, mostly.
func same(r *rand.Rand) [3]uint64 {
	v := truth(r.IntN(100) == 0)
	return [3]uint64{v, 0, v << 40}
}

func warpChecks() map[string]warpCheck {
	checks := map[string]warpCheck{}
	shflChecks(checks)
	votes := func(x *[warpSize][3]uint64) (v uint32) {
		for i := range x {
			v |= uint32(x[i][0]&1) << i
		}
		return v
	}
	checks["vote.sync.ballot.b32"] = warpCheck{"setp.ne.u32 %p, %x0, 0; vote.sync.ballot.b32 %d, %p, -1; setp.ne.u32 %p, 0, 0;",
		same, func(x *[warpSize][3]uint64, lane int) (uint64, uint64) { return uint64(votes(x)), 0 }}
	for name, f := range map[string]func(ones int) bool{
		"all": func(ones int) bool { return ones == 32 },
		"any": func(ones int) bool { return ones > 0 },
	} {
		checks["vote.sync."+name+".pred"] = warpCheck{"setp.ne.u32 %p, %x0, 0; vote.sync." + name + ".pred %p, %p, 0xffffffff; mov.b32 %d, 7;",
			same, func(x *[warpSize][3]uint64, lane int) (uint64, uint64) {
				return 7, truth(f(bits.OnesCount32(votes(x))))
			}}
		checks["vote.sync."+name+".pred inverse"] = warpCheck{"setp.ne.u32 %p, %x0, 0; vote.sync." + name + ".pred %p, !%p, 0xffffffff; mov.b32 %d, 7;",
			same, func(x *[warpSize][3]uint64, lane int) (uint64, uint64) {
				return 7, truth(f(32 - bits.OnesCount32(votes(x))))
			}}
	}
	checks["match.any.sync.b32"] = warpCheck{"match.any.sync.b32 %d, %x0, -1; setp.ne.u32 %p, 0, 0;",
		few, func(x *[warpSize][3]uint64, lane int) (d, p uint64) {
			for i := range x {
				d |= truth(x[i][0] == x[lane][0]) << i
			}
			return d, 0
		}}
	// Each half of the warp by itself.
	checks["match.any.sync.b32 half"] = warpCheck{"and.b32 %x1, %lane, 16; shl.b32 %x1, 0xffff, %x1; match.any.sync.b32 %d, %x0, %x1; setp.ne.u32 %p, 0, 0;",
		few, func(x *[warpSize][3]uint64, lane int) (d, p uint64) {
			for i := range x {
				d |= truth(x[i][0] == x[lane][0] && i/16 == lane/16) << i
			}
			return d, 0
		}}
	return checks
}

func shflChecks(checks map[string]warpCheck) {
	modes := map[string]func(lane, b int) int{
		"bfly": func(lane, b int) int { return lane ^ b },
		"idx":  nil, // depends on the segment
	}
	for mode, f := range modes {
		for _, width := range []int{32, 16, 8, 4, 2, 1} {
			c := (32-width)<<8 | 31
			name := fmt.Sprintf("shfl.sync.%s.b32 of %d", mode, width)
			checks[name] = warpCheck{fmt.Sprintf("shfl.sync.%s.b32 %%d|%%p, %%x0, %%x1, %d, -1;", mode, c),
				anything, func(x *[warpSize][3]uint64, lane int) (d, p uint64) {
					b := int(x[lane][1] & 31)
					first := lane / width * width // of the lane's segment
					from := first + b%width
					if mode != "idx" {
						from = f(lane, b)
					}
					if from >= first+width { // it may come from a lane before the segment
						return x[lane][0], 0
					}
					return x[from][0], 1
				}}
		}
		// Without the predicate.
		checks["shfl.sync."+mode+".b32 plain"] = warpCheck{fmt.Sprintf("shfl.sync.%s.b32 %%d, %%x0, 0, 31, 0xffffffff; setp.ne.u32 %%p, 0, 0;", mode),
			anything, func(x *[warpSize][3]uint64, lane int) (d, p uint64) {
				if mode == "idx" {
					return x[0][0], 0
				}
				return x[lane][0], 0
			}}
	}
}

func testWarp(t *testing.T, met map[string]bool) {
	const warps = 400
	checks := warpChecks()
	var text strings.Builder
	var names []string
	for name, c := range checks {
		fmt.Fprintf(&text, ".visible .entry k%d(.param .u64 in, .param .u64 out) {\n", len(names))
		text.WriteString(".reg .b32 %t<4>, %x<2>, %d, %lane; .reg .b64 %a<4>, %y; .reg .pred %p;\n")
		text.WriteString("mov.u32 %lane, %laneid; mov.u32 %t0, %tid.x; mov.u32 %t1, %ntid.x; mov.u32 %t2, %ctaid.x; mad.lo.u32 %t0, %t1, %t2, %t0;\n")
		text.WriteString("ld.param.u64 %a0, [in]; ld.param.u64 %a1, [out]; mul.wide.u32 %a2, %t0, 24; mul.wide.u32 %a3, %t0, 16; add.s64 %a0, %a0, %a2; add.s64 %a1, %a1, %a3;\n")
		text.WriteString("ld.global.b32 %x0, [%a0]; ld.global.b32 %x1, [%a0+8]; ld.global.b64 %y, [%a0+16];\n")
		text.WriteString(c.text + "\nselp.u32 %t3, 1, 0, %p; cvt.u64.u32 %a2, %d; cvt.u64.u32 %a3, %t3; st.global.v2.u64 [%a1], {%a2, %a3}; ret;\n}\n")
		met[instructionOf(name)] = true
		names = append(names, name)
	}
	d := open(t, text.String(), 5)
	r := rand.New(rand.NewPCG(5, 6))
	for i, name := range names {
		x := make([][warpSize][3]uint64, warps)
		var in []byte
		for w := range x {
			for lane := range x[w] {
				x[w][lane] = checks[name].source(r)
				for _, v := range x[w][lane] {
					in = binary.LittleEndian.AppendUint64(in, v)
				}
			}
		}
		from, to := upload(t, d, in), upload(t, d, make([]byte, 16*32*warps))
		if err := launch(t, d, fmt.Sprintf("k%d", i), warps/4, 128, 0, uint64(from), uint64(to)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		out := download(t, d, to, 16*32*warps)
	compare:
		for w := range x {
			for lane := range warpSize {
				wd, wp := checks[name].want(&x[w], lane)
				gd, gp := binary.LittleEndian.Uint64(out), binary.LittleEndian.Uint64(out[8:])
				out = out[16:]
				if gd != wd || gp != wp {
					t.Errorf("%s: lane %d has %#x and %d, want %#x and %d, of %x", name, lane, gd, gp, wd, wp, x[w])
					break compare
				}
			}
		}
	}
}

// A program is a kernel whose thread 0 of each CTA counts in %n and stores it to out.
func testControl(t *testing.T, met map[string]bool) {
	for _, c := range []struct {
		opcodes, body string
		want          uint64
		problem       string
	}{
		{"bra ret", "mov.u32 %n, 0; AGAIN: add.u32 %n, %n, 1; setp.lt.u32 %p, %n, 10; @%p bra AGAIN; st.global.u32 [%out], %n; ret; st.global.u32 [%out], 0;", 10, ""},
		{"bra", "mov.u32 %n, 3; bra.uni OVER; mov.u32 %n, 4; OVER: st.global.u32 [%out], %n;", 3, ""},
		{"bra", "mov.u32 %n, 3; setp.eq.u32 %p, %t, 0; @!%p mov.u32 %n, 4; @%p add.u32 %n, %n, 8; setp.ne.u32 %p, %t, 0; @%p bra DONE; st.global.u32 [%out], %n; DONE: ret;", 11, ""},
		{"bar.sync", "setp.eq.u32 %p, %t, 40; mov.u32 %n, 9; @%p st.shared.u32 [%s], %n; bar.sync 0; ld.shared.u32 %n, [%s]; st.global.u32 [%out], %n;", 9, ""},
		{"bar.warp.sync", "setp.eq.u32 %p, %t, 5; mov.u32 %n, 9; @%p st.shared.u32 [%s], %n; bar.warp.sync -1; setp.lt.u32 %p, %t, 32; @%p ld.shared.u32 %n, [%s]; st.global.u32 [%out], %n;", 9, ""},
		// What orders or caches an access changes nothing here.
		{"", "st.volatile.global.u32 [%out], 1; st.release.gpu.global.u32 [%out], 2; ld.relaxed.sys.global.u32 %n, [%out]; setp.eq.u32 %p, %n, 2; @%p atom.acq_rel.gpu.global.cas.b32 %n, [%out], 2, 3; " +
			"st.global.cs.u32 [%out], 3; ld.global.nc.u32 %n, [%out]; ld.global.cg.u32 %s, [%out]; add.u32 %n, %n, %s; bar.sync 0; st.global.wb.u32 [%out], %n; ret.uni;", 6, ""},
	} {
		text := ".visible .entry k(.param .u64 out) {\n.shared .align 16 .b8 room[16];\n.reg .b32 %t, %n, %s; .reg .pred %p; .reg .b64 %out;\n" +
			"mov.u32 %t, %tid.x; mov.u32 %s, room; ld.param.u64 %out, [out];\n" + c.body + "\n}\n"
		for seed := range uint64(20) {
			d := open(t, text, seed)
			to := upload(t, d, make([]byte, 4))
			err := launch(t, d, "k", 3, 64, 0, uint64(to))
			if c.problem != "" {
				if err == nil || !strings.Contains(err.Error(), c.problem) {
					t.Errorf("%s: %v, want %s", c.body, err, c.problem)
				}
				continue
			}
			if err != nil {
				t.Fatalf("%s: %v", c.body, err)
			}
			if got := binary.LittleEndian.Uint32(download(t, d, to, 4)); uint64(got) != c.want {
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
			d := open(t, text, seed)
			in, out := upload(t, d, []byte("0123456789abcdef")), upload(t, d, make([]byte, 16))
			if err := launch(t, d, "k", 2, 32, 0, uint64(in), uint64(out)); err != nil {
				t.Fatalf("%s: %v", c.body, err)
			}
			if got := download(t, d, out, 16); string(got) != c.want {
				t.Fatalf("%s: %q, want %q", c.body, got, c.want)
			}
		}
		for _, opcode := range strings.Fields(c.opcodes) {
			met[opcode] = true
		}
	}
}
