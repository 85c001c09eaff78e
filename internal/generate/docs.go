package main

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/gpu"
	"github.com/seed621a2839/reweight/native"
	"github.com/seed621a2839/reweight/scheme"
)

// between returns text with the part between the marks, which follows begin and goes up to
// end, replaced.
func between(text, begin, end, part string) (string, error) {
	before, rest, ok := strings.Cut(text, begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		return "", fmt.Errorf("it lacks %q or %q after it", begin, end)
	}
	return before + begin + part + end + after, nil
}

// tables returns a page with the tables of the catalogue between its marks.
func tables(src *source) (string, error) {
	text := src.old
	seen := 0
	for name, table := range map[string]func() string{
		"several": severalTable, "reward": kindTable(scheme.Reward), "advantage": kindTable(scheme.Advantage), "factor": kindTable(scheme.Factor),
		"weight": kindTable(scheme.Weight), "loss": kindTable(scheme.Loss), "critic": kindTable(scheme.Critic), "all": allTable,
		"languages": languages,
	} {
		begin := "<!-- go generate: " + name + " -->\n"
		if !strings.Contains(text, begin) {
			continue // it is in another page
		}
		var err error
		if text, err = between(text, begin, "<!-- end -->", "\n"+table()+"\n"); err != nil {
			return "", err
		}
		seen++
	}
	if marks := strings.Count(text, "<!-- go generate"); marks != seen {
		return "", fmt.Errorf("it has %d marks, and %d are of tables", marks, seen)
	}
	return text, nil
}

// docGo returns doc.go with the methods of the catalogue under "The schemes".
func docGo(src *source) (string, error) {
	var out strings.Builder
	out.WriteString("//\n")
	for _, group := range []struct {
		what string
		of   func(e *scheme.Entry) bool
	}{
		{"rewards of tokens, or what is added to the rewards of trajectories", kind(scheme.Reward)},
		{"advantages", func(e *scheme.Entry) bool { return e.Kind == scheme.Advantage && !shapes(e) }},
		{"advantages from those that another one has made", shapes},
		{"factors of the advantages, which [Workspace.Multiply] applies", kind(scheme.Factor)},
		{"weights of tokens, several of which [Workspace.Multiply] combines", kind(scheme.Weight)},
		{"the loss of a [Policy], and its gradient with respect to log-probabilities", kind(scheme.Loss)},
		{"the loss of the critic, and its gradient with respect to values", kind(scheme.Critic)},
	} {
		var methods []string
		for _, e := range scheme.Entries() {
			if link := "[Workspace." + e.Method + "]"; group.of(e) && !slices.Contains(methods, link) {
				methods = append(methods, link)
			}
		}
		lines := wrap(strings.Join(methods, ", ")+": "+group.what, 88)
		out.WriteString("//   - " + strings.ReplaceAll(lines, "\n", "\n//     ") + "\n")
	}
	text := fmt.Sprintf("The C library and Python have every method of Workspace%s. Package gpu has, for arrays in the memory of a GPU and with the same bits, %s, and of [Workspace.Loss] and [Workspace.Surrogate] the one of PPO.",
		butFor(missing(inC)), links(slices.DeleteFunc(methods(onGPU), func(m string) bool {
			return m == "Loss" || m == "Surrogate"
		})))
	out.WriteString("//\n// " + strings.ReplaceAll(wrap(text, 88), "\n", "\n// ") + "\n//\n")
	return between(src.old, "// # The schemes\n", "// # Single kernels", out.String())
}

// methods returns the methods of reweight.Workspace that somebody else has, and missing the others.
func methods(has func(method string) bool) (all []string) {
	for m := range reflect.TypeFor[*reweight.Workspace]().Methods() {
		if has(m.Name) {
			all = append(all, m.Name)
		}
	}
	return all
}

func missing(has func(method string) bool) []string {
	return methods(func(method string) bool { return !has(method) })
}

// inC reports whether the C library, and Python with it, has a method, and onGPU whether package
// gpu does.
func inC(method string) bool {
	byHand := slices.ContainsFunc(native.Functions, func(f native.Function) bool {
		return strings.EqualFold(strings.ReplaceAll(f.C, "_", ""), method)
	})
	return byHand || slices.ContainsFunc(native.OfCatalogue(), func(e *scheme.Entry) bool { return e.Method == method })
}

func onGPU(method string) bool {
	_, ok := reflect.TypeFor[*gpu.Workspace]().MethodByName(method)
	return ok
}

// links returns the methods as links of a comment, and butFor those that are left out.
func links(methods []string) string {
	var all []string
	for _, m := range methods {
		all = append(all, "[Workspace."+m+"]")
	}
	return strings.Join(all, ", ")
}

