package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/gpu"
	"github.com/seed621a2839/reweight/internal/problem"
	"github.com/seed621a2839/reweight/internal/shape"
	"github.com/seed621a2839/reweight/internal/version"
	"github.com/seed621a2839/reweight/native"
	"github.com/seed621a2839/reweight/rollout"
	"github.com/seed621a2839/reweight/scheme"
)

var wordsOfPython = inWordsOf("the defaults of ", pythonDefaults, func(name string) string { return python.name(name) })

// pythonDefaults returns what has the defaults of that name: a function, or the class of a policy.
func pythonDefaults(name string) string {
	for _, e := range native.Losses() {
		if strings.EqualFold(name, defaultOf(e).name) {
			return "reweight." + policyClass(native.PolicyOf(e))
		}
	}
	return strings.ToLower(name)
}

var firstLetters = regexp.MustCompile(`(^|_)[a-z]`)

// pythonClass returns the name of a struct in Python: RowGradientOptions.
func pythonClass(s reflect.Type) string {
	name := strings.NewReplacer("actfocus", "ActFocus", "aem", "AEM", "grpo", "GRPO", "gae", "GAE", "kl_",
		"KL_").Replace(cName(s))
	return firstLetters.ReplaceAllStringFunc(strings.TrimPrefix(name, "reweight_"), func(word string) string {
		return strings.ToUpper(strings.TrimPrefix(word, "_"))
	})
}

// pythonStruct writes the class of a struct and, before it, those of the structs in it. c is
// its name in C, or "" for the parameters of a kernel.
func pythonStruct(out io.Writer, s reflect.Type, c string, written map[reflect.Type]bool) {
	if written[s] {
		return
	}
	written[s] = true
	var annotations, fields strings.Builder
	for _, f := range fieldsOf(s) {
		name := python.name(f.Name)
		kind, annotation := "c_"+f.Type.Kind().String(), "int"
		switch f.Type.Kind() {
		case reflect.Struct:
			inner := ""
			if c != "" {
				inner = cName(f.Type)
			}
			pythonStruct(out, f.Type, inner, written)
			kind, annotation = pythonClass(f.Type), pythonClass(f.Type)
		case reflect.Int:
			kind = "c_int64"
		case reflect.Bool, reflect.Uint8:
			kind = "c_int32"
		case reflect.Slice:
			kind, annotation = "POINTER(c_double)", "Any"
		case reflect.Float64:
			kind, annotation = "c_double", "float"
		case reflect.Float32:
			kind, annotation = "c_float", "float"
		case reflect.Array:
			kind, annotation = fmt.Sprintf("c_%v * %d", f.Type.Elem().Kind(), f.Type.Len()), "Sequence[int]"
		case reflect.Pointer, reflect.UnsafePointer:
			kind, annotation = "c_void_p", "Optional[int]"
		}
		fmt.Fprintf(&annotations, "    %s: %s\n", name, annotation)
		fmt.Fprintf(&fields, "        (%q, %s),\n", name, kind)
	}
	doc := ""
	if c != "" {
		doc = fmt.Sprintf("    \"\"\"%s.\"\"\"\n\n%s", c, annotations.String())
	}
	fmt.Fprintf(out, "\n\nclass %s(Structure):\n%s    _fields_ = [\n%s    ]\n", pythonClass(s), doc, fields.String())
}

// pythonArguments returns the types of a function's arguments between the workspace and the
// error: POINTER(Batch) or c_void_p.
func pythonArguments(arguments []string) string {
	var types []string
	for _, argument := range arguments {
		kind, name, pointer := strings.Cut(strings.TrimPrefix(argument, "const "), " *")
		if !pointer {
			kind, _, _ = strings.Cut(argument, " ")
			types = append(types, "c_"+strings.TrimSuffix(kind, "_t"))
			continue
		}
		class := classOf(kind)
		if class == "" || name == "result" { // which may be in the memory of a GPU
			types = append(types, "c_void_p")
		} else {
			types = append(types, "POINTER("+class+")")
		}
	}
	return strings.Join(types, ", ")
}

// classOf returns the class of Python for a struct of C, or nothing for another type.
func classOf(c string) string {
	for _, f := range functions() {
		if f.defaults != nil && "reweight_"+f.options() == c {
			return optionsClass(&f)
		}
	}
	if s := cStruct(c); s != nil {
		return pythonClass(s)
	}
	return ""
}

// plural returns the variable of Python with the names of an argument.
func plural(argument string) string {
	return strings.Replace(strings.ToUpper(argument)+"S", "YS", "IES", 1)
}

