package ptx

import "slices"

// An operandKind says how an operand is written.
type operandKind uint8

const (
	word    operandKind = iota // a register, a special register, a variable, a label: text
	number                     // text, with minus before it
	list                       // {a, b}: parts
	address                    // [a+8]: parts[0] is a word
)

// An operand is an operand of an instruction as it is written.
type operand struct {
	kind   operandKind
	text   string
	minus  bool
	parts  []operand
	offset int64 // of a word: a+8
}

// readOperand reads an operand.
func (c *compiler) readOperand() operand {
	switch {
	case c.accept("{"):
		o := operand{kind: list}
		for {
			o.parts = append(o.parts, c.readOperand())
			if !c.accept(",") {
				break
			}
		}
		c.expect("}")
		return o
	case c.accept("["):
		o := operand{kind: address, parts: []operand{c.readOperand()}}
		c.expect("]")
		return o
	case c.accept("-"):
		return operand{kind: number, text: c.next(), minus: true}
	}
	text := c.next()
	if text[0] >= '0' && text[0] <= '9' {
		return operand{kind: number, text: text}
	}
	o := operand{kind: word, text: text}
	for c.peek() == "+" || c.peek() == "-" {
		minus := c.next() == "-"
		minus = c.accept("-") != minus // clang's %0+%1 may give +-16
		line := c.line()
		v, err := parseLiteral(c.next(), minus, "s64")
		if err != nil {
			c.fail(line, "%v", err)
		}
		o.offset += int64(v)
	}
	return o
}

// A statement is an instruction that is being compiled.
type statement struct {
	c        *compiler
	line     int
	opcode   string
	operands []operand
	in       *instr
	source   *source
}

func (s *statement) fail(format string, args ...any) { s.c.fail(s.line, format, args...) }

// want fails unless the statement has n operands.
func (s *statement) want(n int) {
	if len(s.operands) != n {
		s.fail("%d operands, want %d", len(s.operands), n)
	}
}

// instruction compiles one instruction.
func (c *compiler) instruction(line int, opcode string, predicate int32, negated bool) {
	s := &statement{c: c, line: line, opcode: opcode}
	for first := true; !c.accept(";"); first = false {
		if !first {
			c.expect(",")
		}
		s.operands = append(s.operands, c.readOperand())
	}
	f, ok := forms[s.opcode]
	if !ok {
		s.fail("%s", whyUnknown(opcode))
	}
	c.k.program = append(c.k.program, instr{predicate: predicate, negated: negated})
	c.k.sources = append(c.k.sources, source{line: line, text: c.source(line)})
	s.in = &c.k.program[len(c.k.program)-1]
	s.source = &c.k.sources[len(c.k.sources)-1]
	f(s)
}

// note keeps a register's name for messages.
func (s *statement) note(name string, at slot) {
	n := namedRegister{name, at}
	if !slices.Contains(s.source.registers, n) {
		s.source.registers = append(s.source.registers, n)
	}
}

// special are the registers that the machine sets.
var special = map[string]slot{"%tid.x": slotTid, "%ntid.x": slotNtid, "%ctaid.x": slotCtaid, "%nctaid.x": slotNctaid}

// src returns the slot of operand i, which is read as typ.
func (s *statement) src(i int, typ string) slot { return s.slot(s.operands[i], typ, false) }

// slot returns the slot of an operand that is read as typ: of a register, or of one that
// holds the constant. With wide, the register may be wider.
func (s *statement) slot(o operand, typ string, wide bool) slot {
	switch o.kind {
	case number:
		v, err := parseLiteral(o.text, o.minus, typ)
		if err != nil {
			s.fail("%v", err)
		}
		return s.c.constant(v)
	case word:
		if at, ok := special[o.text]; ok && types[typ].size == 4 {
			s.note(o.text, at)
			return at
		}
		if r, ok := s.c.lookup(o.text); ok {
			if o.offset != 0 {
				s.fail("a sum where an operand is wanted")
			}
			if !wide || types[r.typ].size < types[typ].size {
				s.c.register(s.line, o.text, typ)
			}
			s.note(o.text, r.slot)
			return r.slot
		}
		if v, ok := s.c.symbol(o.text); ok && s.opcode[:min(4, len(s.opcode))] == "mov." {
			if types[typ].size < 4 {
				s.fail("an address of %s memory does not fit into %s", spaceNames[v.space], typ)
			}
			return s.c.constant((v.address + uint64(o.offset)) & lowBits(types[typ].size))
		}
	}
	s.fail("%q is no operand of type %s", o.text, typ)
	return 0
}

// dst returns the slot of operand i, a register that is written as typ.
func (s *statement) dst(i int, typ string) slot { return s.target(s.operands[i], typ) }

// target is dst for an operand that may be part of another one.
func (s *statement) target(o operand, typ string) slot {
	if o.kind != word || o.offset != 0 {
		s.fail("the destination is not a register")
	}
	at := s.c.register(s.line, o.text, typ)
	s.note(o.text, at)
	return at
}

// wideDst is dst for an operand whose register may be wider than typ. It returns the
// register's size in bytes as well.
func (s *statement) wideDst(o operand, typ string) (at slot, size int) {
	if o.kind == word {
		if r, ok := s.c.lookup(o.text); ok && types[r.typ].size > types[typ].size && types[typ].class != 'f' {
			s.note(o.text, r.slot)
			return r.slot, types[r.typ].size
		}
	}
	return s.target(o, typ), types[typ].size
}

// A place is an address in an operand: (register + offset) & mask.
type place struct {
	slot         slot
	offset, mask uint64
}

func (p *place) of(l *lane) uint64 { return (l.r[p.slot] + p.offset) & p.mask }

// address returns the address in operand i. Its register has 64 bits, or 32 where the
// space is small.
func (s *statement) address(i int, sp space) place {
	o := s.operands[i]
	if o.kind != address {
		s.fail("operand %d is not an address", i+1)
	}
	p := o.parts[0]
	offset := uint64(p.offset)
	if v, ok := s.c.symbol(p.text); ok {
		if sp != v.space {
			s.fail("%s is in %s memory, the access to %s", p.text, spaceNames[v.space], spaceNames[sp])
		}
		return place{s.c.constant(v.address), offset, ^uint64(0)}
	}
	r, ok := s.c.lookup(p.text)
	if !ok {
		s.fail("%q is no address", p.text)
	}
	size := types[r.typ].size
	if size != 8 && (size != 4 || sp == global) || types[r.typ].class == 'f' {
		s.fail("an address in the register %s of type %s", p.text, r.typ)
	}
	s.note(p.text, r.slot)
	return place{r.slot, offset, lowBits(size)}
}

// integer returns operand i, a number.
func (s *statement) integer(i int) int {
	o := s.operands[i]
	if o.kind != number || o.minus {
		s.fail("operand %d is not a number", i+1)
	}
	v, err := parseLiteral(o.text, false, "u32")
	if err != nil {
		s.fail("%v", err)
	}
	return int(v)
}
