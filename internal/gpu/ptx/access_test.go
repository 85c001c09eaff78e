package ptx

import (
	"encoding/binary"
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
)

// pattern is what the loads load: all bytes differ, and most have a sign.
var pattern = []byte{0x80, 0x91, 0xa2, 0xb3, 0xc4, 0xd5, 0xe6, 0xf7, 0x08, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff}

// onlyFirst begins a kernel of which thread 0 does all.
const onlyFirst = ".reg .pred %q; .reg .b32 %t; mov.u32 %t, %tid.x; setp.ne.u32 %q, %t, 0; @%q ret;\n"

// A room is a place of 16 bytes in some memory: what declares it, what brings its
// address into %at, and what copies the 16 bytes at %in there.
type room struct {
	space, declare, address, fill string
}

func rooms() []room {
	fill := func(st string) string {
		return ".reg .b64 %v<2>; ld.global.v2.b64 {%v0, %v1}, [%in]; st" + st + ".b64 [%at], %v0; st" + st + ".b64 [%at+8], %v1;\n"
	}
	return []room{
		{".global", "", "mov.u64 %at, %in;", ""},
		{".shared", ".shared .align 16 .b8 room[16];", "mov.u64 %at, room;", fill(".shared")},
		{".param", "", "mov.u64 %at, c;", ""},
		{"", "", "cvta.global.u64 %at, %in;", ""},
		{"", ".shared .align 16 .b8 room[16];", "mov.u64 %at, room; cvta.shared.u64 %at, %at;", fill("")},
	}
}

const roomParams = "(.param .u64 in, .param .u64 out, .param .u64 c, .param .u64 d)"

// begin is the first part of a kernel that works in the room.
func (r room) begin(name string) string {
	return ".visible .entry " + name + roomParams + "{\n" + r.declare + "\n" + onlyFirst +
		".reg .b64 %in, %out, %at; ld.param.u64 %in, [in]; ld.param.u64 %out, [out];\n" + r.address + "\n" + r.fill
}

// braced writes one register, or several in braces.
func braced(registers []string) string {
	if len(registers) == 1 {
		return registers[0]
	}
	return "{" + strings.Join(registers, ", ") + "}"
}

func testLoads(t *testing.T, met map[string]bool) {
	var text strings.Builder
	type load struct {
		opcode, typ, register string
		n                     int
	}
	var loads []load
	for _, room := range rooms() {
		for _, typ := range accessTypes {
			for vector, n := range map[string]int{"": 1, ".v2": 2, ".v4": 4} {
				if n*types[typ].size > 16 {
					continue
				}
				for _, register := range []string{registerType(typ), "b32", "b64"} {
					if types[register].size < types[typ].size || typ[0] == 'f' && register != registerType(typ) {
						continue
					}
					l := load{"ld" + room.space + vector + "." + typ, typ, register, n}
					text.WriteString(room.begin(fmt.Sprintf("k%d", len(loads))))
					var registers []string
					for i := range n {
						registers = append(registers, fmt.Sprintf("%%d%d", i))
					}
					fmt.Fprintf(&text, ".reg .%s %%d<4>; .reg .b64 %%w; %s %s, [%%at];\n", register, l.opcode, braced(registers))
					for i := range n {
						store := fmt.Sprintf("cvt.u64.u%s %%w, %%d%d;", register[1:], i)
						if register == "b64" {
							store = fmt.Sprintf("mov.b64 %%w, %%d%d;", i)
						}
						fmt.Fprintf(&text, "%s st.global.u64 [%%out+%d], %%w;\n", store, 8*i)
					}
					text.WriteString("ret;\n}\n")
					loads = append(loads, l)
					met[l.opcode] = true
				}
			}
		}
	}
	d := open(t, text.String(), 2)
	in, out := upload(t, d, pattern), upload(t, d, make([]byte, 32))
	c, e := binary.LittleEndian.Uint64(pattern), binary.LittleEndian.Uint64(pattern[8:])
	for i, l := range loads {
		if err := launch(t, d, fmt.Sprintf("k%d", i), 1, 32, 0, uint64(in), uint64(out), c, e); err != nil {
			t.Fatalf("%+v: %v", l, err)
		}
		got := download(t, d, out, 32)
		size := types[l.typ].size
		for j := range l.n {
			n := new(big.Int)
			for k := range size {
				n.Or(n, new(big.Int).Lsh(big.NewInt(int64(pattern[j*size+k])), uint(8*k)))
			}
			want := truncated(signedValue(n.Uint64(), l.typ), 8*types[l.register].size)
			if v := binary.LittleEndian.Uint64(got[8*j:]); v != want {
				t.Errorf("%+v: element %d is %#x, want %#x", l, j, v, want)
			}
		}
	}
}

