package show

import (
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"math"
	"strings"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/rollout"
)

//go:embed compare.html
var comparePage string

var compareTemplate = template.Must(templates("compare").Parse(comparePage))

// Sides are a rollout under several schemes, side by side.
type Sides struct {
	Title   string // of the page
	Header  []string
	Rows    [][]string // of the schemes: the first cell is text
	Notes   []string   // whole sentences
	Rollout string     // what it is, a sentence
	Texts   []string
	Role    []reweight.Role
	Spans   []int32 // or nil
	Sides   []Side
}

// A Side is the credit of each token under a scheme.
type Side struct {
	Scheme string
	Credit []float64
}

// TextsOf returns the texts of the tokens of a trajectory of the source, from which
// nothing was read yet. b is the batch of all its trajectories.
func TextsOf(src Source, b *reweight.Batch, number int) (title string, words []string, err error) {
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
	var vocabulary Vocabulary
	if one.Texts == nil {
		vocabulary = fileVocabulary(one.File)
	}
	return describe(one, b, src.Report()), texts(one, vocabulary, r.Tokens()), err
}

// IDsOf stands for TextsOf where the source, which has that report, cannot be read again.
func IDsOf(file string, report rollout.Report, b *reweight.Batch, number int) (title string, words []string) {
	from, to := b.SeqOffsets[number], b.SeqOffsets[number+1]
	one := chosen{number: number, Trajectory: &rollout.Trajectory{File: file}}
	if len(b.TokenIDs) > 0 {
		one.ids = b.TokenIDs[from:to]
	}
	return describe(one, b, report), texts(one, nil, int(to-from))
}

func describe(one chosen, b *reweight.Batch, report rollout.Report) string {
	from, to := b.SeqOffsets[one.number], b.SeqOffsets[one.number+1]
	var spans []int32
	if len(b.SpanIDs) > 0 {
		spans = b.SpanIDs[from:to]
	}
	return title(one, b, report, len(turns(b.Role[from:to], spans)))
}

// WriteHTML writes one page that needs nothing else, as Page.WriteHTML.
func (s Sides) WriteHTML(w io.Writer) error {
	for _, side := range s.Sides {
		if len(side.Credit) != len(s.Role) || len(s.Texts) != len(s.Role) {
			return errors.New("tokens without a text or a credit")
		}
	}
	return compareTemplate.Execute(w, s)
}

type sidesTurn struct {
	Name               string
	Begin, Middle, End []tokenView // what the environment said
	Sides              []sideView
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
	r := Trajectory{Turns: turns(s.Role, s.Spans)}
	for t, role := range s.Role {
		r.Tokens = append(r.Tokens, Token{Text: s.Texts[t], Role: role})
	}
	spaced := Page{Trajectories: []Trajectory{r}}.Spaced()
	view := func(t int) tokenView {
		text := s.Texts[t]
		return tokenView{Text: printed(text), Role: roleNames[s.Role[t]], Space: spaced, Break: strings.Contains(text, "\n")}
	}
	views := func(from, to int) (tokens []tokenView) {
		for t := from; t < to; t++ {
			tokens = append(tokens, view(t))
		}
		return tokens
	}
	for n, turn := range r.Turns {
		begin, middle, _ := r.Said(turn)
		a := turn.Start + len(begin)
		b := a + len(middle)
		one := sidesTurn{Name: fmt.Sprintf("Turn %d", n+1), Begin: views(turn.Start, a), Middle: views(a, b), End: views(b, turn.Agent)}
		for _, side := range s.Sides {
			if turn.Agent == turn.End {
				break
			}
			most := 0.0
			for _, c := range side.Credit {
				most = max(most, math.Abs(c))
			}
			v := sideView{Scheme: side.Scheme}
			for t := turn.Agent; t < turn.End; t++ {
				c := creditView{tokenView: view(t)}
				credit := side.Credit[t]
				c.About = fmt.Sprintf("token %d: %s, credit %+.3g", t, c.Role, credit)
				c.Height = "0"
				if credit != 0 {
					c.Height, c.Toward = fmt.Sprintf("%.3f", math.Abs(credit)/most), map[bool]string{true: "up", false: "down"}[credit > 0]
				}
				v.Answer = append(v.Answer, c)
			}
			one.Sides = append(one.Sides, v)
		}
		all = append(all, one)
	}
	return all
}

// Tokens are the rows of the table of the rollout.
func (s Sides) Tokens() (rows []rowView) {
	for t, role := range s.Role {
		row := rowView{Number: t, Text: printed(s.Texts[t]), Role: roleNames[role]}
		for _, side := range s.Sides {
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
