// Package show prints rollouts for people: what the environment and the agent said in
// each turn, the weight of every token, and the figures that the weights are made of. It
// prints them as text for terminals and as a page.
package show

import (
	"fmt"
	"iter"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/seed621a2839/reweight"
)

// A Page is what is shown: trajectories, and notes on all of them in whole sentences.
type Page struct {
	Title        string
	Summary      []string // what to know of all rollouts before training with them, in whole sentences
	Trajectories []Trajectory
	Notes        []string
	Estimated    bool // entropies, and the factors of AEM with them, are estimates
}

// A Trajectory is shown turn by turn.
type Trajectory struct {
	Title  string
	Tokens []Token
	Turns  []Turn
}

// A Token is one token with its figures. A figure that is not known is NaN, and so are
// all but ActFocus for a masked token.
type Token struct {
	Text      string
	Role      reweight.Role
	Entropy   float64
	Logprob   float64 // of the policy that sampled the token
	ActFocus  float64 // its weight by ActFocus
	Factor    float64 // of its advantage, by AEM
	Advantage float64 // before AEM
}

// Weight is what the token's advantage is multiplied by: the weight by ActFocus times
// the factor of AEM, or the one of them that is known.
func (t Token) Weight() float64 {
	switch {
	case t.Role == reweight.RoleMasked:
		return math.NaN()
	case math.IsNaN(t.Factor):
		return t.ActFocus
	case math.IsNaN(t.ActFocus):
		return t.Factor
	}
	return t.ActFocus * t.Factor
}

// A Turn is what the environment said, the tokens from Start to Agent, and what the
// agent answered, those from there to End. After the last answer the environment may
// have the last word: a turn without an answer.
type Turn struct{ Start, Agent, End int }

// turns finds the turns. An answer is the tokens of a span, with masked tokens within
// it; without spans it is a run of tokens that are not masked.
func turns(role []reweight.Role, spans []int32) []Turn {
	var all []Turn
	start := 0 // of what belongs to no turn yet
	for t, r := range role {
		if r == reweight.RoleMasked {
			continue
		}
		goesOn := false
		if last := len(all) - 1; last >= 0 {
			before := all[last].End - 1
			goesOn = before == t-1
			if spans != nil {
				goesOn = spans[before] == spans[t] && (goesOn || spans[t] >= 0)
			}
			if goesOn {
				all[last].End = t + 1
			}
		}
		if !goesOn {
			all = append(all, Turn{start, t, t + 1})
		}
		start = t + 1
	}
	if start < len(role) {
		all = append(all, Turn{start, len(role), len(role)})
	}
	return all
}

// turnsOf finds the turns in the tokens from to to of the batch.
func turnsOf(b *reweight.Batch, from, to int64) []Turn {
	var spans []int32
	if len(b.SpanIDs) > 0 {
		spans = b.SpanIDs[from:to]
	}
	return turns(b.Role[from:to], spans)
}

// NewTrajectory returns tokens from to to of the batch. texts are those of these tokens.
func NewTrajectory(b *reweight.Batch, c Credit, from, to int64, texts []string) Trajectory {
	var r Trajectory
	at := func(x []float32, t int64) float64 {
		if x == nil || b.Role[t] == reweight.RoleMasked {
			return math.NaN()
		}
		return float64(x[t])
	}
	for t := from; t < to; t++ {
		token := Token{
			Text: texts[t-from], Role: b.Role[t], ActFocus: math.NaN(),
			Entropy: at(b.Entropy, t), Logprob: at(b.OldLogprobs, t), Factor: at(c.Factors, t),
			Advantage: at(c.Advantages, t),
		}
		if c.Weights != nil {
			token.ActFocus = float64(c.Weights[t])
		}
		r.Tokens = append(r.Tokens, token)
	}
	r.Turns = turnsOf(b, from, to)
	return r
}

