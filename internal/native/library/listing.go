package library

import (
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// packagePath is the package whose assembly goes into the library.
const packagePath = "github.com/seed621a2839/reweight"

// maxArgs is how many bytes of arguments and results rw_call can pass.
const maxArgs = 12 * 8

// A file is what one file of assembly defines. Constants are known by name in their file
// only: other files have constants of the same names.
type file struct {
	path      string
	functions []*symbol
	constants map[string]*symbol
}

// A symbol is a function or a constant.
type symbol struct {
	name     string // without the path of the package
	function bool
	size     int    // that of code, as the listing says
	framed   bool   // whether the function has a frame of its own
	code     []byte // contents, if it is a constant
	relocs   []reloc
}

// A reloc is a field of a function that holds the address of a constant.
type reloc struct {
	offset, size int
	kind         string // of the relocation, as Go names it: "R_PCREL"
	target       string // the constant's name
	addend       int64
}

var (
	functionLine = regexp.MustCompile(`^` + regexp.QuoteMeta(packagePath) + `\.(\w+) STEXT nosplit asm size=(\d+) args=0x([0-9a-f]+) locals=0x([0-9a-f]+) `)
	constantLine = regexp.MustCompile(`^(\w+) SRODATA static size=(\d+)$`)
	textLine     = regexp.MustCompile(`^\t0x0000 00000 \((.+):\d+\)\tTEXT\t`)
	instruction  = regexp.MustCompile(`^\t0x[0-9a-f]+ \d{5,} \(`)
	dumpLine     = regexp.MustCompile(`^\t0x([0-9a-f]+)((?: [0-9a-f]{2}){1,16})  `)
	relocLine    = regexp.MustCompile(`^\trel (\d+)\+(\d+) t=(\w+) (\S+?)([+-]\d+)$`)
)

// parseListing reads what Go's assembler prints with -S: of each file the functions, with
// their instructions, bytes and relocations, and then the constants with their bytes.
func parseListing(listing string) ([]*file, error) {
	var files []*file
	var s *symbol // the one that lines are about
	for i, line := range strings.Split(listing, "\n") {
		var err error
		switch {
		case line == "" || strings.HasPrefix(line, "# ") || strings.HasPrefix(line, "go: "): // the go command's own
		case !strings.HasPrefix(line, "\t"):
			if s, err = parseSymbol(line); err == nil && !s.function {
				err = addConstant(files, s)
			}
		case s == nil:
			err = errors.New("it is of no symbol")
		case s.function && textLine.MatchString(line):
			path := textLine.FindStringSubmatch(line)[1]
			if len(files) == 0 || files[len(files)-1].path != path {
				files = append(files, &file{path: path, constants: map[string]*symbol{}})
			}
			f := files[len(files)-1]
			f.functions = append(f.functions, s)
		case s.function && instruction.MatchString(line):
		default:
			err = s.parse(line)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d of the assembler's listing, %q: %w", i+1, line, err)
		}
	}
	for _, f := range files {
		if err := f.check(); err != nil {
			return nil, fmt.Errorf("the assembler's listing of %s: %w", f.path, err)
		}
	}
	return files, nil
}

// parseSymbol reads the line that begins a symbol.
func parseSymbol(line string) (*symbol, error) {
	if m := functionLine.FindStringSubmatch(line); m != nil {
		args := number(m[3], 16)
		if args < 1 || args > maxArgs {
			return nil, fmt.Errorf("%d bytes of arguments and results, want 1 to %d", args, maxArgs)
		}
		return &symbol{name: m[1], function: true, size: number(m[2], 10), framed: m[4] != "0"}, nil
	}
	if m := constantLine.FindStringSubmatch(line); m != nil {
		return &symbol{name: m[1], size: number(m[2], 10)}, nil
	}
	return nil, errors.New("it is neither a NOSPLIT function of the package nor a constant of the file")
}

func addConstant(files []*file, s *symbol) error {
	if len(files) == 0 {
		return errors.New("no function comes before it")
	}
	constants := files[len(files)-1].constants
	if constants[s.name] != nil {
		return errors.New("the file has two constants of that name")
	}
	constants[s.name] = s
	return nil
}

// parse reads a line of bytes or a relocation.
func (s *symbol) parse(line string) error {
	if m := dumpLine.FindStringSubmatch(line); m != nil {
		if number(m[1], 16) != len(s.code) {
			return fmt.Errorf("%d bytes come before these", len(s.code))
		}
		code, err := hex.DecodeString(strings.ReplaceAll(m[2], " ", ""))
		s.code = append(s.code, code...)
		return err
	}
	m := relocLine.FindStringSubmatch(line)
	if m == nil {
		return errors.New("it is neither bytes nor a relocation")
	}
	if !s.function {
		return errors.New("a constant has an address in it")
	}
	s.relocs = append(s.relocs, reloc{number(m[1], 10), number(m[2], 10), m[3], m[4], int64(number(m[5], 10))})
	return nil
}

// number reads digits. What is beyond 32 bits is the largest number of these, which nothing
// in a listing is.
func number(digits string, base int) int {
	n, _ := strconv.ParseInt(digits, base, 32)
	return int(n)
}

// check wants every symbol whole and every relocation inside its function and about a
// constant of the file.
func (f *file) check() error {
	symbols := f.functions
	for _, c := range f.constants {
		symbols = append(symbols, c)
	}
	for _, s := range symbols {
		if len(s.code) != s.size {
			return fmt.Errorf("%s has %d bytes, want %d", s.name, len(s.code), s.size)
		}
		end := 0 // of the relocation before
		for _, r := range s.relocs {
			c := f.constants[r.target]
			switch {
			case c == nil:
				return fmt.Errorf("%s uses %s, which is no constant of the file", s.name, r.target)
			case r.offset < end || r.offset+r.size > s.size:
				return fmt.Errorf("%s has a relocation at %d of %d bytes, not between %d and %d", s.name, r.offset, r.size, end, s.size)
			}
			end = r.offset + r.size
		}
	}
	return nil
}
