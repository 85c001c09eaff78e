package main

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/problem"
	"github.com/seed621a2839/reweight/native"
	"github.com/seed621a2839/reweight/scheme"
)

// header returns reweight.h with the parts that follow from Go: the problems, the defaults of
// options, the declarations of functions, and all of the functions of the catalogue.
func header(src *source) (string, error) {
	docs, err := goDocs(src.module)
	if err != nil {
		return "", err
	}
	text, err := between(src.old, "/* generated */\n", "/* end of generated */\n", headerProblems())
	if err != nil {
		return "", err
	}
	if text, err = between(text, "/* generated schemes */\n", "/* end of generated schemes */\n",
		headerFunctions(docs)); err != nil {
		return "", err
	}
	for _, d := range defaults() {
		name := "#define REWEIGHT_DEFAULT_" + d.name + " "
		if text, err = between(text, "\n"+name, "\n", "{"+languageC.valuesOf(d.c, d.options)+"}"); err != nil {
			return "", err
		}
	}
	for _, f := range native.Functions {
		name := "\nREWEIGHT_API int reweight_" + f.C + "("
		if text, err = between(text, name, ";\n",
			strings.TrimPrefix(declaration(f.C, f.Arguments), name[1:])); err != nil {
			return "", err
		}
	}
	return text, nil
}

// declaration returns the declaration of a function, with what is between its workspace and the
// error, and without the semicolon.
func declaration(c string, arguments []string) string {
	line := "REWEIGHT_API int reweight_" + c + "("
	pad := strings.Repeat(" ", len(line))
	all, out := slices.Concat([]string{"const reweight_workspace *ws"}, arguments, []string{"reweight_error *error"}),
		""
	for i, a := range all {
		a += map[bool]string{true: ")", false: ","}[i == len(all)-1]
		switch {
		case i == 0:
			line += a
		case len(line)+1+len(a) > 120:
			out, line = out+line+"\n", pad+a
		default:
			line += " " + a
		}
	}
	return out + line
}

var (
	wordsOfC    = inWordsOf("REWEIGHT_DEFAULT_", strings.ToUpper, problem.Snake)
	shownByKind = strings.NewReplacer("i", "%d", "f", "%f", "d", "%g", "n", "%s", "l", "[%s]")
)

// headerProblems returns the enumerations of problems and arguments.
func headerProblems() string {
	var out strings.Builder
	out.WriteString("typedef enum reweight_problem {\n")
	for i, p := range problem.Coded {
		var verbs []any
		for _, kind := range p.Kinds {
			verbs = append(verbs, shownByKind.Replace(string(kind)))
		}
		fmt.Fprintf(&out, "\tREWEIGHT_PROBLEM_%s = %d, /* %s */\n", p.Name, i+1, wordsOfC.Replace(p.Says(verbs...)))
	}
	out.WriteString("} reweight_problem;\n\ntypedef enum reweight_argument {\n")
	for i, name := range argumentNames() {
		fmt.Fprintf(&out, "\tREWEIGHT_ARG_%s = %d,\n", name, i+1)
	}
	out.WriteString("} reweight_argument;\n")
	return out.String()
}

// A preset is a default of package reweight for options whose struct reweight.h has by hand: the
// name after Default, and the one after REWEIGHT_DEFAULT_.
type preset struct {
	method, name string
	c            reflect.Type
	options      any
}

// defaults returns the presets.
func defaults() []preset {
	all := []preset{{"RowGradient", "ROW_GRADIENT", cStruct("reweight_row_gradient_options"),
		reweight.DefaultRowGradient}}
	for _, e := range scheme.Entries() {
		if e.DefaultName == "" || !native.ByHand(e.C) {
			continue
		}
		method := strings.TrimPrefix(e.DefaultName, "Default")
		name := e.C
		if policy, ok := strings.CutSuffix(method, "Loss"); e.Kind == scheme.Loss && policy != "" {
			name = e.Name
			if ok { // GRPOSLoss: the scheme has the name
				name = fmt.Sprint(e.Defaults().Loss.Policy, "_loss")
			}
		}
		opt := e.Defaults()
		all = append(all, preset{method, strings.ToUpper(name), cStruct("reweight_" + e.C + "_options"),
			reflect.ValueOf(e.Part(&opt)).Elem().Interface()})
	}
	return all
}

// defaultOf returns the preset of an entry whose struct reweight.h has by hand.
func defaultOf(e *scheme.Entry) preset {
	all := defaults()
	return all[slices.IndexFunc(all, func(d preset) bool { return "Default"+d.method == e.DefaultName })]
}

