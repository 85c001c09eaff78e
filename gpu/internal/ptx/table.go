package ptx

import "strings"

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

// addPlain enters an instruction on registers alone. operands are the types of its
// destination and of its sources.
func addPlain(opcode, operands string, run operation) {
	types := strings.Fields(operands)
	add(opcode, func(s *statement) {
		s.want(len(types))
		s.in.run, s.in.d = run, s.dst(0, types[0])
		sources := [...]*slot{&s.in.x, &s.in.y, &s.in.z}
		for i, t := range types[1:] {
			*sources[i] = s.src(i+1, t)
		}
	})
}

// refused says why opcodes with a part are not in the table.
var refused = map[string]string{
	"rz": "the only rounding is .rn", "rm": "the only rounding is .rn", "rp": "the only rounding is .rn", "rna": "the only rounding is .rn",
	"ftz":    "subnormals must not be flushed to zero",
	"sat":    "results must not be saturated",
	"approx": "its result is not exact", "full": "its result is not exact",
}

// whyUnknown says what is wrong with an opcode that is not in the table.
func whyUnknown(opcode string) string {
	unknown := "unknown instruction " + opcode
	parts := strings.Split(opcode, ".")
	for _, part := range parts[1:] {
		if why, ok := refused[part]; ok {
			return unknown + ": " + why
		}
	}
	switch rounded := strings.Replace(opcode, ".", ".rn.", 1); {
	case forms[rounded] != nil && !strings.HasPrefix(opcode, "cvt."):
		return unknown + ": it must say .rn, or the assembler may fuse it with another"
	case parts[0] == "activemask":
		return unknown + ": which lanes run together is not defined"
	}
	return unknown
}

// lowBits has the bits of so many bytes, at most 8.
func lowBits(size int) uint64 { return ^uint64(0) >> (64 - 8*size) }
