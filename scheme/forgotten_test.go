package scheme

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
)

// TestNothingIsForgotten looks for each entry in the places that docs/schemes.md names. A
// failure begins with the file in which something is missing. The generated documentation
// has every entry, and the other tests take an entry as it is.
func TestNothingIsForgotten(t *testing.T) {
	sources := func(pattern string) (text string) {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatal(pattern, err)
		}
		for _, file := range files {
			if !strings.HasSuffix(file, "_test.go") {
				text += read(t, file)
			}
		}
		return text
	}
	root, reference, c, changes := sources("../*.go"), sources("../reference/*.go"), sources("../native/src/*.c"),
		strings.ToLower(read(t, "../CHANGELOG.md"))
	for _, e := range Entries() {
		want := func(ok bool, file, what string) {
			t.Helper()
			if !ok {
				t.Errorf("%s: %s (scheme %s)", file, what, e.Name)
			}
		}
		found := func(text, pattern string) bool { return regexp.MustCompile("(?m)" + pattern).MatchString(text) }
		want(e.Title != "" && e.Doc != "" && e.Source != "", "scheme/table.go", "no Title, Doc or Source")
		title := `(^|\W)` + regexp.QuoteMeta(strings.ToLower(e.Title)) + `($|[^\w+-])`
		want(found(changes, title) || strings.Contains(changes, "`"+e.Name+"`"), "CHANGELOG.md",
			"nothing about "+e.Title)
		if e.Kind == Several {
			want(len(e.Of) > 1, "scheme/table.go", "no names that it stands for")
			continue
		}
		file := strings.ToLower(e.Method) + ".go"
		want(found(root, `^func \(ws \*Workspace\) `+e.Method+`\(`), file, "Workspace has no method "+e.Method)
		want(e.DefaultName == "" || found(root, `^(var)?\s*`+e.DefaultName+`\s+= `), file, "no variable "+e.DefaultName)
		want(found(reference, `^func `+e.Method+`\(`), "reference/"+file, "no function "+e.Method)
		want(e.golden != "" && read(t, "../testdata/golden/"+e.golden) != "", "testdata/golden/"+e.golden,
			"no such file")
		want(e.call != nil && e.reference != nil && e.Formula != "" && len(e.Reads) > 0 &&
			len(e.Alias) > 0, "scheme/table.go", "no call, reference, Formula, Reads or Alias")
		want(e.C != "" && e.Dst != "", "scheme/table.go", "no C or Dst")
		want(found(c, `^int reweight_`+e.C+`\(`), "native/src/"+e.C+".c", "no function reweight_"+e.C)
		if e.options != nil {
			opt := e.Defaults()
			want(!reflect.ValueOf(e.options(&opt)).Elem().IsZero(), "scheme/table.go", "no default options")
		}
	}
	methods := reflect.TypeFor[*reweight.Workspace]()
	for i := range methods.NumMethod() {
		m := methods.Method(i)
		takes := false
		for k := range m.Type.NumIn() {
			takes = takes || m.Type.In(k) == reflect.TypeFor[*reweight.Batch]()
		}
		listed := slices.ContainsFunc(table, func(e *Entry) bool { return e.Method == m.Name })
		if takes && !listed {
			t.Errorf("scheme/table.go: no entry has the method %s", m.Name)
		}
	}
}

// read returns what a file has, nothing if there is no such file.
func read(t *testing.T, file string) string {
	text, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(text)
}
