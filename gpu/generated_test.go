package gpu

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/internal/problem"
	"github.com/seed621a2839/reweight/native/runner"
)

var write = flag.Bool("write", false, "TestGenerated writes the files")

// TestGenerated: what C, CUDA and Python know of Go is what is written in Go. `go generate
// ./gpu` writes the files. internal/device/build.sh then translates the kernels again.
func TestGenerated(t *testing.T) {
	header, err := os.ReadFile("../native/reweight.h")
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "/* generated */\n", "/* end of generated */\n"
	before, rest, ok := strings.Cut(string(header), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("reweight.h lacks %q or %q", begin, end)
	}
	for file, want := range map[string]string{
		"../native/reweight.h":             before + begin + headerProblems() + end + after,
		"internal/device/problems.cuh":     deviceProblems(),
		"../python/reweight/_generated.py": pythonText(),
		"../testdata/problems.json":        examples(t),
	} {
		if *write {
			if err := os.WriteFile(file, []byte(want), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(file)
		if err != nil || string(got) != want {
			t.Errorf("%s is not what it should be (%v): go generate ./gpu", file, err)
		}
	}
}

// argumentNames are the arguments in upper case, as C and CUDA have them, by their numbers.
// The parameter that has a number of its own, beside the field of that name, is BARE.
func argumentNames() []string {
	var names []string
	taken := map[string]bool{}
	for _, a := range problem.Arguments {
		name := strings.ToUpper(a.C)
		if taken[a.C] {
			name = "BARE_" + name
		}
		taken[a.C] = true
		names = append(names, name)
	}
	return names
}

// headerProblems returns the enumerations of reweight.h.
func headerProblems() string {
	var out strings.Builder
	out.WriteString("typedef enum reweight_problem {\n")
	shown := strings.NewReplacer("i", "%d", "f", "%f", "d", "%g", "n", "%s", "l", "[%s]")
	for i, p := range problem.Coded {
		var verbs []any
		for _, kind := range strings.Split(p.Kinds, "")[:len(p.Kinds)] {
			verbs = append(verbs, shown.Replace(kind))
		}
		fmt.Fprintf(&out, "\tREWEIGHT_PROBLEM_%s = %d, /* %s */\n", p.Name, i+1, p.Says(verbs...))
	}
	out.WriteString("} reweight_problem;\n\ntypedef enum reweight_argument {\n")
	for i, name := range argumentNames() {
		fmt.Fprintf(&out, "\tREWEIGHT_ARG_%s = %d,\n", name, i+1)
	}
	out.WriteString("} reweight_argument;\n")
	return out.String()
}

// deviceProblems returns the same for the kernels of the GPU.
func deviceProblems() string {
	var out strings.Builder
	out.WriteString("// The problems and arguments that a Status names: `go generate ./gpu` writes this file.\n#pragma once\n\nenum {\n")
	for i, p := range problem.Coded {
		fmt.Fprintf(&out, "\tPROBLEM_%s = %d,\n", p.Name, i+1)
	}
	out.WriteString("};\n\nenum {\n")
	for i, name := range argumentNames() {
		fmt.Fprintf(&out, "\tARG_%s = %d,\n", name, i+1)
	}
	out.WriteString("};\n")
	return out.String()
}

// pythonText returns the module of Python.
func pythonText() string {
	var out strings.Builder
	out.WriteString("\"\"\"What Go says of arguments: `go generate ./gpu` writes this file.\"\"\"\n\n")
	out.WriteString("# The problems by their codes: the kinds of the values, and the sentence.\nPROBLEMS = {\n")
	for i, p := range problem.Coded {
		fmt.Fprintf(&out, "    %d: (%q, %q),\n", i+1, p.Kinds, strings.ReplaceAll(p.Text, "%v", "{}"))
	}
	out.WriteString("}\n\n# The arguments by their numbers.\nARGUMENTS = {\n")
	for i, a := range problem.Arguments {
		fmt.Fprintf(&out, "    %d: %q,\n", i+1, a.C)
	}
	out.WriteString("}\n\n# The names of what is numbered, by the argument.\nNAMES = {\n")
	for _, a := range problem.Arguments {
		if names := runner.Names(a); names != nil {
			fmt.Fprintf(&out, "    %q: (\"%s\"),\n", a.C, strings.Join(names, `", "`))
		}
	}
	out.WriteString("}\n")
	return out.String()
}

// An example is what C reports, and the sentence with the names of C.
type example struct {
	problem.Report
	Sentence string
}

// examples returns what C could report of each problem, for Python.
func examples(t *testing.T) string {
	var all []example
	add := func(code, argument int, index int64, values ...int64) {
		e := example{Report: problem.Report{Code: uint32(code), Argument: uint32(argument), Index: index}}
		copy(e.Values[:], values)
		a, text, ok := e.Read(runner.Names)
		if !ok || strings.Contains(text, "%!") {
			t.Fatalf("problem %d of argument %d reads %q", code, argument, text)
		}
		name := a.C
		if index >= 0 {
			name += fmt.Sprintf("[%d]", index)
		}
		e.Sentence = name + " " + text
		all = append(all, e)
	}
	floats := []float64{0.1, math.NaN(), math.Inf(1), math.Inf(-1), math.Copysign(0, -1), 1e-4, 1e-5, 999992, 1e6, 1e21, 5e-324, math.MaxFloat64, 2.0 / 3}
	floats32 := []float32{0.1, float32(math.NaN()), float32(math.Inf(-1)), 1e-5, 65535.5, 1e20, 1e-45, math.MaxFloat32, 2.0 / 3}
	for i, p := range problem.Coded {
		argument := 1 + i%len(problem.Arguments)
		switch {
		case p == problem.ISA:
			argument = problem.Number("ISA")
		case p == problem.Name:
			argument = problem.Number("Scope")
		case strings.ContainsAny(p.Kinds, "nl"):
			argument = problem.Number("dst")
		}
		rounds := 2
		if p == problem.Range || p == problem.SpanMean {
			rounds = max(len(floats), len(floats32))
		}
		for round := range rounds {
			var values []int64
			for j, kind := range p.Kinds {
				switch kind {
				case 'i':
					values = append(values, []int64{7, -1, 0, 1 << 48, math.MinInt64, math.MaxInt64}[(round+j)%6])
				case 'f':
					values = append(values, int64(math.Float32bits(floats32[(round+j)%len(floats32)])))
				case 'd':
					values = append(values, int64(math.Float64bits(floats[(round+j)%len(floats)])))
				case 'n':
					values = append(values, int64((round+j)%3))
				case 'l':
					values = append(values, int64((round+j)%8))
				}
			}
			index := int64(-1)
			if round%2 == 0 {
				index = int64(round)
			}
			add(i+1, argument, index, values...)
		}
	}
	for i := range problem.Arguments {
		add(1+i%2, i+1, -1, 5, 6)
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	for _, e := range all {
		if err := enc.Encode(e); err != nil {
			t.Fatal(err)
		}
	}
	return out.String()
}

// TestNothingUnused: C or CUDA finds each problem of the table, and names each argument.
func TestNothingUnused(t *testing.T) {
	var text strings.Builder
	for _, pattern := range []string{"../native/src/*.c", "../native/src/*.h", "internal/device/*.cu", "internal/device/[^p]*.cuh"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", pattern, files, err)
		}
		for _, file := range files {
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			text.Write(source)
		}
	}
	for _, p := range problem.Coded {
		if !strings.Contains(text.String(), "BAD(error, "+p.Name+",") && !strings.Contains(text.String(), "PROBLEM_"+p.Name+",") {
			t.Errorf("nobody finds %s", p.Name)
		}
	}
	for _, name := range argumentNames() {
		if !strings.Contains(text.String(), "ARG_"+name) {
			t.Errorf("nobody finds anything wrong with %s", name)
		}
	}
}
