package gotest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/seed621a2839/reweight/internal/printable"
)

// A Package is a package with benchmarks.
type Package struct {
	Path       string // import path
	Dir        string // absolute
	Rel        string // relative to Module.Dir, with slashes, "." for itself
	Name       string
	Benchmarks []Benchmark
	Parallel   bool // its test files call RunParallel

	module struct{ Path, Dir string } // of a workspace there may be others
}

// A Benchmark is a function of a package.
type Benchmark struct {
	Name     string
	External bool   // of the package name_test
	File     string // absolute
	Line     int
}

// listed is what go list -json tells of a package.
type listed struct {
	ImportPath, Dir, Name     string
	TestGoFiles, XTestGoFiles []string
	Match                     []string
	Error                     *listError
	Module                    *struct {
		Path, Dir string
		Main      bool
	}
}

type listError struct{ Pos, Err string }

// String is its first line.
func (e *listError) String() string {
	return printable.Line(strings.TrimPrefix(e.Pos+": "+firstLine(e.Err), ": "))
}

// Packages returns the packages that the patterns name and that
// have a benchmark function whose name the first element of the regular expression
// matches, with all such functions. It is one of go test -bench. The notes say
// what was left out.
func (m *Module) Packages(ctx context.Context, patterns []string,
	bench string) (list []Package, notes []string, err error) {
	pattern, err := parsePattern(bench)
	if err != nil {
		return nil, nil, err
	}
	args := slices.Concat([]string{"list", "-e",
		"-json=ImportPath,Dir,Name,TestGoFiles,XTestGoFiles,Match,Error,Module"},
		m.flags, m.listFlags, []string{"--"}, patterns)
	text, err := m.run(ctx, args...)
	if err != nil {
		return nil, nil, err
	}
	matched := map[string]bool{}
	for d := json.NewDecoder(strings.NewReader(text)); ; {
		var l listed
		if err := d.Decode(&l); err == io.EOF {
			break
		} else if err != nil {
			return nil, nil, fmt.Errorf("go list: %w", err)
		}
		for _, pattern := range l.Match {
			matched[pattern] = true
		}
		tests := len(l.TestGoFiles)+len(l.XTestGoFiles) > 0
		if l.Error != nil && tests {
			return nil, nil, fmt.Errorf("%s: %s", printable.Text(l.ImportPath), l.Error)
		}
		// Of packages that ./... happens to find, those matter that have tests.
		if l.Error != nil && slices.ContainsFunc(l.Match, func(p string) bool {
			return p == l.ImportPath || !strings.Contains(p, "...")
		}) {
			// The directory may be that of a copy.
			l.Error.Err = strings.ReplaceAll(l.Error.Err, m.Dir+string(filepath.Separator), "")
			notes = append(notes, fmt.Sprintf("%s: %s", printable.Text(l.ImportPath), l.Error))
		}
		if l.Error != nil || !tests {
			continue
		}
		p, more, err := m.load(l, pattern.mayMean)
		if err != nil {
			return nil, nil, err
		}
		notes = append(notes, more...)
		if len(p.Benchmarks) > 0 {
			list = append(list, p)
		}
	}
	for _, p := range patterns {
		if !matched[p] {
			notes = append(notes, fmt.Sprintf("No packages match %s", printable.Text(p)))
		}
	}
	return list, notes, nil
}

// load reads a package's benchmarks.
func (m *Module) load(l listed, match func(string) bool) (p Package, notes []string, err error) {
	if l.Module == nil || !l.Module.Main {
		return p, nil, fmt.Errorf("%s is not a package of this module", printable.Text(l.ImportPath))
	}
	p = Package{Path: l.ImportPath, Dir: l.Dir, Name: l.Name}
	p.module.Path, p.module.Dir = l.Module.Path, l.Module.Dir
	rel, err := filepath.Rel(m.Dir, l.Dir)
	if err != nil {
		return p, nil, err
	}
	p.Rel = filepath.ToSlash(rel)
	var all [2][]Benchmark
	for i, files := range [][]string{l.TestGoFiles, l.XTestGoFiles} {
		for _, name := range files {
			found, parallel, err := benchmarks(filepath.Join(l.Dir, name))
			if err != nil {
				return p, nil, err
			}
			p.Parallel = p.Parallel || parallel
			all[i] = append(all[i], found...)
		}
	}
	for i := range all {
		for _, b := range all[i] {
			if b.External = i == 1; !match(b.Name) {
				continue
			}
			both := slices.ContainsFunc(all[1-i], func(other Benchmark) bool { return other.Name == b.Name })
			switch {
			case !both:
				p.Benchmarks = append(p.Benchmarks, b)
			case i == 0:
				notes = append(notes, fmt.Sprintf("%s has a %s, and so has its package %s_test: left out", p.Path,
					b.Name, p.Name))
			}
		}
	}
	return p, notes, nil
}

