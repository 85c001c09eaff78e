package kernels

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/test/must"
)

// TestNothingIsForgotten looks for each kernel's names in the places of
// docs/kernels.md, which says what it does not look at. A failure begins with the
// file in which something is missing.
func TestNothingIsForgotten(t *testing.T) {
	listed := map[string]bool{} // portable functions of kernels in the catalogue
	for _, k := range All() {
		for _, function := range k.code.assembly {
			listed[function+"Portable"] = true
		}
		for _, missing := range missingPlaces(t, k) {
			t.Errorf("%s (kernel %s)", missing, k.Name)
		}
	}
	for name := range functions(t, "kernels_portable.go") {
		if strings.HasSuffix(name, "Portable") && !listed[name] {
			t.Errorf("kernels/rows.go or kernels/tokens.go: no kernel has the assembly of %s", name)
		}
	}
	methods := reflect.TypeFor[Runner]()
	for method := range methods.Methods() {
		name := method.Name
		if !slices.ContainsFunc(All(), func(k Kernel) bool { return k.code.method == name }) {
			t.Errorf("kernels/rows.go or kernels/tokens.go: no kernel has the method %s of a runner", name)
		}
	}
}

// assembly says where an instruction set's functions stand: declared for Go in
// stubs, and written in rows or in tokens, by what the kernel works on.
var assembly = []struct {
	isa                 reweight.ISA
	suffix              string
	stubs, rows, tokens string
}{
	{reweight.AVX2, "AVX2", "kernels_amd64.go", "kernels_amd64.s", "kernels_tokens_amd64.s"},
	{reweight.AVX512, "AVX512", "kernels_amd64.go", "kernels_avx512_amd64.s", "kernels_tokens_avx512_amd64.s"},
	{reweight.NEON, "NEON", "kernels_arm64.go", "kernels_arm64.s", "kernels_tokens_arm64.s"},
}

// missingPlaces says what the kernel lacks, each beginning with a file's name.
func missingPlaces(t *testing.T, k Kernel) []string {
	var missing []string
	want := func(ok bool, file, what string, args ...any) {
		if line := file + ": " + fmt.Sprintf(what, args...); !ok && !slices.Contains(missing, line) {
			missing = append(missing, line)
		}
	}
	runner, entry := reflect.TypeFor[Runner](), "kernels/tokens.go"
	switch {
	case k.OnlyGo:
		runner, entry = reflect.TypeFor[*reweight.Workspace](), "kernels/losses.go"
	case k.Rows:
		entry = "kernels/rows.go"
	}
	_, inRunner := runner.MethodByName(k.code.method)
	want(inRunner, "kernels/runner.go", "%v has no method %s", runner, k.code.method)
	want(k.build != nil, entry, "the entry has no build function")
	want(functionsIn(t, "../reference")[k.code.reference], "reference/", "no function %s", k.code.reference)
	// A test of ActFocusWeights tests ActFocusWeight for each token.
	want(containsIn(t, "../reference/*_test.go", `\b`+k.code.reference), "reference/", "no test of %s",
		k.code.reference)

	for _, function := range k.code.assembly {
		want(functions(t, "kernels_portable.go")[function+"Portable"], "kernels_portable.go",
			"no function %sPortable", function)
		want(functions(t, "kernels_asm.go")[function], "kernels_asm.go", "ISA has no method %s", function)
		want(functions(t, "kernels_noasm.go")[function], "kernels_noasm.go", "ISA has no method %s", function)
		for _, a := range assembly {
			file := a.tokens
			if k.Rows {
				file = a.rows
			}
			want(functions(t, a.stubs)[function+"Asm"], a.stubs, "ISA has no method %sAsm", function)
			want(functions(t, a.stubs)[function+a.suffix], a.stubs, "no declaration of %s%s", function, a.suffix)
			want(texts(t, file)[function+a.suffix], file, "no TEXT ·%s%s", function, a.suffix)
		}
	}
	for _, place := range []struct{ file, pattern, what string }{
		{"kernels/testdata/bits.txt", `(?m)^` + k.Name + ` `, "no bits; go test ./kernels -run TestBits -update writes them"},
		{"doc.go", `(?m)^//   .*\[Workspace\.` + k.code.method + `\]`, "not in the index"},
		{"docs/kernels.md", "(?m)^\\| `" + k.Name + "` ", "no line in the table of kernels"},
	} {
		want(regexp.MustCompile(place.pattern).Match(read(t, "../"+place.file)), place.file, "%s", place.what)
	}
	for _, function := range k.code.assembly {
		if function == "rowBlocks" {
			continue // it needs the state of a row, so assembly_test.go reaches it through TokenStats
		}
		want(containsIn(t, "../assembly_test.go", `\bPortable\.`+function+`\(`), "assembly_test.go",
			"no test of %s", function)
	}
	if k.OnlyGo {
		return missing
	}

	source := "gpu/internal/device/" + k.code.device
	want(regexp.MustCompile(`(?m)^\w*KERNEL\b.* void `).Match(read(t, "../"+source+".cu")), source+".cu", "no kernel")
	want(len(read(t, "../"+source+".ptx.gz")) > 0, source+".ptx.gz", "missing: gpu/internal/device/build.sh makes it")
	want(functionsIn(t, "../gpu")[k.code.method], "gpu/", "Workspace has no method %s", k.code.method)
	want(functionsIn(t, "../gpu/gpuslices")[k.code.method], "gpu/gpuslices/", "Runner has no method %s", k.code.method)

	name := snakeCase(k.code.method)
	want(containsIn(t, "../native/src/*.c", `(?m)^int reweight_`+name+`\(`), "native/src/",
		"no function reweight_%s", name)
	want(containsIn(t, "../python/reweight/*.py", `(?m)^def `+name+`\(`), "python/reweight/", "no function %s", name)
	want(functionsIn(t, "../native/testlib")[k.code.method], "native/testlib/", "Runner has no method %s",
		k.code.method)
	for _, function := range k.code.assembly {
		portable, dispatch := "native/src/portable_tokens.c", "native/src/tokens.c"
		if k.Rows {
			portable, dispatch = "native/src/portable_rows.c", "native/src/rows.c"
		}
		c := "rw_" + snakeCase(function) + "_portable"
		want(containsIn(t, "../"+portable, `(?m)^\w.*\b`+c+`\(`), portable, "no function %s", c)
		want(containsIn(t, "../"+dispatch, `\bASSEMBLY\(`+function+`\)`), dispatch,
			"no call of the assembly's %s", function)
	}

	for _, place := range []struct{ file, pattern, what string }{
		{"native/reweight.h", `(?m)^REWEIGHT_API int reweight_` + name + `\(`, "no declaration of reweight_" + name},
		{"python/reweight/_library.py", `_lib\.reweight_` + name + `\b`, "no call of " + name},
		{"python/reweight/__init__.py", `(?m)^    "` + name + `",`, "not among the names of the package"},
		{"gpu/launch_test.go", `\{"` + k.code.method + `", `, "no call"},
	} {
		want(regexp.MustCompile(place.pattern).Match(read(t, "../"+place.file)), place.file, "%s", place.what)
	}
	call := regexp.MustCompile(`\{"` + k.code.method + `", `)
	want(call.Match(read(t, "../internal/test/randomcalls/randomcalls.go")) ||
		call.Match(read(t, "../internal/test/randomcalls/rows.go")), "internal/test/randomcalls/randomcalls.go",
		"no random call of %s", k.code.method)
	return missing
}

