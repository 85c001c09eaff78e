package show

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"strings"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/compare"
	"github.com/seed621a2839/reweight/rollout"
)

//go:embed compare.html
var comparePage string

var compareTemplate = template.Must(templates("compare").Parse(comparePage))

// Sides are a comparison of schemes, with a rollout under each of them side by side.
type Sides struct {
	Title string // of the page
	*compare.Comparison
}

// Header names the columns of the table.
func (Sides) Header() []string { return compare.Header }

// TextsOf returns the title of a trajectory of the source, from which nothing was read yet, and
// the texts of its tokens. b is the batch of all its trajectories.
func TextsOf(src Source, b *reweight.Batch, number int) (name string, words []string, err error) {
	var r *rollout.Trajectory
	for range number + 1 {
		if r, err = src.Next(); err != nil {
			return "", nil, err
		}
	}
	one := chosen{number, r, nil}
	err = src.Guard(func() error { // somebody may make the file shorter
		one.ids = append(one.ids, r.TokenIDs...)
		return nil
	})
	report := src.Report()
	return title(one, b, report), texts(one, rollout.ListedVocabulary(report.Vocabulary), r.Tokens()), err
}

// IDsOf stands for TextsOf where the source, which has that report, cannot be read again.
func IDsOf(file string, report rollout.Report, b *reweight.Batch, number int) (name string, words []string) {
	from, to := b.SeqOffsets[number], b.SeqOffsets[number+1]
	one := chosen{number: number, Trajectory: &rollout.Trajectory{File: file}}
	if len(b.TokenIDs) > 0 {
		one.ids = b.TokenIDs[from:to]
	}
	return title(one, b, report), texts(one, nil, int(to-from))
}

// WriteHTML writes one page that needs nothing else, as Page.WriteHTML.
func (s Sides) WriteHTML(w io.Writer) error { return compareTemplate.Execute(w, s) }

type sidesTurn struct {
	saidView
	Sides []sideView
}

type sideView struct {
	Scheme string
	Answer []creditView
}

type creditView struct {
	tokenView
	Toward string // up, down or nothing: where the log-probability goes
}

// Turns are those of the rollout, as the template shows them.
func (s Sides) Turns() (all []sidesTurn) {
	r := s.Rollout
	var tokens []Token
	for t, role := range r.Role {
		tokens = append(tokens, Token{Text: r.Texts[t], Role: role})
	}
	spaced := Page{Trajectories: []Trajectory{{Tokens: tokens}}}.Spaced()
	view := func(t int) tokenView {
		text := r.Texts[t]
		return tokenView{Text: printed(text), Role: r.Roles[t], Space: spaced, Break: strings.Contains(text, "\n")}
	}
	for n, turn := range turns(r.Role, r.Spans) {
		one := sidesTurn{saidView: turn.said(n, view)}
		for _, side := range r.Credit {
			if turn.Agent == turn.End {
				break
			}
			most := 0.0
			for _, c := range side.Credit {
				most = max(most, math.Abs(c))
			}
			answer := views(turn.Agent, turn.End, func(t int) creditView {
				c, credit := creditView{tokenView: view(t)}, side.Credit[t]
				c.About = fmt.Sprintf("token %d: %s, credit %+.3g", t, c.Role, credit)
				c.Height = "0"
				if credit != 0 {
					c.Height, c.Toward = fmt.Sprintf("%.3f", math.Abs(credit)/most),
						map[bool]string{true: "up", false: "down"}[credit > 0]
				}
				return c
			})
			one.Sides = append(one.Sides, sideView{side.Scheme, answer})
		}
		all = append(all, one)
	}
	return all
}

// Tokens are the rows of the table of the rollout.
func (s Sides) Tokens() (rows []rowView) {
	for t, role := range s.Rollout.Role {
		row := rowView{Number: t, Text: printed(s.Rollout.Texts[t]), Role: s.Rollout.Roles[t]}
		for _, side := range s.Rollout.Credit {
			cell := "-"
			if role != reweight.RoleMasked {
				cell = fmt.Sprintf("%+.4g", side.Credit[t])
			}
			row.Cells = append(row.Cells, cell)
		}
		rows = append(rows, row)
	}
	return rows
}
