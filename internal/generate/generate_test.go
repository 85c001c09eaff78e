package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/problem"
	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/native"
	"github.com/seed621a2839/reweight/scheme"
)

const module = "../.."

// TestNothingIsStale: every generated file is as it should be.
func TestNothingIsStale(t *testing.T) {
	if native.Structs() == nil {
		t.Skip("the structs of reweight.h need cgo")
	}
	for _, f := range files {
		if old, text, err := f.texts(module); err != nil {
			t.Errorf("%s: %v", f.name, err)
		} else if text != old {
			t.Errorf("%s is stale: go generate ./...", f.name)
		}
	}
}

// TestHeader holds what is written by hand in reweight.h to Go: its enumerations, and the
// structs of options and results.
func TestHeader(t *testing.T) {
	if native.Structs() == nil {
		t.Skip("the structs of reweight.h need cgo")
	}
	header := string(must.Get(os.ReadFile(module + "/native/reweight.h")))
	for _, d := range regexp.MustCompile(`(?m)^typedef struct (\w+) \{`).FindAllStringSubmatch(header, -1) {
		if classOf(d[1]) == "" {
			t.Errorf("native/structs.go: no %s", d[1])
		}
	}
	for argument, enum := range map[string]string{"isa": "isa", "dst": "dtype", "signal": "signal", "scope": "scope",
		"aggregation": "aggregation", "policy": "policy_loss", "sequence": "sequence", "kl": "kl_form"} {
		body := regexp.MustCompile(`(?s)typedef enum reweight_` + enum + ` \{(.*?)\n\}`).FindStringSubmatch(header)
		if body == nil {
			t.Errorf("reweight.h has no reweight_%s", enum)
			continue
		}
		var got, want []string
		for _, m := range regexp.MustCompile(`(?m)^\s*(REWEIGHT_\w+ = \d+),`).FindAllStringSubmatch(body[1], -1) {
			got = append(got, m[1])
		}
		for i, name := range native.Names(problem.Argument{C: argument}) {
			want = append(want, fmt.Sprintf("%s = %d", enumerator(argument, name), i))
		}
		if !slices.Equal(got, want) {
			t.Errorf("reweight_%s of reweight.h has %v, want %v", enum, got, want)
		}
	}
	ofC := map[reflect.Kind]reflect.Kind{reflect.Float64: reflect.Float64, reflect.Int: reflect.Int64,
		reflect.Uint64: reflect.Uint64, reflect.Bool: reflect.Int32, reflect.Uint8: reflect.Int32,
		reflect.Interface: reflect.Int32}
	seen, all := map[string]bool{}, map[string]reflect.Type{}
	for _, d := range defaults() {
		for _, f := range fieldsOf(d.c) {
			field := cName(d.c) + "." + f.Name
			all[field] = f.Type
			if v := goField(d.options, f.Name); v.IsValid() {
				seen[field] = true
				if want := ofC[v.Kind()]; f.Type.Kind() != want {
					t.Errorf("%s is a %v, want the %v for Go's %v", field, f.Type.Kind(), want, v.Type())
				}
			}
		}
		for name := range scheme.Fields(d.options) { // but what the name of the policy says
			if _, ok := d.c.FieldByName(problem.Snake(name)); !ok && name != "Divergence" {
				t.Errorf("%s has no field for %s of %+v", cName(d.c), name, d.options)
			}
		}
	}
	for field := range all {
		if !seen[field] {
			t.Errorf("%s has no field in Go", field)
		}
	}
	// The kernels of the GPU write Go's structs, and Python reads those of C: each field has
	// 8 bytes.
	for name, result := range map[string]any{
		"reweight_actfocus_result":   reweight.ActFocusResult{},
		"reweight_loss_result":       reweight.LossResult{},
		"reweight_value_loss_result": reweight.ValueLossResult{},
		"reweight_moments":           reweight.Moments{},
		"reweight_surrogate_sums":    reweight.SurrogateSums{},
	} {
		for i, f := range fieldsOf(cStruct(name)) {
			g := reflect.TypeOf(result).Field(i)
			if problem.Snake(g.Name) != f.Name || g.Offset != f.Offset || g.Type.Size() != 8 || f.Type.Size() != 8 ||
				(g.Type.Kind() == reflect.Float64) != (f.Type.Kind() == reflect.Float64) {
				t.Errorf("%s.%s is at %d, want %s of %T at %d, both of 8 bytes", name, f.Name, f.Offset, g.Name,
					result, g.Offset)
			}
		}
	}
}

