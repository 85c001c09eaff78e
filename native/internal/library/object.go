package library

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	// packagePath is the package whose assembly goes into the library.
	packagePath = "github.com/seed621a2839/reweight"
	// kernelsPath is a program that uses all of it.
	kernelsPath = packagePath + "/native/internal/library/kernels"
)

// maxArgs is how many bytes of arguments and results rw_call can pass.
const maxArgs = 12 * 8

// A function is one of the package's functions in assembly.
type function struct {
	name   string // without the path of the package
	framed bool   // whether it has a frame of its own
	code   []byte
	relocs []reloc
}

// A reloc is a field of four bytes, in which the linker puts the address of a constant.
type reloc struct {
	offset   int
	kind     string // as ELF names it: "R_X86_64_PC32"
	constant *constant
	addend   int64
}

// A constant is what functions read.
type constant struct {
	name string
	data []byte
}

// functions returns the assembly of package reweight for amd64 or arm64, as Go's linker gives
// it to other linkers.
func functions(arch string) ([]*function, error) {
	names, err := declared(arch)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "reweight-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	object, err := linkObject(arch, dir)
	if err != nil {
		return nil, err
	}
	f, err := elf.Open(object)
	if err != nil {
		return nil, fmt.Errorf("the object file of Go's linker: %w", err)
	}
	defer f.Close()
	if err := readObject(f, names); err != nil {
		return nil, fmt.Errorf("the object file of Go's linker: %w", err)
	}
	return names, nil
}

// goEnv is the environment in which Go makes code of a CPU, whatever the user's has.
func goEnv(arch string) []string {
	return []string{"GOOS=linux", "GOARCH=" + arch, "CGO_ENABLED=0", "GOFLAGS="}
}

// linkObject has Go's linker write the program with the kernels as an object file, in the
// folder dir. A linker outside of Go would come next, which true stands for.
func linkObject(arch, dir string) (string, error) {
	const line = "{{if .Export}}packagefile {{.ImportPath}}={{.Export}}\n{{end}}"
	packages, _, err := run("", goEnv(arch), "go", "list", "-tags=", "-buildvcs=false", "-export", "-deps", "-f="+line,
		kernelsPath)
	if err != nil {
		return "", err
	}
	config := filepath.Join(dir, "importcfg")
	if err := os.WriteFile(config, []byte(packages), 0o666); err != nil {
		return "", err
	}
	_, program, ok := strings.Cut(packages, "packagefile "+kernelsPath+"=")
	if !ok {
		return "", fmt.Errorf("go list names no file of %s", kernelsPath)
	}
	_, _, err = run("", goEnv(arch), "go", "tool", "link", "-w", "-importcfg="+config, "-linkmode=external",
		"-extld=true",
		"-tmpdir="+dir, "-o="+filepath.Join(dir, "program"), strings.TrimSpace(program))
	return filepath.Join(dir, "go.o"), err
}

var textLine = regexp.MustCompile(`^TEXT ·(\w+)\(SB\), NOSPLIT, \$(\d+)-(\d+)$`)

// declared returns the functions that the assembly files of a CPU declare, without their code.
func declared(arch string) ([]*function, error) {
	out, _, err := run("", goEnv(arch), "go", "list", "-tags=",
		`-f={{$d := .Dir}}{{range .SFiles}}{{$d}}/{{.}}{{"\n"}}{{end}}`, packagePath)
	if err != nil {
		return nil, err
	}
	var functions []*function
	for path := range strings.Lines(out) {
		text, err := os.ReadFile(strings.TrimSpace(path))
		if err != nil {
			return nil, err
		}
		f, err := parseText(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s, %w", filepath.Base(strings.TrimSpace(path)), err)
		}
		functions = append(functions, f...)
	}
	return functions, nil
}

