package study

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/diagnose"
	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/studies/learn/train"
)

var update = flag.Bool("update", false, "write the map's table, figure and effects anew from its runs")

// TestEvidence holds the tables, the predictions and the figure of RESULTS.md and docs/evidence.md to the runs of the
// map.
func TestEvidence(t *testing.T) {
	const docs, results, folder = "../../../docs/", "../RESULTS.md", "../map/"
	page := string(must.Get(os.ReadFile(results)))
	short := string(must.Get(os.ReadFile(docs + "evidence.md")))
	rows := must.Get(Read(folder + "runs.csv"))
	ofMap := must.Get(TheMap.Effects(rows))
	all := must.Get(Read(folder + "arms.csv"))
	maps.Copy(all, rows)
	arms := must.Get(TheArms.Effects(all))
	page = between(t, page, "the map", mapTable(ofMap))
	page = between(t, page, "the end", endTable(ofMap))
	asked := must.Get(Read(folder + "posthoc.csv"))
	maps.Copy(asked, rows)
	page = between(t, page, "the post hoc runs", postHocTable(must.Get(effects(asked, PostHoc()))))
	page = between(t, page, "the rates", ratesTable(rows))
	page = between(t, page, "the arms", armsTable(ofMap, arms))
	page = between(t, page, "the end of the arms", armsEndTable(ofMap, arms))
	tags := must.Get(Read(folder + "tags.csv"))
	maps.Copy(tags, all)
	ofTags := must.Get(TheTags.Effects(tags))
	page = between(t, page, "the tags", tagsTable(ofTags))
	audited := must.Get(ReadAudited(folder + "audit.csv"))
	gains := map[int][]Gain{}
	for _, iteration := range append([]int{-1}, TheAudits.Iterations...) {
		gains[iteration] = must.Get(TheAudits.Gains(audited, iteration, rows, ofMap))
	}
	page = between(t, page, "the audits", auditTable(audited, gains))
	upwards := must.Get(Read(folder + "rates.csv"))
	maps.Copy(upwards, rows)
	weighed := must.Get(Read(folder + "measured.csv"))
	maps.Copy(weighed, upwards)
	page = between(t, page, "the measured weights",
		measuredTable(must.Get(TheAudits.Compare(audited, TheRates.Seeds, weighed))))
	finished := map[string]string{} // what is written when all runs of the rates are done
	moreRates := fmt.Sprintf("%d of 1,620 runs are done, and nothing is concluded from them.\n", len(upwards)-len(rows))
	if points, err := TheRates.Points(upwards); err == nil {
		ofRates := must.Get(TheRates.Effects(upwards, points))
		moreRates = moreRatesTable(points, ofRates, ofMap)
		finished = map[string]string{
			folder + "rates-points.csv":  string(TheRates.CSV(points)),
			folder + "rates-effects.csv": string(EffectsCSV(ofRates)),
			docs + "rates.svg":           string(TheRates.Figure(points)),
		}
	}
	page = between(t, page, "more rates", moreRates)
	short = between(t, short, "the summary", summaryTable(ofMap))
	short = between(t, short, "the audits", whenTable(gains))
	pages := map[string]string{
		folder + "effects.csv":      string(EffectsCSV(ofMap)),
		folder + "arms-effects.csv": string(EffectsCSV(arms)),
		folder + "tags-effects.csv": string(EffectsCSV(ofTags)),
		docs + "map.svg":            string(TheMap.Figure(ofMap)),
		docs + "audits.svg":         string(TheAudits.Figure(gains)),
		docs + "evidence.md":        short,
		results:                     page,
	}
	maps.Copy(pages, finished)
	for path, want := range pages {
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
	name := "<!-- go test ./study -run Evidence -update: " + part + " -->\n\n"
	begin, rest, ok := strings.Cut(page, name)
	_, end, ok2 := strings.Cut(rest, "\n<!-- end -->")
	if !ok || !ok2 {
		t.Fatalf("the page has no part for %s", part)
	}
	return begin + name + text + "\n<!-- end -->" + end
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
		fmt.Fprintf(&b, "| %d | %v | %.0f%% | %.2f | %.0f | %.1f |",
			cell.Fluent, cell.Errors, 100*cell.Actions, cell.Decided, 100*cell.Start, 100*cell.Uniform)
		for _, s := range schemes {
			fmt.Fprintf(&b, " %s |", differenceText(effectOf(effects, cell.Run, s)))
		}
		fmt.Fprintln(&b)
	}
	verdicts(&b, must.Get(Predictions(effects)))
	return b.String()
}

