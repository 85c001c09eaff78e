package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"math"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/problem"
	"github.com/seed621a2839/reweight/native"
	"github.com/seed621a2839/reweight/scheme"
)

// A function is one of C and of Python whose declaration, struct, defaults and text are made from
// Go's.
type function struct {
	*scheme.Entry        // the first one that it computes
	defaults      any    // its options; nil if there are none
	of            string // the function that C names the struct of the options after: often itself
}

// functions returns these functions, in the order of the catalogue.
func functions() (all []function) {
	structs := map[reflect.Type]string{}
	for _, e := range native.OfCatalogue() {
		f := function{Entry: e}
		opt := e.Defaults()
		if part := e.Part(&opt); part != nil {
			f.defaults = reflect.ValueOf(part).Elem().Interface()
			typ := reflect.TypeOf(f.defaults)
			if structs[typ] == "" {
				structs[typ] = e.C
			}
			f.of = structs[typ]
		}
		all = append(all, f)
	}
	return all
}

// ownStruct reports whether the struct of the options has the name of the function.
func (f *function) ownStruct() bool { return f.of == f.C }

// options returns what C calls the struct of the options, without reweight_ before it.
func (f *function) options() string { return f.of + "_options" }

// preset reports whether there is a default for every option.
func (f *function) preset() bool {
	if f.defaults == nil {
		return false
	}
	for _, v := range reflect.ValueOf(f.defaults).Fields() {
		if v.Kind() == reflect.Float64 && math.IsNaN(v.Float()) {
			return false
		}
	}
	return true
}

// goDocs returns the texts of Go: of the methods of Workspace by their names, of types by "type Name",
// and of the fields of structs by Struct.Field.
func goDocs(module string) (map[string]string, error) {
	docs := map[string]string{}
	files, err := filepath.Glob(filepath.Join(module, "*.go"))
	if err != nil {
		return nil, err
	}
	for _, name := range append(files, filepath.Join(module, "scheme/table.go")) {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv != nil && types.ExprString(n.Recv.List[0].Type) == "*Workspace" {
					docs[n.Name.Name] = n.Doc.Text()
				}
			case *ast.GenDecl:
				for _, spec := range n.Specs {
					if s, ok := spec.(*ast.TypeSpec); ok {
						docs["type "+s.Name.Name] = n.Doc.Text()
					}
				}
			case *ast.TypeSpec:
				s, ok := n.Type.(*ast.StructType)
				if !ok {
					break
				}
				for _, field := range s.Fields.List {
					for _, name := range field.Names {
						docs[n.Name.Name+"."+name.Name] = strings.TrimSpace(field.Comment.Text())
					}
				}
			}
			return true
		})
	}
	return docs, nil
}

// A language has the names and the values of Go in another way.
type language struct {
	name     func(field string) string // of an array or an option
	constant func(argument, name string) string
	batch    string // before an array that has the name of what is written
	null     string // no array
	infinity string
	truth    map[bool]string
}

var (
	languageC = language{problem.Snake, enumerator, "batch->", "NULL", "__builtin_inf()",
		map[bool]string{false: "0", true: "1"}}
	python = language{func(field string) string { return pythonName(problem.Snake(field)) },
		func(_, name string) string { return strconv.Quote(name) }, "batch.", "None", "inf",
		map[bool]string{false: "False", true: "True"}}
	// ofCtypes writes what Python hands to C.
	ofCtypes = language{python.name, func(argument, name string) string {
		return strconv.Itoa(slices.Index(native.Names(problem.Argument{C: argument}), name))
	}, python.batch, python.null, python.infinity, languageC.truth}
)

// enumerator returns the constant of reweight.h for a name of an argument.
func enumerator(argument, name string) string {
	switch argument {
	case "scope", "normalization", "level", "statistic", "policy", "sequence", "kl":
		name = argument + "_" + strings.ReplaceAll(name, "+", "_plus")
	}
	return "REWEIGHT_" + strings.ToUpper(name)
}

// pythonName returns the name of C in Python, which has a lambda of its own.
func pythonName(name string) string {
	if name == "lambda" {
		return "lambda_"
	}
	return name
}

// value returns the value of an option.
func (l language) value(argument string, v reflect.Value) string {
	switch {
	case v.Kind() == reflect.Bool:
		return l.truth[v.Bool()]
	case v.Kind() == reflect.Uint8, v.Kind() == reflect.Interface:
		return l.constant(argument, fmt.Sprint(v.Interface()))
	case v.Kind() == reflect.Slice:
		return l.null
	case v.Kind() == reflect.Float64 && math.IsInf(v.Float(), 1):
		return l.infinity
	}
	return fmt.Sprint(v.Interface())
}