// Figures are the figures of a turn, each with its name. Those that are not known are
// left out.
func (p Page) Figures(r Trajectory, turn Turn) [][2]string {
	var all [][2]string
	add := func(name, value string) { all = append(all, [2]string{name, value}) }
	about := p.about()
	answer := r.Tokens[turn.Agent:turn.End]
	if turn.Agent > turn.Start {
		add("tokens read", fmt.Sprint(turn.Agent-turn.Start))
	}
	if len(answer) == 0 {
		return all
	}
	add("tokens written", fmt.Sprint(len(answer)))
	if mean, _, _ := over(answer, func(t Token) float64 { return t.Entropy }); !math.IsNaN(mean) {
		add("mean entropy", about+number(mean))
	}
	if mean, _, _ := over(answer, func(t Token) float64 { return -t.Logprob }); !math.IsNaN(mean) {
		add("mean surprisal", number(mean))
	}
	if mean, _, _ := over(answer, func(t Token) float64 { return t.Factor }); !math.IsNaN(mean) {
		add("AEM factor", about+number(mean)) // equal for all tokens
	}
	if mean, lo, hi := over(answer, func(t Token) float64 { return t.Advantage }); lo < hi {
		add("mean advantage", fmt.Sprintf("%+.3g", mean))
	} else if lo == hi {
		add("advantage", fmt.Sprintf("%+.3g", lo))
	}
	for _, role := range [...]reweight.Role{reweight.RoleReasoning, reweight.RoleAction} {
		_, lo, hi := over(answer, func(t Token) float64 {
			if t.Role != role {
				return math.NaN()
			}
			return t.Weight()
		})
		if name := role.String() + " weighs"; number(lo) == number(hi) {
			add(name, about+number(lo))
		} else if lo < hi {
			add(name, about+number(lo)+" to "+number(hi))
		}
	}
	return all
}

// about stands before the figures that are estimates, if there are any.
func (p Page) about() string {
	if p.Estimated {
		return "~"
	}
	return ""
}

// over returns the mean and the extremes of the tokens' values that are numbers. Without
// any, the mean is NaN and lo is above hi.
func over(tokens []Token, value func(Token) float64) (mean, lo, hi float64) {
	n, sum := 0, 0.0
	lo, hi = math.Inf(1), math.Inf(-1)
	for _, t := range tokens {
		if v := value(t); !math.IsNaN(v) {
			n++
			sum += v
			lo, hi = min(lo, v), max(hi, v)
		}
	}
	return sum / float64(n), lo, hi
}

func number(x float64) string { return fmt.Sprintf("%.3g", x) }

// levels is how many steps the scale of the weights has.
const levels = 10

// tokens are those of all trajectories.
func (p Page) tokens() iter.Seq[Token] {
	return func(yield func(Token) bool) {
		for _, r := range p.Trajectories {
			for _, t := range r.Tokens {
				if !yield(t) {
					return
				}
			}
		}
	}
}

// Most is the largest weight on the page, and at least 1, which is what uniform training
// gives to every token.
func (p Page) Most() float64 {
	most := 1.0
	for t := range p.tokens() {
		if w := t.Weight(); w > most { // not NaN
			most = w
		}
	}
	return most
}

// Step is the height of a step of the scale: the smallest round number whose levels
// reach to the largest weight.
func (p Page) Step() float64 {
	most := p.Most()
	for unit := 0.1; ; unit *= 10 {
		for _, f := range [...]float64{1, 2, 2.5, 5} {
			if levels*unit*f >= most || math.IsInf(unit, 1) {
				return unit * f
			}
		}
	}
}

// level returns the step that a weight is on.
func level(weight, step float64) int {
	return max(0, min(levels-1, int(weight/step)))
}

// Weighed reports whether any token has a weight.
func (p Page) Weighed() bool {
	for t := range p.tokens() {
		if !math.IsNaN(t.Weight()) {
			return true
		}
	}
	return false
}

// Meaning says in a sentence what the weights are.
func (p Page) Meaning() string {
	var focus, factor bool
	for t := range p.tokens() {
		if t.Role != reweight.RoleMasked {
			focus = focus || !math.IsNaN(t.ActFocus)
			factor = factor || !math.IsNaN(t.Factor)
		}
	}
	what := "its ActFocus weight times its AEM factor"
	switch {
	case !focus && !factor:
		return "The weights of the tokens are not known."
	case !factor:
		what = "its ActFocus weight"
	case !focus:
		what = "its AEM factor"
	}
	return "The weight of a token is " + what + "; uniform training weighs each token 1."
}

// Spaced reports whether a space is to stand between tokens: no token has one of its
// own.
func (p Page) Spaced() bool {
	for t := range p.tokens() {
		if beginsWord(t.Text) || strings.TrimRightFunc(t.Text, unicode.IsSpace) != t.Text {
			return false
		}
	}
	return true
}

// beginsWord reports whether the text begins with white space.
func beginsWord(text string) bool {
	r, _ := utf8.DecodeRuneInString(text)
	return unicode.IsSpace(r)
}

// shown is how many tokens of what the environment said are shown at its begin, and how
// many at its end.
const shown = 60

// LeftOut returns where the middle of what the environment said begins and ends, which is left
// out if it is long; else it is empty.
func (t Turn) LeftOut() (from, to int) {
	if t.Agent-t.Start <= 2*shown {
		return t.Agent, t.Agent
	}
	return t.Start + shown, t.Agent - shown
}
