package ptx

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/seed621a2839/reweight/gpu/internal/driver"
	"github.com/seed621a2839/reweight/internal/test/must"
)

const header = ".version 7.0\n.target sm_80\n.address_size 64\n"

// A check says what an instruction on registers must give.
type check struct {
	d    string   // type of the destination
	s    []string // types of the sources
	want func(v []uint64) uint64

	extra [][]uint64 // cases to try besides those that fit every instruction

	// text is the instruction if it is not "opcode d, s0, s1...": with D and S0, S1 ...
	// for the registers.
	text string
}

// register is the declared type of registers that hold type t.
func registerType(t string) string {
	if t == "pred" {
		return t
	}
	return fmt.Sprintf("b%d", max(16, 8*types[t].size))
}

// kernelOf writes a kernel that reads the sources of case ctaid*ntid + tid from in, 8
// bytes each, runs the instruction, and writes the destination to out, 8 bytes.
func (c check) kernelOf(opcode string) string {
	var b strings.Builder
	b.WriteString(".visible .entry k(.param .u64 in, .param .u64 out) {\n.reg .b32 %t<4>; .reg .b64 %a<8>; .reg .pred %q;\n")
	b.WriteString("mov.u32 %t0, %tid.x; mov.u32 %t1, %ntid.x; mov.u32 %t2, %ctaid.x; mad.lo.u32 %t0, %t1, %t2, %t0;\n")
	fmt.Fprintf(&b, "ld.param.u64 %%a0, [in]; ld.param.u64 %%a1, [out]; mul.wide.u32 %%a2, %%t0, %d; mul.wide.u32 %%a3, %%t0, 8;\n", 8*len(c.s))
	b.WriteString("add.s64 %a0, %a0, %a2; add.s64 %a1, %a1, %a3;\n")
	text := c.text
	if text == "" {
		text = opcode + " D"
		for i := range c.s {
			text += fmt.Sprintf(", S%d", i)
		}
	}
	for i, t := range c.s {
		fmt.Fprintf(&b, ".reg .%s %%s%d; ", registerType(t), i)
		if t == "pred" {
			fmt.Fprintf(&b, "ld.global.u32 %%t3, [%%a0+%d]; setp.ne.u32 %%s%d, %%t3, 0;\n", 8*i, i)
		} else {
			fmt.Fprintf(&b, "ld.global.%s %%s%d, [%%a0+%d];\n", registerType(t), i, 8*i)
		}
		text = strings.ReplaceAll(text, fmt.Sprintf("S%d", i), fmt.Sprintf("%%s%d", i))
	}
	fmt.Fprintf(&b, ".reg .%s %%d;\n%s;\n", registerType(c.d), strings.ReplaceAll(text, "D", "%d"))
	switch registerType(c.d) {
	case "pred":
		b.WriteString("selp.u32 %t3, 1, 0, %d; cvt.u64.u32 %a4, %t3;\n")
	case "b64":
		b.WriteString("mov.b64 %a4, %d;\n")
	default:
		fmt.Fprintf(&b, "cvt.u64.u%s %%a4, %%d;\n", registerType(c.d)[1:])
	}
	b.WriteString("st.global.u64 [%a1], %a4;\nret;\n}\n")
	return b.String()
}

