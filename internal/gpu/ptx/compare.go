package ptx

import "strings"

type ordered interface {
	signed | unsigned | float32 | float64
}

// compare makes the closure that compares two values of type T. Of floats a comparison
// is false where an operand is NaN, and its twin with a u after the name is true there.
func compare[T ordered](name string, get func(u uint64) T) op2 {
	or := func(f func(a, b T) bool) op2 {
		return func(d, x, y int) func(l *lane) {
			return func(l *lane) { l.r[d] = truth(f(get(l.r[x]), get(l.r[y]))) }
		}
	}
	switch name {
	case "eq":
		return or(func(a, b T) bool { return a == b })
	case "ne":
		return or(func(a, b T) bool { return a < b || a > b })
	case "lt", "lo":
		return or(func(a, b T) bool { return a < b })
	case "le", "ls":
		return or(func(a, b T) bool { return a <= b })
	case "gt", "hi":
		return or(func(a, b T) bool { return a > b })
	case "ge", "hs":
		return or(func(a, b T) bool { return a >= b })
	case "equ":
		return or(func(a, b T) bool { return !(a < b || a > b) })
	case "neu":
		return or(func(a, b T) bool { return a != b })
	case "ltu":
		return or(func(a, b T) bool { return !(a >= b) })
	case "leu":
		return or(func(a, b T) bool { return !(a > b) })
	case "gtu":
		return or(func(a, b T) bool { return !(a <= b) })
	case "geu":
		return or(func(a, b T) bool { return !(a < b) })
	case "num":
		return or(func(a, b T) bool { return a == a && b == b })
	case "nan":
		return or(func(a, b T) bool { return a != a || b != b })
	}
	panic("the comparison " + name)
}

// The comparisons that types have. lo, ls, hi and hs are lt, le, gt and ge.
var (
	equality   = strings.Fields("eq ne")
	comparison = strings.Fields("eq ne lt le gt ge")
	unsignedly = strings.Fields("eq ne lt le gt ge lo ls hi hs")
	floatingly = strings.Fields("eq ne lt le gt ge equ neu ltu leu gtu geu num nan")
)

func addComparisons() {
	compareAs(equality, "b16", func(u uint64) uint16 { return uint16(u) })
	compareAs(equality, "b32", func(u uint64) uint32 { return uint32(u) })
	compareAs(equality, "b64", func(u uint64) uint64 { return u })
	compareAs(unsignedly, "u16", func(u uint64) uint16 { return uint16(u) })
	compareAs(unsignedly, "u32", func(u uint64) uint32 { return uint32(u) })
	compareAs(unsignedly, "u64", func(u uint64) uint64 { return u })
	compareAs(comparison, "s16", func(u uint64) int16 { return int16(u) })
	compareAs(comparison, "s32", func(u uint64) int32 { return int32(u) })
	compareAs(comparison, "s64", func(u uint64) int64 { return int64(u) })
	compareAs(floatingly, "f32", f32)
	compareAs(floatingly, "f64", f64)
}

// compareAs enters setp and set for the comparisons of one type.
func compareAs[T ordered](names []string, t string, get func(u uint64) T) {
	for _, name := range names {
		op := compare(name, get)
		for _, combine := range []string{"", "and", "or", "xor"} {
			opcode := "setp." + name
			if combine != "" {
				opcode += "." + combine
			}
			add(opcode+"."+t, func(s *statement) { s.setp(t, op, combine) })
		}
		for _, d := range []string{"u32", "s32", "f32"} {
			one := uint64(fullMask)
			if d == "f32" {
				one = 0x3f800000
			}
			add2("set."+name+"."+d+"."+t, d, t, t, func(d, x, y int) func(l *lane) {
				f := op(d, x, y)
				return func(l *lane) { f(l); l.r[d] *= one }
			})
		}
	}
}

// setp compiles setp p, a, b and setp p|q, a, b, with a predicate as a fourth operand
// if there is an operation to combine it with. q is the same with the comparison
// inverted.
func (s *statement) setp(t string, op op2, combine string) {
	want := 3
	if combine != "" {
		want = 4
	}
	s.want(want, want)
	p, q := s.operands[0], operand{kind: word, text: "_"}
	if p.kind == pair {
		p, q = p.parts[0], p.parts[1]
	}
	d, x, y := s.target(p, "pred"), s.src(1, t), s.src(2, t)
	if combine == "" && q.text == "_" {
		s.in.run = op(d, x, y)
		return
	}
	e, with, inverted := s.target(q, "pred"), s.c.constant(1), false
	if combine == "" {
		combine = "and"
	} else {
		with, inverted = s.predicate(3)
	}
	result := s.c.newSlot(0)
	f := op(result, x, y)
	s.in.run = func(l *lane) {
		c := l.r[with] ^ truth(inverted)
		f(l)
		v := l.r[result]
		l.r[d], l.r[e] = combined(combine, v, c), combined(combine, v^1, c)
	}
}

func combined(how string, a, b uint64) uint64 {
	switch how {
	case "and":
		return a & b
	case "or":
		return a | b
	}
	return a ^ b
}