// pythonModule returns _generated.py.
func pythonModule(*source) (string, error) {
	var out strings.Builder
	out.WriteString(`"""What Go and reweight.h say of names, structs, defaults, problems and the kernels of the GPU:
` + "`go generate ./...`" + ` writes this file. An address is an int, and 0 is no array. ctypes reads it back as None then."""

from __future__ import annotations

from ctypes import POINTER, Structure, c_double, c_float, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from math import inf
from typing import Any, Dict, List, Optional, Sequence

`)
	fmt.Fprintf(&out, "VERSION = %q\n\n# The names of the enumerations. The place of a name is its number.\n", version.Version)
	for _, e := range []struct{ variable, argument string }{{"ISAS", "isa"}, {"DTYPES", "dst"}, {"SIGNALS", "signal"},
		{"SCOPES", "scope"}, {"AGGREGATIONS", "aggregation"}, {"NORMALIZATIONS", "normalization"}, {"LEVELS", "level"},
		{"STATISTICS", "statistic"}, {"POLICIES", "policy"}, {"SEQUENCES", "sequence"}, {"KLS", "kl"}} {
		fmt.Fprintf(&out, "%s = (\"%s\")\n", e.variable,
			strings.Join(native.Names(problem.Argument{C: e.argument}), `", "`))
	}
	out.WriteString("# The same by the argument that has such a number.\nNAMES = {\n")
	for _, a := range problem.Arguments {
		switch {
		case a.C == "dst" || a.C == "logits":
			fmt.Fprintf(&out, "    %q: DTYPES,\n", a.C)
		case native.Names(a) != nil:
			fmt.Fprintf(&out, "    %q: %s,\n", a.C, plural(a.C))
		}
	}
	out.WriteString("}\n\n# The arrays that each signal is made of.\nSIGNAL_ARRAYS = {\n")
	for i, name := range native.Names(problem.Argument{C: "signal"}) {
		fmt.Fprintf(&out, "    %q: %s,\n", name, tuple(reweight.Signal(i).Arrays()))
	}
	out.WriteString("}\n\n# The texts around actions, as chat templates and prompts write them.\nTAG_PRESETS = {\n")
	for _, p := range rollout.TagPresets {
		var pairs []string
		for _, pair := range p.Tags {
			pairs = append(pairs, fmt.Sprintf("(%q, %q)", pair[0], pair[1]))
		}
		fmt.Fprintf(&out, "    %q: (%s,),\n", p.Name, strings.Join(pairs, ", "))
	}
	out.WriteString("}\n\n# The policy losses by their numbers of which that is so: the factor of a token is that of its\n# sequence; the sequence may be the span; it chooses among the tokens of a call.\n")
	for _, trait := range []struct {
		name string
		of   func(reweight.Policy) bool
	}{
		{"BY_SEQUENCE", func(p reweight.Policy) bool { return p.Traits().BySequence }},
		{"BY_SPAN", bySpan},
		{"CHOOSING", func(p reweight.Policy) bool { return p.Traits().Chooses }},
	} {
		var numbers []string
		for i, e := range native.Losses() {
			if trait.of(native.PolicyOf(e)) {
				numbers = append(numbers, strconv.Itoa(i))
			}
		}
		fmt.Fprintf(&out, "%s = (%s)\n", trait.name, strings.Join(numbers, ", "))
	}
	out.WriteString("\n# The problems by their codes: the kinds of the values, and the sentence.\nPROBLEMS = {\n")
	for i, p := range problem.Coded {
		fmt.Fprintf(&out, "    %d: (%q, %q),\n", i+1, p.Kinds,
			strings.ReplaceAll(wordsOfPython.Replace(p.Text), "%v", "{}"))
	}
	out.WriteString("}\n\n# The arguments by their numbers.\nARGUMENTS = {\n")
	for i, a := range problem.Arguments {
		fmt.Fprintf(&out, "    %d: %q,\n", i+1, a.C)
	}
	out.WriteString("}\n\n# ---- reweight.h ----\n")

	written := map[reflect.Type]bool{}
	for _, s := range native.Structs() {
		pythonStruct(&out, s, cName(s), written)
	}
	for _, f := range functions() {
		if f.defaults != nil && f.ownStruct() {
			pythonStruct(&out, reflect.TypeOf(f.defaults), "reweight_"+f.options(), written)
		}
	}
	out.WriteString("\n\n# The defaults.\n")
	for _, d := range defaults() {
		fmt.Fprintf(&out, "DEFAULT_%s = %s(%s)\n", d.name, pythonClass(d.c), ofCtypes.valuesOf(d.c, d.options))
	}
	for _, f := range functions() {
		if f.preset() {
			fmt.Fprintf(&out, "DEFAULT_%s = %s(%s)\n", strings.ToUpper(f.C), optionsClass(&f),
				ofCtypes.values(f.defaults))
		}
	}
	var presets []string
	for _, e := range native.Losses() {
		presets = append(presets, "DEFAULT_"+defaultOf(e).name)
	}
	fmt.Fprintf(&out, "# Those of the policy losses, by their numbers.\nLOSS_DEFAULTS = (%s)\n",
		strings.Join(presets, ", "))
	out.WriteString("\n# The types of the arguments of each function, between the workspace and the error.\nFUNCTIONS: Dict[str, List[Any]] = {\n")
	all := slices.Clone(native.Functions)
	for _, f := range functions() {
		all = append(all, native.Function{C: f.C, Arguments: f.arguments()})
	}
	for _, f := range all {
		line := fmt.Sprintf("    %q: [%s],\n", f.C, pythonArguments(f.Arguments))
		if len(line) > 121 {
			line = fmt.Sprintf("    %q: [\n        %s,\n    ],\n", f.C, pythonArguments(f.Arguments))
		}
		out.WriteString(line)
	}
	out.WriteString("}\n\n# ---- The kernels of the GPU: what they take, one struct each ----\n")

	params, ok := reflect.TypeFor[gpu.Workspace]().FieldByName("params")
	if !ok {
		return "", errors.New("gpu.Workspace has no params, which were the structs that the kernels take")
	}
	for f := range params.Type.Fields() {
		if f.Name != "memory" { // for benches
			pythonStruct(&out, f.Type, "", written)
		}
	}
	out.WriteString("\n\n# The module, the threads of a CTA, its bytes of dynamic shared memory, and how many times as\n# much of both it has where all that a call needs can run at a time; 0: always the same.\nKERNELS = {\n")
	for _, k := range shape.Kernels {
		if k.Module != "memory" {
			fmt.Fprintf(&out, "    %q: (%q, %d, %d, %d),\n", k.Name, k.Module, k.Threads, k.Shared, k.Team)
		}
	}
	out.WriteString("}\n\n# The kernels that a function launches.\nKERNELS_OF = {\n")
	pythonKernelsOf(&out, shape.KernelsOf, all, func(names []string) string { return quoted(names) })
	out.WriteString("}\n\n# The same for functions on rows of logits, by the number of the dtype.\nKERNELS_OF_ROWS = {\n")
	pythonKernelsOf(&out, shape.KernelsOfRows, all, func(lists [][]string) string {
		var all []string
		for _, list := range lists {
			all = append(all, "["+quoted(list)+"]")
		}
		return "\n        " + strings.Join(all, ",\n        ") + ",\n    "
	})
	out.WriteString("}\n\n# What a CTA takes, by the kind of kernel.\n")
	fmt.Fprintf(&out, "PASS = %d  # tokens of the passes over them\n", shape.PassThreads*shape.PassPack)
	fmt.Fprintf(&out, "GROUPS_OF_CTA = %d\n", shape.GroupThreads/16)
	fmt.Fprintf(&out, "SEGMENTS_OF_CTA = %d\n", shape.SegmentThreads/32)
	fmt.Fprintf(&out, "WARPS_OF_CTA = %d  # of the kernels that give a warp to each of their things\n", shape.SpanThreads/32)
	fmt.Fprintf(&out, "GROUP = %d  # tokens of a group, which half a warp sums\n\n", shape.GroupTokens)
	fmt.Fprintf(&out, "LOSS_STATE, SEGMENT_STATE = %d, %d  # bytes of scratch memory\n",
		reflect.TypeFor[shape.LossState]().Size(), reflect.TypeFor[shape.SegmentState]().Size())
	fmt.Fprintf(&out, "PLAIN, NEGATED, DIFFERENCE = %d, %d, %d  # forms of Values\n", shape.Plain, shape.Negated,
		shape.Difference)
	return out.String(), nil
}

