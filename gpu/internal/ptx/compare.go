package ptx

import "strings"

type ordered interface {
	signed | unsigned | float32 | float64
}

// The comparisons that types have.
const (
	equality   = "eq ne"
	comparison = "eq ne lt le gt ge"
	floatingly = "eq ne lt le gt ge equ neu ltu leu gtu geu num nan"
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

// compareAs enters setp for the comparisons of one type. Of floats a comparison is false
// where an operand is NaN, and the comparison with a u after its name is true there.
func compareAs[T ordered](names, t string, get func(u uint64) T) {
	holds := map[string]func(a, b T) bool{
		"eq":  func(a, b T) bool { return a == b },
		"ne":  func(a, b T) bool { return a < b || a > b },
		"lt":  func(a, b T) bool { return a < b },
		"le":  func(a, b T) bool { return a <= b },
		"gt":  func(a, b T) bool { return a > b },
		"ge":  func(a, b T) bool { return a >= b },
		"equ": func(a, b T) bool { return !(a < b || a > b) },
		"neu": func(a, b T) bool { return a != b },
		"ltu": func(a, b T) bool { return !(a >= b) },
		"leu": func(a, b T) bool { return !(a > b) },
		"gtu": func(a, b T) bool { return !(a <= b) },
		"geu": func(a, b T) bool { return !(a < b) },
		"num": func(a, b T) bool { return a == a && b == b },
		"nan": func(a, b T) bool { return a != a || b != b },
	}
	for _, name := range strings.Fields(names) {
		f := holds[name]
		addPlain("setp."+name+"."+t, "pred "+t+" "+t, func(l *lane, in *instr) {
			l.r[in.d] = truth(f(get(l.r[in.x]), get(l.r[in.y])))
		})
	}
}
