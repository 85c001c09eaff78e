package ptx

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/seed621a2839/reweight/gpu/internal/driver"
	"github.com/seed621a2839/reweight/internal/test/must"
)

// A faulty kernel, and all that its error must say, with alternatives after |. In its body %t is the thread, %lane its
// lane, %s a place of 256 bytes in shared memory and %in 256 bytes of global memory, of
// which the last 16 are undefined; %n, %m, %p and %x are free.
type faulty struct {
	name, body string
	want       []string // "": no error
}

var faults = []faulty{
	// Memory.
	{"below", "ld.global.u32 %n, [%in+-4];", []string{"kernel k, CTA 0, thread", "line 7 of test", "ld.global.u32 %n, [%in+-4];", "outside every allocation", "%in = 0x7f"}},
	{"above", "st.global.u32 [%in+256], %n;", []string{"outside every allocation", "256 bytes before"}},
	{"across the end", "ld.global.v4.u32 {%n, %n, %n, %n}, [%in+244];", []string{"not a multiple of 16"}},
	{"null", "mov.u64 %x, 0; ld.global.u32 %n, [%x];", []string{"outside every allocation", "%x = 0x0"}},
	{"generic null", "mov.u64 %x, 0; ld.u32 %n, [%x];", []string{"outside every allocation"}},
	{"misaligned load", "ld.global.u32 %n, [%in+2];", []string{"not a multiple of 4"}},
	{"misaligned store", "st.global.u64 [%in+4], %x;", []string{"not a multiple of 8"}},
	{"misaligned vector", "ld.global.v2.u32 {%n, %n}, [%in+4];", []string{"not a multiple of 8"}},
	{"misaligned shared", "st.shared.u32 [%s+1], %n;", []string{"the shared address 0x31 is not a multiple of 4"}},
	{"beyond shared", "st.shared.u32 [%s+272], %n;", []string{"4 bytes at 0x140 lie outside the 320 bytes of shared memory"}},
	{"below shared", "ld.shared.u32 %n, [first+-4];", []string{"outside the 320 bytes of shared memory"}},
	{"shared address that wraps", "add.u32 %m, %s, -64; @%first st.shared.u32 [%m+64], %n; @%first ld.shared.u32 %n, [%s];", nil},
	{"beyond parameters", "mov.u64 %x, in; ld.param.u64 %x, [%x+8];", []string{"outside the 8 bytes of param memory"}},
	{"store between shared variables", "st.shared.u32 [%s+-4], %n;", []string{"the byte at shared address 0x2c is stored, but lies between two variables"}},
	{"load between shared variables", "ld.shared.u32 %n, [first+20];", []string{"the byte at shared address 0x14 is loaded, but lies between two variables"}},
	{"copy between shared variables", "cp.async.cg.shared.global [first+16], [%in], 16;", []string{"lies between two variables"}},
	{"undefined global", "ld.global.u32 %n, [%in+240];", []string{"nothing has written it"}},
	{"half undefined global", "ld.global.v4.u32 {%n, %n, %n, %m}, [%in+224]; ld.global.u64 %x, [%in+232];", nil},
	{"undefined byte", "ld.global.u8 %n, [%in+240];", []string{"nothing has written it"}},
	{"undefined second byte of 2", "st.global.u8 [%in+240], 1; ld.global.u16 %n, [%in+240];", []string{"f1 is loaded, but nothing has written it"}},
	{"undefined second byte of 4", "st.global.u8 [%in+240], 1; ld.global.u32 %n, [%in+240];", []string{"f1 is loaded, but nothing has written it"}},
	{"undefined last byte of 8", "st.global.u32 [%in+240], 1; st.global.u16 [%in+244], 1; st.global.u8 [%in+246], 1; ld.global.u64 %x, [%in+240];", []string{"f7 is loaded, but nothing has written it"}},
	{"undefined second half of 16", "st.global.u64 [%in+240], 1; ld.global.v2.u64 {%x, %x}, [%in+240];", []string{"f8 is loaded, but nothing has written it"}},
	{"undefined shared", "ld.shared.u32 %n, [%s];", []string{"the byte at shared address 0x30 is loaded, but nothing has written it"}},
	{"half undefined shared", "@%first st.shared.u16 [%s], 7; @%first ld.shared.u32 %n, [%s];", []string{"the byte at shared address 0x32 is loaded, but nothing has written it"}},
	{"undefined atomic", "atom.global.add.u32 %n, [%in+240], 1;", []string{"nothing has written it"}},

	// Races in shared memory.
	{"store and store", "st.shared.u32 [%s], %t;", []string{"race", "is stored here, and was stored by thread"}},
	{"store and load", neighbour + "st.shared.u32 [%at], %t; ld.shared.u32 %n, [%next];", []string{"race|nothing has written it"}},
	{"warp barrier", neighbour + "st.shared.u32 [%at], %t; bar.warp.sync -1; ld.shared.u32 %n, [%next];", nil},
	{"barrier is missing after", neighbour + "st.shared.u32 [%at], %t; bar.warp.sync -1; ld.shared.u32 %n, [%next]; st.shared.u32 [%at], %n;", []string{"race", "by thread"}},
	{"barrier after", neighbour + "st.shared.u32 [%at], %t; bar.warp.sync -1; ld.shared.u32 %n, [%next]; bar.warp.sync -1; st.shared.u32 [%at], %n;", nil},
	{"shfl is no barrier", neighbour + "st.shared.u32 [%at], %t; shfl.sync.idx.b32 %n, %t, 0, 31, -1; ld.shared.u32 %n, [%next];", []string{"race", "is loaded here, and was stored by thread"}},
	{"vote is no barrier", neighbour + "st.shared.u32 [%at], %t; vote.sync.ballot.b32 %n, %p, -1; ld.shared.u32 %n, [%next];", []string{"race"}},
	{"warp barrier between warps", "@%first st.shared.u32 [%s], %t; bar.warp.sync -1; setp.eq.u32 %p, %t, 40; @%p ld.shared.u32 %n, [%s];", []string{"race|nothing has written it"}},
	{"barrier between warps", "@%first st.shared.u32 [%s], %t; bar.sync 0; setp.eq.u32 %p, %t, 40; @%p ld.shared.u32 %n, [%s];", nil},
	{"all load, one stores", "@%first st.shared.u32 [%s], %t; bar.sync 0; ld.shared.u32 %n, [%s]; bar.warp.sync -1; @%first st.shared.u32 [%s], %t;", []string{"race", "several|is loaded here, and was stored"}},
	{"one warp loads, one of it stores", "@%first st.shared.u32 [%s], %t; bar.warp.sync -1; setp.lt.u32 %p, %t, 32; @%p ld.shared.u32 %n, [%s]; bar.warp.sync -1; @%first st.shared.u32 [%s], %t;", nil},
	{"one warp loads, one of it stores too early", "@%first st.shared.u32 [%s], %t; bar.warp.sync -1; setp.lt.u32 %p, %t, 32; @%p ld.shared.u32 %n, [%s]; @%first st.shared.u32 [%s], %t;", []string{"race"}},
	{"one stores that was the last of many to load", ".reg .pred %q; @%first st.shared.u32 [%s], %t; bar.warp.sync -1; setp.lt.u32 %p, %t, 32; xor.pred %q, %p, %first; @%q ld.shared.u32 %n, [%s]; " +
		"vote.sync.ballot.b32 %n, %p, -1; @%first ld.shared.u32 %n, [%s]; @%first st.shared.u32 [%s], %t;", []string{"race", "several lanes of warp 0"}},
	{"all load, one stores after a barrier", "@%first st.shared.u32 [%s], %t; bar.sync 0; ld.shared.u32 %n, [%s]; bar.sync 0; @%first st.shared.u32 [%s], %t;", nil},

	// cp.async.
	{"no wait", "@%first cp.async.cg.shared.global [%s], [%in], 16; cp.async.commit_group; @%first ld.shared.u32 %n, [%s];", []string{"the cp.async of thread 0 that brings it has not been waited for"}},
	{"no commit", "@%first cp.async.cg.shared.global [%s], [%in], 16; cp.async.wait_group 0; @%first ld.shared.u32 %n, [%s];", []string{"has not been waited for"}},
	{"waits for too few", "@%first cp.async.cg.shared.global [%s], [%in], 16; cp.async.commit_group; cp.async.wait_group 1; @%first ld.shared.u32 %n, [%s];", []string{"has not been waited for"}},
	{"waits for the first of two", "@%first cp.async.cg.shared.global [%s], [%in], 16; cp.async.commit_group; @%first cp.async.cg.shared.global [%s+16], [%in], 16; cp.async.commit_group; cp.async.wait_group 1; @%first ld.shared.u32 %n, [%s+16];", []string{"has not been waited for"}},
	{"waits", "@%first cp.async.cg.shared.global [%s], [%in], 16; cp.async.commit_group; cp.async.wait_group 0; @%first ld.shared.u32 %n, [%s];", nil},
	{"another lane's copy", "@%first cp.async.cg.shared.global [%s], [%in], 16; cp.async.commit_group; cp.async.wait_group 0; setp.eq.u32 %p, %t, 1; @%p ld.shared.u32 %n, [%s];", []string{"race|nothing has written it"}},
	{"another lane's copy after a barrier", "@%first cp.async.cg.shared.global [%s], [%in], 16; cp.async.commit_group; cp.async.wait_group 0; bar.warp.sync -1; setp.eq.u32 %p, %t, 1; @%p ld.shared.u32 %n, [%s];", nil},
	{"a barrier is no wait", "@%first cp.async.cg.shared.global [%s], [%in], 16; cp.async.commit_group; bar.sync 0; setp.eq.u32 %p, %t, 1; @%p ld.shared.u32 %n, [%s];", []string{"has not been waited for"}},
	{"store before the wait", "@%first cp.async.cg.shared.global [%s], [%in], 16; @%first st.shared.u32 [%s], %n;", []string{"has not been waited for"}},
	{"copy over what is read", "@%first st.shared.u32 [%s], %n; bar.warp.sync -1; setp.eq.u32 %p, %t, 1; @%p ld.shared.u32 %n, [%s]; @%first cp.async.cg.shared.global [%s], [%in], 16;", []string{"race|has not been waited for"}},
	{"copy to a wrong place", "cp.async.cg.shared.global [%s+8], [%in], 16;", []string{"not a multiple of 16"}},
	{"copy from a wrong place", "@%first cp.async.cg.shared.global [%s], [%in+8], 16;", []string{"not a multiple of 16"}},
	{"copy from outside", "@%first cp.async.cg.shared.global [%s], [%in+256], 16;", []string{"outside every allocation"}},
	{"copy of part of what is outside", "@%first cp.async.cg.shared.global [%s], [%in+256], 16, 4;", []string{"outside every allocation"}},
	{"copy of too much", "@%first cp.async.cg.shared.global [%s], [%in], 16, 17;", []string{"copies 17 of 16 bytes"}},
	{"copy of what is undefined", "@%first cp.async.cg.shared.global [%s], [%in+240], 16; cp.async.commit_group; cp.async.wait_group 0;", nil},
	{"load of a copy of what is undefined", "@%first cp.async.cg.shared.global [%s], [%in+240], 16; cp.async.commit_group; cp.async.wait_group 0; @%first ld.shared.u32 %n, [%s];", []string{"nothing has written it"}},

	// Synchronisation.
	{"exited lane", "setp.eq.u32 %p, %lane, 9; @%p ret; shfl.sync.idx.b32 %n, %t, 0, 31, -1;", []string{"lane 9 of this warp has exited"}},
	{"exited lane at a warp barrier", "setp.eq.u32 %p, %lane, 9; @%p ret; bar.warp.sync -1;", []string{"lane 9 of this warp has exited"}},
	{"exited lane at a barrier", "setp.eq.u32 %p, %lane, 9; @%p ret; bar.sync 0;", []string{"lane 9 of this warp has exited"}},
	{"exited warp", "setp.lt.u32 %p, %t, 32; @%p ret; bar.sync 0;", nil},
	{"lanes apart", "setp.lt.u32 %p, %t, 16; @%p bra A; bar.warp.sync -1; bra B; A: bar.warp.sync -1; B: ret;", []string{"deadlock", "threads 0 to 15 wait at line 7", "threads 16 to 31 wait at line 7", "threads 32 to 63 have exited"}},
	{"warps apart", "setp.lt.u32 %p, %t, 40; @%p bar.sync 0;", []string{"lane 8 of this warp has exited"}},
	{"lane at another barrier", "setp.eq.u32 %p, %t, 3; @%p bar.warp.sync -1; @!%p bar.sync 0;", []string{"deadlock"}},
}

