package ptx

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// A module is a text of PTX.
type module struct {
	name    string
	dynamic []string // extern .shared: they begin where the static shared memory ends
	kernels []*kernel
}

// A symbol is a variable or a parameter: its space and its address there.
type symbol struct {
	space   space
	address uint64
}

// typeInfo describes a type of PTX.
type typeInfo struct {
	size  int  // in bytes; of pred: 0
	class byte // 'b' bits, 's' and 'u' integers, 'f' floats, 'p' predicates
}

var types = map[string]typeInfo{
	"pred": {0, 'p'},
	"b8":   {1, 'b'}, "u8": {1, 'u'}, "s8": {1, 's'},
	"b16": {2, 'b'}, "u16": {2, 'u'}, "s16": {2, 's'}, "f16": {2, 'f'}, "bf16": {2, 'b'},
	"b32": {4, 'b'}, "u32": {4, 'u'}, "s32": {4, 's'}, "f32": {4, 'f'}, "f16x2": {4, 'b'}, "bf16x2": {4, 'b'},
	"b64": {8, 'b'}, "u64": {8, 'u'}, "s64": {8, 's'}, "f64": {8, 'f'},
}

// The only version of the language and of the machine that the project's build asks
// clang for.
const (
	wantVersion = "7.0"
	wantTarget  = "sm_80"
	wantAddress = "64"
)

// The first 48 KiB of shared memory are all that static variables may take.
const maxStatic = 48 << 10

const maxThreads = 1024

// Bounds of what a text may ask for, far above what kernels need.
const (
	mostAlign     = 256
	mostElements  = 1 << 24 // of a variable
	mostRegisters = 1 << 16 // of a range
)

// known has modules that were read before: tests open many devices with the same ones.
var known = struct {
	sync.Mutex
	modules map[[2]string]*module // by name and text
}{modules: map[[2]string]*module{}}

// mostKnown bounds what is kept, for tests that change modules.
const mostKnown = 64

// moduleOf returns the module of a text.
func moduleOf(name, text string) (*module, error) {
	known.Lock()
	defer known.Unlock()
	key := [2]string{name, text}
	if m, ok := known.modules[key]; ok {
		return m, nil
	}
	m, err := parseModule(name, text)
	if err != nil {
		return nil, err
	}
	if len(known.modules) == mostKnown {
		clear(known.modules)
	}
	known.modules[key] = m
	return m, nil
}

// parseModule reads a module.
func parseModule(name, text string) (m *module, err error) {
	s := &scanner{lines: strings.Split(text, "\n"), tokens: make([]token, 0, len(text)/4)}
	defer func() {
		switch p := recover().(type) {
		case nil:
		case syntaxError:
			m = nil
			err = fmt.Errorf("ptx: %s: line %d: `%s`: %s", name, p.line, s.source(p.line), p.problem)
		default:
			panic(p)
		}
	}()
	s.scan()
	m = &module{name: name}
	for !s.end() {
		m.declaration(s)
	}
	return m, nil
}

// declaration reads one thing of those that stand outside functions.
func (m *module) declaration(s *scanner) {
	line := s.line()
	s.accept(".visible")
	switch word := s.next(); word {
	case ".version":
		m.want(s, line, word, wantVersion)
	case ".target":
		m.want(s, line, word, wantTarget)
	case ".address_size":
		m.want(s, line, word, wantAddress)
	case ".extern":
		m.variable(s)
	case ".entry":
		m.entry(s)
	case ".func":
		s.fail(line, "functions are not supported: everything must be inlined into the kernels")
	default:
		s.fail(line, "unknown declaration %q", word)
	}
}

func (m *module) want(s *scanner, line int, what, want string) {
	if got := s.next(); got != want {
		s.fail(line, "%s is %q, want %q", what, got, want)
	}
}

// A variable as it is declared.
type variable struct {
	name        string
	size, align int
	unsized     bool
}

// readVariable reads what follows the space: .align 8 .b8 name[32].
func readVariable(s *scanner) variable {
	var v variable
	line := s.line()
	if s.accept(".align") {
		v.align = s.number()
		if v.align <= 0 || v.align&(v.align-1) != 0 || v.align > mostAlign {
			s.fail(line, "an alignment of %d", v.align)
		}
	}
	typ := s.next()
	element := types[strings.TrimPrefix(typ, ".")]
	if element.size == 0 {
		s.fail(line, "unknown type %q", typ)
	}
	v.align = max(v.align, element.size)
	v.name = s.next()
	v.size = element.size
	if s.accept("[") {
		if s.accept("]") {
			v.unsized = true
		} else {
			n := s.number()
			if n > mostElements {
				s.fail(line, "%d elements, %d are the most", n, mostElements)
			}
			v.size *= n
			s.expect("]")
		}
	}
	return v
}

// variable reads what follows .extern: the shared memory of which a launch says the size.
func (m *module) variable(s *scanner) {
	line := s.line()
	s.expect(".shared")
	v := readVariable(s)
	s.expect(";")
	if v.align > dynamicAlignment {
		s.fail(line, "dynamic shared memory is aligned to %d", dynamicAlignment)
	}
	m.dynamic = append(m.dynamic, v.name)
}

func alignUp(n, align int) int { return (n + align - 1) / align * align }

// number reads a decimal number that is not negative.
func (s *scanner) number() int {
	line := s.line()
	text := s.next()
	n, err := strconv.Atoi(text)
	if err != nil {
		s.fail(line, "%q, want a number", text)
	}
	return n
}

// parseLiteral gives the bits of a number for a place of that type.
func parseLiteral(text string, minus bool, typ string) (uint64, error) {
	info := types[typ]
	prefix := ""
	if len(text) > 2 {
		prefix = strings.ToLower(text[:2])
	}
	if prefix == "0f" || prefix == "0d" {
		digits, class := 8, "f32"
		if prefix == "0d" {
			digits, class = 16, "f64"
		}
		v, err := strconv.ParseUint(text[2:], 16, 64)
		if err != nil || len(text)-2 != digits || minus || info.size*2 != digits || info.class != 'f' &&
			info.class != 'b' {
			return 0, fmt.Errorf("the %s number %q for a place of type %s", class, text, typ)
		}
		return v, nil
	}
	if info.class == 'f' {
		return 0, fmt.Errorf("the number %q for a place of type %s: want it as 0f or 0d and hexadecimal digits", text, typ)
	}
	v, err := strconv.ParseUint(text, 0, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is no number", text)
	}
	if info.class == 'p' {
		return truth(v != 0), nil // clang writes -1 for true
	}
	if minus {
		v = -v
	}
	if bits := 8 * info.size; bits < 64 {
		if high := int64(v) >> (bits - 1); high != 0 && high != -1 && v>>bits != 0 {
			return 0, fmt.Errorf("%q does not fit into %s", text, typ)
		}
		v &= 1<<bits - 1
	}
	return v, nil
}