// pythonKernelsOf writes the lines of a table of kernels by the functions of reweight.h that
// the methods of a Workspace are.
func pythonKernelsOf[V any](out *strings.Builder, table map[string]V, all []native.Function, list func(V) string) {
	for _, f := range all {
		for method, kernels := range table {
			if strings.EqualFold(method, strings.ReplaceAll(f.C, "_", "")) {
				fmt.Fprintf(out, "    %q: [%s],\n", f.C, list(kernels))
			}
		}
	}
}

// An example is what C reports, and the sentence of Python.
type example struct {
	problem.Report
	Sentence string
}

// examples returns what C could report of each problem, for Python.
func examples(*source) (string, error) {
	var all []example
	var wrong error
	add := func(code, argument int, index int64, values ...int64) {
		e := example{Report: problem.Report{Code: uint32(code), Argument: uint32(argument), Index: index}}
		copy(e.Values[:], values)
		a, text, ok := e.Read(native.Names)
		if !ok || strings.Contains(text, "%!") {
			wrong = errors.Join(wrong, fmt.Errorf("problem %d of argument %d reads %q", code, argument, text))
		}
		name := pythonName(a.C)
		if index >= 0 {
			name += fmt.Sprintf("[%d]", index)
		}
		e.Sentence = name + " " + wordsOfPython.Replace(text)
		all = append(all, e)
	}
	floats := []float64{0.1, math.NaN(), math.Inf(1), math.Inf(-1), math.Copysign(0, -1), 1e-4, 1e-5, 999992, 1e6, 1e21,
		5e-324, math.MaxFloat64, 2.0 / 3}
	floats32 := []float32{0.1, float32(math.NaN()), float32(math.Inf(-1)), 1e-5, 65535.5, 1e20, 1e-45, math.MaxFloat32,
		2.0 / 3}
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
		wrong = errors.Join(wrong, enc.Encode(e))
	}
	return out.String(), wrong
}