// Values that are worth a try.
var edges = map[string][]uint64{
	"pred": {0, 1},
	"f16":  {0, 0x8000, 1, 0x8001, 0x3ff, 0x400, 0x8400, 0x3c00, 0xbc00, 0x3800, 0x3e00, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0x7c01, 0xfe12},
	"bf16": {0, 0x8000, 1, 0x8001, 0x7f, 0x80, 0x8080, 0x3f80, 0xbf80, 0x3f00, 0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7fc0, 0x7f81, 0xffc3},
	"f32": {0, 0x80000000, 1, 0x80000001, 0x007fffff, 0x807fffff, 0x00800000, 0x80800000, 0x3f800000, 0xbf800000,
		0x3f800001, 0x3f000000, 0xbf000000,
		0x3fc00000, 0x40200000, 0xc0200000, 0x40600000, 0x4b000000, 0x4b800001, 0x4effffff, 0x4f000000, 0xcf000000,
		0xcf000001, 0x4f7fffff, 0x4f800000,
		0x5effffff, 0x5f000000, 0xdf000000, 0x5f7fffff, 0x5f800000, 0x437f8000, 0x43800000, 0x42fe0000, 0xc2fe0000,
		0x43000000, 0xc3000000, 0xc3010000, 0x46fffe00, 0xc6fffe00, 0x47000000, 0x477fff00,
		0x47800000, 0x477fe000, 0x477fefff, 0x477ff000, 0x33800000, 0x33000000, 0x33000001, 0x387fc000, 0x387fe000,
		0x3f808000, 0x3f818000, 0x3f808001, 0x3f817fff,
		0x7f7fffff, 0xff7fffff, 0x7f7f8000, 0x7f7f7fff, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00001, 0x7f800001,
		0x7fffffff},
	"f64": {0, 1 << 63, 1, 1<<63 | 1, 0x000fffffffffffff, 0x0010000000000000, 0x8010000000000000, 0x3ff0000000000000,
		0xbff0000000000000, 0x3ff0000000000001,
		0x3fe0000000000000, 0xbfe0000000000000, 0x3ff8000000000000, 0x4004000000000000, 0xc004000000000000,
		0x400c000000000000, 0x4330000000000000, 0x4340000000000000,
		0x41dfffffffc00000, 0x41dfffffffe00000, 0x41e0000000000000, 0xc1e0000000000000, 0xc1e0000000200000,
		0xc1dfffffffc00000, 0xc05fc00000000000, 0x41efffffffe00000, 0x41f0000000000000,
		0x43dfffffffffffff, 0x43e0000000000000, 0xc3e0000000000000, 0x43efffffffffffff, 0x43f0000000000000,
		0x406fe00000000000, 0x40dfffc000000000, 0x40efffe000000000,
		0x47efffffe0000000, 0x47efffffefffffff, 0x47effffff0000000, 0x36a0000000000000, 0x3690000000000000,
		0x3690000000000001, 0x380fffffc0000000, 0x3810000000000000,
		0x3ff0000010000000, 0x3ff0000030000000, 0x7fefffffffffffff, 0xffefffffffffffff, 0x7ff0000000000000,
		0xfff0000000000000, 0x7ff8000000000000, 0xfff8000000000001, 0x7ff0000000000001},
}

var integerEdges = []uint64{0, 1, 2, 3, 7, 8, 10, 15, 16, 31, 32, 33, 63, 64, 65, 127, 128, 255, 256, 0x7fff, 0x8000,
	0xffff, 0x10000,
	0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff, 1 << 32, 1<<63 - 1, 1 << 63, ^uint64(0) - 1, ^uint64(0)}

