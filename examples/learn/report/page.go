package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/examples/learn/env"
	"github.com/seed621a2839/reweight/examples/learn/policy"
	"github.com/seed621a2839/reweight/examples/learn/study"
	"github.com/seed621a2839/reweight/examples/learn/train"
	"github.com/seed621a2839/reweight/internal/atomicfile"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{"compared": compared, "comma": func(n int) string { return humanize.Comma(int64(n)) }}).Parse(pageText))

// Page writes one page that needs nothing else: no script, no font and no network.
// The settings are those of the runs.
func Page(path string, s *study.Summary, settings train.Settings) error {
	if s.Runs == 0 {
		return errEmpty
	}
	return atomicfile.Write(path, func(w io.Writer) error { return pageTemplate.Execute(w, contents(s, settings)) })
}

// contents is what the page is filled with.
func contents(s *study.Summary, settings train.Settings) any {
	usual, varied := split(s)
	data := struct {
		*study.Summary
		Settings            train.Settings
		ClipLow, ClipHigh   float64
		Question            string
		Games, Algorithms   string
		Others, Shorts      string // names of the schemes that are compared, and what short ones mean
		Notes               []string
		Iterations, Words   int
		Parameters          int
		Time, TooFew, Level string
		Recent              int
		Many, PPO           bool
		Keys                []key
		Counts              [][]string
		Usual, Varied       []differenceRow
		All                 [][]string
		Forests             []drawing
		Curves              []drawing
		Together, Explained []explained // all cells together, if there are several; each cell
	}{
		Summary: s, Settings: settings, ClipLow: train.Schemes[0].Options.Loss.ClipLow, ClipHigh: train.Schemes[0].Options.Loss.ClipHigh,
		Parameters: len(policy.New(len(env.Words), settings.Hidden, 0).Parameters),
		Question:   question(s), Notes: gameNotes(s), Many: len(s.Schemes) > many,
		PPO:        slices.ContainsFunc(s.Cells, func(c study.Cell) bool { return c.Algorithm == "ppo" }),
		Iterations: iterations(s), Words: len(env.Words), Time: duration(s.Seconds), TooFew: tooFew(s),
		Level: percent(study.Level), Recent: study.Recent,
		Games:      names(s, func(c study.Cell) string { return gameTitle(c.Game) }),
		Algorithms: names(s, func(c study.Cell) string { return algorithmTitle(c.Algorithm) }),
		Counts:     counts(s), Usual: usual, Varied: varied, All: all(s), Explained: explain(s),
	}
	var others, shorts []string
	for i, scheme := range s.Schemes {
		look := styleOf(scheme)
		data.Keys = append(data.Keys, key{look.title, look.about, sample(look.number)})
		if i > 0 {
			others = append(others, look.title)
			if look.short != look.title {
				shorts = append(shorts, fmt.Sprintf("“%s” is %s", look.short, look.title))
			}
		}
	}
	data.Others, data.Shorts = list(others), list(shorts)
	for i, m := range study.Measures {
		data.Forests = append(data.Forests, drawing{measureTitles[m], forest(fmt.Sprintf("forest%d", i), s, m)})
	}
	if len(data.Explained) > 1 {
		data.Together = []explained{together(s)}
	}
	most := top(s)
	for i, cell := range s.Cells {
		data.Curves = append(data.Curves, drawing{cellTitle(s, cell), learning(fmt.Sprintf("curve%d", i), s, cell, most, data.Iterations)})
	}
	return data
}

// compared is what the page's template of differences is filled with.
func compared(rows []differenceRow, keys []key) any {
	return struct {
		Rows []differenceRow
		Keys []key
		Many bool
	}{rows, keys, len(keys) > many}
}

// question is what the study asks.
func question(s *study.Summary) string {
	switch {
	case slices.Equal(s.Schemes, study.DefaultSchemes):
		return "do ActFocus and AEM help them?"
	case len(s.Schemes) == 2:
		return "does " + styleOf(s.Schemes[1]).title + " help them?"
	}
	return "do other token weights and losses help them?"
}

