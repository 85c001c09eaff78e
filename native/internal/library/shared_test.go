package library

import (
	"bytes"
	"debug/elf"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/internal/test/must"
)

// allowed are the functions of a C library that the library may call. All are in every C
// library for Linux, and have been in glibc from the beginning. The table is the linker's.
var allowed = regexp.MustCompile(`^(_GLOBAL_OFFSET_TABLE_|memcpy|pthread_(create|join|sigmask|setcancelstate|attr_(init|setstacksize|destroy)))$`)

// TestShared looks at what libreweight.so asks of the system and lets it do.
func TestShared(t *testing.T) {
	each(t, func(t *testing.T, on *target) {
		f := open(filepath.Join(on.library(), "libreweight.so"))
		checkSymbols(t, must.Get(f.DynamicSymbols()))
		has := func(tag elf.DynTag) bool { return len(must.Get(f.DynValue(tag))) > 0 }
		// Neither other libraries, nor versions of functions, so that any C library serves;
		// no writes into code, and no code that runs without a call.
		for _, tag := range []elf.DynTag{elf.DT_NEEDED, elf.DT_VERNEED, elf.DT_TEXTREL,
			elf.DT_INIT, elf.DT_INIT_ARRAY, elf.DT_FINI, elf.DT_FINI_ARRAY} {
			if has(tag) {
				t.Errorf("it has %v", tag)
			}
		}
		if flags := must.Get(f.DynValue(elf.DT_FLAGS)); len(flags) != 1 ||
			elf.DynFlag(flags[0])&(elf.DF_BIND_NOW|elf.DF_TEXTREL|elf.DF_STATIC_TLS) != elf.DF_BIND_NOW {
			t.Errorf("its flags are %v", flags)
		}
		for _, tag := range []elf.DynTag{elf.DT_HASH, elf.DT_GNU_HASH} { // what old and new loaders read
			if !has(tag) {
				t.Errorf("it has no %v", tag)
			}
		}
		if name, err := f.DynString(elf.DT_SONAME); err != nil || !slices.Equal(name, []string{"libreweight.so"}) {
			t.Errorf("its name is %v, %v", name, err)
		}

		stack, relro := false, false
		for _, p := range f.Progs {
			switch p.Type {
			case elf.PT_GNU_STACK:
				stack = true
			case elf.PT_GNU_RELRO:
				relro = true
			case elf.PT_TLS:
				t.Error("it has variables of threads")
			}
			if p.Flags&elf.PF_X != 0 && (p.Flags&elf.PF_W != 0 || p.Type == elf.PT_GNU_STACK) {
				t.Errorf("%v can be written and run: %v", p.Type, p.Flags)
			}
		}
		if !stack || !relro {
			t.Errorf("it says that the stack is no code: %v; that addresses are constant: %v", stack, relro)
		}
		// All that stays writable are the numbers that isa.c and answers.c keep.
		for _, s := range f.Sections {
			if (s.Name == ".data" || s.Name == ".bss") && s.Size > 8 {
				t.Errorf("%s has %d bytes", s.Name, s.Size)
			}
		}
	})
}

// TestStatic looks at the one object in libreweight.a.
func TestStatic(t *testing.T) {
	each(t, func(t *testing.T, on *target) {
		data := must.Get(os.ReadFile(filepath.Join(on.library(), "libreweight.a")))
		var objects []*elf.File
		for rest := bytes.TrimPrefix(data, []byte("!<arch>\n")); len(rest) > 0; {
			name := strings.TrimRight(string(rest[:16]), " ") // of a header of 60 bytes
			size := must.Get(strconv.Atoi(strings.TrimRight(string(rest[48:58]), " ")))
			if name != "/" { // the table of symbols
				f := must.Get(elf.NewFile(bytes.NewReader(rest[60 : 60+size])))
				objects = append(objects, f)
			}
			rest = rest[60+size+size%2:]
		}
		if len(objects) != 1 {
			t.Fatalf("%d objects, want 1", len(objects))
		}
		checkSymbols(t, must.Get(objects[0].Symbols()))
	})
}

// checkSymbols wants the functions of reweight.h and nothing else to be exported, and no
// others to be needed but those that are allowed.
func checkSymbols(t *testing.T, symbols []elf.Symbol) {
	var got, want []string
	for _, s := range symbols {
		switch {
		case elf.ST_BIND(s.Info) == elf.STB_LOCAL:
		case s.Section != elf.SHN_UNDEF:
			got = append(got, s.Name)
		case !allowed.MatchString(s.Name):
			t.Errorf("it needs %s", s.Name)
		}
	}
	header := must.Get(os.ReadFile("../../reweight.h"))
	for _, m := range regexp.MustCompile(`(?m)^REWEIGHT_API [^(]*?(\w+)\(`).FindAllSubmatch(header, -1) {
		want = append(want, string(m[1]))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("it has %v\nwant %v", got, want)
	}
}