// neighbour makes %at and %next, the places of the thread and of its right neighbour in the
// warp.
const neighbour = ".reg .b32 %at, %next; shl.b32 %at, %t, 2; add.u32 %at, %at, %s; add.u32 %next, %lane, 1; and.b32 %next, %next, 31; and.b32 %m, %t, 32; add.u32 %next, %next, %m; shl.b32 %next, %next, 2; add.u32 %next, %next, %s; "

const faultHead = `
.visible .entry k(.param .u64 in) { .shared .align 16 .b8 first[20]; .shared .align 16 .b8 room[256];
.reg .b32 %t, %lane, %s, %n, %m; .reg .b64 %in, %x; .reg .pred %p, %first; mov.u32 %t, %tid.x; and.b32 %lane, %t, 31; mov.u32 %s, room; ld.param.u64 %in, [in]; setp.eq.u32 %first, %t, 0; mov.u32 %n, 5; mov.u64 %x, 6;
`

func TestFaults(t *testing.T) {
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			for seed := range uint64(8) {
				d := open(t, faultHead+f.body+"\n}\n", seed)
				in, err := d.Alloc(256)
				if err != nil {
					t.Fatal(err)
				}
				must.Do(d.Upload(in, make([]byte, 240), 0))
				err = launch(t, d, "k", 1, 64, 0, uint64(in))
				if f.want == nil {
					if err != nil {
						t.Fatal(err)
					}
					continue
				}
				if err == nil {
					t.Fatalf("seed %d: no error", seed)
				}
				for _, want := range f.want {
					// Of alternatives, which one comes depends on the order of the lanes.
					found := false
					for alternative := range strings.SplitSeq(want, "|") {
						found = found || strings.Contains(err.Error(), alternative)
					}
					if !found {
						t.Errorf("seed %d: %v, want %q", seed, err, want)
					}
				}
			}
		})
	}
}