func testStores(t *testing.T, met map[string]bool) {
	var text strings.Builder
	type store struct {
		opcode, typ string
		n           int
	}
	var stores []store
	for _, room := range rooms() {
		if room.space == ".param" {
			continue
		}
		for _, typ := range accessTypes {
			for vector, n := range map[string]int{"": 1, ".v2": 2, ".v4": 4} {
				if n*types[typ].size > 16 {
					continue
				}
				for _, register := range []string{registerType(typ), "b64"} {
					if typ[0] == 'f' && register != registerType(typ) {
						continue
					}
					s := store{"st" + room.space + vector + "." + typ, typ, n}
					text.WriteString(room.begin(fmt.Sprintf("k%d", len(stores))))
					var registers []string
					fmt.Fprintf(&text, ".reg .%s %%d<4>; .reg .b64 %%w<2>;\n", register)
					for i := range n {
						registers = append(registers, fmt.Sprintf("%%d%d", i))
						fmt.Fprintf(&text, "ld.global.%s %%d%d, [%%in+%d];\n", register, i, 16+8*i)
					}
					fmt.Fprintf(&text, "%s [%%at], %s;\n", s.opcode, braced(registers))
					fmt.Fprintf(&text, "ld%s.v2.b64 {%%w0, %%w1}, [%%at]; st.global.v2.b64 [%%out], {%%w0, %%w1}; ret;\n}\n", room.space)
					stores = append(stores, s)
					met[s.opcode] = true
				}
			}
		}
	}
	d := open(t, text.String(), 2)
	r := rand.New(rand.NewPCG(3, 4))
	for i, s := range stores {
		in := append([]byte{}, pattern...)
		for range 4 {
			in = binary.LittleEndian.AppendUint64(in, r.Uint64())
		}
		from, out := upload(t, d, in), upload(t, d, make([]byte, 16))
		if err := launch(t, d, fmt.Sprintf("k%d", i), 1, 32, 0, uint64(from), uint64(out), 0, 0); err != nil {
			t.Fatalf("%+v: %v", s, err)
		}
		want := append([]byte{}, pattern...)
		size := types[s.typ].size
		for j := range s.n {
			copy(want[j*size:(j+1)*size], in[16+8*j:])
		}
		if got := download(t, d, out, 16); string(got) != string(want) {
			t.Errorf("%+v: %x, want %x", s, got, want)
		}
	}
}

func testAtomics(t *testing.T, met map[string]bool) {
	// The oracles, on integers of the type in the name.
	operations := map[string]func(old, x, y *big.Int) *big.Int{
		"cas": func(old, x, y *big.Int) *big.Int {
			if old.Cmp(x) == 0 {
				return y
			}
			return old
		},
		"add": func(old, x, _ *big.Int) *big.Int { return new(big.Int).Add(old, x) },
		"min": func(old, x, _ *big.Int) *big.Int {
			if x.Cmp(old) < 0 {
				return x
			}
			return old
		},
		"max": func(old, x, _ *big.Int) *big.Int {
			if x.Cmp(old) > 0 {
				return x
			}
			return old
		},
	}
	var text strings.Builder
	type atomic struct{ opcode, operation, typ string }
	var atomics []atomic
	for operation := range operations {
		for _, typ := range []string{"b32", "b64", "u32", "s32", "u64", "s64"} {
			a := atomic{"atom.global." + operation + "." + typ, operation, typ}
			if forms[a.opcode] == nil { // as add.s64
				continue
			}
			text.WriteString(rooms()[0].begin(fmt.Sprintf("k%d", len(atomics))))
			fmt.Fprintf(&text, ".reg .%s %%d<3>; .reg .b64 %%w<2>;\n", registerType(typ))
			fmt.Fprintf(&text, "ld.global.%[1]s %%d1, [%%in+16]; ld.global.%[1]s %%d2, [%%in+24];\n", registerType(typ))
			operands := "%d0, [%at+8], %d1"
			if operation == "cas" {
				operands += ", %d2"
			}
			fmt.Fprintf(&text, "%s %s; st.global.%s [%%out+16], %%d0;\n", a.opcode, operands, registerType(typ))
			text.WriteString("ld.global.v2.b64 {%w0, %w1}, [%at]; st.global.v2.b64 [%out], {%w0, %w1}; ret;\n}\n")
			atomics = append(atomics, a)
			met[a.opcode] = true
		}
	}
	d := open(t, text.String(), 2)
	r := rand.New(rand.NewPCG(3, 4))
	for i, a := range atomics {
		bits := 8 * types[a.typ].size
		values := edgesOf(a.typ)
		for range 300 {
			var v [3]uint64
			for j := range v {
				v[j] = values[r.IntN(len(values))]
				if r.IntN(2) == 0 {
					v[j] = randomOf(a.typ, r)
				}
			}
			if a.operation == "cas" && r.IntN(2) == 0 {
				v[1] = v[0]
			}
			in := append([]byte{}, pattern...)
			for _, x := range v[1:] {
				in = binary.LittleEndian.AppendUint64(in, x)
			}
			for j := range bits / 8 {
				in[8+j] = byte(v[0] >> (8 * j))
			}
			from, out := upload(t, d, in), upload(t, d, make([]byte, 24))
			if err := launch(t, d, fmt.Sprintf("k%d", i), 1, 32, 0, uint64(from), uint64(out), 0, 0); err != nil {
				t.Fatalf("%+v: %v", a, err)
			}
			result := truncated(operations[a.operation](signedValue(v[0], a.typ), signedValue(v[1], a.typ), signedValue(v[2], a.typ)), bits)
			want := append([]byte{}, in[:16]...)
			for j := range bits / 8 {
				want[8+j] = byte(result >> (8 * j))
			}
			want = binary.LittleEndian.AppendUint64(want, v[0])
			if got := download(t, d, out, 24); string(got) != string(want) {
				t.Fatalf("%+v of %#x: %x, want %x", a, v, got, want)
			}
			if d.Free(from) != nil || d.Free(out) != nil {
				t.Fatal("Free")
			}
		}
	}
}
