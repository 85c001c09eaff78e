package ptx

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// pattern is what the loads load: all bytes differ, and most have a sign.
var pattern = []byte{0x80, 0x91, 0xa2, 0xb3, 0xc4, 0xd5, 0xe6, 0xf7, 0x08, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff}

// onlyFirst begins a kernel of which thread 0 does all.
const onlyFirst = ".reg .pred %q; .reg .b32 %t; mov.u32 %t, %tid.x; setp.ne.u32 %q, %t, 0; @%q ret;\n"

// A room is a place of 16 bytes in some memory, which begins with those at %in: what
// declares it, and what brings its address into %at.
type room struct{ space, declare, address string }

var rooms = []room{
	{".global", "", "mov.u64 %at, %in;"},
	{".shared", ".shared .align 16 .b8 room[16];", "mov.u64 %at, room; .reg .b64 %v<2>; ld.global.v2.b64 {%v0, %v1}, [%in]; st.shared.v2.b64 [%at], {%v0, %v1};"},
	{".param", "", "mov.u64 %at, c;"},
	{"", "", "cvta.global.u64 %at, %in;"},
}

// An accessCheck says what an instruction leaves at %out of what is at %in. In its body, %at
// is the room.
type accessCheck struct {
	room
	opcode, body string
	cases        []accessCase
}

type accessCase struct{ in, want []byte }

// eachAccess calls f for the instructions of a name that move n elements at a time, and for
// each type of register that the elements may stand in.
func eachAccess(name string, f func(r room, opcode, typ, register string, n int)) {
	for _, r := range rooms {
		for _, typ := range accessTypes {
			for vector, n := range map[string]int{"": 1, ".v2": 2, ".v4": 4} {
				for _, register := range []string{registerType(typ), "b32", "b64"} {
					narrow := types[register].size < types[typ].size || typ[0] == 'f' && register != registerType(typ)
					opcode := name + r.space + vector + "." + typ
					if n*types[typ].size <= 16 && !narrow && forms[opcode] != nil {
						f(r, opcode, typ, register, n)
					}
				}
			}
		}
	}
}

// registers writes %d0, or so many of them in braces.
func registers(n int) string {
	if n == 1 {
		return "%d0"
	}
	return "{" + strings.Join([]string{"%d0", "%d1", "%d2", "%d3"}[:n], ", ") + "}"
}

func loadChecks() (checks []accessCheck) {
	eachAccess("ld", func(r room, opcode, typ, register string, n int) {
		body := fmt.Sprintf(".reg .%s %%d<4>; .reg .b64 %%w; %s %s, [%%at];\n", register, opcode, registers(n))
		var want []byte
		for i := range n {
			copied := fmt.Sprintf("cvt.u64.u%s", register[1:])
			if register == "b64" {
				copied = "mov.b64"
			}
			body += fmt.Sprintf("%s %%w, %%d%d; st.global.u64 [%%out+%d], %%w;\n", copied, i, 8*i)
			var element [8]byte
			copy(element[:], pattern[i*types[typ].size:][:types[typ].size])
			v := signedValue(binary.LittleEndian.Uint64(element[:]), typ)
			want = binary.LittleEndian.AppendUint64(want, truncated(v, 8*types[register].size))
		}
		checks = append(checks, accessCheck{r, opcode, body, []accessCase{{pattern, want}}})
	})
	return checks
}

func storeChecks() (checks []accessCheck) {
	random := rand.New(rand.NewPCG(3, 4))
	eachAccess("st", func(r room, opcode, typ, register string, n int) {
		body := fmt.Sprintf(".reg .%s %%d<4>; .reg .b64 %%w<2>;\n", register)
		in, want := slices.Clone(pattern), slices.Clone(pattern)
		for i := range n {
			body += fmt.Sprintf("ld.global.%s %%d%d, [%%in+%d];\n", register, i, 16+8*i)
			in = binary.LittleEndian.AppendUint64(in, random.Uint64())
			copy(want[i*types[typ].size:][:types[typ].size], in[16+8*i:])
		}
		body += fmt.Sprintf("%s [%%at], %s; ld%s.v2.b64 {%%w0, %%w1}, [%%at]; st.global.v2.b64 [%%out], {%%w0, %%w1};\n", opcode, registers(n), r.space)
		checks = append(checks, accessCheck{r, opcode, body, []accessCase{{in, want}}})
	})
	return checks
}