// endTable has what the same pairs say of the end of training, the medians, and the lost runs.
func endTable(effects []Effect) string {
	var b strings.Builder
	schemes := []string{"actfocus", train.ActFocusWithoutBeta, train.ActFocusBySurprisal, "aem"}
	fmt.Fprint(&b, "| L | q | uniform, lost |")
	for _, s := range schemes {
		fmt.Fprintf(&b, " %s |", schemeTitles[s])
	}
	fmt.Fprint(&b, "\n|---|---|---|---|---|---|---|\n")
	for _, cell := range effects {
		if cell.Scheme != schemes[0] {
			continue
		}
		fmt.Fprintf(&b, "| %d | %v | %.1f, %d |", cell.Fluent, cell.Errors, 100*cell.UniformFinal, cell.UniformLost)
		for _, s := range schemes {
			fmt.Fprintf(&b, " %s |", endText(effectOf(effects, cell.Run, s)))
		}
		fmt.Fprintln(&b)
	}
	return b.String()
}

// postHocTable has the one effect of the post hoc runs.
func postHocTable(of []Effect) string {
	e := of[0]
	return fmt.Sprintf("| L 0, q 0, both at 0.01, post hoc | uniform | ActFocus, difference | median | uniform, end | difference | lost |\n"+
		"|---|---|---|---|---|---|---|\n| | %.1f | %s (%s to %s) | %s | %.1f | %s (%s to %s) | %d, %d |\n",
		100*e.Uniform, points(e.Difference), points(e.Low), points(e.High), points(e.Median),
		100*e.UniformFinal, points(e.Final), points(e.FinalLow), points(e.FinalHigh), e.UniformLost, e.Lost)
}

// tagsTable has a row for each form of ActFocus, with tags as reasoning and as actions.
func tagsTable(all []Effect) string {
	var b strings.Builder
	fmt.Fprint(&b, "| alpha, beta | tags as | q 0: during training | at the end; lost | q 1: during training | at the end; lost |\n|---|---|---|---|---|---|\n")
	for _, form := range TheTags.Forms[1:] {
		for _, arm := range TheTags.Arms {
			role := map[string]string{"": "reasoning", "tags_act": "actions"}[arm]
			fmt.Fprintf(&b, "| %s, %s | %s |", alphaOf[form], betaOf[form], role)
			for _, cell := range TheTags.Cells {
				cell.Arm = arm
				e := effectOf(all, cell, form)
				fmt.Fprintf(&b, " %s | %s (%s to %s); %d |",
					differenceText(e), points(e.Final), points(e.FinalLow), points(e.FinalHigh), e.Lost)
			}
			fmt.Fprintln(&b)
		}
	}
	verdicts(&b, TheTags.Predictions(all))
	return b.String()
}

// auditTable has for each cell what the audit of all its policies says, and what training gained at equal rates.
func auditTable(of Audited, gains map[int][]Gain) string {
	var b strings.Builder
	fmt.Fprint(&b, "| L | q | signal of actions | ActFocus | ActFocus, beta 0 | ActFocus by surprisal | AEM |\n|---|---|---|---|---|---|---|\n")
	for _, first := range gains[-1] {
		if first.Scheme != TheMap.Schemes[1] {
			continue
		}
		c := first.Cell
		fmt.Fprintf(&b, "| %d | %v | %s |", c.Fluent, c.Errors,
			intervalText(of[Figure{c.Fluent, c.Errors, -1, "signal of action"}]))
		for _, s := range []string{"actfocus", train.ActFocusWithoutBeta, train.ActFocusBySurprisal, "aem"} {
			i := slices.IndexFunc(gains[-1], func(g Gain) bool { return g.Cell == c && g.Scheme == s })
			fmt.Fprintf(&b, " %s; %s |", intervalText(gains[-1][i].Efficiency), points(gains[-1][i].Equal))
		}
		fmt.Fprintln(&b)
	}
	verdicts(&b, must.Get(TheAudits.Predictions(of, gains[-1])))
	return b.String() + "\n" + whenTable(gains)
}

// whenTable has for each time of the audits how their efficiencies go with the gains.
func whenTable(gains map[int][]Gain) string {
	var b strings.Builder
	fmt.Fprint(&b, "| audited | all 48 | the 36 of ActFocus and its forms | of these above 1 | and yet behind by more than 1 |\n|---|---|---|---|---|\n")
	for _, iteration := range append(TheAudits.Iterations, -1) {
		var forms []Gain
		above, behind := 0, 0
		for _, g := range gains[iteration] {
			if g.Scheme == "aem" {
				continue
			}
			forms = append(forms, g)
			if g.Efficiency.Value > 1 {
				above++
				if g.Equal < -0.01 {
					behind++
				}
			}
		}
		name := fmt.Sprintf("after %d iterations", iteration)
		switch iteration {
		case -1:
			name = "all three, as planned"
		case 0:
			name = "at the start"
		}
		fmt.Fprintf(&b, "| %s | %+.2f | %+.2f | %d | %d |\n", name, must.Get(Correlation(gains[iteration], AtEqual)),
			must.Get(Correlation(forms, AtEqual)), above, behind)
	}
	return b.String()
}

