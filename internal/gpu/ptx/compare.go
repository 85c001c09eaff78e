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
	case "lt":
		return or(func(a, b T) bool { return a < b })
	case "le":
		return or(func(a, b T) bool { return a <= b })
	case "gt":
		return or(func(a, b T) bool { return a > b })
	case "ge":
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

// The comparisons that types have.
var (
	equality   = strings.Fields("eq ne")
	comparison = strings.Fields("eq ne lt le gt ge")
	floatingly = strings.Fields("eq ne lt le gt ge equ neu ltu leu gtu geu num nan")
)

func addComparisons() {
	compareAs(equality, "b16", func(u uint64) uint16 { return uint16(u) })
	compareAs(equality, "b32", func(u uint64) uint32 { return uint32(u) })
	compareAs(equality, "b64", func(u uint64) uint64 { return u })
	compareAs(comparison, "u16", func(u uint64) uint16 { return uint16(u) })
	compareAs(comparison, "u32", func(u uint64) uint32 { return uint32(u) })
	compareAs(comparison, "u64", func(u uint64) uint64 { return u })
	compareAs(comparison, "s16", func(u uint64) int16 { return int16(u) })
	compareAs(comparison, "s32", func(u uint64) int32 { return int32(u) })
	compareAs(comparison, "s64", func(u uint64) int64 { return int64(u) })
	compareAs(floatingly, "f32", f32)
	compareAs(floatingly, "f64", f64)
}

// compareAs enters setp for the comparisons of one type.
func compareAs[T ordered](names []string, t string, get func(u uint64) T) {
	for _, name := range names {
		add2("setp."+name+"."+t, "pred", t, t, compare(name, get))
	}
}