// snakeCase returns a name of Go as C and Python have it: "ExpScale" is "exp_scale".
func snakeCase(name string) string {
	name = strings.NewReplacer("ActFocus", "Actfocus", "actFocus", "actfocus").Replace(name)
	return strings.ToLower(upper.ReplaceAllString(name, "${1}_$2"))
}

var upper = regexp.MustCompile(`([a-z])([A-Z])`)

// containsIn reports whether a file that matches the pattern has what the expression says.
func containsIn(t *testing.T, pattern, expression string) bool {
	files := must.Get(filepath.Glob(pattern))
	e := regexp.MustCompile(expression)
	return slices.ContainsFunc(files, func(file string) bool { return e.Match(read(t, file)) })
}

// read returns the contents of the file, empty if there is no such file.
func read(t *testing.T, file string) []byte {
	b, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return b
}

// functions returns the names of the functions and methods of a Go file of the root.
func functions(t *testing.T, file string) map[string]bool {
	names := map[string]bool{}
	parsed := must.Get(parser.ParseFile(token.NewFileSet(), filepath.Join("..", file), nil,
		parser.SkipObjectResolution))
	for _, d := range parsed.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			names[f.Name.Name] = true
		}
	}
	return names
}

// functionsIn returns the names of the functions of all Go files of a folder except tests.
func functionsIn(t *testing.T, folder string) map[string]bool {
	files := must.Get(filepath.Glob(folder + "/*.go"))
	names := map[string]bool{}
	for _, file := range files {
		if !strings.HasSuffix(file, "_test.go") {
			maps.Copy(names, functions(t, strings.TrimPrefix(file, "../")))
		}
	}
	return names
}

var textLine = regexp.MustCompile(`(?m)^TEXT ·(\w+)\(SB\)`)

// texts returns the names of the functions of an assembly file.
func texts(t *testing.T, file string) map[string]bool {
	names := map[string]bool{}
	for _, m := range textLine.FindAllSubmatch(read(t, "../"+file), -1) {
		names[string(m[1])] = true
	}
	return names
}
