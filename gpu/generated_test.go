package gpu

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/must"
	"github.com/seed621a2839/reweight/internal/native/library"
	"github.com/seed621a2839/reweight/internal/problem"
	"github.com/seed621a2839/reweight/native"
)

var write = flag.Bool("write", false, "TestGenerated writes the files")

// TestGenerated: what C, CUDA and Python know of Go is what is written in Go. `go generate
// ./gpu` writes the files. internal/gpu/device/build.sh then translates the kernels again.
func TestGenerated(t *testing.T) {
	if native.Structs() == nil {
		t.Skip("the structs of reweight.h need cgo")
	}
	text := must.Get(os.ReadFile("../native/reweight.h"))
	header := headerText(t, string(text))
	checkHeader(t, header)
	for file, want := range map[string]string{
		"../native/reweight.h":                header,
		"../internal/gpu/device/problems.cuh": deviceText(),
		"../python/reweight/_generated.py":    pythonText(t, header),
		"../python/reweight/_catalogue.py":    pythonCatalogue(t),
		"../testdata/problems.json":           examples(t),
	} {
		if *write {
			must.Do(os.WriteFile(file, []byte(want), 0o666))
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

// What C and Python call the options and the defaults that Go's sentences name.
var (
	inC      = words("REWEIGHT_DEFAULT_", strings.ToUpper, problem.Snake)
	inPython = words("the defaults of ", strings.ToLower, func(name string) string { return pythonName(problem.Snake(name)) })
)

// words replaces the names of Go. A default is the prefix, and its method in the letters
// that are asked for.
func words(prefix string, method, option func(string) string) *strings.Replacer {
	names := map[string]string{}
	for _, d := range defaults {
		names["Default"+d.method] = prefix + method(d.name)
	}
	for i := range native.Schemes {
		s := &native.Schemes[i]
		names["Default"+s.Method] = prefix + method(s.C)
	}
	for _, name := range []string{"KFuture", "Zeta", "EntropyLow", "CovLow", "Low", "Buffer", "Bonus", "Omega", "Beta", "Guard", "Lambda", "ClipHigh", "DecayPos", "PowerNeg", "DecayNeg"} {
		names[name] = option(name)
	}
	var pairs []string
	longest := func(a, b string) int { return len(b) - len(a) } // GRPOSLoss before GRPOS before GRPO: the first that fits is taken
	for _, name := range slices.SortedFunc(maps.Keys(names), longest) {
		pairs = append(pairs, name, names[name])
	}
	return strings.NewReplacer(pairs...)
}

// pythonName returns the name of C in Python, which has a lambda of its own.
func pythonName(name string) string {
	if name == "lambda" {
		return "lambda_"
	}
	return name
}

// headerText returns reweight.h with the problems and the defaults of Go.
func headerText(t *testing.T, header string) string {
	const begin, end = "/* generated */\n", "/* end of generated */\n"
	before, rest, ok := strings.Cut(header, begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("reweight.h lacks %q or %q", begin, end)
	}
	for _, d := range defaults {
		line := regexp.MustCompile(`(?m)^#define REWEIGHT_DEFAULT_` + d.name + ` .*$`)
		if !line.MatchString(after) {
			t.Errorf("reweight.h has no REWEIGHT_DEFAULT_%s", d.name)
		}
		after = line.ReplaceAllString(after, "#define REWEIGHT_DEFAULT_"+d.name+" {"+languageC.defaults(d.c, d.options)+"}")
	}
	const begin2, end2 = "/* generated schemes */\n", "/* end of generated schemes */\n"
	between, rest, ok := strings.Cut(after, begin2)
	_, after, ok2 = strings.Cut(rest, end2)
	if !ok || !ok2 {
		t.Fatalf("reweight.h lacks %q or %q", begin2, end2)
	}
	return before + begin + headerProblems() + end + between + begin2 + headerSchemes(t) + end2 + after
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
		fmt.Fprintf(&out, "\tREWEIGHT_PROBLEM_%s = %d, /* %s */\n", p.Name, i+1, inC.Replace(p.Says(verbs...)))
	}
	out.WriteString("} reweight_problem;\n\ntypedef enum reweight_argument {\n")
	for i, name := range argumentNames() {
		fmt.Fprintf(&out, "\tREWEIGHT_ARG_%s = %d,\n", name, i+1)
	}
	out.WriteString("} reweight_argument;\n")
	return out.String()
}

// deviceText returns the same for the kernels of the GPU.
func deviceText() string {
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

// defaults are those of package reweight for the options of reweight.h: the name after
// Default, and the one after REWEIGHT_DEFAULT_.
var defaults = []struct {
	method, name string
	c            reflect.Type
	options      any
}{
	{"RowGradient", "ROW_GRADIENT", cStruct("reweight_row_gradient_options"), reweight.DefaultRowGradient},
	{"ActFocus", "ACTFOCUS", cStruct("reweight_actfocus_options"), reweight.DefaultActFocus},
	{"AEM", "AEM", cStruct("reweight_aem_options"), reweight.DefaultAEM},
	{"GRPO", "GRPO", cStruct("reweight_grpo_options"), reweight.DefaultGRPO},
	{"GAE", "GAE", cStruct("reweight_gae_options"), reweight.DefaultGAE},
	{"KLRewards", "KL_REWARDS", cStruct("reweight_kl_rewards_options"), reweight.DefaultKLRewards},
	{"Loss", "LOSS", cStruct("reweight_loss_options"), reweight.DefaultLoss},
	{"GSPO", "GSPO", cStruct("reweight_loss_options"), reweight.DefaultGSPO},
	{"LUSPO", "LUSPO", cStruct("reweight_loss_options"), reweight.DefaultLUSPO},
	{"GRPOSLoss", "GRPO_S_LOSS", cStruct("reweight_loss_options"), reweight.DefaultGRPOSLoss},
	{"CISPO", "CISPO", cStruct("reweight_loss_options"), reweight.DefaultCISPO},
	{"SAPO", "SAPO", cStruct("reweight_loss_options"), reweight.DefaultSAPO},
	{"PG", "PG", cStruct("reweight_loss_options"), reweight.DefaultPG},
	{"DPPOTV", "DPPO_TV", cStruct("reweight_loss_options"), reweight.DefaultDPPOTV},
	{"VESPO", "VESPO", cStruct("reweight_loss_options"), reweight.DefaultVESPO},
	{"DPPOKL", "DPPO_KL", cStruct("reweight_loss_options"), reweight.DefaultDPPOKL},
	{"DRO", "DRO", cStruct("reweight_loss_options"), reweight.DefaultDRO},
	{"GMPO", "GMPO", cStruct("reweight_loss_options"), reweight.DefaultGMPO},
	{"ClipCov", "CLIP_COV", cStruct("reweight_loss_options"), reweight.DefaultClipCov},
	{"KLCov", "KL_COV", cStruct("reweight_loss_options"), reweight.DefaultKLCov},
	{"ValueLoss", "VALUE_LOSS", cStruct("reweight_value_loss_options"), reweight.DefaultValueLoss},
}

// cStruct returns the struct of reweight.h of that name; nil without cgo.
func cStruct(name string) reflect.Type {
	for _, s := range native.Structs() {
		if cName(s) == name {
			return s
		}
	}
	return nil
}

// optionsOf returns the scheme of native.Schemes whose options reweight.h has in the struct.
func optionsOf(name string) *native.Scheme {
	for i := range native.Schemes {
		if s := &native.Schemes[i]; s.Default != nil && s.Struct == "" && "reweight_"+s.Options() == name {
			return s
		}
	}
	return nil
}

// cName returns the name that C has for a struct of cgo.
func cName(s reflect.Type) string { return strings.TrimPrefix(s.Name(), "_Ctype_struct_") }

// fieldsOf returns the fields of a struct without the padding of cgo.
func fieldsOf(s reflect.Type) (fields []reflect.StructField) {
	for f := range s.Fields() {
		if f.Name != "_" || f.Type.Kind() != reflect.Array {
			fields = append(fields, f)
		}
	}
	return fields
}

// goField returns the field of a Go struct by its name in C, or nothing.
func goField(s any, name string) reflect.Value {
	return reflect.ValueOf(s).FieldByNameFunc(func(field string) bool { return problem.Snake(field) == name })
}

// defaults returns the values of options in the order of C.
func (l language) defaults(c reflect.Type, options any) string {
	var values []string
	for _, f := range fieldsOf(c) {
		values = append(values, l.value(f.Name, goField(options, f.Name)))
	}
	return strings.Join(values, ", ")
}

// enumerator returns the constant of reweight.h for a name of an argument.
func enumerator(argument, name string) string {
	switch argument {
	case "scope", "normalization", "level", "statistic", "policy", "sequence", "kl":
		name = argument + "_" + strings.ReplaceAll(name, "+", "_plus")
	}
	return "REWEIGHT_" + strings.ToUpper(name)
}

// checkHeader holds what is written by hand in reweight.h to Go: its enumerations, and the
// structs of options and results.
func checkHeader(t *testing.T, header string) {
	declared := regexp.MustCompile(`(?m)^typedef struct (\w+) \{`).FindAllStringSubmatch(header, -1)
	for _, d := range declared {
		if cStruct(d[1]) == nil && optionsOf(d[1]) == nil {
			t.Errorf("native/structs.go: no %s", d[1])
		}
	}
	for argument, enum := range map[string]string{"isa": "isa", "dst": "dtype", "signal": "signal", "scope": "scope", "aggregation": "aggregation", "policy": "policy_loss", "sequence": "sequence", "kl": "kl_form"} {
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
	for _, d := range defaults {
		for _, f := range fieldsOf(d.c) {
			v := goField(d.options, f.Name)
			if !v.IsValid() {
				t.Errorf("%s.%s has no field in %T", cName(d.c), f.Name, d.options)
				continue
			}
			want := map[reflect.Kind]reflect.Kind{reflect.Float64: reflect.Float64, reflect.Int: reflect.Int64, reflect.Uint64: reflect.Uint64, reflect.Bool: reflect.Int32, reflect.Uint8: reflect.Int32}[v.Kind()]
			if f.Type.Kind() != want {
				t.Errorf("%s.%s is a %v, want the %v for Go's %v", cName(d.c), f.Name, f.Type.Kind(), want, v.Type())
			}
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
			if problem.Snake(g.Name) != f.Name || g.Offset != f.Offset || g.Type.Size() != 8 || f.Type.Size() != 8 || (g.Type.Kind() == reflect.Float64) != (f.Type.Kind() == reflect.Float64) {
				t.Errorf("%s.%s is at %d, want %s of %T at %d, both of 8 bytes", name, f.Name, f.Offset, g.Name, result, g.Offset)
			}
		}
	}
}

// pythonClass returns the name of a struct in Python: RowGradientOptions.
func pythonClass(s reflect.Type) string {
	name := strings.NewReplacer("actfocus", "ActFocus", "aem", "AEM", "grpo", "GRPO", "gae", "GAE", "kl_", "KL_").Replace(cName(s))
	return regexp.MustCompile(`(^|_)[a-z]`).ReplaceAllStringFunc(strings.TrimPrefix(name, "reweight_"), func(word string) string {
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
func pythonArguments(prototype string) string {
	var types []string
	arguments := strings.Split(prototype, ",")
	for _, argument := range arguments[1 : len(arguments)-1] {
		words := strings.Fields(strings.ReplaceAll(strings.ReplaceAll(argument, "const ", ""), "*", "* "))
		name, kind := words[len(words)-1], words[0]
		switch {
		case strings.HasSuffix(kind, "*") || words[1] == "*":
			s := cStruct(strings.TrimSuffix(kind, "*"))
			if o := optionsOf(strings.TrimSuffix(kind, "*")); o != nil {
				types = append(types, "POINTER("+optionsClass(o)+")")
			} else if s == nil || name == "result" { // which may be in the memory of a GPU
				types = append(types, "c_void_p")
			} else {
				types = append(types, "POINTER("+pythonClass(s)+")")
			}
		default:
			types = append(types, "c_"+strings.TrimSuffix(kind, "_t"))
		}
	}
	return strings.Join(types, ", ")
}

// plural returns the variable of Python with the names of an argument.
func plural(argument string) string {
	return strings.Replace(strings.ToUpper(argument)+"S", "YS", "IES", 1)
}

// pythonText returns the module of Python.
func pythonText(t *testing.T, header string) string {
	var out strings.Builder
	out.WriteString(`"""What Go and reweight.h say of names, structs, defaults, problems and the kernels of the GPU:
` + "`go generate ./gpu`" + ` writes this file. An address is an int, and 0 is no array. ctypes reads it back as None then."""

from __future__ import annotations

from ctypes import POINTER, Structure, c_double, c_float, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from math import inf
from typing import Any, Dict, List, Optional, Sequence

`)
	fmt.Fprintf(&out, "VERSION = %q\n\n# The names of the enumerations. The place of a name is its number.\n", library.Version)
	for _, e := range []struct{ variable, argument string }{{"ISAS", "isa"}, {"DTYPES", "dst"}, {"SIGNALS", "signal"}, {"SCOPES", "scope"}, {"AGGREGATIONS", "aggregation"},
		{"NORMALIZATIONS", "normalization"}, {"LEVELS", "level"}, {"STATISTICS", "statistic"}, {"POLICIES", "policy"}, {"SEQUENCES", "sequence"}, {"KLS", "kl"}} {
		fmt.Fprintf(&out, "%s = (\"%s\")\n", e.variable, strings.Join(native.Names(problem.Argument{C: e.argument}), `", "`))
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
	out.WriteString("}\n\n# The problems by their codes: the kinds of the values, and the sentence.\nPROBLEMS = {\n")
	for i, p := range problem.Coded {
		fmt.Fprintf(&out, "    %d: (%q, %q),\n", i+1, p.Kinds, strings.ReplaceAll(inPython.Replace(p.Text), "%v", "{}"))
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
	for i := range native.Schemes {
		if s := &native.Schemes[i]; s.Default != nil && s.Struct == "" {
			pythonStruct(&out, reflect.TypeOf(s.Default), "reweight_"+s.Options(), written)
		}
	}
	out.WriteString("\n\n# The defaults.\n")
	for _, d := range defaults {
		fmt.Fprintf(&out, "DEFAULT_%s = %s(%s)\n", d.name, pythonClass(d.c), ofCtypes.defaults(d.c, d.options))
	}
	for i := range native.Schemes {
		if s := &native.Schemes[i]; s.Default != nil && !s.None {
			class := optionsClass(native.SchemeOf(strings.TrimSuffix(s.Options(), "_options")))
			fmt.Fprintf(&out, "DEFAULT_%s = %s(%s)\n", strings.ToUpper(s.C), class, ofCtypes.values(s))
		}
	}
	out.WriteString("\n# The types of the arguments of each function, between the workspace and the error.\nFUNCTIONS: Dict[str, List[Any]] = {\n")
	prototypes := regexp.MustCompile(`REWEIGHT_API int reweight_(\w+)\(([^;]*)\);`).FindAllStringSubmatch(header, -1)
	if len(prototypes) != strings.Count(header, "REWEIGHT_API int ") {
		t.Errorf("%d functions of reweight.h are understood", len(prototypes))
	}
	for _, p := range prototypes {
		line := fmt.Sprintf("    %q: [%s],\n", p[1], pythonArguments(p[2]))
		if len(line) > 121 {
			line = fmt.Sprintf("    %q: [\n        %s,\n    ],\n", p[1], pythonArguments(p[2]))
		}
		out.WriteString(line)
	}
	out.WriteString("}\n\n# ---- The kernels of the GPU: what they take, one struct each ----\n")

	for f := range reflect.TypeFor[params]().Fields() {
		if f.Name != "memory" { // for benches
			pythonStruct(&out, f.Type, "", written)
		}
	}
	out.WriteString("\n\n# The module, the threads of a CTA, its bytes of dynamic shared memory, and how many times as\n# much of both it has where all that a call needs can run at a time; 0: always the same.\nKERNELS = {\n")
	modules := entries(t)
	for _, k := range kernels {
		if modules[k.name].module != "memory" {
			fmt.Fprintf(&out, "    %q: (%q, %d, %d, %d),\n", k.name, modules[k.name].module, k.threads, k.shared, k.team)
		}
	}
	out.WriteString("}\n\n# The kernels that a function launches.\nKERNELS_OF = {\n")
	pythonKernelsOf(&out, kernelsOf, prototypes, func(names []string) string { return quoted(names) })
	out.WriteString("}\n\n# The same for functions on rows of logits, by the number of the dtype.\nKERNELS_OF_ROWS = {\n")
	pythonKernelsOf(&out, kernelsOfRows, prototypes, func(lists [][]string) string {
		var all []string
		for _, list := range lists {
			all = append(all, "["+quoted(list)+"]")
		}
		return "\n        " + strings.Join(all, ",\n        ") + ",\n    "
	})
	out.WriteString("}\n\n# What a CTA takes, by the kind of kernel.\n")
	fmt.Fprintf(&out, "PASS = %d  # tokens of the passes over them\n", passThreads*passPack)
	fmt.Fprintf(&out, "GROUPS_OF_CTA = %d\n", groupThreads/16)
	fmt.Fprintf(&out, "SEGMENTS_OF_CTA = %d\n", segmentThreads/32)
	fmt.Fprintf(&out, "WARPS_OF_CTA = %d  # of the kernels that give a warp to each of their things\n", spanThreads/32)
	fmt.Fprintf(&out, "GROUP = %d  # tokens of a group, which half a warp sums\n\n", groupTokens)
	fmt.Fprintf(&out, "LOSS_STATE, SEGMENT_STATE = %d, %d  # bytes of scratch memory\n", sizeOf[lossState](), sizeOf[segmentState]())
	fmt.Fprintf(&out, "PLAIN, NEGATED, DIFFERENCE = %d, %d, %d  # forms of Values\n", plain, negated, difference)
	return out.String()
}

// pythonKernelsOf writes the lines of a table of kernels by the functions of reweight.h that
// the methods of a Workspace are.
func pythonKernelsOf[V any](out *strings.Builder, table map[string]V, prototypes [][]string, list func(V) string) {
	for _, p := range prototypes {
		for method, kernels := range table {
			if strings.EqualFold(method, strings.ReplaceAll(p[1], "_", "")) {
				fmt.Fprintf(out, "    %q: [%s],\n", p[1], list(kernels))
			}
		}
	}
}

// quoted returns the names as the elements of a list.
func quoted(names []string) string { return "\"" + strings.Join(names, "\", \"") + "\"" }

// An example is what C reports, and the sentence of Python.
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
		a, text, ok := e.Read(native.Names)
		if !ok || strings.Contains(text, "%!") {
			t.Fatalf("problem %d of argument %d reads %q", code, argument, text)
		}
		name := pythonName(a.C)
		if index >= 0 {
			name += fmt.Sprintf("[%d]", index)
		}
		e.Sentence = name + " " + inPython.Replace(text)
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
		must.Do(enc.Encode(e))
	}
	return out.String()
}

// TestNothingUnused: C or CUDA finds each problem of the table, and names each argument.
func TestNothingUnused(t *testing.T) {
	var text strings.Builder
	for _, pattern := range []string{"../native/src/*.c", "../native/src/*.h", "../internal/gpu/device/*.cu", "../internal/gpu/device/[^p]*.cuh"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", pattern, files, err)
		}
		for _, file := range files {
			source := must.Get(os.ReadFile(file))
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