// optionsClass returns the name of the options in Python: GTPOOptions.
func optionsClass(f *function) string { return reflect.TypeOf(f.defaults).Name() }

// pythonCatalogue returns the module of Python with the functions of the catalogue and
// the entries of the catalogue.
func pythonCatalogue(src *source) (string, error) {
	docs, err := goDocs(src.module)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	out.WriteString(`"""The functions of schemes, and the catalogue: ` + "`go generate ./...`" + ` writes this file."""

from __future__ import annotations

from math import inf
from typing import Any, Dict, NamedTuple, Optional, Sequence, Tuple

from . import _generated, _policies
from ._arrays import ArrayLike
from ._errors import choice, integer, number
from ._schemes import of_parts, run_scheme
from .batch import Batch

__all__ = [
    "Entry",
`)
	for _, f := range functions() {
		fmt.Fprintf(&out, "    %q,\n", f.C)
	}
	out.WriteString("]\n\n")
	for _, f := range functions() {
		pythonFunction(&out, docs, &f)
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
    single_entropies: bool
    """it reads the entropies of single tokens, and not means of them only"""
    one: str
    """why a step has one entry with this; "" if it may have several"""
    without: Dict[str, str]
    """the kinds that a step with it cannot have, and why"""
    no_default: str
    """the option that has no default, and has to be set; "" if all have one"""


`)
	var kinds []string
	for k := scheme.Several; k <= scheme.Critic; k++ {
		kinds = append(kinds, k.String())
	}
	fmt.Fprintf(&out, "KINDS = %s  # in the order of a step\n\nENTRIES = (\n", tuple(kinds))
	for _, e := range scheme.Entries() {
		options := e.Defaults()
		defaults := ""
		switch {
		case e.Name == "group_mean":
			defaults = `"divide_by_std": False`
		case e.Kind == scheme.Loss:
			defaults = lossDefaults(e)
		case e.Part(&options) != nil:
			var values []string
			for name, v := range scheme.Fields(reflect.ValueOf(e.Part(&options)).Elem().Interface()) {
				if v.Kind() == reflect.Float64 && math.IsNaN(v.Float()) {
					continue // it has no default
				}
				values = append(values, fmt.Sprintf("%q: %s", python.name(name), python.value("", v)))
			}
			defaults = strings.Join(values, ", ")
		}
		var without []string
		for k := scheme.Several; k <= scheme.Critic; k++ {
			if why := e.Without[k]; why != "" {
				without = append(without, fmt.Sprintf("%q: %q", k.String(), why))
			}
		}
		noDefault := python.name(e.NoDefault)
		if noDefault != "" && e.Kind == scheme.Loss { // which is in the policy
			noDefault = "policy"
		}
		formula := inQuotes.ReplaceAllStringFunc(e.Formula, func(word string) string {
			return "`" + python.name(strings.Trim(word, "`")) + "`"
		})
		fmt.Fprintf(&out, "    Entry(\n        %q, %s, %q,\n        %q,\n        %q,\n        %q,\n        %q, %s, %q,\n        {%s},\n        %s,\n        %s, %q, {%s}, %q,\n    ),\n",
			e.Name, tuple(e.Synonyms), e.Title, e.Doc, e.Source, formula, e.Kind.String(), tuple(e.Of), e.C, defaults,
			tuple(e.Reads), python.truth[e.SingleEntropies], e.One, strings.Join(without, ", "), noDefault)
	}
	out.WriteString(")\n\"\"\"The catalogue, in the order of reports.\"\"\"\n")
	return out.String(), nil
}

