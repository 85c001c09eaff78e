package library

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/seed621a2839/reweight/internal/test/must"
)

// TestWrongKernels builds libraries each of which has one kernel with a wrong instruction, as a faulty CPU or emulator
// would run it: the first call that uses the instruction set is an error that has the kernel's number.
func TestWrongKernels(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the instructions that it changes are those of AVX2")
	}
	cc := must.Get(findCompiler("amd64"))
	right := must.Get(functions("amd64"))
	module := must.Get(SourceDir())
	dir := t.TempDir()
	objects, err := compile(cc, filepath.Join(module, "native", "src"), dir, Options{Arch: "amd64"})
	if err != nil {
		t.Fatal(err)
	}
	program := makeProgram(t, cc.command[0], "-std=c11", "-I", filepath.Join(module, "native"), "testdata/trust.c",
		"-ldl")
	result := func() string {
		path := filepath.Join(dir, "libreweight.so")
		if err := linkShared(cc, dir, objects, path, Options{}); err != nil {
			t.Fatal(err)
		}
		out, _, err := run("", nil, program, path)
		return cmp.Or(out, fmt.Sprint(err))
	}
	out := result()
	if out == "there is no avx2\n" {
		t.Skip(out)
	}
	if out != "right\n" {
		t.Fatalf("without a change: %s", out)
	}
	for i, kernel := range []string{"blockMax", "rowBlocks", "rowGradient", "maskedMoments", "actFocusWeights",
		"spanSums", "minMax", "expScale", "multiply", "surrogate"} {
		changed := slices.Clone(right)
		at := slices.IndexFunc(changed, func(f *function) bool { return f.name == kernel+"AVX2" })
		one := *changed[at]
		one.code = wrong(t, one.code)
		changed[at] = &one
		text := must.Get(writeAssembly(changed, "amd64"))
		must.Do(os.WriteFile(filepath.Join(dir, "kernels.s"), []byte(text), 0o666))
		if _, err := cc.run(dir, "-c", "kernels.s", "-o", "kernels.o"); err != nil {
			t.Fatal(err)
		}
		if got, want := result(), fmt.Sprintf("kernel %d of avx2 is wrong\n", i+1); got != want {
			t.Errorf("%s: %q, want %q", kernel, got, want)
		}
	}
}

// wrong returns the code with another operation in the place of the last vector sum, product, minimum or maximum.
func wrong(t *testing.T, code []byte) []byte {
	operations := map[byte]byte{0x58: 0x5c, 0x59: 0x58, 0x5d: 0x5f, 0x5f: 0x5d} // add, multiply, min and max
	code = bytes.Clone(code)
	for i := len(code) - 4; i >= 0; i-- {
		// VEX of two bytes, a packed operation of float32 or float64, on YMM.
		if other, ok := operations[code[i+2]]; ok && code[i] == 0xc5 && code[i+1]&0x06 == 0x04 && code[i+1]&2 == 0 {
			code[i+2] = other
			return code
		}
	}
	t.Fatalf("no vector operation: % x", code)
	return nil
}