// values returns the options of Go in their own order.
func (l language) values(options any) string {
	var values []string
	for f, v := range reflect.ValueOf(options).Fields() {
		values = append(values, l.value(problem.Snake(f.Name), v))
	}
	return strings.Join(values, ", ")
}

// valuesOf returns the options of Go in the order of a struct of C.
func (l language) valuesOf(c reflect.Type, options any) string {
	var values []string
	for _, f := range fieldsOf(c) {
		v, names := goField(options, f.Name), native.Names(problem.Argument{C: f.Name})
		switch {
		case v.IsValid():
			values = append(values, l.value(f.Name, v))
		case names != nil: // of another policy, as the number
			values = append(values, l.constant(f.Name, names[0]))
		default:
			values = append(values, "0")
		}
	}
	return strings.Join(values, ", ")
}

// text returns what a function does: the comment of Go's method in the words of a language. A
// paragraph that begins with "In Go, " is of what the other languages do not have.
func (l language) text(docs map[string]string, f *function) string {
	paragraphs := slices.DeleteFunc(strings.Split(docs[f.Method], "\n\n"), func(p string) bool {
		return strings.HasPrefix(p, "In Go, ")
	})
	return strings.ReplaceAll(l.words(f, strings.Join(paragraphs, "\n\n")), " of b ", " of the batch ")
}

var aWord = regexp.MustCompile(`\w+`)

// words replaces the names of Go that the text of a function has.
func (l language) words(f *function, text string) string {
	names := map[string]string{"nil": l.null}
	for field := range reflect.TypeFor[reweight.Batch]().Fields() {
		names[field.Name] = l.name(field.Name)
		if problem.Snake(field.Name) == f.Dst {
			names[field.Name] = l.batch + l.name(field.Name)
		}
	}
	if f.defaults != nil {
		for field := range reflect.TypeOf(f.defaults).Fields() {
			names[field.Name] = l.name(field.Name)
		}
	}
	for argument, prefix := range map[string]string{"scope": "Scope", "normalization": "Normalize"} {
		for _, name := range native.Names(problem.Argument{C: argument}) {
			names[prefix+strings.ToUpper(name[:1])+name[1:]] = l.constant(argument, name)
		}
	}
	for _, other := range functions() {
		names[other.Method] = other.C
	}
	delete(names, f.Method)
	return aWord.ReplaceAllStringFunc(text, func(word string) string {
		if to, ok := names[word]; ok {
			return to
		}
		return word
	})
}

// wrap breaks the paragraphs of a text into lines of at most so many bytes, and leaves the
// paragraphs that begin with a tab.
func wrap(text string, most int) string {
	var paragraphs []string
	for _, p := range strings.Split(strings.TrimSpace(text), "\n\n") {
		if strings.HasPrefix(p, "\t") {
			paragraphs = append(paragraphs, p)
			continue
		}
		lines := []string{""}
		for _, word := range strings.Fields(p) {
			last := &lines[len(lines)-1]
			switch {
			case *last == "":
				*last = word
			case len(*last)+1+len(word) > most:
				lines = append(lines, word)
			default:
				*last += " " + word
			}
		}
		paragraphs = append(paragraphs, strings.Join(lines, "\n"))
	}
	return strings.Join(paragraphs, "\n\n")
}

// inWordsOf replaces the names of Go in the sentences of problems. A default is the prefix and
// its name as default says it; an option is what option makes of it.
func inWordsOf(prefix string, name, option func(string) string) *strings.Replacer {
	names := map[string]string{}
	for _, d := range defaults() {
		names["Default"+d.method] = prefix + name(d.name)
	}
	for _, f := range functions() {
		names["Default"+f.Method] = prefix + name(f.C)
	}
	for _, word := range []string{"KFuture", "Zeta", "EntropyLow", "CovLow", "Low", "Buffer", "Bonus", "Omega", "Beta",
		"Guard", "Lambda", "ClipHigh", "DecayPos", "PowerNeg", "DecayNeg"} {
		names[word] = option(word)
	}
	var pairs []string
	// GRPOSLoss is before GRPOS, and GRPOS before GRPO: the first that fits is taken.
	longest := func(a, b string) int { return len(b) - len(a) }
	for _, word := range sortedKeys(names, longest) {
		pairs = append(pairs, word, names[word])
	}
	return strings.NewReplacer(pairs...)
}

// sortedKeys returns the keys of a map in an order that does not change.
func sortedKeys(m map[string]string, order func(a, b string) int) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	slices.SortStableFunc(keys, order)
	return keys
}

// quoted returns the names as the elements of a list.
func quoted(names []string) string { return "\"" + strings.Join(names, "\", \"") + "\"" }
