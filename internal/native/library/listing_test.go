package library

import (
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/internal/must"
)

// listing is what the assembler prints for two files, shortened.
const listing = `go: downloading example.com/module v1.0.0
# github.com/seed621a2839/reweight
github.com/seed621a2839/reweight.first STEXT nosplit asm size=18 args=0x38 locals=0x8 funcid=0x0 align=0x0
	0x0000 00000 (/src/a_amd64.s:111)	TEXT	github.com/seed621a2839/reweight.first(SB), NOSPLIT, $8-56
	0x0000 00000 (/src/a_amd64.s:111)	FUNCDATA	$0, github.com/seed621a2839/reweight.first.args_stackmap(SB)
	0x0000 00000 (/src/a_amd64.s:112)	VMOVUPS	one<>(SB), Y4
	0x0000 c5 fc 10 25 00 00 00 00 20 20 c5 fc 10 25 00 00  ...%....  ...%..
	0x0010 00 00                                            ..
	rel 4+4 t=R_PCREL one+0
	rel 14+4 t=R_PCREL one+32
one SRODATA static size=33
	0x0000 00 00 80 3f 00 00 80 3f 00 00 80 3f 00 00 80 3f  ...?...?...?...?
	0x0010 00 00 80 3f 00 00 80 3f 00 00 80 3f 00 00 80 3f  ...?...?...?...?
	0x0020 07                                               .

github.com/seed621a2839/reweight.second STEXT nosplit asm size=9 args=0x8 locals=0x0 funcid=0x0 align=0x0 leaf
	0x0000 00000 (/src/b_amd64.s:3)	TEXT	github.com/seed621a2839/reweight.second(SB), NOSPLIT, $0-8
	0x0000 c5 fc 10 25 00 00 00 00 c3                       ...%.....
	rel 4+4 t=R_PCREL one+0
one SRODATA static size=2
	0x0000 01 02                                            ..
`

func TestParseListing(t *testing.T) {
	files := must.Get(parseListing(listing))
	if len(files) != 2 || files[0].path != "/src/a_amd64.s" || files[1].path != "/src/b_amd64.s" {
		t.Fatalf("%+v", files)
	}
	first, second := files[0].functions[0], files[1].functions[0]
	if first.name != "first" || !first.framed || len(first.code) != 18 || first.code[8] != 0x20 || first.code[17] != 0 {
		t.Errorf("%+v", first)
	}
	if want := (reloc{14, 4, "R_PCREL", "one", 32}); len(first.relocs) != 2 || first.relocs[1] != want {
		t.Errorf("%+v, want %+v", first.relocs, want)
	}
	if second.name != "second" || second.framed || len(second.code) != 9 {
		t.Errorf("%+v", second)
	}
	if a, b := files[0].constants["one"], files[1].constants["one"]; len(a.code) != 33 || a.code[32] != 7 || string(b.code) != "\x01\x02" {
		t.Errorf("%v, %v", a, b)
	}

	// Two constants of one name stay two.
	text, err := writeAssembly(files, "amd64")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\nrw_first:\n\t.byte 0xc5, 0xfc, 0x10, 0x25\n\t.reloc ., R_X86_64_PC32, rw_constant0_one-4\n\t.long 0\n" +
			"\t.byte 0x20, 0x20, 0xc5, 0xfc, 0x10, 0x25\n\t.reloc ., R_X86_64_PC32, rw_constant0_one+28\n\t.long 0\n",
		"\nrw_second:\n\t.cfi_startproc\n\t.byte 0xc5, 0xfc, 0x10, 0x25\n\t.reloc ., R_X86_64_PC32, rw_constant1_one-4\n\t.long 0\n\t.byte 0xc3\n",
		"\nrw_constant1_one:\n\t.byte 0x01, 0x02\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s\nhas no\n%s", text, want)
		}
	}

	// Two that are equal become one.
	files[1].constants["one"].code = files[0].constants["one"].code
	if text, err = writeAssembly(files, "amd64"); err != nil || strings.Contains(text, "rw_constant1") {
		t.Errorf("%v\n%s", err, text)
	}
}

