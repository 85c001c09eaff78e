package ptx

import (
	"slices"
	"strconv"
	"strings"
)

// A register of a kernel: its slot in lane.r and its type.
type register struct {
	slot slot // 0: none yet
	typ  string
}

// A compiler makes a kernel of the text of an entry.
type compiler struct {
	*scanner
	k         *kernel
	symbols   map[string]symbol     // variables of the entry, and parameters
	scopes    []map[string]register // the innermost last
	constants map[uint64]slot
	labels    map[string]int
	jumps     []jump
}

// A jump is a branch whose label may come later.
type jump struct {
	from  int
	label string
	line  int
}

// entry reads a kernel, from its name on.
func (m *module) entry(s *scanner) {
	k := &kernel{name: s.next(), module: m, maxThreads: maxThreads, slots: make([]uint64, firstSlot)}
	c := &compiler{scanner: s, k: k, symbols: map[string]symbol{},
		scopes: []map[string]register{{}}, constants: map[uint64]slot{}, labels: map[string]int{}}
	if s.accept("(") && !s.accept(")") {
		for {
			s.expect(".param")
			v := readVariable(s)
			k.paramSize = alignUp(k.paramSize, v.align)
			c.symbols[v.name] = symbol{param, uint64(k.paramSize)}
			k.paramSize += v.size
			if !s.accept(",") {
				break
			}
		}
		s.expect(")")
	}
	for !s.accept("{") {
		line := s.line()
		switch word := s.next(); word {
		case ".maxntid":
			k.maxThreads = min(s.dimensions(), maxThreads)
		case ".minnctapersm":
			s.number()
		default:
			s.fail(line, "unknown directive %q", word)
		}
	}
	m.kernels = append(m.kernels, k)
	for len(c.scopes) > 0 {
		c.statement()
	}
	for _, j := range c.jumps {
		at, ok := c.labels[j.label]
		if !ok {
			c.fail(j.line, "there is no label %s", j.label)
		}
		k.program[j.from].target = int32(at)
	}
	// A lane that runs past the last instruction, or jumps there, ends.
	k.program = append(k.program, instr{kind: exit, predicate: none})
	k.sources = append(k.sources, source{line: c.line(), text: "(end)"})
	if k.static.size > maxStatic {
		c.fail(c.line(), "%d bytes of static shared memory, %d is the most", k.static.size, maxStatic)
	}
}

// dimensions reads "128, 1, 1", or fewer of the three, and gives their product.
func (s *scanner) dimensions() int {
	n := s.number()
	for s.accept(",") {
		n *= s.number()
	}
	return n
}

// statement reads a declaration, a label, an instruction or a brace.
func (c *compiler) statement() {
	line := c.line()
	switch word := c.next(); word {
	case "{":
		c.scopes = append(c.scopes, map[string]register{})
	case "}":
		c.scopes = c.scopes[:len(c.scopes)-1]
	case ";":
	case ".reg":
		c.registers()
	case ".pragma":
		c.next()
		c.expect(";")
	case ".shared":
		if len(c.k.program) > 0 {
			c.fail(line, "variables must come before the first instruction")
		}
		v := readVariable(c.scanner)
		c.expect(";")
		if v.unsized {
			c.fail(line, "a variable without a size")
		}
		c.symbols[v.name] = symbol{shared, c.k.static.place(v.size, v.align)}
	case "@":
		negated := c.accept("!")
		predicate := c.register(line, c.next(), "pred")
		c.instruction(line, c.next(), int32(predicate), negated)
	default:
		if c.accept(":") {
			if _, ok := c.labels[word]; ok {
				c.fail(line, "the label %s stands twice", word)
			}
			c.labels[word] = len(c.k.program)
			return
		}
		if word[0] == '.' {
			c.fail(line, "unknown directive %q", word)
		}
		c.instruction(line, word, none, false)
	}
}

// registers reads what follows .reg: .b32 %r<100>; or .b16 low, high;
func (c *compiler) registers() {
	line := c.line()
	typ := strings.TrimPrefix(c.next(), ".")
	if _, ok := types[typ]; !ok {
		c.fail(line, "unknown type %q", typ)
	}
	scope := c.scopes[len(c.scopes)-1]
	for {
		name := c.next()
		if c.accept("<") {
			n := c.number()
			if n > mostRegisters {
				c.fail(line, "%d registers, %d are the most", n, mostRegisters)
			}
			for i := range n {
				scope[name+strconv.Itoa(i)] = register{0, typ}
			}
			c.expect(">")
		} else {
			scope[name] = register{0, typ}
		}
		if !c.accept(",") {
			break
		}
	}
	c.expect(";")
}

// lookup finds a register by its name, and gives it a slot if it has none.
func (c *compiler) lookup(name string) (register, bool) {
	for i := len(c.scopes) - 1; i >= 0; i-- {
		if r, ok := c.scopes[i][name]; ok {
			if r.slot == 0 {
				r.slot = c.newSlot(unregistered & lowBits(types[r.typ].size))
				c.scopes[i][name] = r
			}
			return r, true
		}
	}
	return register{}, false
}

func (c *compiler) newSlot(v uint64) slot {
	c.k.slots = append(c.k.slots, v)
	return slot(len(c.k.slots) - 1)
}

// constant returns a slot that holds v.
func (c *compiler) constant(v uint64) slot {
	at, ok := c.constants[v]
	if !ok {
		at = c.newSlot(v)
		c.constants[v] = at
	}
	return at
}

// register returns the slot of a register that an instruction of type typ uses.
func (c *compiler) register(line int, name, typ string) slot {
	r, ok := c.lookup(name)
	if !ok {
		c.fail(line, "there is no register %s", name)
	}
	if !fits(typ, r.typ) {
		c.fail(line, "the register %s is of type %s, the operand of type %s", name, r.typ, typ)
	}
	return r.slot
}

// fits says whether a register may stand for an operand: both have one size, and
// floats do not mix with integers. Bits mix with either.
func fits(operand, register string) bool {
	o, r := types[operand], types[register]
	if o.size != r.size || (o.class == 'p') != (r.class == 'p') {
		return false
	}
	return o.class == 'b' || r.class == 'b' || (o.class == 'f') == (r.class == 'f')
}

// symbol finds a variable.
func (c *compiler) symbol(name string) (symbol, bool) {
	if slices.Contains(c.k.module.dynamic, name) {
		return symbol{shared, uint64(c.k.static.end())}, true
	}
	v, ok := c.symbols[name]
	return v, ok
}