func butFor(methods []string) string {
	if len(methods) == 0 {
		return ""
	}
	return " but " + links(methods)
}

// languages says which schemes C, Python and the GPU have.
func languages() string {
	var lacking, device []string
	for _, e := range scheme.Entries() {
		switch {
		case e.Kind == scheme.Several:
		case !inC(e.Method):
			lacking = append(lacking, e.Name)
		case e.Kind != scheme.Loss && onGPU(e.Method):
			device = append(device, e.Name)
		}
	}
	but := ""
	if len(lacking) > 0 {
		but = " but " + names(lacking)
	}
	return wrap(fmt.Sprintf("The C library and Python have all schemes and losses%s. The GPU has %s and the loss of PPO; there another policy loss, or a KL in the loss, is an error.", but, names(device)), 120) + "\n"
}

func kind(k scheme.Kind) func(e *scheme.Entry) bool {
	return func(e *scheme.Entry) bool { return e.Kind == k }
}

// shapes reports whether the entry makes advantages from others.
func shapes(e *scheme.Entry) bool {
	return e.Kind == scheme.Advantage && slices.Contains(e.Reads, "advantages")
}

// kindTable returns the table of the entries of a kind. All losses have one call, and read
// the same.
func kindTable(k scheme.Kind) func() string {
	return func() string {
		text := "| scheme | formula | source | reads | Go call | options |\n|---|---|---|---|---|---|\n"
		if k == scheme.Loss {
			text = "| loss | of a token | source | options |\n|---|---|---|---|\n"
		}
		for _, e := range scheme.Entries() {
			if e.Kind != k {
				continue
			}
			cells := []string{e.Title + ", " + names(append([]string{e.Name}, e.Synonyms...)), e.Formula, e.Source}
			if k != scheme.Loss {
				cells = append(cells, names(fields(e)), "`"+e.Method+"`")
			}
			text += "| " + strings.Join(append(cells, optionsText(e)), " | ") + " |\n"
		}
		return text
	}
}

func severalTable() string {
	text := "| name | stands for | what it is | source |\n|---|---|---|---|\n"
	for _, e := range scheme.Entries() {
		if e.Kind == scheme.Several {
			text += fmt.Sprintf("| %s, %s | %s | %s | %s |\n", e.Title, names(append([]string{e.Name}, e.Synonyms...)),
				names(e.Of), e.Doc, e.Source)
		}
	}
	return text
}

// allTable returns the names of all entries, by kind.
func allTable() string {
	text := "| what | names of schemes |\n|---|---|\n"
	for _, k := range []struct {
		kind scheme.Kind
		what string
	}{{scheme.Advantage, "advantages"}, {scheme.Factor, "factors of the advantage"},
		{scheme.Weight, "weights of tokens"}, {scheme.Loss, "losses"}, {scheme.Reward, "rewards"},
		{scheme.Critic, "the critic"}, {scheme.Several, "several of these at once"}} {
		var all []string
		for _, e := range scheme.Entries() {
			if e.Kind == k.kind {
				all = append(all, e.Name)
			}
		}
		text += "| " + k.what + " | " + names(all) + " |\n"
	}
	return text
}

func names(all []string) string {
	if len(all) == 0 {
		return ""
	}
	return "`" + strings.Join(all, "`, `") + "`"
}

// fields returns the fields of Batch that an entry reads, but for SeqOffsets, which almost
// all do.
func fields(e *scheme.Entry) (all []string) {
	for _, a := range new(reweight.Batch).Arrays() {
		if a.Name != "seq_offsets" && slices.ContainsFunc(e.Reads, func(need string) bool {
			name, _, _ := strings.Cut(need, "|")
			return name == a.Name
		}) {
			all = append(all, a.Field)
		}
	}
	return all
}

// optionsText returns the name of the default options and their fields. LossOptions are
// those of all losses: only what is not 0 is said, and the aggregation.
func optionsText(e *scheme.Entry) string {
	opt := e.Defaults()
	part := e.Part(&opt)
	if part == nil {
		return ""
	}
	var all []string
	for name, v := range scheme.Fields(reflect.ValueOf(part).Elem().Interface()) {
		if v.Kind() == reflect.Float64 && math.IsNaN(v.Float()) {
			all = append(all, "`"+name+"`, which has no default")
		} else if name == "Policy" {
			all = append(all, "`Policy` "+v.Elem().Type().Name())
		} else if e.Kind != scheme.Loss || !v.IsZero() || name == "Aggregation" {
			all = append(all, fmt.Sprintf("`%s` %v", name, v.Interface()))
		}
	}
	if e.DefaultName == "" {
		return strings.Join(all, ", ")
	}
	return "`" + e.DefaultName + "`: " + strings.Join(all, ", ")
}
