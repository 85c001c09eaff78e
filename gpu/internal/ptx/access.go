package ptx

import (
	"encoding/binary"
	"strings"
)

var accessTypes = []string{"b8", "u8", "s8", "b16", "u16", "s16", "b32", "u32", "s32", "f32", "b64", "u64",
	"s64", "f64"}

// spaceParts are the parts of opcodes that name a space. Without one, the address is a
// generic one: no other than those of global memory can be made.
var spaceParts = map[string]space{"": global, ".global": global, ".shared": shared, ".param": param}

func addMemory() {
	for part, sp := range spaceParts {
		for _, t := range accessTypes {
			for vector, n := range map[string]int{"": 1, ".v2": 2, ".v4": 4} {
				if n*types[t].size > 16 {
					continue
				}
				add("ld"+part+vector+"."+t, func(s *statement) { s.ld(sp, t, n) })
				if sp != param {
					add("st"+part+vector+"."+t, func(s *statement) { s.st(sp, t, n) })
				}
			}
		}
	}
	addAsync()
}

// elements returns the operands that operand i has: n of them.
func (s *statement) elements(i, n int) []operand {
	o := s.operands[i]
	if n == 1 {
		return s.operands[i : i+1]
	}
	if o.kind != list || len(o.parts) != n {
		s.fail("operand %d is not a list of %d", i+1, n)
	}
	return o.parts
}

// ld compiles a load of n elements of type t.
func (s *statement) ld(sp space, t string, n int) {
	s.want(2)
	from := s.address(1, sp)
	var to []slot
	var width int
	for _, o := range s.elements(0, n) {
		d, w := s.wideDst(o, t)
		to = append(to, d)
		width = w
	}
	size := types[t].size
	total := uint64(n * size)
	element, mask := integerOfType(t), lowBits(width)
	signed := element.signed && width > size
	if n == 1 && !signed {
		s.in.d = to[0]
		s.in.run = func(l *lane, in *instr) { l.r[in.d] = bytesOf(l.load(sp, from.of(l), total), size) }
		return
	}
	s.in.run = func(l *lane, _ *instr) {
		b := l.load(sp, from.of(l), total)
		for i, d := range to {
			v := bytesOf(b[i*size:], size)
			if signed {
				v = element.extend(v) & mask
			}
			l.r[d] = v
		}
	}
}

// bytesOf reads a number of size bytes.
func bytesOf(b []byte, size int) uint64 {
	switch size {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.LittleEndian.Uint16(b))
	case 4:
		return uint64(binary.LittleEndian.Uint32(b))
	}
	return binary.LittleEndian.Uint64(b)
}

// putBytes writes the low size bytes of a number.
func putBytes(b []byte, v uint64, size int) {
	switch size {
	case 1:
		b[0] = byte(v)
	case 2:
		binary.LittleEndian.PutUint16(b, uint16(v))
	case 4:
		binary.LittleEndian.PutUint32(b, uint32(v))
	default:
		binary.LittleEndian.PutUint64(b, v)
	}
}

// st compiles a store of n elements of type t.
func (s *statement) st(sp space, t string, n int) {
	s.want(2)
	to := s.address(0, sp)
	var from []slot
	for _, o := range s.elements(1, n) {
		from = append(from, s.slot(o, t, types[t].class != 'f'))
	}
	size := types[t].size
	total := uint64(n * size)
	s.in.run = func(l *lane, _ *instr) {
		b := l.store(sp, to.of(l), total)
		for i, x := range from {
			putBytes(b[i*size:], l.r[x], size)
		}
	}
}

// addAsync enters cp.async of 16 bytes.
func addAsync() {
	add("cp.async.cg.shared.global", func(s *statement) {
		count := s.c.constant(asyncBytes)
		if len(s.operands) == 4 {
			count = s.src(3, "u32")
		} else {
			s.want(3)
		}
		to, from := s.address(0, shared), s.address(1, global)
		if size := s.integer(2); size != asyncBytes {
			s.fail("cp.async.cg of %d bytes", size)
		}
		s.in.run = func(l *lane, _ *instr) { l.copyAsync(to.of(l), from.of(l), l.r[count]) }
	})
	add("cp.async.commit_group", func(s *statement) {
		s.want(0)
		s.in.run = func(l *lane, _ *instr) { l.groups = append(l.groups, len(l.copies)) }
	})
	add("cp.async.wait_group", func(s *statement) {
		s.want(1)
		n := s.integer(0)
		s.in.run = func(l *lane, _ *instr) { l.waitGroups(n) }
	})
}

// ---------------------------------------------------------------- atomic operations

// atomics give the new value of the memory from the old one and the operands. There is no
// addition of floats: its order, and with it its result, would not be defined.
var atomics = map[string]func(old, x, y uint64) uint64{
	"cas.b32": func(old, x, y uint64) uint64 {
		if old == x {
			return y
		}
		return old
	},
	"add.u32": func(old, x, _ uint64) uint64 { return uint64(uint32(old + x)) },
	"add.u64": func(old, x, _ uint64) uint64 { return old + x },
	"min.u64": func(old, x, _ uint64) uint64 { return min(old, x) },
	"max.u64": func(old, x, _ uint64) uint64 { return max(old, x) },
}

// addAtomics enters atom on global memory.
func addAtomics() {
	for name, of := range atomics {
		operation, t, _ := strings.Cut(name, ".")
		add("atom.global."+name, func(s *statement) {
			if operation == "cas" {
				s.want(4)
				s.in.y = s.src(3, t)
			} else {
				s.want(3)
			}
			s.in.d, s.in.x = s.dst(0, t), s.src(2, t)
			to, size := s.address(1, global), types[t].size
			s.in.run = func(l *lane, in *instr) {
				b := l.load(global, to.of(l), uint64(size))
				old := bytesOf(b, size)
				putBytes(b, of(old, l.r[in.x], l.r[in.y]), size)
				l.r[in.d] = old
			}
		})
	}
}
