package study

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/internal/must"
	"github.com/seed621a2839/reweight/studies/learn/train"
)

var update = flag.Bool("update", false, "write the map's table, figure and effects anew from its runs")

// TestEvidence holds the table, the predictions and the figure of docs/evidence.md to the runs of the map.
func TestEvidence(t *testing.T) {
	const docs, folder = "../../../docs/", "../map/"
	page := string(must.Get(os.ReadFile(docs + "evidence.md")))
	rows := must.Get(Read(folder + "runs.csv"))
	effects := must.Get(TheMap.Effects(rows))
	var csv, figure bytes.Buffer
	must.Do(WriteEffects(&csv, effects))
	must.Do(WriteFigure(&figure, effects))
	for path, want := range map[string]string{
		folder + "effects.csv": csv.String(),
		docs + "map.svg":       figure.String(),
		docs + "evidence.md":   between(t, between(t, page, "the map", mapTable(effects)), "the rates", ratesTable(rows)),
	} {
		if *update {
			must.Do(os.WriteFile(path, []byte(want), 0o666))
		}
		if got, _ := os.ReadFile(path); string(got) != want {
			t.Errorf("%s is not of %sruns.csv: go test ./study -run Evidence -update", path, folder)
		}
	}
}

// between returns the page with this text between the lines that name the part.
func between(t *testing.T, page, part, text string) string {
	t.Helper()
	begin, rest, ok := strings.Cut(page, "<!-- go test ./study -run Evidence -update: "+part+" -->\n\n")
	_, end, ok2 := strings.Cut(rest, "\n<!-- end -->")
	if !ok || !ok2 {
		t.Fatalf("docs/evidence.md has no part for %s", part)
	}
	return begin + "<!-- go test ./study -run Evidence -update: " + part + " -->\n\n" + text + "\n<!-- end -->" + end
}

// mapTable has a row for each cell, and what came of each prediction.
func mapTable(effects []Effect) string {
	var b strings.Builder
	schemes := []string{"actfocus", train.ActFocusWithoutBeta, train.ActFocusBySurprisal, "aem"}
	fmt.Fprint(&b, "| L | q | actions | D | start | uniform |")
	for _, s := range schemes {
		fmt.Fprintf(&b, " %s |", schemeTitles[s])
	}
	fmt.Fprint(&b, "\n|---|---|---|---|---|---|---|---|---|---|\n")
	for _, cell := range effects {
		if cell.Scheme != schemes[0] {
			continue
		}
		fmt.Fprintf(&b, "| %d | %v | %.0f%% | %.2f | %.0f | %.1f |", cell.Fluent, cell.Errors, 100*cell.Actions, cell.Decided, 100*cell.Start, 100*cell.Uniform)
		for _, s := range schemes {
			for _, e := range effects {
				if e.Scheme == s && e.Fluent == cell.Fluent && e.Errors == cell.Errors {
					text := fmt.Sprintf("%s (%s to %s)", points(e.Difference), points(e.Low), points(e.High))
					if e.Shown() {
						text = "**" + text + "**"
					}
					fmt.Fprintf(&b, " %s |", text)
				}
			}
		}
		fmt.Fprintln(&b)
	}
	fmt.Fprint(&b, "\n| | the plan's prediction | what came of it |\n|---|---|---|\n")
	for i, p := range Predictions(effects) {
		fmt.Fprintf(&b, "| %d | %s | %s |\n", i+1, p.Text, p.Verdict())
	}
	return b.String()
}

// ratesTable has the mean success of the runs that chose the rates where q is 0, and how the others ended.
func ratesTable(rows Table) string {
	var b strings.Builder
	schemes := []string{Uniform, "actfocus", train.ActFocusWithoutBeta}
	fmt.Fprint(&b, "| L |")
	for _, rate := range TheMap.Rates {
		fmt.Fprintf(&b, " rate %v |", rate)
	}
	fmt.Fprint(&b, "\n|---|---|---|---|\n")
	for _, fluent := range TheMap.Fluent {
		fmt.Fprintf(&b, "| %d |", fluent)
		for _, rate := range TheMap.Rates {
			for i, scheme := range schemes {
				mean := 0.0
				for _, seed := range TheMap.Tuning {
					mean += rows[train.Run{Game: TheMap.Game, Algorithm: TheMap.Algorithm, Fluent: fluent, Scheme: scheme, Rate: rate, Seed: seed}].Success / 3
				}
				fmt.Fprintf(&b, "%s %.1f", []string{"", ",", ","}[i], 100*mean)
			}
			fmt.Fprint(&b, " |")
		}
		fmt.Fprintln(&b)
	}
	fmt.Fprint(&b, "\n| of the 144 runs that compare | rate 0.01 is the best of three in | end below a tenth of success |\n|---|---|---|\n")
	for _, scheme := range TheMap.Schemes {
		lost, cells := 0, map[train.Run]bool{}
		for _, run := range TheMap.Comparing(rows) {
			if run.Scheme != scheme {
				continue
			}
			if rows[run].Final < 0.1 {
				lost++
			}
			if run.Seed == 1 && run.Rate == 1e-2 {
				cells[run] = true
			}
		}
		fmt.Fprintf(&b, "| %s | %d of 12 cells | %d |\n", map[bool]string{true: "uniform weights", false: schemeTitles[scheme]}[scheme == Uniform], len(cells), lost)
	}
	return b.String()
}
