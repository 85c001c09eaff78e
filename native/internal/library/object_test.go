package library

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/internal/test/must"
)

// TestParseText: the assembly files declare functions in one form only.
func TestParseText(t *testing.T) {
	const text = "// TEXT of a file\nTEXT ·first(SB), NOSPLIT, $8-56\n\tRET\nTEXT ·second(SB), NOSPLIT, $0-8\n"
	functions := must.Get(parseText(text))
	if len(functions) != 2 || functions[0].name != "first" || !functions[0].framed || functions[1].name != "second" ||
		functions[1].framed {
		t.Errorf("%+v", functions)
	}
	for _, c := range []struct{ old, new, want string }{
		{"NOSPLIT, $8", "$8", "line 2: "},
		{"NOSPLIT, $8", "NOSPLIT|NOFRAME, $8", "line 2: "},
		{"$8-56", "$8", `line 2: "TEXT ·first(SB), NOSPLIT, $8" is no NOSPLIT function with its sizes`},
		{"second(SB)", "second<>(SB)", "line 4: "},
		{"$0-8", "$0-0", "line 4: second has 0 bytes of arguments and results, want 1 to 96"},
		{"$0-8", "$0-97", "97 bytes of arguments"},
		{"$0-8", "$0-18446744073709551616", "bytes of arguments"},
	} {
		if _, err := parseText(strings.Replace(text, c.old, c.new, 1)); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%q instead of %q: error %v, want %q", c.new, c.old, err, c.want)
		}
	}
}

// TestBrokenObject changes the object file in one place.
func TestBrokenObject(t *testing.T) {
	data := must.Get(os.ReadFile(must.Get(linkObject("amd64", t.TempDir()))))
	file := must.Get(elf.NewFile(bytes.NewReader(data)))
	symbols := must.Get(file.Symbols())
	at := func(name string) int {
		return slices.IndexFunc(symbols, func(s elf.Symbol) bool { return s.Name == name })
	}
	symbolOf := at(packagePath + ".blockMaxAVX2.abi0")
	rela := file.Section(".rela.text")
	var entry int // of the function's first relocation, in the file
	for i, e := range slices.Collect(slices.Chunk(must.Get(rela.Data()), 24)) {
		if o := binary.LittleEndian.Uint64(e); o >= symbols[symbolOf].Value &&
			o < symbols[symbolOf].Value+symbols[symbolOf].Size {
			entry = int(rela.Offset) + 24*i
			break
		}
	}
	used := int(binary.LittleEndian.Uint32(data[entry+12:])) - 1
	symbol := func(i int) int { return int(file.Section(".symtab").Offset) + 24*(i+1) }
	header := bytes.Index(data, binary.LittleEndian.AppendUint64(nil, rela.Offset)) - 24 // of the relocations' section

	for name, c := range map[string]struct {
		at    int
		bytes string
		want  string
	}{
		"as it is":                          {want: ""},
		"a kind of relocation":              {entry + 8, "\x04", "is not known on amd64: R_X86_64_PLT32"},
		"no symbol":                         {entry + 12, "\x00\x00\x00\x00", "has no symbol"},
		"no such symbol":                    {entry + 12, "\xff\xff\xff\x00", "has no symbol"},
		"past the constant":                 {entry + 16, "\x40\x00\x00\x00\x00\x00\x00\x00", "uses what is 64 bytes after the beginning of " + symbols[used].Name},
		"before the constant":               {entry + 16, "\xf7", "uses what is -9 bytes after"},
		"a section, not a constant":         {symbol(used) + 4, "\x03", "is of kind STT_SECTION"},
		"a constant of no bytes":            {symbol(used) + 16, "\x00", "has 0 bytes, want STT_OBJECT"},
		"a constant of no section":          {symbol(used) + 6, "\xf1\xff", "want STT_OBJECT"},
		"a constant past its section":       {symbol(used) + 8 + 4, "\x01", "EOF"},
		"a function that is none":           {symbol(symbolOf) + 4, "\x01", "blockMaxAVX2: the symbol"},
		"a function of another name":        {symbol(symbolOf), "\x00\x00\x00\x00", "it has no blockMaxAVX2"},
		"a field past the end":              {entry, string(binary.LittleEndian.AppendUint64(nil, symbols[symbolOf].Value+symbols[symbolOf].Size-3)), "not between"},
		"relocations without their numbers": {header + 4, "\x09", "are not of ELF for 64 bits"},
	} {
		broken := slices.Clone(data)
		copy(broken[c.at:], c.bytes)
		functions := []*function{{name: "blockMaxAVX2"}}
		err := readObject(must.Get(elf.NewFile(bytes.NewReader(broken))), functions)
		if err == nil {
			_, err = writeAssembly(functions, "amd64")
		}
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}

// TestWriteAssembly: two constants of one name stay two, unless they are equal.
func TestWriteAssembly(t *testing.T) {
	one, two := &constant{"one", []byte{1, 2}}, &constant{"one", []byte{1, 3}}
	functions := []*function{
		{name: "first", framed: true, code: []byte("\xc5\xfc\x10\x25\x00\x00\x00\x00"), relocs: []reloc{{4, "R_X86_64_PC32", one, -4}}},
		{name: "second", code: []byte("\x00\x00\x00\x00\xc3"), relocs: []reloc{{0, "R_X86_64_PC32", two, 1}}},
	}
	text := must.Get(writeAssembly(functions, "amd64"))
	for _, want := range []string{
		"\nrw_first:\n\t.byte 0xc5, 0xfc, 0x10, 0x25\n\t.reloc ., R_X86_64_PC32, rw_constant0_one-4\n\t.byte 0x00, 0x00, 0x00, 0x00\n\t.size",
		"\nrw_second:\n\t.cfi_startproc\n\t.reloc ., R_X86_64_PC32, rw_constant1_one+1\n\t.byte 0x00, 0x00, 0x00, 0x00\n\t.byte 0xc3\n\t.cfi_endproc\n",
		"\nrw_constant1_one:\n\t.byte 0x01, 0x03\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s\nhas no\n%s", text, want)
		}
	}
	two.data = one.data
	if text := must.Get(writeAssembly(functions, "amd64")); strings.Contains(text, "rw_constant1") {
		t.Error(text)
	}
	functions[1].relocs[0].kind = "R_AARCH64_ADD_ABS_LO12_NC"
	if _, err := writeAssembly(functions, "amd64"); err == nil {
		t.Error("a relocation of another CPU passed")
	}
}
