package scheme

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/must"
)

var update = flag.Bool("update", false, "write the tables of docs/schemes.md and README.md")

// TestTables: the tables between the marks of the documentation are those of the catalogue.
func TestTables(t *testing.T) {
	for _, file := range []string{"docs/schemes.md", "README.md"} {
		old := must.Get(os.ReadFile("../" + file))
		text, tables := string(old), 0
		for name, table := range map[string]func() string{
			"several": severalTable, "reward": kindTable(Reward), "advantage": kindTable(Advantage), "factor": kindTable(Factor),
			"weight": kindTable(Weight), "loss": kindTable(Loss), "critic": kindTable(Critic), "all": allTable,
		} {
			begin, end := "<!-- go generate ./scheme: "+name+" -->\n", "<!-- end -->"
			before, rest, ok := strings.Cut(text, begin)
			_, after, closed := strings.Cut(rest, end)
			if ok && closed {
				text = before + begin + "\n" + table() + "\n" + end + after
				tables++
			}
		}
		if *update {
			must.Do(os.WriteFile("../"+file, []byte(text), 0o666))
		} else if text != string(old) {
			t.Errorf("%s is not what the catalogue has: go generate ./scheme", file)
		}
		if want := map[string]int{"docs/schemes.md": 7, "README.md": 1}[file]; tables != want {
			t.Errorf("%s has the marks of %d tables, want %d", file, tables, want)
		}
	}
}

// kindTable returns the table of the entries of a kind. All losses have one call, and read
// the same.
func kindTable(k Kind) func() string {
	return func() string {
		text := "| scheme | formula | source | reads | Go call | options |\n|---|---|---|---|---|---|\n"
		if k == Loss {
			text = "| loss | of a token | source | options |\n|---|---|---|---|\n"
		}
		for _, e := range Entries() {
			if e.Kind != k {
				continue
			}
			cells := []string{e.Title + ", " + names(append([]string{e.Name}, e.Synonyms...)), e.Formula, e.Source}
			if k != Loss {
				cells = append(cells, names(fields(e)), "`"+e.Method+"`")
			}
			text += "| " + strings.Join(append(cells, optionsText(e)), " | ") + " |\n"
		}
		return text
	}
}

func severalTable() string {
	text := "| name | stands for | what it is | source |\n|---|---|---|---|\n"
	for _, e := range Entries() {
		if e.Kind == Several {
			text += fmt.Sprintf("| %s, %s | %s | %s | %s |\n", e.Title, names(append([]string{e.Name}, e.Synonyms...)), names(e.Of), e.Doc, e.Source)
		}
	}
	return text
}

// allTable returns the names of all entries, by kind.
func allTable() string {
	text := "| what | names of schemes |\n|---|---|\n"
	for _, k := range []struct {
		Kind
		what string
	}{{Advantage, "advantages"}, {Factor, "factors of the advantage"}, {Weight, "weights of tokens"}, {Loss, "losses"},
		{Reward, "rewards"}, {Critic, "the critic"}, {Several, "several of these at once"}} {
		var all []string
		for _, e := range Entries() {
			if e.Kind == k.Kind {
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
func fields(e *Entry) (all []string) {
	for _, a := range new(reweight.Batch).Arrays() {
		if a.Name != "seq_offsets" && slices.ContainsFunc(e.Reads, func(need string) bool { name, _, _ := strings.Cut(need, "|"); return name == a.Name }) {
			all = append(all, a.Field)
		}
	}
	return all
}

// optionsText returns the name of the default options and their fields. LossOptions are
// those of all losses: only what is not 0 is said, and the aggregation.
func optionsText(e *Entry) string {
	if e.options == nil {
		return ""
	}
	opt := e.Defaults()
	v := reflect.ValueOf(e.options(&opt)).Elem()
	var all []string
	for i := range v.NumField() {
		if name := v.Type().Field(i).Name; e.Kind != Loss || !v.Field(i).IsZero() && name != "Policy" || name == "Aggregation" {
			all = append(all, fmt.Sprintf("`%s` %v", name, v.Field(i).Interface()))
		}
	}
	if e.DefaultName == "" {
		return strings.Join(all, ", ")
	}
	return "`" + e.DefaultName + "`: " + strings.Join(all, ", ")
}
