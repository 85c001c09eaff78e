package library

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/seed621a2839/reweight/internal/test/must"
)

// A target is a compiler, and what runs its programs here.
type target struct {
	name     string
	cc       []string // its commands; the first that there is
	emulator []string
	arch     string // that it makes code for
	folder   string // with the library, once it is built
}

var targets = []*target{
	{name: "gcc", cc: []string{"gcc"}},
	{name: "clang", cc: []string{"clang", "clang-14"}},
	{name: "aarch64-linux-gnu-gcc", cc: []string{"aarch64-linux-gnu-gcc"},
		emulator: []string{"qemu-aarch64-static", "-L", "/usr/aarch64-linux-gnu"}},
}

var long = flag.Bool("long", false, "test the library of every compiler, and that two builds are the same")

// each runs a test for the first compiler, and with -long for every one. Those that are not here are skipped by name.
func each(t *testing.T, test func(t *testing.T, on *target)) {
	for _, on := range targets {
		t.Run(on.name, func(t *testing.T) {
			if !*long && on != targets[0] {
				t.Skip("other compilers take -long")
			}
			if i := slices.IndexFunc(on.cc, found); i >= 0 {
				on.cc = on.cc[i : i+1]
			} else {
				t.Skipf("there is no %s", on.name)
			}
			t.Setenv("CC", on.cc[0])
			for arch := range machines {
				if _, err := findCompiler(arch); err == nil {
					on.arch = arch
				}
			}
			if on.arch == "" {
				t.Skipf("%s makes code for neither linux/amd64 nor linux/arm64", on.name)
			}
			test(t, on)
		})
	}
}

func found(command string) bool {
	_, err := exec.LookPath(command)
	return err == nil
}

// library returns a folder with the library.
func (on *target) library() string {
	if on.folder == "" {
		on.folder = must.Get(Cached(Options{Arch: on.arch}))
	}
	return on.folder
}

// run runs a program of the compiler and returns what it prints.
func (on *target) run(t *testing.T, program string) string {
	command := append(slices.Clone(on.emulator), program)
	if !found(command[0]) {
		t.Skipf("there is no %s", command[0])
	}
	out, _, err := run("", nil, command[0], command[1:]...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestBuildIsDeterministic builds once more, in another folder.
func TestBuildIsDeterministic(t *testing.T) {
	if !*long {
		t.Skip("a second build takes -long")
	}
	each(t, func(t *testing.T, on *target) {
		again := t.TempDir()
		must.Do(Build(again, Options{Arch: on.arch}))
		for _, name := range []string{"libreweight.so", "libreweight.a", "reweight.h"} {
			a := must.Get(os.ReadFile(filepath.Join(on.library(), name)))
			b := must.Get(os.ReadFile(filepath.Join(again, name)))
			if !bytes.Equal(a, b) {
				t.Errorf("two builds of %s differ", name)
			}
		}
	})
}

// TestCodeIsTheTrees compares the functions inside the library, and the constants that they
// use, with those of a program that Go has linked by itself.
func TestCodeIsTheTrees(t *testing.T) {
	programs, dir := map[string]*image{}, t.TempDir()
	each(t, func(t *testing.T, on *target) {
		if programs[on.arch] == nil {
			path := filepath.Join(dir, "program-"+on.arch)
			if _, _, err := run("", goEnv(on.arch), "go", "build", "-tags=", "-o", path, kernelsPath); err != nil {
				t.Fatal(err)
			}
			programs[on.arch] = open(path)
		}
		program, library := programs[on.arch], open(filepath.Join(on.library(), "libreweight.so"))
		functions := must.Get(functions(on.arch))
		constants := 0
		for _, f := range functions {
			theirs, ours := program.address(t, packagePath+"."+f.name+".abi0"), library.address(t, "rw_"+f.name)
			want, got := program.read(t, theirs, len(f.code)), library.read(t, ours, len(f.code))
			for _, r := range f.relocs {
				if r.kind == "R_AARCH64_ADD_ABS_LO12_NC" {
					continue // it belongs to the one before
				}
				constants++
				at, size, end, start := uint64(r.offset), len(r.constant.data), r.offset+4, r.addend
				if on.arch == "amd64" {
					start += 4
				} else {
					end += 4
				}
				want2 := program.read(t, destination(on.arch, theirs+at, want[r.offset:end])-uint64(start), size)
				got2 := library.read(t, destination(on.arch, ours+at, got[r.offset:end])-uint64(start), size)
				if !bytes.Equal(got2, want2) {
					t.Errorf("%s, at %d: the constant %s is\n% x, want\n% x", f.name, r.offset, r.constant.name,
						got2, want2)
				}
				clearAddress(on.arch, want[r.offset:end])
				clearAddress(on.arch, got[r.offset:end])
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%s is\n% x, want\n% x", f.name, got, want)
			}
		}
		t.Logf("%d functions and %d references to constants are equal", len(functions), constants)
		if len(functions) < 11 || constants == 0 {
			t.Error("these are not all")
		}
	})
}

// destination returns what the field of a relocation points to.
func destination(arch string, at uint64, field []byte) uint64 {
	if arch == "amd64" {
		return at + 4 + uint64(int64(int32(binary.LittleEndian.Uint32(field))))
	}
	adrp, add := binary.LittleEndian.Uint32(field), binary.LittleEndian.Uint32(field[4:])
	pages := int64(int32(adrp>>5<<13)>>11) | int64(adrp>>29&3) // 19 bits and 2
	return at&^0xfff + uint64(pages<<12) + uint64(add>>10&0xfff)
}

// clearAddress leaves of the field of a relocation what does not depend on the address.
func clearAddress(arch string, field []byte) {
	if arch == "amd64" {
		clear(field)
		return
	}
	adrp, add := binary.LittleEndian.Uint32(field), binary.LittleEndian.Uint32(field[4:])
	binary.LittleEndian.PutUint32(field, adrp&0x9f00001f)
	binary.LittleEndian.PutUint32(field[4:], add&^(0xfff<<10))
}

// An image is an ELF file as it is loaded.
type image struct {
	*elf.File
	symbols []elf.Symbol
}

func open(path string) *image {
	f := must.Get(elf.NewFile(bytes.NewReader(must.Get(os.ReadFile(path)))))
	return &image{f, must.Get(f.Symbols())}
}

// address returns that of a symbol.
func (f *image) address(t *testing.T, name string) uint64 {
	i := slices.IndexFunc(f.symbols, func(s elf.Symbol) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("there is no %s", name)
	}
	return f.symbols[i].Value
}

func (f *image) read(t *testing.T, address uint64, size int) []byte {
	data := make([]byte, size)
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Vaddr <= address && address+uint64(size) <= p.Vaddr+p.Filesz {
			must.Get(p.ReadAt(data, int64(address-p.Vaddr)))
			return data
		}
	}
	t.Fatalf("%d bytes at %#x are not in the file", size, address)
	return nil
}