// parseText reads the lines of a file of assembly with which functions begin.
func parseText(text string) ([]*function, error) {
	var functions []*function
	n := 0
	for line := range strings.Lines(text) {
		n++
		if !strings.HasPrefix(line, "TEXT") {
			continue
		}
		m := textLine.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			return nil, fmt.Errorf("line %d: %q is no NOSPLIT function with its sizes", n, strings.TrimSpace(line))
		}
		if args, err := strconv.Atoi(m[3]); err != nil || args < 1 || args > maxArgs {
			return nil, fmt.Errorf("line %d: %s has %s bytes of arguments and results, want 1 to %d", n, m[1],
				m[3], maxArgs)
		}
		functions = append(functions, &function{name: m[1], framed: m[2] != "0"})
	}
	return functions, nil
}

// readObject fills in the code of the functions.
func readObject(f *elf.File, functions []*function) error {
	symbols, err := f.Symbols()
	if err != nil {
		return err
	}
	constants := make([]*constant, len(symbols)) // as far as they are used
	for _, fn := range functions {
		// What Go calls, too, has a second form beside that in assembly, which is abi0.
		i := slices.IndexFunc(symbols, func(s elf.Symbol) bool { return s.Name == packagePath+"."+fn.name+".abi0" })
		if i < 0 {
			return fmt.Errorf("it has no %s", fn.name)
		}
		if fn.code, err = contents(f, symbols[i], elf.STT_FUNC); err != nil {
			return fmt.Errorf("%s: %w", fn.name, err)
		}
		if err := fn.readRelocs(f, symbols, symbols[i], constants); err != nil {
			return fmt.Errorf("%s: %w", fn.name, err)
		}
	}
	return nil
}

// contents returns the bytes of a symbol. In an object file its value counts from the
// beginning of its section.
func contents(f *elf.File, s elf.Symbol, kind elf.SymType) ([]byte, error) {
	if elf.ST_TYPE(s.Info) != kind || s.Size == 0 || int(s.Section) >= len(f.Sections) {
		return nil, fmt.Errorf("the symbol %q is of kind %v and has %d bytes, want %v", s.Name, elf.ST_TYPE(s.Info),
			s.Size, kind)
	}
	data := make([]byte, s.Size)
	_, err := f.Sections[s.Section].ReadAt(data, int64(s.Value))
	return data, err
}

// readRelocs reads the relocations inside the function.
func (fn *function) readRelocs(f *elf.File, symbols []elf.Symbol, s elf.Symbol, constants []*constant) error {
	for _, section := range f.Sections {
		if section.Info != uint32(s.Section) || section.Type != elf.SHT_RELA && section.Type != elf.SHT_REL {
			continue
		}
		data, err := section.Data()
		if err != nil {
			return err
		}
		if section.Type != elf.SHT_RELA || len(data)%24 != 0 {
			return errors.New("its relocations are not of ELF for 64 bits")
		}
		for entry := range slices.Chunk(data, 24) {
			at, info := f.ByteOrder.Uint64(entry), f.ByteOrder.Uint64(entry[8:])
			if at-s.Value >= s.Size {
				continue
			}
			r := reloc{offset: int(at - s.Value), kind: kindName(f.Machine, uint32(info)),
				addend: int64(f.ByteOrder.Uint64(entry[16:]))}
			i := int(info>>32) - 1 // number 0 is no symbol
			if i < 0 || i >= len(symbols) {
				return fmt.Errorf("the relocation at %d has no symbol", r.offset)
			}
			if constants[i] == nil {
				data, err := contents(f, symbols[i], elf.STT_OBJECT)
				if err != nil {
					return fmt.Errorf("the relocation at %d: %w", r.offset, err)
				}
				constants[i] = &constant{symbols[i].Name, data}
			}
			r.constant = constants[i]
			fn.relocs = append(fn.relocs, r)
		}
	}
	slices.SortFunc(fn.relocs, func(a, b reloc) int { return cmp.Compare(a.offset, b.offset) })
	return nil
}

func kindName(machine elf.Machine, kind uint32) string {
	if machine == elf.EM_AARCH64 {
		return elf.R_AARCH64(kind).String()
	}
	return elf.R_X86_64(kind).String()
}
