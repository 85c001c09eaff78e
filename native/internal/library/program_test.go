package library

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/problem"
	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/internal/version"
)

// makeProgram compiles a program with every warning as an error, and returns its path.
func makeProgram(t *testing.T, cc string, args ...string) string {
	for _, source := range args {
		os.Stat(source) // go test runs a test again if a file that it has looked at has changed
	}
	program := filepath.Join(t.TempDir(), "program")
	args = append([]string{"-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pthread", "-o", program}, args...)
	if _, _, err := run("", nil, cc, args...); err != nil {
		t.Fatal(err)
	}
	return program
}

// TestSelfChecking runs the programs that say themselves what is wrong.
func TestSelfChecking(t *testing.T) {
	withLibrary := func(on *target) []string { return []string{"-I", on.library(), on.library() + "/libreweight.a"} }
	for name, args := range map[string]func(on *target) []string{
		"arithmetic.c": withLibrary,
		"wrong.c":      withLibrary,
		// It calls a function that changes every register.
		"call.c": func(on *target) []string {
			return []string{"testdata/call_" + on.arch + ".S", "../../src/call_" + on.arch + ".S"}
		},
		// As the library has it: a compiler that sees memset in the loop of memset would have
		// it call itself.
		"memory.c": func(on *target) []string {
			return append(must.Get(findCompiler(on.arch)).flags(Options{Arch: on.arch}), "../../src/memory.c")
		},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, on *target) {
				program := makeProgram(t, on.cc[0], append([]string{"-std=c11", "testdata/" + name}, args(on)...)...)
				if out := on.run(t, program); out != "ok\n" {
					t.Error(out)
				}
			})
		})
	}
}

// TestUsualArithmetic: every exported function begins with it, also one that arithmetic.c
// does not know.
func TestUsualArithmetic(t *testing.T) {
	paths := must.Get(filepath.Glob("../../src/*.c"))
	definition := regexp.MustCompile(`(?m)^int (reweight_\w+)\([^{]*\) \{\n(.*)$`)
	found := 0
	for _, path := range paths {
		source := must.Get(os.ReadFile(path))
		for _, m := range definition.FindAllSubmatch(source, -1) {
			found++
			if string(m[2]) != "\tUSUAL_ARITHMETIC;" {
				t.Errorf("%s of %s begins with %q", m[1], filepath.Base(path), m[2])
			}
		}
	}
	header := must.Get(os.ReadFile("../../reweight.h"))
	if want := strings.Count(string(header), "\nREWEIGHT_API int reweight_"); found != want {
		t.Errorf("%d functions are found, want %d", found, want)
	}
}

// links are the ways in which a program has the library of a folder.
var links = []struct {
	name string
	args func(dir string) []string
}{
	{"shared", func(dir string) []string { return []string{dir + "/libreweight.so", "-Wl,-rpath," + dir} }},
	{"archive", func(dir string) []string { return []string{dir + "/libreweight.a"} }},
	{"static", func(dir string) []string { return []string{dir + "/libreweight.a", "-static"} }},
}

// TestHeader compiles a program with reweight.h as C and as C++, which says what it sees
// of the machine.
func TestHeader(t *testing.T) {
	each(t, func(t *testing.T, on *target) {
		isas := reweight.AvailableISAs()
		if on.arch != runtime.GOARCH {
			if on.arch != "arm64" {
				t.Skip("what the emulator has is not known")
			}
			isas = []reweight.ISA{reweight.Portable, reweight.NEON}
		} else if os.Getenv("REWEIGHT_ISA") != "" {
			t.Skip("REWEIGHT_ISA says what Go finds here")
		}
		dir := on.library()
		for _, language := range []string{"c11", "c++11"} {
			for _, link := range links {
				t.Run(language+"/"+link.name, func(t *testing.T) {
					language, standard := strings.TrimRight(language, "1"), "-std="+language
					if language == "c++" && on.name != "clang" && !found(strings.Replace(on.cc[0], "gcc", "g++", 1)) {
						t.Skipf("%s has no C++", on.name)
					}
					args := []string{standard, "-I", dir, "-x", language, "testdata/header.c", "-x", "none"}
					program := makeProgram(t, on.cc[0], append(args, link.args(dir)...)...)
					if got, want := on.run(t, program), headerText(t, isas); got != want {
						t.Errorf("it prints\n%s\nwant\n%s", got, want)
					}
				})
			}
		}
	})
}