// gameNotes says how the study's games differ from those of other studies.
func gameNotes(s *study.Summary) []string {
	var notes []string
	for _, n := range []struct{ game, note string }{
		{"frozenlake", "In FrozenLake a move goes astray with a probability of 0.2, half of it to each side; in Gym it is two thirds. All its episodes begin in the same cell, so its groups differ by chance and by how far the training is, and its correlations say less than those of the other games."},
		{"sokoban", "Sokoban has one crate, and no inner walls."},
		{"sudoku", "In Sudoku the environment names the cell to fill, one for which only one digit is left, and the agent reads what is in its row, column and box."},
		{"shop", "In the shop the right item is always on the page of its type, and the agent clicks an item by its colour and size."},
	} {
		if slices.ContainsFunc(s.Cells, func(c study.Cell) bool { return strings.HasPrefix(c.Game, n.game) }) {
			notes = append(notes, n.note)
		}
	}
	return notes
}

// A drawing is a picture and what stands over it.
type drawing struct {
	Title   string
	Picture template.HTML
}

// A key says what a scheme is and what its learning curve looks like.
type key struct {
	Title, About string
	Sample       template.HTML
}

// sample draws a piece of the learning curve of the scheme with the number i.
func sample(i int) template.HTML {
	var c canvas
	c.path(fmt.Sprintf("curve s%d", i), []float64{1, 41}, []float64{8, 8})
	return template.HTML(`<svg class="sample" viewBox="0 0 42 16" aria-hidden="true">` + "\n" + c.body.String() + "</svg>")
}

