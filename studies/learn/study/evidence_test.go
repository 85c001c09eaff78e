package study

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"maps"
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
	all := must.Get(Read(folder + "arms.csv"))
	maps.Copy(all, rows)
	arms := must.Get(TheArms.Effects(all))
	var csv, armsCSV, figure bytes.Buffer
	must.Do(WriteEffects(&csv, effects))
	must.Do(WriteEffects(&armsCSV, arms))
	must.Do(WriteFigure(&figure, effects))
	page = between(t, page, "the map", mapTable(effects))
	page = between(t, page, "the rates", ratesTable(rows))
	page = between(t, page, "the arms", armsTable(effects, arms))
	for path, want := range map[string]string{
		folder + "effects.csv":      csv.String(),
		folder + "arms-effects.csv": armsCSV.String(),
		docs + "map.svg":            figure.String(),
		docs + "evidence.md":        page,
	} {
		if *update {
			must.Do(os.WriteFile(path, []byte(want), 0o666))
		}
		if got, _ := os.ReadFile(path); string(got) != want {
			t.Errorf("%s is not of the runs in %s: go test ./study -run Evidence -update", path, folder)
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
					fmt.Fprintf(&b, " %s |", differenceText(e))
				}
			}
		}
		fmt.Fprintln(&b)
	}
	verdicts(&b, Predictions(effects))
	return b.String()
}

// armsTable has a row for each change, with the map's own cells first, and what came of each prediction.
func armsTable(of, arms []Effect) string {
	var b strings.Builder
	type change struct{ arm, game, algorithm, actFocus string }
	row := func(title string, effects []Effect, c change) {
		fmt.Fprintf(&b, "| %s |", title)
		for _, cell := range TheArms.Cells {
			for _, scheme := range []string{c.actFocus, "aem"} {
				text := ""
				for _, e := range effects {
					if (e.Run == train.Run{Arm: c.arm, Game: c.game, Algorithm: c.algorithm, Fluent: cell.Fluent, Errors: cell.Errors, Scheme: scheme, Rate: e.Rate}) {
						if text = differenceText(e); scheme != "aem" {
							text = fmt.Sprintf("%.1f | %s", 100*e.Uniform, text)
						}
					}
				}
				fmt.Fprintf(&b, " %s |", text)
			}
		}
		fmt.Fprintln(&b)
	}
	fmt.Fprint(&b, "| | q 0: uniform | ActFocus | AEM | q 1: uniform | ActFocus | AEM |\n|---|---|---|---|---|---|---|\n")
	as := change{"", TheArms.Game, TheArms.Algorithm, "actfocus"}
	row("the map's", of, as)
	for _, c := range TheArms.Changes {
		row("`"+cmp.Or(c.Arm, c.Game, c.Algorithm)+"`", arms, change{c.Arm, cmp.Or(c.Game, as.game), cmp.Or(c.Algorithm, as.algorithm), as.actFocus})
	}
	for i, title := range []string{"alpha 0", "alpha 0.3"} {
		as.actFocus = TheArms.Alphas[i]
		row(title, arms, as)
	}
	verdicts(&b, TheArms.Predictions(of, arms))
	return b.String()
}

// differenceText is the difference with its interval, in bold if it is shown.
func differenceText(e Effect) string {
	text := fmt.Sprintf("%s (%s to %s)", points(e.Difference), points(e.Low), points(e.High))
	if e.Shown() {
		return "**" + text + "**"
	}
	return text
}

func verdicts(b *strings.Builder, predictions []Prediction) {
	fmt.Fprint(b, "\n| | the plan's prediction | what came of it |\n|---|---|---|\n")
	for i, p := range predictions {
		fmt.Fprintf(b, "| %d | %s | %s |\n", i+1, p.Text, p.Verdict())
	}
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