// intervalText is a figure with its interval, where that is known.
func intervalText(i diagnose.Interval) string {
	if math.IsInf(i.Low, 0) || math.IsInf(i.High, 0) {
		return fmt.Sprintf("%.2f (not known)", i.Value)
	}
	return fmt.Sprintf("%.2f (%.2f to %.2f)", i.Value, i.Low, i.High)
}

// endText is the difference at the end with its interval, the median of the differences of the mean success, and the
// number of lost runs.
func endText(e *Effect) string {
	if e == nil {
		return ""
	}
	return fmt.Sprintf("%s (%s to %s); %s; %d", points(e.Final), points(e.FinalLow), points(e.FinalHigh),
		points(e.Median), e.Lost)
}

// armsEndTable is endTable of the arms.
func armsEndTable(of, arms []Effect) string {
	var b strings.Builder
	row := func(title string, effects []Effect, change train.Run, actFocus string) {
		fmt.Fprintf(&b, "| %s |", title)
		for _, cell := range TheArms.Cells {
			run := changed(cell, change)
			e := effectOf(effects, run, actFocus)
			fmt.Fprintf(&b, " %.1f, %d | %s | %s |", 100*e.UniformFinal, e.UniformLost, endText(e),
				endText(effectOf(effects, run, "aem")))
		}
		fmt.Fprintln(&b)
	}
	fmt.Fprint(&b, "| | q 0: uniform, lost | ActFocus | AEM | q 1: uniform, lost | ActFocus | AEM |\n|---|---|---|---|---|---|---|\n")
	eachArm(of, arms, row)
	return b.String()
}

// eachArm calls row for the map's own cells, each change, and each alpha.
func eachArm(of, arms []Effect, row func(title string, effects []Effect, change train.Run, actFocus string)) {
	row("the map's", of, train.Run{}, "actfocus")
	for _, c := range TheArms.Changes {
		row("`"+cmp.Or(c.Arm, c.Game, c.Algorithm)+"`", arms, c, "actfocus")
	}
	row("alpha 0", arms, train.Run{}, train.ActFocusAlpha0)
	row("alpha 0.3", arms, train.Run{}, train.ActFocusAlpha03)
}

// summaryTable has of each cell but those between the extremes of q the difference during training, and at the end.
func summaryTable(effects []Effect) string {
	var b strings.Builder
	fmt.Fprint(&b, "| L, q | D | uniform | ActFocus | beta 0 | surprisal | AEM |\n|---|---|---|---|---|---|---|\n")
	for _, cell := range effects {
		if cell.Scheme != "actfocus" || cell.Errors == 0.5 {
			continue
		}
		fmt.Fprintf(&b, "| %d, %v | %.2f | %.1f, %.1f |",
			cell.Fluent, cell.Errors, cell.Decided, 100*cell.Uniform, 100*cell.UniformFinal)
		for _, s := range []string{"actfocus", train.ActFocusWithoutBeta, train.ActFocusBySurprisal, "aem"} {
			e := effectOf(effects, cell.Run, s)
			during := points(e.Difference)
			if e.Shown() {
				during = "**" + during + "**"
			}
			fmt.Fprintf(&b, " %s, %s |", during, points(e.Final))
		}
		fmt.Fprintln(&b)
	}
	return b.String()
}

// armsTable has a row for each change, with the map's own cells first, and what came of each prediction.
func armsTable(of, arms []Effect) string {
	var b strings.Builder
	row := func(title string, effects []Effect, change train.Run, actFocus string) {
		fmt.Fprintf(&b, "| %s |", title)
		for _, cell := range TheArms.Cells {
			run := changed(cell, change)
			e := effectOf(effects, run, actFocus)
			fmt.Fprintf(&b, " %.1f | %s | %s |", 100*e.Uniform, differenceText(e),
				differenceText(effectOf(effects, run, "aem")))
		}
		fmt.Fprintln(&b)
	}
	fmt.Fprint(&b, "| | q 0: uniform | ActFocus | AEM | q 1: uniform | ActFocus | AEM |\n|---|---|---|---|---|---|---|\n")
	eachArm(of, arms, row)
	verdicts(&b, TheArms.Predictions(of, arms))
	return b.String()
}

