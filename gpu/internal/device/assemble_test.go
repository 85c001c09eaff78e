package device

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/internal/test/must"
)

var update = flag.Bool("update", false, "TestAssemble writes testdata/sass.txt")

// architectures are those that TestAssemble translates the PTX for, and the program of
// the wheel of Triton that knows each.
var architectures = []struct{ name, ptxas string }{
	{"sm_80", "ptxas"}, {"sm_86", "ptxas"}, {"sm_90", "ptxas"},
	{"sm_100", "ptxas-blackwell"}, {"sm_103", "ptxas-blackwell"}, {"sm_120", "ptxas-blackwell"},
}

var (
	functionLine = regexp.MustCompile(`Compiling entry function '(\w+)'`)
	spillLine    = regexp.MustCompile(`(\d+) bytes spill stores, (\d+) bytes spill loads`)
	usedLine     = regexp.MustCompile(`Used (\d+) registers`)
	sectionLine  = regexp.MustCompile(`(?m)^\s*\.section\s+\.text\.(\w+),`)
	roundedLine  = regexp.MustCompile(`(?m)^\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+ )?(FFMA|FADD|FMUL)2?[ .]`)
)

// TestAssemble: NVIDIA's own assembler takes every module, for every kind of GPU that
// there is, and testdata/sass.txt says what it makes of each kernel: registers, bytes of
// spills, and how many instructions round a float32. A product and a sum that it made one
// instruction of would change the last three, and the bits of results.
//
// REWEIGHT_PTXAS is the folder of the programs: backends/nvidia/bin of the wheel of Triton
// in python/pins/ptxas.no-deps.
func TestAssemble(t *testing.T) {
	bin := os.Getenv("REWEIGHT_PTXAS")
	if bin == "" {
		t.Skip("REWEIGHT_PTXAS names no folder with ptxas: the PTX is not assembled")
	}
	modules := must.Get(PTX())
	dir := t.TempDir()
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(modules)) {
		source, object := filepath.Join(dir, "a.ptx"), filepath.Join(dir, "a.cubin")
		must.Do(os.WriteFile(source, []byte(modules[name]), 0o666))
		for _, a := range architectures {
			said, err := exec.Command(filepath.Join(bin, a.ptxas), "-v", "-arch="+a.name, "-o", object,
				source).CombinedOutput()
			if err != nil {
				t.Fatalf("%s for %s: %v\n%s", name, a.name, err, said)
			}
			code, err := exec.Command(filepath.Join(bin, "nvdisasm"), "-c", object).Output()
			if err != nil {
				t.Fatalf("%s for %s: %v", name, a.name, err)
			}
			lines = append(lines, described(t, a.name, string(said), string(code))...)
		}
	}
	slices.Sort(lines)
	got := "# kernel, architecture: registers, bytes of spills (stores, loads), FFMA, FADD, FMUL\n" + strings.Join(lines, "")
	const file = "testdata/sass.txt"
	if *update {
		must.Do(os.WriteFile(file, []byte(got), 0o666))
	}
	want := must.Get(os.ReadFile(file))
	known := strings.SplitAfter(string(want), "\n")
	for _, line := range strings.SplitAfter(got, "\n") {
		if !slices.Contains(known, line) {
			t.Errorf("not in %s: %s", file, line)
		}
	}
	if len(known) != strings.Count(got, "\n")+1 {
		t.Errorf("%s has %d lines, want %d: -update writes it", file, len(known)-1, strings.Count(got, "\n"))
	}
}

// described returns the lines of a module's kernels, from what the programs say.
func described(t *testing.T, architecture, said, code string) (lines []string) {
	counts := map[string]map[string]int{}
	starts := sectionLine.FindAllStringSubmatchIndex(code, -1)
	for i, s := range starts {
		end := len(code)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		of := map[string]int{}
		for _, m := range roundedLine.FindAllStringSubmatch(code[s[1]:end], -1) {
			of[m[1]]++
		}
		counts[code[s[2]:s[3]]] = of
	}
	parts := functionLine.FindAllStringSubmatchIndex(said, -1)
	for i, p := range parts {
		end := len(said)
		if i+1 < len(parts) {
			end = parts[i+1][0]
		}
		kernel, text := said[p[2]:p[3]], said[p[1]:end]
		spills, used, of := spillLine.FindStringSubmatch(text), usedLine.FindStringSubmatch(text), counts[kernel]
		if spills == nil || used == nil || of == nil {
			t.Fatalf("%s for %s: not understood:\n%s", kernel, architecture, text)
		}
		lines = append(lines, fmt.Sprintf("%s %s: %s, %s %s, %d %d %d\n", kernel, architecture, used[1], spills[1],
			spills[2], of["FFMA"], of["FADD"], of["FMUL"]))
	}
	return lines
}