// TestNothingUnused: C or CUDA finds each problem of the table, and names each argument.
func TestNothingUnused(t *testing.T) {
	var text strings.Builder
	for _, pattern := range []string{"native/src/*.c", "native/src/*.h", "gpu/internal/device/*.cu",
		"gpu/internal/device/[^p]*.cuh"} {
		files, err := filepath.Glob(filepath.Join(module, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", pattern, files, err)
		}
		for _, file := range files {
			source := must.Get(os.ReadFile(file))
			text.Write(source)
		}
	}
	for _, p := range problem.Coded {
		if !strings.Contains(text.String(), "BAD(error, "+p.Name+",") &&
			!strings.Contains(text.String(), "PROBLEM_"+p.Name+",") {
			t.Errorf("nobody finds %s", p.Name)
		}
	}
	for _, name := range argumentNames() {
		if !strings.Contains(text.String(), "ARG_"+name) {
			t.Errorf("nobody finds anything wrong with %s", name)
		}
	}
}

// TestDocGo: the lists of doc.go name every method of Workspace.
func TestDocGo(t *testing.T) {
	text := ""
	for line := range strings.Lines(string(must.Get(os.ReadFile(module + "/doc.go")))) {
		if strings.HasPrefix(line, "//   ") {
			text += line
		}
	}
	methods := reflect.TypeFor[*reweight.Workspace]()
	for m := range methods.Methods() {
		if !strings.Contains(text, "[Workspace."+m.Name+"]") {
			t.Errorf("the lists of doc.go have no [Workspace.%s]", m.Name)
		}
	}
}

// aRow is a line of a Markdown table, and aRule is the one under its head.
var (
	aRow  = regexp.MustCompile(`^\|.*\|$`)
	aRule = regexp.MustCompile(`^\|( *:?-+:? *\|)+$`)
)

// brokenTables returns the numbers of the lines, from 1 on, where a table of a Markdown text
// is broken: a rule that is not a line of its own, or has no head with as many cells above it
// or no row below; a row that is not closed, has another number of cells, or has no table.
func brokenTables(text string) (lines []int) {
	code, cells, last := false, 0, ""
	all := strings.Split(text, "\n")
	for i, full := range all {
		line := strings.TrimSpace(full)
		broken := false
		switch {
		case strings.HasPrefix(line, "```"):
			code, cells = !code, 0
		case code || strings.HasPrefix(full, "    ") && cells == 0:
		case aRule.MatchString(line):
			cells = count(line)
			broken = count(last) != cells || i+1 == len(all) || !strings.HasPrefix(strings.TrimSpace(all[i+1]), "|")
		case strings.Contains(line, "|---"):
			broken = true
		case strings.HasPrefix(line, "|"):
			head := cells == 0 && i+1 < len(all) && aRule.MatchString(strings.TrimSpace(all[i+1]))
			broken = !aRow.MatchString(line) || !head && count(line) != cells
		default:
			cells = 0
		}
		if broken {
			lines = append(lines, i+1)
		}
		last = line
	}
	return lines
}

// count returns how many cells a line of a table has: a bar in code or after a backslash
// closes none.
func count(line string) (n int) {
	if !aRow.MatchString(line) {
		return 0
	}
	return strings.Count(strings.ReplaceAll(line, `\|`, ""), "|") - 1
}

// TestTablesAreWhole: no re-wrap has made a paragraph of a table.
func TestTablesAreWhole(t *testing.T) {
	tables := 0
	must.Do(filepath.WalkDir(module, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && path != module && strings.HasPrefix(d.Name(), ".") && d.Name() != ".github" {
			return fs.SkipDir
		}
		if d.IsDir() || filepath.Ext(path) != ".md" {
			return nil
		}
		text := string(must.Get(os.ReadFile(path)))
		for _, line := range brokenTables(text) {
			t.Errorf("%s:%d: a broken table", path, line)
		}
		for _, line := range strings.Split(text, "\n") {
			if aRule.MatchString(strings.TrimSpace(line)) {
				tables++
			}
		}
		return nil
	}))
	if tables < 50 {
		t.Errorf("%d tables were seen", tables)
	}
	t.Logf("%d tables", tables)
}

// TestBrokenTables: what a re-wrap makes of a table is noticed.
func TestBrokenTables(t *testing.T) {
	good := "text\n\n| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\n\ntext\n"
	for _, text := range []string{good, "   | a |\n   |:-:|\n   | 1 |\n", "```\n| a |---| b\n```\n",
		"text | with a bar\n"} {
		if lines := brokenTables(text); lines != nil {
			t.Errorf("lines %v of %q", lines, text)
		}
	}
	for _, text := range []string{
		strings.ReplaceAll(good, "|\n|", "| |"),                // all in one line
		strings.Replace(good, "|\n|---", "| |---", 1),          // the rule behind the head
		strings.Replace(good, "---|\n| 1", "---| | 1", 1),      // a row behind the rule
		strings.Replace(good, "2 |\n| 3", "2 | | 3", 1),        // two rows in one line
		strings.Replace(good, "| 3 | 4 |", "| 3 |\n4 |", 1),    // a row in two lines
		strings.Replace(good, "| 1 | 2 |\n| 3 | 4 |\n", "", 1), // a head alone
		strings.Replace(good, "| a | b |\n", "", 1),            // no head
		"| a | b |\n",
	} {
		if brokenTables(text) == nil {
			t.Errorf("nothing is wrong with %q", text)
		}
	}
}