// differenceText is the difference with its interval, in bold if it is shown.
func differenceText(e *Effect) string {
	if e == nil {
		return ""
	}
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
					run := cell(fluent, 0)
					run.Scheme, run.Rate, run.Seed = scheme, rate, seed
					mean += rows[run].Success / 3
				}
				fmt.Fprintf(&b, "%s %.1f", []string{"", ",", ","}[i], 100*mean)
			}
			fmt.Fprint(&b, " |")
		}
		fmt.Fprintln(&b)
	}
	fmt.Fprint(&b, "\n| of the 144 runs that compare | rate 0.01 is the best of three in | end below a tenth of success |\n|---|---|---|\n")
	for _, scheme := range TheMap.Schemes {
		gone, best := 0, 0
		for _, run := range TheMap.Comparing(rows) {
			if run.Scheme != scheme {
				continue
			}
			gone += lost(rows[run])
			if run.Seed == 1 && run.Rate == 1e-2 {
				best++
			}
		}
		fmt.Fprintf(&b, "| %s | %d of 12 cells | %d |\n", cmp.Or(schemeTitles[scheme], "uniform weights"), best, gone)
	}
	return b.String()
}

// moreRatesTable has of each cell the medians of uniform weights and ActFocus at all rates, the best rates and what the
// schemes gain at them, the lost runs, and what came of each prediction.
func moreRatesTable(all Points, of, ofMap []Effect) string {
	var b strings.Builder
	rates := TheRates.All()
	header := func(first string) {
		fmt.Fprint(&b, first)
		for _, rate := range rates {
			fmt.Fprintf(&b, " %v |", rate)
		}
		fmt.Fprintf(&b, "\n%s\n", strings.Repeat("|---", len(rates)+strings.Count(first, "|")-1)+"|")
	}
	header("| L | q |")
	for _, c := range TheRates.Cells() {
		fmt.Fprintf(&b, "| %d | %v |", c.Fluent, c.Errors)
		for _, rate := range rates {
			u, a := all.at(c, Uniform, rate), all.at(c, "actfocus", rate)
			fmt.Fprintf(&b, " %.1f, %.1f; %.1f, %.1f |", 100*u.Success, 100*a.Success, 100*u.Final, 100*a.Final)
		}
		fmt.Fprintln(&b)
	}
	fmt.Fprintln(&b)
	header("| lost, of 72 |")
	for _, scheme := range TheRates.Schemes {
		fmt.Fprintf(&b, "| %s |", cmp.Or(schemeTitles[scheme], "uniform weights"))
		for _, rate := range rates {
			gone := 0
			for _, c := range TheRates.Cells() {
				gone += all.at(c, scheme, rate).Lost
			}
			fmt.Fprintf(&b, " %d |", gone)
		}
		fmt.Fprintln(&b)
	}
	fmt.Fprint(&b, "\n| L | q | uniform |")
	schemes := []string{"actfocus", train.ActFocusWithoutBeta, train.ActFocusBySurprisal, "aem"}
	for _, s := range schemes {
		fmt.Fprintf(&b, " %s |", schemeTitles[s])
	}
	fmt.Fprint(&b, "\n|---|---|---|---|---|---|---|\n")
	for _, c := range TheRates.Cells() {
		fmt.Fprintf(&b, "| %d | %v | %v |", c.Fluent, c.Errors, TheRates.Best(all, c, Uniform))
		for _, s := range schemes {
			e := effectOf(of, c, s)
			fmt.Fprintf(&b, " %v: %s (%s to %s), the map's %s |", e.Rate, points(e.Difference), points(e.Low),
				points(e.High), points(effectOf(ofMap, c, s).Difference))
		}
		fmt.Fprintln(&b)
	}
	verdicts(&b, TheRates.Predictions(all))
	return b.String()
}

// measuredTable has of each cell the weights of the audit and what training with them did, and what came of the
// prediction.
func measuredTable(all []Comparison) string {
	var b strings.Builder
	fmt.Fprint(&b, "| L | q | weights of actions, tags, reasoning | measured | uniform | ActFocus | lost "+
		"| to the better of both, and standard error |\n|---|---|---|---|---|---|---|---|\n")
	for _, c := range all {
		weights := strings.Split(c.Measured, ":")[1:]
		fmt.Fprintf(&b, "| %d | %v | %s | %.1f | %.1f | %.1f | %d, %d, %d | %s, %.1f |\n",
			c.Cell.Fluent, c.Cell.Errors, strings.Join(weights, ", "), 100*c.Success, 100*c.Uniform, 100*c.ActFocus,
			c.Lost[0], c.Lost[1], c.Lost[2], points(c.Difference), 100*c.Error)
	}
	p := MeasuredPrediction(all)
	fmt.Fprintf(&b, "\n| | the plan's prediction | what came of it |\n|---|---|---|\n| 5 | %s | %s |\n", p.Text, p.Verdict())
	return b.String()
}