// edgesOf are the edges of a type, cut to its size.
func edgesOf(t string) []uint64 {
	if base, ok := strings.CutSuffix(t, "x2"); ok {
		var out []uint64
		for i, v := range edges[base] {
			out = append(out, v<<16|edges[base][(i*7+3)%len(edges[base])])
		}
		return out
	}
	if e, ok := edges[t]; ok {
		return e
	}
	var out []uint64
	for _, v := range integerEdges {
		v &= ^uint64(0) >> (64 - 8*types[t].size)
		if !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

// randomOf is a random value of a type, of any magnitude.
func randomOf(t string, r *rand.Rand) uint64 {
	if t == "pred" {
		return r.Uint64() & 1
	}
	bits := 8 * types[t].size
	v := r.Uint64() >> (64 - bits)
	if f, ok := formats[t]; ok && r.IntN(2) == 0 {
		// Numbers near 1, so that sums of them meet all cases of rounding.
		e := uint64(f.bias() - 4 + r.IntN(8))
		return v&^(f.infinity()) | e<<f.fraction
	}
	if _, ok := formats[t]; !ok && r.IntN(2) == 0 {
		v >>= r.IntN(bits)
		if r.IntN(3) == 0 {
			v = -v & (^uint64(0) >> (64 - bits))
		}
	}
	return v
}

// casesOf are the sources of the cases in which an instruction is tried: all pairs of edges
// of the first two, with edges of the others by chance, and random ones.
func casesOf(c *check, r *rand.Rand) [][]uint64 {
	cases := [][]uint64{nil}
	for i, t := range c.s {
		var longer [][]uint64
		for _, v := range cases {
			values := edgesOf(t)
			if i >= 2 {
				values = values[r.IntN(len(values)):][:1]
			}
			for _, x := range values {
				longer = append(longer, append(slices.Clone(v), x))
			}
		}
		cases = longer
	}
	least := 512
	if testing.Short() {
		least = 256
		r.Shuffle(len(cases), func(i, j int) { cases[i], cases[j] = cases[j], cases[i] })
		cases = cases[:min(len(cases), 150)]
	}
	cases = append(cases, c.extra...)
	for len(cases)%256 != 0 || len(cases) < least {
		v := make([]uint64, len(c.s))
		for i, t := range c.s {
			v[i] = randomOf(t, r)
			if e := edgesOf(t); r.IntN(4) == 0 {
				v[i] = e[r.IntN(len(e))]
			}
		}
		cases = append(cases, v)
	}
	return cases
}

// open makes a device of one module.
func open(t testing.TB, text string, seed uint64) *Device {
	t.Helper()
	return must.Get(Open(map[string]string{"test": header + text}, Options{Seed: seed}))
}

// upload allocates memory with a content.
func upload(t testing.TB, d *Device, b []byte) driver.Ptr {
	t.Helper()
	p := must.Get(d.Alloc(len(b)))
	must.Do(d.Upload(p, b, 0))
	return p
}

func download(t testing.TB, d *Device, p driver.Ptr, n int) []byte {
	t.Helper()
	b := make([]byte, n)
	must.Do(d.Download(b, p, 0))
	return b
}

// launch runs a kernel whose parameters have 8 bytes each, and returns its error.
func launch(t testing.TB, d *Device, name string, grid, threads, shared int, params ...uint64) error {
	t.Helper()
	f, _, err := d.Function(name, threads, shared)
	if err != nil {
		t.Fatal(err)
	}
	must.Do(d.Launch(f, grid, threads, shared, unsafe.Pointer(unsafe.SliceData(params)), uintptr(8*len(params)), 0))
	return d.Synchronize(0)
}

// run runs the kernel k of a text with the addresses of in and of n bytes, and returns these.
func run(t testing.TB, text string, seed uint64, grid, threads int, in []byte, n int, more ...uint64) []byte {
	t.Helper()
	d := open(t, text, seed)
	out := upload(t, d, make([]byte, n))
	if err := launch(t, d, "k", grid, threads, 0,
		append([]uint64{uint64(upload(t, d, in)), uint64(out)}, more...)...); err != nil {
		t.Fatal(err)
	}
	return download(t, d, out, n)
}

// TestInstructions tries every instruction that the package knows. It fails if there is
// one that no test has met.
func TestInstructions(t *testing.T) {
	met := map[string]bool{}
	parts := []struct {
		name string
		test func(t *testing.T, met map[string]bool)
	}{
		{"registers", testRegisters}, {"access", testAccess},
		{"warp", testWarp}, {"control", testControl}, {"async", testAsync},
	}
	ran := 0
	for _, part := range parts {
		t.Run(part.name, func(t *testing.T) {
			part.test(t, met)
			ran++
		})
	}
	if ran < len(parts) { // some failed, or were not asked for
		return
	}
	for opcode := range forms {
		if !met[opcode] {
			t.Errorf("no test meets %s", opcode)
		}
	}
	for opcode := range met {
		if forms[opcode] == nil {
			t.Errorf("%s is tested, but not known", opcode)
		}
	}
	t.Logf("%d instructions", len(forms))
}

// testRegisters compares every instruction on registers with an oracle.
func testRegisters(t *testing.T, met map[string]bool) {
	checks := registerChecks()
	r := rand.New(rand.NewPCG(1, 2))
	total := 0
	for _, name := range slices.Sorted(maps.Keys(checks)) {
		c, opcode := checks[name], instructionOf(name)
		met[opcode] = true
		cases := casesOf(&c, r)
		var in []byte
		for _, x := range slices.Concat(cases...) {
			in = binary.LittleEndian.AppendUint64(in, x)
		}
		out := run(t, c.kernelOf(opcode), 1, len(cases)/256, 256, in, 8*len(cases))
		failed := 0
		for i, v := range cases {
			got, want := binary.LittleEndian.Uint64(out[8*i:]), c.want(v)
			if c.d == "f64" && formats["f64"].isNaN(got) && formats["f64"].isNaN(want) {
				continue
			}
			if got != want && failed < 5 {
				t.Errorf("%s of %#x is %#x, want %#x", name, v, got, want)
				failed++
			}
		}
		total += len(cases)
	}
	t.Logf("%d checks, %d cases", len(checks), total)
}

// instructionOf is the opcode without what follows a space, by which the table of
// checks tells apart several checks of one opcode.
func instructionOf(name string) string {
	opcode, _, _ := strings.Cut(name, " ")
	return opcode
}
