package show

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/printable"
)

//go:embed page.html
var page string

var pageTemplate = templates("show")

// templates returns an empty template of that name, beside those that pages share:
// "style" for their style sheet, "sort" for the script that sorts tables of the class
// sorts, "legend" of a Page, and "rollout" of one of its Views. line is printable.Line.
func templates(name string) *template.Template {
	return template.Must(template.New(name).Funcs(template.FuncMap{"line": printable.Line}).Parse(page))
}

// WriteHTML writes one page that needs nothing else: no font and no network. Its script
// sorts tables, and all else works without it.
func (p Page) WriteHTML(w io.Writer) error { return pageTemplate.ExecuteTemplate(w, "page", p) }

// A View is a trajectory for the template "rollout". Its texts can be printed.
type View struct {
	Title   string
	Turns   []turnView
	Columns []string // of figures, in the table of the tokens
	r       Trajectory
	columns []column
	most    float64 // weight on the page
	spaced  bool
	about   string // "~" before an estimate
}

type turnView struct {
	saidView
	Figures [][2]string
	Answer  []tokenView
}

// A saidView is what the environment said in a turn of that name.
type saidView struct {
	Name               string
	Begin, Middle, End []tokenView
}

// said returns what the environment said in turn n. view is that of a token of that number.
func (t Turn) said(n int, view func(int) tokenView) saidView {
	from, to := t.LeftOut()
	return saidView{
		fmt.Sprintf("Turn %d", n+1), views(t.Start, from, view), views(from, to, view), views(to, t.Agent, view),
	}
}

func views[V any](from, to int, view func(int) V) (all []V) {
	for i := from; i < to; i++ {
		all = append(all, view(i))
	}
	return all
}

type tokenView struct {
	Text, Role   string
	Space, Break bool   // what follows it: a space, a new line
	About        string // its figures
	Weighed      bool
	Height       string // of its bar, as a part of the highest
	Mark         string // over it
}

// A rowView is a row of the table of the tokens.
type rowView struct {
	Number     int
	Text, Role string
	Cells      []string
}

// A column is a figure of tokens.
type column struct {
	name  string
	value func(Token) float64
	about string // "~" if it is an estimate
}

// columnsOf returns the figures that a token of the trajectory has.
func (p Page) columnsOf(r Trajectory) []column {
	return slices.DeleteFunc([]column{
		{"entropy", func(t Token) float64 { return t.Entropy }, p.about()},
		{"log-probability", func(t Token) float64 { return t.Logprob }, ""},
		{"ActFocus weight", func(t Token) float64 { return t.ActFocus }, ""},
		{"AEM factor", func(t Token) float64 { return t.Factor }, p.about()},
		{"weight", Token.Weight, p.about()},
		{"advantage", func(t Token) float64 { return t.Advantage }, ""},
	}, func(c column) bool {
		_, lo, hi := over(r.Tokens, c.value)
		return lo > hi
	})
}

// text is the token's figure, or a dash.
func (c column) text(t Token) string {
	x := c.value(t)
	if math.IsNaN(x) {
		return "-"
	}
	return c.about + fmt.Sprintf("%.4g", x)
}

// Views returns the trajectories as the template shows them.
func (p Page) Views() []View {
	most, spaced := p.Most(), p.Spaced()
	var all []View
	for _, r := range p.Trajectories {
		v := View{Title: r.Title, r: r, columns: p.columnsOf(r), most: most, spaced: spaced, about: p.about()}
		for _, c := range v.columns {
			v.Columns = append(v.Columns, c.name)
		}
		view := func(i int) tokenView { return v.tokenView(i, r.Tokens[i]) }
		for n, turn := range r.Turns {
			answer := views(turn.Agent, turn.End, view)
			v.Turns = append(v.Turns, turnView{turn.said(n, view), p.Figures(r, turn), answer})
		}
		all = append(all, v)
	}
	return all
}

func (v View) tokenView(number int, t Token) tokenView {
	view := tokenView{Text: printed(t.Text), Role: t.Role.String(), Space: v.spaced,
		Break: strings.Contains(t.Text, "\n"), Height: "0"}
	about := []string{fmt.Sprintf("token %d: %s", number, view.Role)}
	for _, c := range v.columns {
		if text := c.text(t); text != "-" {
			about = append(about, c.name+" "+text)
		}
	}
	view.About = strings.Join(about, ", ")
	if w := t.Weight(); !math.IsNaN(w) {
		view.Weighed = true
		view.Height = fmt.Sprintf("%.4f", w/v.most)
		if t.Role == reweight.RoleAction {
			view.Mark = v.about + fmt.Sprintf("%.2f", w)
		}
	}
	return view
}

// Rows are those of the table of the tokens.
func (v View) Rows() []rowView {
	var rows []rowView
	for i, t := range v.r.Tokens {
		row := rowView{Number: i, Text: printed(t.Text), Role: t.Role.String()}
		for _, c := range v.columns {
			row.Cells = append(row.Cells, c.text(t))
		}
		rows = append(rows, row)
	}
	return rows
}