// benchmarks returns the benchmark functions of a file, and whether it
// calls RunParallel.
func benchmarks(path string) (list []Benchmark, parallel bool, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, false, err
	}
	parallel = bytes.Contains(text, []byte(".RunParallel("))
	if !bytes.Contains(text, []byte("Benchmark")) {
		return nil, parallel, nil
	}
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, path, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, false, errors.New(printable.Line(firstLine(err.Error())))
	}
	for _, d := range f.Decls {
		if d, ok := d.(*ast.FuncDecl); ok && isBenchmark(d) {
			list = append(list, Benchmark{Name: d.Name.Name, File: path, Line: files.Position(d.Pos()).Line})
		}
	}
	return list, parallel, nil
}

// isBenchmark reports whether go test takes the function for a benchmark.
func isBenchmark(d *ast.FuncDecl) bool {
	rest, ok := strings.CutPrefix(d.Name.Name, "Benchmark")
	if r, _ := utf8.DecodeRuneInString(rest); !ok || rest != "" && unicode.IsLower(r) {
		return false
	}
	params := d.Type.Params.List
	if d.Recv != nil || d.Type.TypeParams.NumFields() > 0 || d.Type.Results.NumFields() > 0 || len(params) != 1 ||
		len(params[0].Names) > 1 {
		return false
	}
	of := types.ExprString(params[0].Type)
	return of == "*B" || strings.HasPrefix(of, "*") && strings.HasSuffix(of, ".B")
}

// CheckPattern returns an error if a regular expression is none for -bench or -skip of
// go test.
func CheckPattern(pattern string) error {
	_, err := parsePattern(pattern)
	return err
}

// Skips reports whether the -skip expression of go test leaves nothing of a function.
func Skips(skip, name string) bool {
	p, err := parsePattern(skip)
	return err == nil && skip != "" && slices.ContainsFunc(p, func(a alternative) bool {
		return !a.sub && a.first.MatchString(name)
	})
}

// An alternative is one of those that a -bench expression of go test has, separated by |.
// Each has elements for the parts of a benchmark's name, separated by /.
type alternative struct {
	first *regexp.Regexp // for the name of the function
	sub   bool           // there are more
}

type pattern []alternative

// mayMean reports whether a function may have a benchmark that the expression matches.
func (p pattern) mayMean(name string) bool {
	return slices.ContainsFunc(p, func(a alternative) bool { return a.first.MatchString(name) })
}

// parsePattern reads such an expression. Neither mark separates in brackets.
func parsePattern(bench string) (list pattern, err error) {
	for _, one := range cutAt('|', bench) {
		elements := cutAt('/', one)
		for i, element := range elements {
			re, err := regexp.Compile(element)
			if err != nil {
				return nil, err
			}
			if i == 0 {
				list = append(list, alternative{first: re, sub: len(elements) > 1})
			}
		}
	}
	return list, nil
}

// cutAt cuts an expression at each mark that is in no brackets.
func cutAt(mark byte, s string) (parts []string) {
	square, round, from := 0, 0, 0
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\':
			i++
		case c == '[':
			square++
		case c == ']':
			square = max(0, square-1)
		case square > 0:
		case c == '(':
			round++
		case c == ')':
			round--
		case c == mark && round == 0:
			parts = append(parts, s[from:i])
			from = i + 1
		}
	}
	return append(parts, s[from:])
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	return s
}
