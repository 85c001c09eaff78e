package study

import (
	"bytes"
	"encoding/csv"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/internal/must"
)

var update = flag.Bool("update", false, "draw docs/evidence.svg anew")

// TestEvidence holds the tables and the figure of docs/evidence.md to docs/evidence.csv,
// the comparisons of the study that the page describes.
func TestEvidence(t *testing.T) {
	const docs = "../../../docs/"
	read := func(name string) []byte {
		return must.Get(os.ReadFile(docs + name))
	}
	rows := must.Get(csv.NewReader(bytes.NewReader(read("evidence.csv"))).ReadAll())
	var all []Comparison
	for _, row := range rows[1:] {
		float := func(column int) float64 {
			return must.Get(strconv.ParseFloat(strings.TrimPrefix(row[column], "<"), 64))
		}
		c := Comparison{Cell: Cell{row[0], row[1], row[2]}, Scheme: row[3], Measure: Measure(row[4]), Uniform: float(6), Reweighted: float(7),
			Difference: float(8), Low: float(9), High: float(10), P: float(11), Adjusted: float(12)}
		if got := c.Verdict(); got != row[13] {
			t.Errorf("%v %s %s: verdict %q, want %q", c.Cell, c.Scheme, c.Measure, row[13], got)
		}
		all = append(all, c)
	}
	if len(all) != 126 {
		t.Fatalf("%d comparisons, want 126", len(all))
	}

	page := string(read("evidence.md"))
	games := map[string]string{"frozenlake4": "FrozenLake 4x4", "frozenlake6": "FrozenLake 6x6", "sokoban": "Sokoban", "sudoku4": "Sudoku", "shop": "Shop"}
	for _, measure := range []Measure{Final, Area} {
		var line string
		for _, c := range all {
			if c.Measure != measure {
				continue
			}
			if c.Scheme == Schemes[0] {
				line = fmt.Sprintf("| %s | %s | %s | %.1f |", games[c.Game], strings.ToUpper(c.Algorithm), c.Reasoning, 100*c.Uniform)
			}
			difference := fmt.Sprintf("%s (%s to %s)", points(c.Difference), points(c.Low), points(c.High))
			if c.Verdict() != "" {
				difference = "**" + difference + "**"
			}
			line += " " + difference + " |"
			if c.Scheme == Schemes[len(Schemes)-1] && !strings.Contains(page, line+"\n") {
				t.Errorf("docs/evidence.md has no line\n%s", line)
			}
		}
	}

	var figure bytes.Buffer
	must.Do(WriteFigure(&figure, Area, all))
	if *update {
		must.Do(os.WriteFile(docs+"evidence.svg", figure.Bytes(), 0o666))
	}
	if !bytes.Equal(figure.Bytes(), read("evidence.svg")) {
		t.Error("docs/evidence.svg is not of docs/evidence.csv: go test ./study -run Evidence -update")
	}
}