// tuple returns a tuple of strings.
func tuple(of []string) string {
	switch len(of) {
	case 0:
		return "()"
	case 1:
		return "(" + quoted(of) + ",)"
	}
	return "(" + quoted(of) + ")"
}

var (
	inQuotes  = regexp.MustCompile("`\\w+`")
	whatIsSet = regexp.MustCompile(`^\w+ sets (\w+(?: of the advantages)?) to `)
)

// pythonFunction writes the function of a scheme.
func pythonFunction(out *strings.Builder, docs map[string]string, f *function) {
	fmt.Fprintf(out, "\ndef %s(\n    batch: Batch,\n    *,\n", f.C)
	var explained, values []string
	reads := tuple(strings.Split(strings.ReplaceAll(strings.Join(f.Reads, " "), "token_rewards|rewards",
		"token_rewards"), " "))
	if f.defaults != nil {
		typ := reflect.TypeOf(f.defaults)
		for field, v := range reflect.ValueOf(f.defaults).Fields() {
			name, kind := python.name(field.Name), problem.Snake(field.Name)
			annotation, value := "float", fmt.Sprintf("number(%q, %s)", name, name)
			comment := python.words(f, docs[typ.Name()+"."+field.Name])
			switch field.Type.Kind() {
			case reflect.Int:
				annotation, value = "int", fmt.Sprintf("integer(%q, %s, 64)", name, name)
			case reflect.Bool:
				annotation, value = "bool", "bool("+name+")"
				comment = strings.ReplaceAll(comment, "false", "False")
			case reflect.Slice:
				annotation, value = "Optional[Sequence[float]]", fmt.Sprintf("of_parts(%q, %s, batch)", name, name)
			case reflect.Uint8:
				annotation, value = "str", fmt.Sprintf("choice(%q, %s, _generated.%sS)", name, name,
					strings.ToUpper(kind))
				names := native.Names(problem.Argument{C: kind})
				if comment == "" {
					comment = quoted(names[:1])
					for i, name := range names[1:] {
						comment += map[bool]string{true: " or ", false: ", "}[i == len(names)-2] +
							quoted([]string{name})
					}
				}
				if kind == "scope" {
					reads = strings.Replace(reads, "\"group_ids\", ", "", 1) +
						" + ((\"group_ids\",) if scope == \"group\" else ())"
				}
			}
			preset := " = " + python.value("", v)
			if !f.preset() {
				preset = ""
			}
			fmt.Fprintf(out, "    %s: %s%s,\n", name, annotation, preset)
			explained = append(explained, wrap(name+": "+comment, 88))
			values = append(values, value)
		}
	}
	explained = append(explained, wrap("out: the array for "+f.Dst+", float32.", 88))
	text := python.text(docs, f)
	text = whatIsSet.ReplaceAllString(text, "Returns $1: ")
	text = verbOfDoc.ReplaceAllString(text, "Returns ")
	text = strings.ReplaceAll(wrap(text, 88), "\n\t", "\n    ")
	// The last paragraph has the shapes and the errors.
	fmt.Fprintf(out, "    out: Optional[ArrayLike] = None,\n) -> Any:\n    \"\"\"%s\n\n    %s\n\n    An error is an InputError, which is a ValueError.\n    \"\"\"\n",
		strings.ReplaceAll(strings.ReplaceAll(text, "\n", "\n    "), "\n    \n", "\n\n"),
		strings.ReplaceAll(strings.Join(explained, "\n"), "\n", "\n    "))
	options := "None"
	if f.defaults != nil {
		fmt.Fprintf(out, "    options = _generated.%s(\n        %s,\n    )\n", optionsClass(f),
			strings.Join(values, ",\n        "))
		options = "options"
	}
	unit := ""
	if f.PerTrajectory {
		unit = ", \"trajectory\""
	}
	fmt.Fprintf(out, "    return run_scheme(%q, batch, %s, %s, out%s)\n\n", f.C, options, reads, unit)
}
