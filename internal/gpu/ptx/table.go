package ptx

import (
	"fmt"
	"slices"
	"strings"
)

// A form compiles the instructions of one opcode: it checks the operands and fills in
// what the instruction does.
type form func(s *statement)

// forms has every opcode that the package knows, with all its modifiers. What is not
// here is refused when a module is opened.
var forms = map[string]form{}

func init() {
	addMoves()
	addIntegers()
	addBits()
	addFloats()
	addHalves()
	addComparisons()
	addConversions()
	addMemory()
	addAtomics()
	addControl()
	addWarp()
}

// add enters an opcode.
func add(opcode string, f form) {
	if _, ok := forms[opcode]; ok {
		panic("two forms of " + opcode)
	}
	forms[opcode] = f
}

// An op1 (op2, op3) makes the closure of an instruction from the slots of its
// destination and of its one (two, three) sources.
type (
	op1 func(d, x int) func(l *lane)
	op2 func(d, x, y int) func(l *lane)
	op3 func(d, x, y, z int) func(l *lane)
)

// add1 enters an instruction of one source; d and x are types.
func add1(opcode, d, x string, f op1) {
	add(opcode, func(s *statement) {
		s.want(2, 2)
		s.in.run = f(s.dst(0, d), s.src(1, x))
	})
}

func add2(opcode, d, x, y string, f op2) {
	add(opcode, func(s *statement) {
		s.want(3, 3)
		s.in.run = f(s.dst(0, d), s.src(1, x), s.src(2, y))
	})
}

func add3(opcode, d, x, y, z string, f op3) {
	add(opcode, func(s *statement) {
		s.want(4, 4)
		s.in.run = f(s.dst(0, d), s.src(1, x), s.src(2, y), s.src(3, z))
	})
}

// whyUnknown says what is wrong with an opcode that is not in the table.
func whyUnknown(opcode string) string {
	for _, part := range strings.Split(opcode, ".")[1:] {
		switch part {
		case "rz", "rm", "rp", "rna":
			return fmt.Sprintf("unknown instruction %s: the only rounding is .rn", opcode)
		case "ftz":
			return fmt.Sprintf("unknown instruction %s: subnormals must not be flushed to zero", opcode)
		case "sat":
			return fmt.Sprintf("unknown instruction %s: results must not be saturated", opcode)
		case "approx", "full":
			return fmt.Sprintf("unknown instruction %s: its result is not exact", opcode)
		}
	}
	if slices.Contains([]string{"add", "sub", "mul", "fma", "mad", "div", "sqrt", "rcp"}, strings.Split(opcode, ".")[0]) && forms[strings.Replace(opcode, ".", ".rn.", 1)] != nil {
		return fmt.Sprintf("unknown instruction %s: it must say .rn, or the assembler may fuse it with another", opcode)
	}
	if strings.HasPrefix(opcode, "activemask") {
		return "unknown instruction activemask: which lanes run together is not defined"
	}
	return "unknown instruction " + opcode
}