// TestCPUs runs the same program on CPUs that lack instructions.
func TestCPUs(t *testing.T) {
	if !found("qemu-x86_64-static") {
		t.Skip("there is no qemu-x86_64-static")
	}
	each(t, func(t *testing.T, on *target) {
		if on.arch != "amd64" {
			t.Skipf("the emulator has CPUs of amd64, and this is for %s", on.arch)
		}
		dir := on.library()
		program := makeProgram(t, on.cc[0], "-std=c11", "-I", dir, "testdata/header.c", dir+"/libreweight.a", "-static")
		for cpu, isas := range map[string][]reweight.ISA{
			"Nehalem":     {reweight.Portable},
			"SandyBridge": {reweight.Portable}, // has AVX
			"Haswell":     {reweight.Portable, reweight.AVX2},
		} {
			out, _, err := run("", nil, "qemu-x86_64-static", "-cpu", cpu, program)
			if err != nil {
				t.Fatal(err)
			}
			if want := headerText(t, isas); out != want {
				t.Errorf("on %s it prints\n%s\nwant\n%s", cpu, out, want)
			}
		}
	})
}

// headerText returns what testdata/header.c prints where there are these instruction sets.
func headerText(t *testing.T, isas []reweight.ISA) string {
	stats := statistics(t, 1, []float32{1, 2, 3}, []int32{0})
	var out strings.Builder
	out.WriteString("1 0, 0.1 0.5 1e-08 0, 1 0.1 0, 1e-06 1, 1 1, 0.2 0.28 3 0 0\n")
	names := []string{"", "auto", "portable", "avx2", "avx512", "neon", ""}
	for i, name := range names {
		has := 0
		if slices.Contains(isas, reweight.ISA(i-1)) && i > 0 {
			has = 1
		}
		fmt.Fprintf(&out, "%d %s %d\n", i-1, name, has)
	}
	fmt.Fprintf(&out, "best %d, version %s\n", isas[len(isas)-1], version.Version)
	for i, name := range names {
		switch {
		case name == "":
			fmt.Fprintf(&out, "code 1: %d, %d, -1: %d 4\n", 1+slices.Index(problem.Coded, problem.CountRange),
				problem.Number("ISA"), i-1)
		case name == "auto" || slices.Contains(isas, reweight.ISA(i-1)):
			fmt.Fprintf(&out, "lse %.9g\n", stats.LSE[0])
		default:
			has := 0
			for _, isa := range isas {
				has |= 1 << isa
			}
			fmt.Fprintf(&out, "code 1: %d, %d, -1: %d %d\n", 1+slices.Index(problem.Coded, problem.ISA),
				problem.Number("ISA"), i-1, has)
		}
	}
	return out.String()
}

// statistics returns those that Go computes, which has the same bits.
func statistics(t *testing.T, rows int, logits []float32, ids []int32) reweight.Stats {
	ws := reweight.Workspace{ISA: reweight.Portable}
	dst := reweight.Stats{LSE: make([]float32, rows), Entropy: make([]float32, rows), Logprob: make([]float32, rows)}
	must.Do(ws.TokenStats(dst, reweight.Logits{Vocab: len(logits) / rows, F32: logits}, ids,
		reweight.DefaultTokenStats))
	return dst
}

// TestThreads runs a program whose rows are shared among threads, with the C library that
// the library was compiled for and with musl.
func TestThreads(t *testing.T) {
	const rows, vocab = 64, 16384 // and the numbers of testdata/threads.c
	logits, ids := make([]float32, rows*vocab), make([]int32, rows)
	state := uint32(1)
	for i := range logits {
		state = 1664525*state + 1013904223
		logits[i] = float32(int32(state)) / (1 << 28)
	}
	for r := range ids {
		ids[r] = int32(37 * r)
	}
	stats := statistics(t, rows, logits, ids)
	want := fmt.Sprintf("%.9g %.9g %.9g\n", stats.LSE[rows-1], stats.Entropy[rows-1], stats.Logprob[rows-1])
	each(t, func(t *testing.T, on *target) {
		compilers := []string{on.cc[0]}
		if on.name == "gcc" {
			compilers = append(compilers, "musl-gcc") // uses gcc
		}
		dir := on.library()
		for _, cc := range compilers {
			for _, link := range links {
				t.Run(filepath.Base(cc)+"/"+link.name, func(t *testing.T) {
					if !found(cc) {
						t.Skipf("there is no %s", cc)
					}
					program := makeProgram(t, cc, append([]string{"-std=c11", "-I", dir, "testdata/threads.c"},
						link.args(dir)...)...)
					if got := on.run(t, program); got != want {
						t.Errorf("it prints %swant %s", got, want)
					}
				})
			}
		}
	})
}

// TestExample: the example prints what the documentation shows.
func TestExample(t *testing.T) {
	want := must.Get(os.ReadFile("../../example/output.txt"))
	each(t, func(t *testing.T, on *target) {
		dir := on.library()
		program := makeProgram(t, on.cc[0], "-std=c11", "-I", dir, "../../example/main.c", dir+"/libreweight.a")
		if got := on.run(t, program); got != string(want) {
			t.Errorf("it prints\n%s\nwant\n%s", got, want)
		}
	})
}