// atomicChecks has an oracle for each operation.
func atomicChecks() (checks []accessCheck) {
	random := rand.New(rand.NewPCG(3, 4))
	for name, result := range map[string]func(old, x, y uint64) uint64{
		"cas.b32": func(old, x, y uint64) uint64 {
			if old != x {
				return old
			}
			return y
		},
		"add.u32": func(old, x, _ uint64) uint64 { return (old + x) % (1 << 32) },
		"add.u64": func(old, x, _ uint64) uint64 { return old + x },
		"min.u64": func(old, x, _ uint64) uint64 { return min(x, old) },
		"max.u64": func(old, x, _ uint64) uint64 { return max(x, old) },
	} {
		operation, typ, _ := strings.Cut(name, ".")
		register, operands := registerType(typ), "%d0, [%at+8], %d1"
		if operation == "cas" {
			operands += ", %d2"
		}
		c := accessCheck{room: rooms[0], opcode: "atom.global." + name}
		c.body = fmt.Sprintf(".reg .%[1]s %%d<3>; .reg .b64 %%w<2>;\nld.global.%[1]s %%d1, [%%in+16]; ld.global.%[1]s %%d2, [%%in+24];\n", register) +
			fmt.Sprintf("%s %s; st.global.%s [%%out+16], %%d0;\n", c.opcode, operands, register) +
			"ld.global.v2.b64 {%w0, %w1}, [%at]; st.global.v2.b64 [%out], {%w0, %w1};\n"
		values := edgesOf(typ)
		for range 300 {
			var v [3]uint64
			for j := range v {
				if v[j] = values[random.IntN(len(values))]; random.IntN(2) == 0 {
					v[j] = randomOf(typ, random)
				}
			}
			if operation == "cas" && random.IntN(2) == 0 {
				v[1] = v[0]
			}
			// The bytes behind a result of 4 stay as they are.
			behind := uint64(0x1234_5678_0000_0000) &^ lowBits(types[typ].size)
			in := binary.LittleEndian.AppendUint64(slices.Clone(pattern[:8]), v[0]|behind)
			want := binary.LittleEndian.AppendUint64(slices.Clone(pattern[:8]), result(v[0], v[1], v[2])|behind)
			in = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(in, v[1]), v[2])
			c.cases = append(c.cases, accessCase{in, binary.LittleEndian.AppendUint64(want, v[0])})
		}
		checks = append(checks, c)
	}
	return checks
}

func testAccess(t *testing.T, met map[string]bool) {
	first, second := binary.LittleEndian.Uint64(pattern), binary.LittleEndian.Uint64(pattern[8:])
	for _, c := range slices.Concat(loadChecks(), storeChecks(), atomicChecks()) {
		met[c.opcode] = true
		text := ".visible .entry k(.param .u64 in, .param .u64 out, .param .u64 c, .param .u64 d) {\n" + c.declare + onlyFirst +
			".reg .b64 %in, %out, %at; ld.param.u64 %in, [in]; ld.param.u64 %out, [out];\n" + c.address + "\n" +
			c.body + "}\n"
		for _, of := range c.cases {
			if got := run(t, text, 2, 1, 32, of.in, len(of.want), first, second); !slices.Equal(got, of.want) {
				t.Fatalf("%s with\n%sof %x: %x, want %x", c.opcode, c.body, of.in, got, of.want)
			}
		}
	}
}
