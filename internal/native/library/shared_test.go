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

	"github.com/seed621a2839/reweight/internal/must"
)

// allowed are the functions of a C library that the library may call. All are in every C
// library for Linux, and have been in glibc from the beginning.
var allowed = regexp.MustCompile(`^(memcpy|pthread_(create|join|sigmask|setcancelstate|attr_(init|setstacksize|destroy)))$`)

// TestShared looks at what libreweight.so asks of the system and lets it do.
func TestShared(t *testing.T) {
	each(t, func(t *testing.T, on *target) {
		f := open(t, filepath.Join(on.library(t), "libreweight.so"))
		symbols := must.Get(f.DynamicSymbols())
		var exported []string
		for _, s := range symbols {
			switch {
			case elf.ST_BIND(s.Info) == elf.STB_LOCAL:
			case s.Section != elf.SHN_UNDEF:
				exported = append(exported, s.Name)
			case !allowed.MatchString(s.Name):
				t.Errorf("it needs %s", s.Name)
			}
		}
		checkExported(t, exported)

		dynamic := func(tag elf.DynTag) (value uint64, has bool) {
			values := must.Get(f.DynValue(tag))
			if len(values) == 0 {
				return 0, false
			}
			return values[0], true
		}
		// Neither other libraries, nor versions of functions, so that any C library serves;
		// no writes into code, and no code that runs without a call.
		for _, tag := range []elf.DynTag{elf.DT_NEEDED, elf.DT_VERNEED, elf.DT_TEXTREL,
			elf.DT_INIT, elf.DT_INIT_ARRAY, elf.DT_FINI, elf.DT_FINI_ARRAY} {
			if _, has := dynamic(tag); has {
				t.Errorf("it has %v", tag)
			}
		}
		if flags, _ := dynamic(elf.DT_FLAGS); elf.DynFlag(flags)&(elf.DF_BIND_NOW|elf.DF_TEXTREL|elf.DF_STATIC_TLS) != elf.DF_BIND_NOW {
			t.Errorf("its flags are %v", elf.DynFlag(flags))
		}
		for _, tag := range []elf.DynTag{elf.DT_HASH, elf.DT_GNU_HASH} { // what old and new loaders read
			if _, has := dynamic(tag); !has {
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
		// All that stays writable is the number that isa.c keeps.
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
		data := must.Get(os.ReadFile(filepath.Join(on.library(t), "libreweight.a")))
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
		symbols := must.Get(objects[0].Symbols())
		var exported []string
		for _, s := range symbols {
			switch {
			case elf.ST_BIND(s.Info) == elf.STB_LOCAL:
			case s.Section != elf.SHN_UNDEF:
				exported = append(exported, s.Name)
			case s.Name != "_GLOBAL_OFFSET_TABLE_" && !allowed.MatchString(s.Name):
				t.Errorf("it needs %s", s.Name)
			}
		}
		checkExported(t, exported)
	})
}

// checkExported wants the functions of reweight.h and nothing else.
func checkExported(t *testing.T, got []string) {
	module := must.Get(SourceDir())
	header := must.Get(os.ReadFile(filepath.Join(module, "native", "reweight.h")))
	var want []string
	for _, m := range regexp.MustCompile(`(?m)^REWEIGHT_API [^(]*?(\w+)\(`).FindAllStringSubmatch(string(header), -1) {
		want = append(want, m[1])
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("it has %v\nwant %v", got, want)
	}
}