// TestBrokenListing changes the listing in one place.
func TestBrokenListing(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{"reweight.first STEXT nosplit asm", "reweight.first STEXT asm", "neither a NOSPLIT function"},
		{"reweight.first STEXT nosplit asm", "reweight.first STEXT nosplit", "neither a NOSPLIT function"},
		{"github.com/seed621a2839/reweight.first STEXT", "runtime.first STEXT", "neither a NOSPLIT function"},
		{"args=0x38", "args=0x68", "104 bytes of arguments and results, want 1 to 96"},
		{"args=0x38", "args=0x0", "0 bytes of arguments"},
		{"args=0x38", "args=0x80000000", "2147483647 bytes of arguments"},
		{"size=18", "size=19", "first has 18 bytes, want 19"},
		{"size=18", "size=17", "first has 18 bytes, want 17"},
		{"\t0x0010 00 00     ", "\t0x0011 00 00     ", "16 bytes come before these"},
		{"\t0x0010 00 00  ", "\t0x0010 00 0g  ", "neither bytes nor a relocation"},
		{"\t0x0010 00 00     ", "\t0x0010 00        ", "first has 17 bytes, want 18"},
		{"rel 4+4 t=R_PCREL one+0", "rel 4 t=R_PCREL one+0", "neither bytes nor a relocation"},
		{"t=R_PCREL one+32", "t=R_CALL runtime.morestack+0", "first uses runtime.morestack, which is no constant of the file"},
		{"t=R_PCREL one+32", "t=R_PCREL two+0", "first uses two, which is no constant of the file"},
		{"rel 14+4", "rel 15+4", "relocation at 15 of 4 bytes, not between 8 and 18"},
		{"rel 14+4", "rel 7+4", "relocation at 7 of 4 bytes, not between 8 and 18"},
		{"one SRODATA static size=33", "one SRODATA static size=34", "one has 33 bytes, want 34"},
		{"one SRODATA static size=33", "one SDATA static size=33", "nor a constant of the file"},
		{"one SRODATA static size=33", "one SRODATA size=33", "nor a constant of the file"},
		{"\t0x0020 07    ", "\t0x0021 07    ", "32 bytes come before these"},
		{"\t0x0020 07                                               .\n", "\trel 0+8 t=R_ADDR first+0\n", "a constant has an address in it"},
		{"(/src/b_amd64.s:3)", "(/src/a_amd64.s:3)", "the file has two constants of that name"},
		{"# github.com/seed621a2839/reweight\n", "\t0x0000 01                       .\n", "it is of no symbol"},
		{"# github.com/seed621a2839/reweight\n", "one SRODATA static size=2\n", "no function comes before it"},
	} {
		broken := strings.Replace(listing, c.old, c.new, 1)
		if broken == listing {
			t.Fatalf("the listing has no %q", c.old)
		}
		if _, err := parseListing(broken); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q instead of %q: error %v, want %q", c.new, c.old, err, c.want)
		}
	}
}

// TestUnknownRelocation: a relocation is of a kind, size and place that are known.
func TestUnknownRelocation(t *testing.T) {
	one := map[string]*symbol{"one": {name: "one", size: 4, code: []byte{1, 2, 3, 4}}}
	adrp, add := "\x13\x00\x00\x90", "\x73\x02\x00\x91" // ADRP and ADD, with X19
	for _, c := range []struct {
		arch, code, kind, want string
		size                   int
		addend                 int64
	}{
		{arch: "amd64", code: "\x00\x00\x00\x00", kind: "R_PCREL", size: 4},
		{arch: "amd64", code: "\x00\x00\x00\x00", kind: "R_PCREL", size: 4, addend: -1}, // one byte comes after the field
		{arch: "amd64", code: "\x00\x00\x00\x01", kind: "R_PCREL", size: 4, want: "the field is 00 00 00 01, want zeros"},
		{arch: "amd64", code: "\x00\x00\x00\x00", kind: "R_PCREL", size: 4, addend: 4, want: "4 bytes after the beginning of one, which has 4"},
		{arch: "amd64", code: "\x00\x00\x00\x00", kind: "R_PCREL", size: 4, addend: -5, want: "-5 bytes after"},
		{arch: "amd64", code: "\x00\x00\x00\x00", kind: "R_ADDR", size: 4, want: "R_ADDR of 4 bytes is not known on amd64"},
		{arch: "amd64", code: adrp + add, kind: "R_PCREL", size: 8, want: "R_PCREL of 8 bytes is not known on amd64"},
		{arch: "amd64", code: adrp + add, kind: "R_ADDRARM64", size: 8, want: "not known on amd64"},
		{arch: "arm64", code: adrp + add, kind: "R_ADDRARM64", size: 8},
		{arch: "arm64", code: adrp + adrp, kind: "R_ADDRARM64", size: 8, want: "want ADRP and ADD"},
		{arch: "arm64", code: add + add, kind: "R_ADDRARM64", size: 8, want: "want ADRP and ADD"},
		{arch: "arm64", code: "\x13\x00\x00\xb0" + add, kind: "R_ADDRARM64", size: 8, want: "without offsets"},
		{arch: "arm64", code: adrp + "\x73\x06\x00\x91", kind: "R_ADDRARM64", size: 8, want: "without offsets"},
		{arch: "arm64", code: adrp, kind: "R_PCREL", size: 4, want: "R_PCREL of 4 bytes is not known on arm64"},
	} {
		f := &symbol{name: "f", function: true, size: len(c.code), code: []byte(c.code)}
		f.relocs = []reloc{{0, c.size, c.kind, "one", c.addend}}
		_, err := writeAssembly([]*file{{functions: []*symbol{f}, constants: one}}, c.arch)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error %v", c, err)
		}
	}
}
