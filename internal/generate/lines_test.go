package main

import (
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/seed621a2839/reweight/internal/test/must"
)

// TestLinesOfGo: lines of Go end by column 120. A tab counts as 4 columns. Lines of generated files
// and rows of tables may be longer, and texts of 80 columns and more do not count, so that nobody
// cuts a sentence that people search for.
func TestLinesOfGo(t *testing.T) {
	files := 0
	must.Do(filepath.WalkDir(module, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != module && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		if d.IsDir() || filepath.Ext(path) != ".go" {
			return nil
		}
		files++
		for _, line := range longLines(must.Get(os.ReadFile(path))) {
			t.Errorf("%s:%d: the line is longer than 120 columns", path, line)
		}
		return nil
	}))
	if files < 400 {
		t.Errorf("%d files were read", files)
	}
}

// longLines returns the numbers of the lines that are too long.
func longLines(text []byte) (long []int) {
	fset := token.NewFileSet()
	file := must.Get(parser.ParseFile(fset, "", text, parser.ParseComments))
	if ast.IsGenerated(file) {
		return nil
	}
	may := tableRows(fset, file)
	for i, line := range strings.Split(string(text), "\n") {
		if !may[i+1] && columns(line) > 120 {
			long = append(long, i+1)
		}
	}
	return long
}

// tableRows returns the lines of elements of slices, arrays and maps, which begin and end in one line,
// and of texts of several lines.
func tableRows(fset *token.FileSet, file *ast.File) map[int]bool {
	rows := map[int]bool{}
	line := func(p token.Pos) int { return fset.Position(p).Line }
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CompositeLit:
			switch n.Type.(type) {
			case *ast.ArrayType, *ast.MapType:
				for _, e := range n.Elts {
					if at := line(e.Pos()); at == line(e.End()) && at > line(n.Lbrace) {
						rows[at] = true
					}
				}
			}
		case *ast.BasicLit:
			if first, last := line(n.Pos()), line(n.End()); first != last {
				for at := first; at <= last; at++ {
					rows[at] = true
				}
			}
		}
		return true
	})
	return rows
}

// columns returns the width of a line without its long texts.
func columns(line string) int {
	width := utf8.RuneCountInString(line) + 3*strings.Count(line, "\t")
	if width <= 120 {
		return width
	}
	var s scanner.Scanner
	s.Init(token.NewFileSet().AddFile("", -1, len(line)), []byte(line), nil, 0)
	for {
		_, kind, text := s.Scan()
		if n := utf8.RuneCountInString(text); kind == token.STRING && n >= 80 {
			width -= n
		}
		if kind == token.EOF {
			return width
		}
	}
}

// TestLongLines: what is a row of a table or a long text, and what is not.
func TestLongLines(t *testing.T) {
	words := strings.Repeat("word ", 17)
	call := "f(" + strings.Repeat("argument, ", 12) + "argument)"
	for body, want := range map[string]int{
		"\tx := " + call:                                                      3,
		"\tx := []int{\n\t\t" + call + ",\n\t}":                               0,
		"\tx := map[string]int{\n\t\t\"a\": " + call + ",\n\t}":               0,
		"\tx := []int{" + call + "}":                                          3,
		"\tx := T{\n\t\t" + call + ",\n\t}":                                   4,
		"\tx := f(a, b, \"" + words + words + "\")":                           0,
		"\tx := f(" + strings.Repeat("a, ", 40) + "\"" + words + "\")":        3,
		"\tx := `\n" + words + words + "\n`":                                  0,
		"\t// " + words + words:                                               3,
		"\t\t\t\tx := f(" + strings.Repeat("a", 95) + ")":                     0,
		"\t\t\t\tx := f(" + strings.Repeat("a", 100) + ")":                    3,
		"\tx := f(\"" + strings.Repeat("ä", 70) + "\")":                       0,
		"\tx := f(\"short\", " + strings.Repeat("a, ", 34) + "\"short one\")": 3,
	} {
		lines := longLines([]byte("package p\nfunc _() {\n" + body + "\n}\n"))
		if want == 0 && lines != nil || want != 0 && (len(lines) != 1 || lines[0] != want) {
			t.Errorf("lines %v, want %d, of\n%s", lines, want, body)
		}
	}
}