// names lists what the cells have, each once.
func names(s *study.Summary, of func(study.Cell) string) string {
	var all []string
	for _, cell := range s.Cells {
		if name := of(cell); !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return list(all)
}

// counts has a row for each scheme: its name, and for each measure how many
// comparisons show what.
func counts(s *study.Summary) [][]string {
	var rows [][]string
	for _, scheme := range s.Schemes[1:] {
		row := []string{styleOf(scheme).title}
		for _, m := range study.Measures {
			n := map[string]int{}
			for _, cell := range s.Cells {
				n[verdict(comparison(s, cell, scheme, m))]++
			}
			if known := n[better] + n[worse] + n[unshown]; known > 0 {
				row = append(row, fmt.Sprintf("%d better, %d worse, of %d", n[better], n[worse], known))
			} else {
				row = append(row, none)
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// A differenceRow compares the final success of one cell.
type differenceRow struct {
	Name, Kind    string
	Before, After string // success with uniform weights
	Cells         []differenceCell
}

type differenceCell struct {
	Title, After         string // of the scheme, and its success
	Interval, P, Verdict string // no P if there is none
	Shown                bool
}

// split returns the rows of the cells with the reasoning that most cells have, and
// those of all games and algorithms with several kinds of reasoning.
func split(s *study.Summary) (usual, varied []differenceRow) {
	most, number := "", map[string]int{}
	for _, cell := range s.Cells {
		number[cell.Reasoning]++
	}
	for _, cell := range s.Cells {
		if number[cell.Reasoning] > number[most] {
			most = cell.Reasoning
		}
	}
	for _, cell := range s.Cells {
		if cell.Reasoning == most {
			row := differencesOf(s, cell)
			row.Name, row.Kind = gameTitle(cell.Game), algorithmTitle(cell.Algorithm)
			usual = append(usual, row)
		}
	}
	for i, cell := range s.Cells {
		same := func(c study.Cell) bool { return c.Game == cell.Game && c.Algorithm == cell.Algorithm }
		if slices.IndexFunc(s.Cells, same) != i { // among the rows of the first one
			continue
		}
		var rows []differenceRow
		for _, other := range s.Cells {
			if same(other) {
				row := differencesOf(s, other)
				row.Name, row.Kind = gameTitle(other.Game)+", "+algorithmTitle(other.Algorithm), reasoningTitle(other.Reasoning)
				rows = append(rows, row)
			}
		}
		if len(rows) > 1 {
			varied = append(varied, rows...)
		}
	}
	return usual, varied
}

func differencesOf(s *study.Summary, cell study.Cell) differenceRow {
	row := differenceRow{Before: none, After: none}
	for _, e := range s.Explanations {
		if e.Cell == cell && e.Scheme == s.Schemes[0] {
			row.Before, row.After = percent(e.Start), percent(e.Final)
		}
	}
	for _, scheme := range s.Schemes[1:] {
		q := comparison(s, cell, scheme, study.Final)
		c := differenceCell{Title: styleOf(scheme).title, After: percent(q.Reweighted), Interval: interval(q), Verdict: verdict(q), Shown: shown(q)}
		if c.Verdict != none {
			c.P = pValue(q.Adjusted)
		}
		row.Cells = append(row.Cells, c)
	}
	return row
}

// all has a row for each comparison.
func all(s *study.Summary) [][]string {
	var rows [][]string
	for _, cell := range s.Cells {
		for _, scheme := range s.Schemes[1:] {
			for _, m := range study.Measures {
				q := comparison(s, cell, scheme, m)
				censored := ""
				if m == study.Updates {
					censored = fmt.Sprintf("%d, %d", q.UniformCensored, q.ReweightedCensored)
				}
				rows = append(rows, []string{
					cellTitle(s, cell), styleOf(scheme).short, string(m), fmt.Sprint(q.Pairs), value(m, q.Uniform), value(m, q.Reweighted),
					interval(q), pValue(q.P), pValue(q.Adjusted), verdict(q), censored,
				})
			}
		}
	}
	return rows
}

// explained is what the papers' explanations look at, for the schemes of a cell.
type explained struct {
	Title string
	Rows  [][]string
}

func explain(s *study.Summary) []explained {
	var tables []explained
	for _, cell := range s.Cells {
		t := explained{Title: cellTitle(s, cell)}
		for _, e := range s.Explanations {
			if e.Cell != cell {
				continue
			}
			t.Rows = append(t.Rows, explainedRow([]study.Explanation{e}))
		}
		if len(t.Rows) > 0 {
			tables = append(tables, t)
		}
	}
	return tables
}

// together has the means over all cells.
func together(s *study.Summary) explained {
	t := explained{Title: "Mean over all"}
	for _, scheme := range s.Schemes {
		var of []study.Explanation
		for _, e := range s.Explanations {
			if e.Scheme == scheme {
				of = append(of, e)
			}
		}
		if len(of) > 0 {
			t.Rows = append(t.Rows, explainedRow(of))
		}
	}
	return t
}

// explainedRow shows the means of explanations of one scheme, without what is not known.
func explainedRow(of []study.Explanation) []string {
	show := func(format string, value func(study.Explanation) float64) string {
		sum, n := 0.0, 0.0
		for _, e := range of {
			if x := value(e); finite(x) {
				sum += x
				n++
			}
		}
		return number(format, sum/n)
	}
	row := []string{styleOf(of[0].Scheme).short}
	for _, tokens := range []func(train.Correlations) bench.Number{
		func(c train.Correlations) bench.Number { return c.All },
		func(c train.Correlations) bench.Number { return c.Reasoning },
		func(c train.Correlations) bench.Number { return c.Action },
	} {
		var thirds []string
		for i := range of[0].Bottleneck {
			thirds = append(thirds, show("%+.2f", func(e study.Explanation) float64 { return float64(tokens(e.Bottleneck[i])) }))
		}
		row = append(row, strings.Join(thirds, " → "))
	}
	return append(row,
		show("%.2f", func(e study.Explanation) float64 { return e.EntropyStart })+" → "+show("%.2f", func(e study.Explanation) float64 { return e.EntropyEnd }),
		show("%.2f", func(e study.Explanation) float64 { return e.ActionEntropyStart })+" → "+show("%.2f", func(e study.Explanation) float64 { return e.ActionEntropyEnd }),
		show("%+.4f", func(e study.Explanation) float64 { return e.Drift }))
}