// cStruct returns the struct of reweight.h of that name; nil if there is none.
func cStruct(name string) reflect.Type {
	for _, s := range native.Structs() {
		if cName(s) == name {
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

// goField returns the field of options by its name in C, or nothing.
func goField(options any, name string) reflect.Value {
	for field, v := range scheme.Fields(options) {
		if problem.Snake(field) == name {
			return v
		}
	}
	return reflect.Value{}
}

// ofC are the types of C for those of options.
var ofC = map[reflect.Kind]string{reflect.Float64: "double ", reflect.Int: "int64_t ", reflect.Bool: "int32_t ",
	reflect.Uint8: "int32_t ", reflect.Slice: "const double *"}

// verbOfDoc is what the comment of a method begins with.
var verbOfDoc = regexp.MustCompile(`^\w+ sets `)

// headerFunctions returns the functions of the catalogue.
func headerFunctions(docs map[string]string) string {
	var out strings.Builder
	enums := map[string]bool{"scope": true} // which the part by hand has
	for _, f := range functions() {
		fmt.Fprintf(&out, "/* ---- %s ---- */\n\n", f.Method)
		if f.defaults != nil && f.ownStruct() {
			headerOptions(&out, docs, &f, enums)
		}
		if f.preset() {
			fmt.Fprintf(&out, "#define REWEIGHT_DEFAULT_%s {%s}\n\n", strings.ToUpper(f.C),
				languageC.values(f.defaults))
		}
		text := verbOfDoc.ReplaceAllString(languageC.text(docs, &f), "Sets ")
		text = "/* " + strings.ReplaceAll(wrap(text, 90), "\n", "\n * ") + " */\n"
		out.WriteString(strings.ReplaceAll(strings.ReplaceAll(text, "\n * \n", "\n *\n"), "\n * \t", "\n *   "))
		out.WriteString(declaration(f.C, f.arguments()) + ";\n\n")
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// arguments returns those of the function between the workspace and the error.
func (f *function) arguments() []string {
	all := []string{"float *" + f.Dst, "const reweight_batch *batch"}
	if f.defaults != nil {
		all = append(all, "const reweight_"+f.options()+" *options")
	}
	return all
}

// headerOptions writes the struct of a function's options, and the enumerations that are new in
// it.
func headerOptions(out *strings.Builder, docs map[string]string, f *function, enums map[string]bool) {
	typ := reflect.TypeOf(f.defaults)
	for field := range typ.Fields() {
		argument := problem.Snake(field.Name)
		if field.Type.Kind() != reflect.Uint8 || enums[argument] {
			continue
		}
		enums[argument] = true
		fmt.Fprintf(out, "typedef enum reweight_%s {\n", argument)
		for i, name := range native.Names(problem.Argument{C: argument}) {
			fmt.Fprintf(out, "\t%s = %d,\n", enumerator(argument, name), i)
		}
		fmt.Fprintf(out, "} reweight_%s;\n\n", argument)
	}
	fmt.Fprintf(out, "typedef struct reweight_%s {\n", f.options())
	for field := range typ.Fields() {
		name := problem.Snake(field.Name)
		comment := languageC.words(f, docs[typ.Name()+"."+field.Name])
		switch {
		case field.Type.Kind() == reflect.Uint8 && comment == "":
			comment = "a reweight_" + name
		case field.Type.Kind() == reflect.Uint8:
			comment = "a reweight_" + name + ": " + comment
		}
		if comment != "" {
			comment = " /* " + comment + " */"
		}
		fmt.Fprintf(out, "\t%s%s;%s\n", ofC[field.Type.Kind()], name, comment)
	}
	fmt.Fprintf(out, "} reweight_%s;\n\n", f.options())
}

// bySpan reports whether the sequence of a policy may be the span.
func bySpan(p reweight.Policy) bool { return reflect.ValueOf(p).FieldByName("Sequence").IsValid() }

// policyTable returns policies.h, which has the traits of the policy losses for C.
func policyTable(*source) (string, error) {
	var out strings.Builder
	out.WriteString("/* What is true of each policy loss: `go generate ./...` writes this file. zero_clips is the problem of\n" +
		" * clips that are both 0, or 0 where the policy has none. */\n" +
		"static const struct policy_traits {\n\tint32_t zero_clips;\n\tuint8_t by_sequence, spans, chooses, unweighted;\n} rw_policies[] = {\n")
	for _, e := range native.Losses() {
		p, zero := native.PolicyOf(e), "0"
		traits := p.Traits()
		if traits.Clips {
			zero = "REWEIGHT_PROBLEM_ZERO_" + defaultOf(e).name
		}
		var bits []any
		for _, is := range []bool{traits.BySequence, bySpan(p), traits.Chooses, traits.Unweighted} {
			bits = append(bits, languageC.truth[is])
		}
		fmt.Fprintf(&out, "\t[%s] = {%s, %s, %s, %s, %s},\n",
			append([]any{enumerator("policy", p.String()), zero}, bits...)...)
	}
	out.WriteString("};\n")
	return out.String(), nil
}
