package library

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/seed621a2839/reweight/internal/version"
)

// A compiler is a command that compiles and links C for an architecture.
type compiler struct {
	command []string
	macros  string // that it defines, its version among them
	clang   bool
	zig     bool // clang, but for the names of CPUs
}

// machines has what a compiler for Linux on each CPU is called where it is not the usual
// one, and what it defines.
var machines = map[string]struct{ cross, macro string }{
	"amd64": {"x86_64-linux-gnu-gcc", "__x86_64__"},
	"arm64": {"aarch64-linux-gnu-gcc", "__aarch64__"},
}

// findCompiler returns $CC, or else the first of the usual compilers that makes code for
// the CPU.
func findCompiler(arch string) (*compiler, error) {
	machine, ok := machines[arch]
	if !ok {
		return nil, fmt.Errorf("there is no library for %s, only for amd64 and arm64", arch)
	}
	if command := strings.Fields(os.Getenv("CC")); len(command) > 0 {
		cc, err := newCompiler(command, arch, machine.macro)
		if err != nil {
			return nil, fmt.Errorf("the environment variable CC: %w", err)
		}
		return cc, nil
	}
	cc, err := newCompiler([]string{"cc"}, arch, machine.macro)
	if err == nil {
		return cc, nil
	}
	cc, err2 := newCompiler([]string{machine.cross}, arch, machine.macro)
	if err2 != nil {
		return nil, fmt.Errorf("there is no C compiler for linux/%s: %w; %w", arch, err, err2)
	}
	return cc, nil
}

// newCompiler asks the compiler what it makes code for.
func newCompiler(command []string, arch, macro string) (*compiler, error) {
	cc := &compiler{command: command}
	var err error
	if cc.macros, err = cc.run("", "-dM", "-E", "-x", "c", os.DevNull); err != nil {
		return nil, err
	}
	for _, want := range []string{"__linux__", "__LP64__", macro} {
		if !strings.Contains(cc.macros, "#define "+want+" ") {
			return nil, fmt.Errorf("%s makes code for another system than linux/%s: it does not define %s", command[0],
				arch, want)
		}
	}
	cc.clang = strings.Contains(cc.macros, "#define __clang__ ")
	cc.zig = slices.ContainsFunc(command, func(word string) bool {
		return strings.HasPrefix(filepath.Base(word), "zig")
	})
	return cc, nil
}

// run runs the compiler in a folder. Its messages are in English, whatever the user's
// language, because errors have them.
func (cc *compiler) run(dir string, args ...string) (string, error) {
	stdout, _, err := run(dir, []string{"LC_ALL=C"}, cc.command[0],
		append(cc.command[1:len(cc.command):len(cc.command)], args...)...)
	return stdout, err
}

// tool returns the path of one of the programs that belong to the compiler.
func (cc *compiler) tool(name string) (string, error) {
	path, err := cc.run("", "-print-prog-name="+name)
	return strings.TrimSpace(path), err
}

// flags returns those of every compilation.
func (cc *compiler) flags(o Options) []string {
	flags := []string{
		"-std=c11", "-O2", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror",
		"-ffp-contract=off", "-fno-math-errno", // the bits of Go: see internal.h
		"-U_FORTIFY_SOURCE", "-fno-stack-protector", // these would call functions of a C library
		fmt.Sprintf("-DREWEIGHT_VERSION=%q", version.Version),
	}
	if cc.clang {
		flags = append(flags, "-fno-builtin-memset")
	} else {
		flags = append(flags, "-fno-tree-loop-distribute-patterns") // into calls of memset
	}
	switch {
	case o.Arch == "amd64" && cc.zig:
		flags = append(flags, "-march=x86_64")
	case o.Arch == "amd64":
		flags = append(flags, "-march=x86-64")
	default:
		flags = append(flags, "-march=armv8-a", "-mno-outline-atomics")
	}
	if o.Sanitize != "" {
		flags = append(flags, "-g", "-fno-omit-frame-pointer", "-fsanitize="+o.Sanitize, "-fno-sanitize-recover=all")
	}
	return flags
}

// compile compiles every C file of the folder src, and the assembly of package reweight,
// into the folder dir. It returns the object files in the order of their names.
func compile(cc *compiler, src, dir string, o Options) ([]string, error) {
	text, err := assembly(o.Arch)
	if err != nil {
		return nil, err
	}
	kernels := filepath.Join(dir, "kernels.s")
	if err := os.WriteFile(kernels, []byte(text), 0o666); err != nil {
		return nil, err
	}
	sources, err := filepath.Glob(filepath.Join(src, "*.c"))
	if err != nil {
		return nil, err
	}
	sources = append(sources, filepath.Join(src, "call_"+o.Arch+".S"), kernels)
	objects := make([]string, len(sources))
	errs := make([]error, len(sources))
	var wg sync.WaitGroup
	busy := make(chan struct{}, runtime.NumCPU())
	for i, source := range sources {
		folder, name := filepath.Split(source)
		objects[i] = strings.TrimSuffix(name, filepath.Ext(name)) + ".o"
		wg.Go(func() {
			busy <- struct{}{}
			defer func() { <-busy }()
			// From the folder of the file, so that no path gets into the object.
			args := []string{"-c", "-g0", name, "-o", filepath.Join(dir, objects[i])}
			if filepath.Ext(name) == ".c" {
				args = append(args, cc.flags(o)...)
			}
			_, errs[i] = cc.run(folder, args...)
		})
	}
	wg.Wait()
	if err := cmp.Or(errs...); err != nil { // the first: the others are often of the same cause
		return nil, err
	}
	slices.Sort(objects)
	return objects, nil
}

// linkShared links the objects in the folder dir. What is not defined in them comes from
// whatever C library the program has, of any version: the library names none.
func linkShared(cc *compiler, dir string, objects []string, path string, o Options) error {
	args := []string{"-shared", "-o", path, "-Wl,-soname,libreweight.so", "-Wl,-z,now,-z,relro,-z,noexecstack",
		"-Wl,--hash-style=both", "-Wl,--build-id=none"}
	if !cc.zig { // which knows no other way
		args = append(args, "-Wl,-z,text")
	}
	if o.Sanitize == "" {
		args = append(args, "-nostdlib")
	} else {
		args = append(args, "-fsanitize="+o.Sanitize)
	}
	_, err := cc.run(dir, append(args, objects...)...)
	return err
}

// archive makes a static library of one object, in which all but the functions of
// reweight.h is local, so that it takes no name of the program.
func archive(cc *compiler, dir string, objects []string, path string) error {
	if _, err := cc.run(dir, append([]string{"-r", "-nostdlib", "-o", "reweight.o"}, objects...)...); err != nil {
		return err
	}
	for _, command := range [][]string{
		{"objcopy", "--localize-hidden", "reweight.o"},
		{"ar", "rcsD", path, "reweight.o"},
	} {
		tool, err := cc.tool(command[0])
		if err != nil {
			return err
		}
		if _, _, err := run(dir, nil, tool, command[1:]...); err != nil {
			return err
		}
	}
	return nil
}
