package ptx

import "encoding/binary"

var accessTypes = []string{"b8", "u8", "s8", "b16", "u16", "s16", "b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64"}

// spaceParts are the parts of opcodes that name a space.
var spaceParts = map[string]space{"": generic, ".global": global, ".shared": shared, ".param": param}

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
	s.want(2, 2)
	from := s.address(1, sp)
	var to []int
	var width int
	for _, o := range s.elements(0, n) {
		d, w := s.wideDst(o, t)
		to = append(to, d)
		width = w
	}
	size := types[t].size
	total := uint64(n * size)
	at := &site{}
	d := to[0]
	switch {
	case types[t].class == 's' && width > size:
		element, mask := integerOfType(t), ^uint64(0)>>(64-8*width)
		s.in.run = func(l *lane) {
			b := l.load(sp, at, from.of(l), total)
			for i, d := range to {
				l.r[d] = element.extend(bytesOf(b[i*size:], size)) & mask
			}
		}
	case n > 1 && size == 4:
		s.in.run = func(l *lane) {
			b := l.load(sp, at, from.of(l), total)
			for _, d := range to {
				l.r[d] = uint64(binary.LittleEndian.Uint32(b))
				b = b[4:]
			}
		}
	case n > 1:
		s.in.run = func(l *lane) {
			b := l.load(sp, at, from.of(l), total)
			for i, d := range to {
				l.r[d] = bytesOf(b[i*size:], size)
			}
		}
	case size == 4:
		s.in.run = func(l *lane) { l.r[d] = uint64(binary.LittleEndian.Uint32(l.load(sp, at, from.of(l), 4))) }
	case size == 8:
		s.in.run = func(l *lane) { l.r[d] = binary.LittleEndian.Uint64(l.load(sp, at, from.of(l), 8)) }
	default:
		s.in.run = func(l *lane) { l.r[d] = bytesOf(l.load(sp, at, from.of(l), total), size) }
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
	s.want(2, 2)
	to := s.address(0, sp)
	var from []int
	for _, o := range s.elements(1, n) {
		from = append(from, s.slot(o, t, types[t].class != 'f'))
	}
	size := types[t].size
	total := uint64(n * size)
	at := &site{}
	if n == 1 {
		x := from[0]
		s.in.run = func(l *lane) { putBytes(l.store(sp, at, to.of(l), total), l.r[x], size) }
		return
	}
	s.in.run = func(l *lane) {
		b := l.store(sp, at, to.of(l), total)
		for i, x := range from {
			putBytes(b[i*size:], l.r[x], size)
		}
	}
}

// addAsync enters cp.async of 16 bytes.
func addAsync() {
	add("cp.async.cg.shared.global", func(s *statement) {
		s.want(3, 4)
		to, from, size := s.address(0, shared), s.address(1, global), uint64(s.integer(2))
		if size != 16 {
			s.fail("cp.async.cg of %d bytes", size)
		}
		count := s.c.constant(size)
		if len(s.operands) == 4 {
			count = s.src(3, "u32")
		}
		at := &site{}
		s.in.run = func(l *lane) { l.copyAsync(at, to.of(l), from.of(l), size, l.r[count]) }
	})
	add("cp.async.commit_group", func(s *statement) {
		s.want(0, 0)
		s.in.run = (*lane).commitGroup
	})
	add("cp.async.wait_group", func(s *statement) {
		s.want(1, 1)
		n := s.integer(0)
		s.in.run = func(l *lane) { l.waitGroups(n) }
	})
}

// ---------------------------------------------------------------- atomic operations

// An atomicOp gives the new value of the memory from the old one and the operands.
type atomicOp func(old, x, y uint64) uint64

var atomicOps = map[string]atomicOp{
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

// addAtomics enters atom on global memory. There is no addition of floats: its order, and
// with it its result, would not be defined.
func addAtomics() {
	for name, op := range atomicOps {
		add("atom.global."+name, func(s *statement) { s.atomic(name[:3], name[len(name)-3:], op) })
	}
}

// atomic compiles an atomic operation.
func (s *statement) atomic(name, t string, op atomicOp) {
	operands := 3
	if name == "cas" {
		operands = 4
	}
	s.want(operands, operands)
	d, to, x := s.dst(0, t), s.address(1, global), s.src(2, t)
	y := x
	if operands == 4 {
		y = s.src(3, t)
	}
	size := types[t].size
	at := &site{}
	s.in.run = func(l *lane) {
		b := l.load(global, at, to.of(l), uint64(size))
		old := bytesOf(b, size)
		putBytes(b, op(old, l.r[x], l.r[y]), size)
		l.r[d] = old
	}
}
