package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/must"
)

const module = "../.."

// TestNothingIsStale: every generated file is as it should be.
func TestNothingIsStale(t *testing.T) {
	for _, f := range files {
		if old, text, err := f.texts(module); err != nil || text != old {
			t.Errorf("%s is stale (%v): go generate ./...", f.name, err)
		}
	}
}

// TestDocGo: doc.go names every method of Workspace.
func TestDocGo(t *testing.T) {
	text := string(must.Get(os.ReadFile(module + "/doc.go")))
	methods := reflect.TypeFor[*reweight.Workspace]()
	for m := range methods.Methods() {
		if !strings.Contains(text, "[Workspace."+m.Name+"]") {
			t.Errorf("doc.go has no [Workspace.%s]", m.Name)
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
	for _, text := range []string{good, "   | a |\n   |:-:|\n   | 1 |\n", "```\n| a |---| b\n```\n", "text | with a bar\n"} {
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