// TestRefused opens modules that must be refused.
func TestRefused(t *testing.T) {
	entry := func(body string) string {
		return header + ".visible .entry k(.param .u64 in) {\n.reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f32 %f<9>; .reg .f64 %fd<9>; .reg .pred %p<9>; .reg .b16 %h<9>;\n" + body + "\nret;\n}\n"
	}
	for _, c := range []struct{ name, text, want string }{
		{"unknown", entry("frob.u32 %r1, %r2;"), "test: line 6: `frob.u32 %r1, %r2;`: unknown instruction frob.u32"},
		{"rz", entry("add.rz.f32 %f1, %f2, %f3;"), "the only rounding is .rn"},
		{"rp", entry("fma.rp.f64 %fd1, %fd2, %fd3, %fd4;"), "the only rounding is .rn"},
		{"ftz", entry("add.rn.ftz.f32 %f1, %f2, %f3;"), "subnormals must not be flushed"},
		{"sat", entry("fma.rn.sat.f32 %f1, %f2, %f3, %f4;"), "must not be saturated"},
		{"approx", entry("ex2.approx.f32 %f1, %f2;"), "not exact"},
		{"full", entry("div.full.f32 %f1, %f2, %f3;"), "not exact"},
		{"no rounding", entry("mul.f32 %f1, %f2, %f3;"), "it must say .rn"},
		{"activemask", entry("activemask.b32 %r1;"), "not defined"},
		{"call", entry("call.uni frob;"), "unknown instruction"},
		{"conversion", entry("cvt.rz.f32.f64 %f1, %fd1;"), "the only rounding is .rn"},
		{"size", entry("add.s32 %r1, %rd2, %r3;"), "the register %rd2 is of type b64, the operand of type s32"},
		{"kind", entry("add.s32 %r1, %f2, %r3;"), "the register %f2 is of type f32, the operand of type s32"},
		{"float of integers", entry("add.rn.f32 %f1, %f2, %h1;"), "of type b16"},
		{"predicate", entry("@%r1 add.s32 %r1, %r2, %r3;"), "the operand of type pred"},
		{"narrow destination", entry("ld.global.u64 %r1, [%rd1];"), "of type b32"},
		{"narrow address", entry("ld.global.u32 %r1, [%r2];"), "an address in the register %r2"},
		{"float address", entry("ld.global.u32 %r1, [%fd2];"), "an address in the register %fd2"},
		{"no register", entry("add.s32 %r1, %r2, %q;"), "is no operand"},
		{"no destination", entry("add.s32 7, %r2, %r3;"), "not a register"},
		{"special destination", entry("mov.u32 %tid.x, %r3;"), "there is no register %tid.x"},
		{"operands", entry("add.s32 %r1, %r2;"), "2 operands, want 3"},
		{"more operands", entry("ret %r1;"), "1 operands, want 0"},
		{"label", entry("bra NOWHERE;"), "there is no label NOWHERE"},
		{"label twice", entry("A: A: ret;"), "the label A stands twice"},
		{"float constant", entry("add.rn.f32 %f1, %f2, 1;"), "want it as 0f"},
		{"float64 constant", entry("add.rn.f32 %f1, %f2, 0d3FF0000000000000;"), "f64 number"},
		{"large constant", entry("add.u32 %r1, %r2, 4294967296;"), "does not fit into u32"},
		{"vector", entry("ld.global.v2.u32 {%r1, %r2, %r3}, [%rd1];"), "not a list of 2"},
		{"no address", entry("ld.global.u32 %r1, %rd1;"), "not an address"},
		{"another space", entry("ld.global.u64 %rd1, [in];"), "in is in param memory, the access to global"},
		{"cp.async size", entry("cp.async.cg.shared.global [%r1], [%rd1], 8;"), "cp.async.cg of 8 bytes"},
		{"barrier", entry("bar.sync 1;"), "the only barrier is 0"},
		{"directive", entry(".frob 1;"), "unknown directive"},
		{"late variable", entry("ret; .shared .b32 x;"), "before the first instruction"},
		{"function", header + ".visible .func f() { ret; }", "everything must be inlined"},
		{"version", ".version 7.8\n", "want \"7.0\""},
		{"target", ".version 7.0\n.target sm_90\n", "want \"sm_80\""},
		{"declaration", header + ".frob\n", "unknown declaration"},
		{"constants", header + ".const .b32 x = 1;", "unknown declaration \".const\""},
		{"unknown type", entry(".shared .b7 x[2];"), "unknown type \".b7\""},
		{"16 bits for an address", entry(".shared .b8 x[2]; mov.u16 %h1, x;"), "does not fit into u16"},
		{"variable without a size", entry(".shared .b8 x[];"), "without a size"},
		{"partial mask", entry("match.any.sync.b32 %r1, %r2, 0xffff;"), "the mask 0xffff does not name all lanes"},
		{"mask in a register", entry("bar.warp.sync %r1;"), "the mask, is not a number"},
		{"segments", entry("shfl.sync.bfly.b32 %r1, %r2, 1, 0x101f, -1;"), "within segments of the warp"},
		{"float atomics", entry("atom.global.add.f32 %f1, [%rd1], %f2;"), "unknown instruction"},
		{"character", header + "#\n", "the character '#'"},
		{"end", header + ".visible .entry k() { ret;", "ends too early"},
		{"static shared memory", header + ".visible .entry k() { .shared .b8 x[50000]; ret; }", "is the most"},
		{"alignment", header + ".extern .shared .align 512 .b8 x[2];", "an alignment of 512"},
		{"elements", header + ".extern .shared .b64 x[99999999];", "16777216 are the most"},
		{"registers", header + ".visible .entry k() { .reg .b32 %r<99999>; }", "65536 are the most"},
		{"dynamic alignment", header + ".extern .shared .align 32 .b8 x[];", "aligned to 16"},
		{"twice", header + ".visible .entry k() { ret; } .visible .entry k() { ret; }", "the kernel k is in test and in test"},
	} {
		_, err := Open(map[string]string{"test": c.text}, Options{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// FuzzOpen sees that no text makes Open panic, and that an error names a line.
func FuzzOpen(f *testing.F) {
	for _, c := range faults {
		f.Add(faultHead + c.body + "\n}\n")
	}
	f.Fuzz(func(t *testing.T, text string) {
		_, err := Open(map[string]string{"fuzz": header + text}, Options{})
		if err != nil && !strings.Contains(err.Error(), "fuzz: line ") &&
			!strings.Contains(err.Error(), "is in fuzz and in fuzz") {
			t.Error(err)
		}
	})
}

// TestDriver checks what the device itself refuses.
func TestDriver(t *testing.T) {
	var _ driver.Driver = (*Device)(nil)
	d := open(t, `.extern .shared .align 16 .b8 dynamic[];
.visible .entry k(.param .u64 in, .param .u32 n) .maxntid 64, 1, 1 .minnctapersm 3
{ .shared .align 4 .b8 fixed[20]; .reg .b32 %r<4>; .reg .b64 %rd<4>; .reg .pred %p;
mov.u32 %r0, %tid.x; setp.ne.u32 %p, %r0, 0; @%p ret;
ld.param.u64 %rd0, [in]; mov.u32 %r1, dynamic; st.global.u32 [%rd0], %r1; st.shared.u32 [%r1+12], %r1; }
`, 1)
	contains := func(what string, err error, want string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
	}
	if info := d.Info(); info.Multiprocessors != 2 || info.Capability != [2]int{8, 0} {
		t.Errorf("Info: %+v", info)
	}
	for _, c := range []struct {
		name            string
		threads, shared int
		want            string
	}{
		{"none", 32, 0, "there is no kernel none"}, {"k", 0, 0, "want a multiple of 32"}, {"k", 48, 0, "want a multiple of 32"},
		{"k", 96, 0, "64 is the most"}, {"k", 32, -1, "shared memory"}, {"k", 32, 163 << 10, "166912 is the most"},
	} {
		_, _, err := d.Function(c.name, c.threads, c.shared)
		contains("Function", err, c.want)
	}
	fits := map[int]bool{}
	for seed := range uint64(50) {
		e := open(t, "\n.visible .entry k() { ret; }\n", seed)
		if _, fit, err := e.Function("k", 64, 16); err != nil {
			t.Fatal(err)
		} else {
			fits[fit] = true
		}
	}
	if len(fits) != mostFit || fits[0] || !fits[mostFit] {
		t.Errorf("so many CTAs fit on a multiprocessor: %v", fits)
	}
	f, fit, err := d.Function("k", 64, 16)
	if err != nil || fit <= 0 {
		t.Fatal(fit, err)
	}
	p := upload(t, d, make([]byte, 8))
	args := struct {
		in driver.Ptr
		n  uint32
	}{p, 1}
	call := func(f driver.Function, grid, threads, shared int, size uintptr) error {
		return d.Launch(f, grid, threads, shared, unsafe.Pointer(&args), size, 0)
	}
	contains("size", call(f, 1, 32, 16, 16), "16 bytes of parameters, want 12")
	contains("function", call(99, 1, 32, 16, 12), "99 is no function")
	contains("grid", call(f, 0, 32, 16, 12), "a grid of 0 CTAs")
	contains("threads", call(f, 1, 96, 16, 12), "64 is the most")
	contains("shared", call(f, 1, 64, 32, 12), "was asked for with 64 and 16")
	narrow, _, err := d.Function("k", 32, 16)
	if err != nil {
		t.Fatal(err)
	}
	contains("threads", call(narrow, 1, 64, 16, 12), "was asked for with 32 and 16")
	must.Do(call(f, 3, 64, 16, 12))
	if got := download(t, d, p, 4); got[0] != 48 { // behind the 20 static bytes and the gap, aligned to 16
		t.Errorf("dynamic shared memory begins at %d", got[0])
	}
	q := must.Get(d.Alloc(8))
	if q%256 != 0 || p%256 != 0 || q < p+8+4096 {
		t.Errorf("addresses %#x and %#x", p, q)
	}
	contains("undefined", d.Download(make([]byte, 8), q, 0), "nothing has written it")
	if err := d.Fill(q+1, 7, 6, 0); err != nil {
		t.Error(err)
	}
	if got := download(t, d, q+1, 6); string(got) != "\a\a\a\a\a\a" {
		t.Errorf("Fill: %v", got)
	}
	contains("undefined", d.Download(make([]byte, 7), q+1, 0), "byte 6 of 7")
	contains("Upload", d.Upload(q, make([]byte, 9), 0), "outside every allocation")
	contains("Fill", d.Fill(q+8, 0, 1, 0), "outside every allocation")
	contains("Fill", d.Fill(q, 0, -1, 0), "outside every allocation")
	contains("Download", d.Download(make([]byte, 1), q-1, 0), "outside every allocation")
	for _, n := range []int{0, -1, memorySize + 1} {
		_, err := d.Alloc(n)
		contains("Alloc", err, "an allocation of")
	}
	contains("Free", d.Free(q+1), "not the address of an allocation")
	if err := d.Free(q); err != nil {
		t.Error(err)
	}
	contains("Free", d.Free(q), "not the address of an allocation")
	contains("Upload", d.Upload(q, make([]byte, 1), 0), "outside every allocation")
	large := must.Get(d.Alloc(3 * pageSize))
	must.Do(d.Free(large))
	contains("Upload", d.Upload(large+2*pageSize, make([]byte, 1), 0), "outside every allocation")

	// What the kernel stored to is gone.
	if err := d.Free(p); err != nil {
		t.Error(err)
	}
	must.Do(call(f, 1, 64, 16, 12))
	contains("freed", d.Synchronize(0), "outside every allocation")
	// The error stays.
	contains("Launch", call(f, 1, 64, 16, 12), "outside every allocation")
	contains("Fill", d.Fill(p, 0, 1, 0), "outside every allocation")
	_, err = d.Alloc(1)
	contains("Alloc", err, "outside every allocation")
	contains("Free", d.Free(p), "outside every allocation")
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	contains("Close", d.Close(), "closed")
	contains("Synchronize", d.Synchronize(0), "closed")

	leaky := open(t, "", 1)
	upload(t, leaky, make([]byte, 12))
	contains("leak", leaky.Close(), "1 allocations were not freed:\n\t12 bytes at 0x7f")
}

// TestSteps stops loops without end, without barriers and with them.
func TestSteps(t *testing.T) {
	for _, loop := range []string{"A: bra A;", "A: bar.sync 0; bra A;"} {
		d := must.Get(Open(map[string]string{"test": header + ".visible .entry k() { " + loop + " }"},
			Options{Steps: 10_000}))
		if err := launch(t, d, "k", 1, 64, 0); err == nil ||
			!strings.Contains(err.Error(), "more than 10000 instructions") {
			t.Errorf("%s: %v", loop, err)
		}
	}
}

// TestFresh sees that a CTA finds nothing of the one that ran before it.
func TestFresh(t *testing.T) {
	for name, body := range map[string]string{
		"shared": "@%p st.shared.u32 [%s], %n; @!%p ld.shared.u32 %n, [%s];",
		"copies": "@%p cp.async.cg.shared.global [%s], [%in+16], 16; @%p ret; cp.async.commit_group; cp.async.wait_group 0; ld.shared.u32 %n, [%s];",
	} {
		d := open(t, faultHead+"@!%first ret; atom.global.add.u32 %n, [%in], 1; setp.eq.u32 %p, %n, 0;\n"+body+"\n}\n",
			1)
		in := uint64(upload(t, d, make([]byte, 256)))
		if err := launch(t, d, "k", 1, 32, 0, in); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := launch(t, d, "k", 1, 32, 0, in); err == nil ||
			!strings.Contains(err.Error(), "nothing has written it") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAsyncSource changes the source of a copy before the wait: both of its values must
// come at times.
func TestAsyncSource(t *testing.T) {
	came := map[uint32]int{}
	for seed := range uint64(40) {
		d := open(t, faultHead+"@!%first ret; cp.async.cg.shared.global [%s], [%in], 16; st.global.u32 [%in], 7; cp.async.commit_group; cp.async.wait_group 0; ld.shared.u32 %n, [%s]; st.global.u32 [%in+4], %n;\n}\n", seed)
		in := upload(t, d, make([]byte, 256))
		must.Do(launch(t, d, "k", 1, 32, 0, uint64(in)))
		came[binary.LittleEndian.Uint32(download(t, d, in+4, 4))]++
	}
	if len(came) != 2 || came[0] == 0 || came[7] == 0 {
		t.Errorf("values and how often they came: %v", came)
	}
}

// TestOrder sees that the order of lanes, warps and CTAs is shuffled, that it differs from
// step to step and from seed to seed, and that one seed always gives the same.
func TestOrder(t *testing.T) {
	text := `.visible .entry k(.param .u64 out) { .reg .b32 %r<6>; .reg .b64 %rd<4>;
ld.param.u64 %rd0, [out]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %ctaid.x; mad.lo.u32 %r1, %r2, %r3, %r1;
mul.wide.u32 %rd1, %r1, 8; add.s64 %rd1, %rd0, %rd1;
atom.global.add.u32 %r0, [%rd0], 1; st.global.u32 [%rd1+8], %r0; bar.warp.sync -1;
atom.global.add.u32 %r0, [%rd0], 1; st.global.u32 [%rd1+12], %r0; }
`
	const threads, seeds = 256, 10
	orders := map[string]int{}
	shuffled := map[string]int{}
	for seed := range uint64(seeds) {
		for range 2 {
			d := open(t, text, seed)
			p := upload(t, d, make([]byte, 8+8*threads))
			must.Do(launch(t, d, "k", 2, threads/2, 0, uint64(p)))
			out := download(t, d, p, 8+8*threads)
			orders[string(out)]++
			turn := func(thread, step int) uint32 { return binary.LittleEndian.Uint32(out[8+8*thread+4*step:]) }
			first, second := warp0(turn, 0), warp0(turn, 1)
			shuffled["lanes"] += int(truth(!slices.IsSorted(first)))
			shuffled["steps"] += int(truth(!slices.Equal(first, second)))
			shuffled["warps"] += int(truth(turn(32, 0) < turn(0, 0)))
			shuffled["CTAs"] += int(truth(turn(128, 0) < turn(0, 0)))
		}
	}
	if len(orders) != seeds {
		t.Errorf("%d orders of %d seeds", len(orders), seeds)
	}
	for what, n := range shuffled {
		if always := what == "lanes" || what == "steps"; n == 0 || always != (n == 2*seeds) {
			t.Errorf("the order of %s was another one in %d of %d runs", what, n, 2*seeds)
		}
	}
}

// warp0 gives the turns of the lanes of warp 0 in a step, from 0 on.
func warp0(turn func(thread, step int) uint32, step int) []uint32 {
	var all []uint32
	for lane := range warpSize {
		all = append(all, turn(lane, step))
	}
	first := slices.Min(all)
	for i := range all {
		all[i] -= first
	}
	return all
}

// TestAllocations sees that a launch allocates nothing but what grows once.
func TestAllocations(t *testing.T) {
	d := open(t, faultHead+"@%first cp.async.cg.shared.global [%s], [%in], 16; cp.async.commit_group; cp.async.wait_group 0; bar.sync 0; ld.shared.u32 %n, [%s]; @%first st.global.u32 [%in], %n;\n}\n", 1)
	p := upload(t, d, make([]byte, 256))
	f, _, err := d.Function("k", 64, 0)
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(20, func() {
		must.Do(d.Launch(f, 5, 64, 0, unsafe.Pointer(&p), 8, 0))
	}); n > 0 {
		t.Errorf("a launch allocates %v times", n)
	}
	must.Do(d.Synchronize(0))
}
