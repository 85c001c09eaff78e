package gpu

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
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/must"
	"github.com/seed621a2839/reweight/internal/problem"
	"github.com/seed621a2839/reweight/native"
	"github.com/seed621a2839/reweight/scheme"
)

// goDocs has the texts of package reweight: of the methods of Workspace by their names, and
// of the fields of structs by Struct.Field.
func goDocs() map[string]string {
	docs := map[string]string{}
	for _, name := range append(must.Get(filepath.Glob("../*.go")), "../native/schemes.go") {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		ast.Inspect(must.Get(parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)), func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv != nil && types.ExprString(n.Recv.List[0].Type) == "*Workspace" {
					docs[n.Name.Name] = n.Doc.Text()
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
	return docs
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
	languageC = language{problem.Snake, enumerator, "batch->", "NULL", "__builtin_inf()", map[bool]string{false: "0", true: "1"}}
	python    = language{func(field string) string { return pythonName(problem.Snake(field)) }, func(_, name string) string { return strconv.Quote(name) },
		"batch.", "None", "inf", map[bool]string{false: "False", true: "True"}}
	// ofCtypes writes what Python hands to C.
	ofCtypes = language{python.name, func(argument, name string) string {
		return strconv.Itoa(slices.Index(native.Names(problem.Argument{C: argument}), name))
	}, python.batch, python.null, python.infinity, languageC.truth}
)

// value returns the value of an option.
func (l language) value(argument string, v reflect.Value) string {
	switch {
	case v.Kind() == reflect.Bool:
		return l.truth[v.Bool()]
	case v.Kind() == reflect.Uint8:
		return l.constant(argument, fmt.Sprint(v.Interface()))
	case v.Kind() == reflect.Slice:
		return l.null
	case v.Kind() == reflect.Float64 && math.IsInf(v.Float(), 1):
		return l.infinity
	}
	return fmt.Sprint(v.Interface())
}

// values returns the default options of a scheme, in the order of the struct.
func (l language) values(s *native.Scheme) string {
	var values []string
	for f, v := range reflect.ValueOf(s.Default).Fields() {
		values = append(values, l.value(problem.Snake(f.Name), v))
	}
	return strings.Join(values, ", ")
}

// schemeText returns what the scheme does, in the words of a language.
func (l language) schemeText(t *testing.T, docs map[string]string, s *native.Scheme) string {
	text := docs[s.Method]
	for i := 0; i < len(s.Doc); i += 2 {
		if !strings.Contains(text, s.Doc[i]) {
			t.Errorf("the text of %s has no %q", s.Method, s.Doc[i])
		}
		text = strings.Replace(text, s.Doc[i], s.Doc[i+1], 1)
	}
	return strings.ReplaceAll(l.words(s, text), " of b ", " of the batch ")
}

// wrap breaks the paragraphs of a text into lines of at most so many letters, and leaves the
// lines that begin with a tab.
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

// words replaces the names of Go that the text of a scheme has.
func (l language) words(s *native.Scheme, text string) string {
	names := map[string]string{"nil": l.null}
	for f := range reflect.TypeFor[reweight.Batch]().Fields() {
		names[f.Name] = l.name(f.Name)
		if problem.Snake(f.Name) == s.Dst {
			names[f.Name] = l.batch + l.name(f.Name)
		}
	}
	if s.Default != nil {
		for f := range reflect.TypeOf(s.Default).Fields() {
			names[f.Name] = l.name(f.Name)
		}
	}
	for argument, prefix := range map[string]string{"scope": "Scope", "normalization": "Normalize"} {
		for _, name := range native.Names(problem.Argument{C: argument}) {
			names[prefix+strings.ToUpper(name[:1])+name[1:]] = l.constant(argument, name)
		}
	}
	for i := range native.Schemes {
		names[native.Schemes[i].Method] = native.Schemes[i].C
	}
	delete(names, s.Method)
	return regexp.MustCompile(`\w+`).ReplaceAllStringFunc(text, func(word string) string {
		if to, ok := names[word]; ok {
			return to
		}
		return word
	})
}

// ofC are the types of C for those of options.
var ofC = map[reflect.Kind]string{reflect.Float64: "double", reflect.Int: "int64_t", reflect.Bool: "int32_t", reflect.Uint8: "int32_t", reflect.Slice: "const double *"}

// headerSchemes returns what reweight.h has of native.Schemes.
func headerSchemes(t *testing.T) string {
	var out strings.Builder
	docs := goDocs()
	enums := map[string]bool{"scope": true}
	for i := range native.Schemes {
		s := &native.Schemes[i]
		fmt.Fprintf(&out, "/* ---- %s ---- */\n\n", s.Method)
		if s.Default != nil && s.Struct == "" {
			typ := reflect.TypeOf(s.Default)
			for f := range typ.Fields() {
				argument := problem.Snake(f.Name)
				if f.Type.Kind() != reflect.Uint8 || enums[argument] {
					continue
				}
				enums[argument] = true
				fmt.Fprintf(&out, "typedef enum reweight_%s {\n", argument)
				for i, name := range native.Names(problem.Argument{C: argument}) {
					fmt.Fprintf(&out, "\t%s = %d,\n", enumerator(argument, name), i)
				}
				fmt.Fprintf(&out, "} reweight_%s;\n\n", argument)
			}
			fmt.Fprintf(&out, "typedef struct reweight_%s {\n", s.Options())
			for f := range typ.Fields() {
				comment := languageC.words(s, docs[typ.Name()+"."+f.Name])
				switch {
				case f.Type.Kind() == reflect.Uint8 && comment == "":
					comment = "a reweight_" + problem.Snake(f.Name)
				case f.Type.Kind() == reflect.Uint8:
					comment = "a reweight_" + problem.Snake(f.Name) + ": " + comment
				}
				if comment != "" {
					comment = " /* " + comment + " */"
				}
				fmt.Fprintf(&out, "\t%s;%s\n", strings.Replace(ofC[f.Type.Kind()]+" "+problem.Snake(f.Name), "* ", "*", 1), comment)
			}
			fmt.Fprintf(&out, "} reweight_%s;\n\n", s.Options())
		}
		if s.Default != nil && !s.None {
			fmt.Fprintf(&out, "#define REWEIGHT_DEFAULT_%s {%s}\n\n", strings.ToUpper(s.C), languageC.values(s))
		}
		text := regexp.MustCompile(`^\w+ sets `).ReplaceAllString(languageC.schemeText(t, docs, s), "Sets ")
		text = "/* " + strings.ReplaceAll(wrap(text, 90), "\n", "\n * ") + " */\n"
		text = strings.ReplaceAll(strings.ReplaceAll(text, "\n * \n", "\n *\n"), "\n * \t", "\n *   ")
		out.WriteString(text)
		options := ""
		if s.Default != nil {
			options = "const reweight_" + s.Options() + " *options, "
		}
		first := "REWEIGHT_API int reweight_" + s.C + "("
		pad := strings.Repeat(" ", len(first))
		fmt.Fprintf(&out, "%sconst reweight_workspace *ws, float *%s, const reweight_batch *batch,\n%s%sreweight_error *error);\n\n", first, s.Dst, pad, options)
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// optionsClass returns the name of the options in Python: GTPOOptions.
func optionsClass(s *native.Scheme) string { return reflect.TypeOf(s.Default).Name() }

// pythonCatalogue returns the module of Python with a function for each of native.Schemes and
// the entries of the catalogue.
func pythonCatalogue(t *testing.T) string {
	var out strings.Builder
	out.WriteString(`"""The functions of schemes, and the catalogue: ` + "`go generate ./gpu`" + ` writes this file."""

from __future__ import annotations

from math import inf
from typing import Any, Dict, NamedTuple, Optional, Sequence, Tuple

from . import _generated
from ._arrays import ArrayLike
from ._errors import choice, integer, number
from ._schemes import of_parts, run_scheme
from .batch import Batch

`)
	docs := goDocs()
	for i := range native.Schemes {
		pythonFunction(t, &out, docs, &native.Schemes[i])
	}
	out.WriteString(`

class Entry(NamedTuple):
    """One name of the catalogue of schemes."""

    name: str
    """in reweight.scheme: "reinforce++\""""
    synonyms: Tuple[str, ...]
    """names of trainers, which reweight.scheme takes too"""
    title: str
    """in papers: "REINFORCE++\""""
    doc: str
    """what it is, in one line"""
    source: str
    """the number in arXiv, or the trainer"""
    formula: str
    """what a token gets, in Markdown"""
    kind: str
    """several, reward, advantage, factor, weight, loss or critic"""
    of: Tuple[str, ...]
    """the names that it stands for, if several"""
    function: str
    """of this package, which computes it; "" if several"""
    defaults: Dict[str, Any]
    """the options of the function"""
    reads: Tuple[str, ...]
    """the arrays that it reads with these, besides role; "a|b" is either of two"""


ENTRIES = (
`)
	for _, e := range scheme.Entries() {
		function := ""
		switch e.Method {
		case "":
		case "ActFocus", "AEM", "GRPO", "GAE", "Loss":
			function = strings.ToLower(e.Method)
		default:
			function = problem.Snake(e.Method)
			for i := range native.Schemes {
				if native.Schemes[i].Method == e.Method {
					function = native.Schemes[i].C
				}
			}
		}
		options := e.Defaults()
		defaults := ""
		switch {
		case e.Name == "group_mean":
			defaults = `"divide_by_std": False`
		case e.Part(&options) != nil:
			var values []string
			for f, v := range reflect.ValueOf(e.Part(&options)).Elem().Fields() {
				if e.Kind == scheme.Loss && v.IsZero() && f.Name != "Policy" && f.Name != "Aggregation" {
					continue // of another policy
				}
				values = append(values, fmt.Sprintf("%q: %s", python.name(f.Name), python.value("", v)))
			}
			defaults = strings.Join(values, ", ")
		}
		formula := regexp.MustCompile("`\\w+`").ReplaceAllStringFunc(e.Formula, func(word string) string { return "`" + python.name(strings.Trim(word, "`")) + "`" })
		fmt.Fprintf(&out, "    Entry(\n        %q, %s, %q,\n        %q,\n        %q,\n        %q,\n        %q, %s, %q,\n        {%s},\n        %s,\n    ),\n",
			e.Name, tuple(e.Synonyms), e.Title, e.Doc, e.Source, formula, e.Kind.String(), tuple(e.Of), function, defaults, tuple(e.Reads))
	}
	out.WriteString(")\n\"\"\"The catalogue, in the order of reports.\"\"\"\n")
	return out.String()
}

// tuple returns a tuple of strings.
func tuple(of []string) string {
	switch len(of) {
	case 0:
		return "()"
	case 1:
		return "(" + strconv.Quote(of[0]) + ",)"
	}
	return "(" + quoted(of) + ")"
}

// pythonFunction writes the function of a scheme.
func pythonFunction(t *testing.T, out *strings.Builder, docs map[string]string, s *native.Scheme) {
	e := must.Get(scheme.Find(s.Entry))
	fmt.Fprintf(out, "\ndef %s(\n    batch: Batch,\n    *,\n", s.C)
	var explained, values []string
	reads := tuple(strings.Split(strings.ReplaceAll(strings.Join(e.Reads, " "), "token_rewards|rewards", "token_rewards"), " "))
	if s.Default != nil {
		typ := reflect.TypeOf(s.Default)
		for f, v := range reflect.ValueOf(s.Default).Fields() {
			name, kind := python.name(f.Name), problem.Snake(f.Name)
			annotation, value := "float", fmt.Sprintf("number(%q, %s)", name, name)
			comment := python.words(s, docs[typ.Name()+"."+f.Name])
			switch f.Type.Kind() {
			case reflect.Int:
				annotation, value = "int", fmt.Sprintf("integer(%q, %s, 64)", name, name)
			case reflect.Bool:
				annotation, value = "bool", "bool("+name+")"
				comment = strings.ReplaceAll(comment, "false", "False")
			case reflect.Slice:
				annotation, value = "Optional[Sequence[float]]", fmt.Sprintf("of_parts(%q, %s, batch)", name, name)
			case reflect.Uint8:
				annotation, value = "str", fmt.Sprintf("choice(%q, %s, _generated.%sS)", name, name, strings.ToUpper(kind))
				names := native.Names(problem.Argument{C: kind})
				if comment == "" {
					comment = strconv.Quote(names[0])
					for i, name := range names[1:] {
						comment += map[bool]string{true: " or ", false: ", "}[i == len(names)-2] + strconv.Quote(name)
					}
				}
				if kind == "scope" {
					reads = strings.Replace(reads, "\"group_ids\", ", "", 1) + " + ((\"group_ids\",) if scope == \"group\" else ())"
				}
			}
			preset := " = " + python.value("", v)
			if s.None {
				preset = ""
			}
			fmt.Fprintf(out, "    %s: %s%s,\n", name, annotation, preset)
			explained = append(explained, wrap(name+": "+comment, 88))
			values = append(values, value)
		}
	}
	explained = append(explained, wrap("out: the array for "+s.Dst+", float32.", 88))
	text := python.schemeText(t, docs, s)
	text = regexp.MustCompile(`^\w+ sets (\w+(?: of the advantages)?) to `).ReplaceAllString(text, "Returns $1: ")
	text = regexp.MustCompile(`^\w+ sets `).ReplaceAllString(text, "Returns ")
	text = strings.ReplaceAll(wrap(text, 88), "\n\t", "\n    ")
	// The last paragraph has the shapes and the errors.
	fmt.Fprintf(out, "    out: Optional[ArrayLike] = None,\n) -> Any:\n    \"\"\"%s\n\n    %s\n\n    An error is an InputError, which is a ValueError.\n    \"\"\"\n",
		strings.ReplaceAll(strings.ReplaceAll(text, "\n", "\n    "), "\n    \n", "\n\n"), strings.ReplaceAll(strings.Join(explained, "\n"), "\n", "\n    "))
	options := "None"
	if s.Default != nil {
		of := native.SchemeOf(strings.TrimSuffix(s.Options(), "_options"))
		fmt.Fprintf(out, "    options = _generated.%s(\n        %s,\n    )\n", optionsClass(of), strings.Join(values, ",\n        "))
		options = "options"
	}
	unit := ""
	if s.PerTrajectory {
		unit = ", \"trajectory\""
	}
	fmt.Fprintf(out, "    return run_scheme(%q, batch, %s, %s, out%s)\n\n", s.C, options, reads, unit)
}
