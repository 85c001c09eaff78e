package schemes

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed621a2839/reweight"
)

// A Scheme is one or several names of the table.
type Scheme struct {
	Name  string // as reports have it: names with + between them
	parts []*part
}

// joined is what All has besides the table.
const joined = "actfocus+aem"

// All returns every name of the table, and ActFocus with AEM.
func All() []Scheme {
	var all []Scheme
	for i := range table {
		all = append(all, Scheme{table[i].name, []*part{&table[i]}})
		if table[i].name == "aem" {
			both, _ := parse(joined)
			all = append(all, both)
		}
	}
	return all
}

// Uniform returns the scheme that others are compared with.
func Uniform() Scheme { return All()[0] }

// Parse reads names with commas between them; all stands for All. The error is the end of
// a sentence that begins with the name of a flag.
func Parse(list string) ([]Scheme, error) {
	if list == "all" {
		return All(), nil
	}
	var picked []Scheme
	for text := range strings.SplitSeq(list, ",") {
		if text == "all" {
			return nil, fmt.Errorf("has %q, want names without all, which stands alone", list)
		}
		s, err := parse(text)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(picked, func(other Scheme) bool { return slices.Equal(other.parts, s.parts) }) {
			return nil, fmt.Errorf("has %q twice", s.Name)
		}
		picked = append(picked, s)
	}
	return picked, nil
}

// parse reads names with + between them, which names can have too. verl has hyphens in
// names where these have underscores.
func parse(text string) (s Scheme, err error) {
	for rest := strings.ReplaceAll(text, "-", "_"); ; {
		p, n := longest(rest)
		if p == nil {
			if name, _, _ := strings.Cut(rest, "+"); slices.Contains(leftOut[:], name) {
				return s, fmt.Errorf("has %q: %s is verl's, and not here: docs/schemes.md lists what is left out", text, name)
			}
			return s, fmt.Errorf("has %q, want some of %v, joined by + where that makes sense, or all", text, names())
		}
		if err := s.join(p); err != nil {
			return s, fmt.Errorf("has %q: %w", text, err)
		}
		if rest = rest[n:]; rest == "" {
			break
		}
		rest = rest[1:]
	}
	slices.SortFunc(s.parts, func(a, b *part) int { return slices.Index(names(), a.name) - slices.Index(names(), b.name) })
	if len(s.parts) > 1 && s.parts[0].name == uniform { // which the others change
		s.parts = s.parts[1:]
	}
	var all []string
	for _, p := range s.parts {
		all = append(all, p.name)
	}
	s.Name = strings.Join(all, "+")
	return s, nil
}

// longest returns the part with the longest name that the text begins with, and that a +
// or the end follows, and the length of the name.
func longest(text string) (found *part, n int) {
	for i := range table {
		for _, name := range append([]string{table[i].name}, table[i].synonyms...) {
			rest, ok := strings.CutPrefix(text, name)
			if ok && len(name) > n && (rest == "" || rest[0] == '+' && len(rest) > 1) {
				found, n = &table[i], len(name)
			}
		}
	}
	return found, n
}

func names() []string {
	var all []string
	for _, p := range table {
		all = append(all, p.name)
	}
	return all
}

// join adds a part. Weights multiply, and so do factors, but the advantages, the loss of a
// token and the correction of the rollout are from one place each.
func (s *Scheme) join(p *part) error {
	for _, other := range s.parts {
		switch {
		case other == p:
			return fmt.Errorf("%s stands there twice", p.name)
		case other.advance != nil && p.advance != nil:
			return fmt.Errorf("%s and %s both make the advantages", other.name, p.name)
		case other.corrects && p.corrects:
			return fmt.Errorf("%s and %s both are the ratio to the engine", other.name, p.name)
		case other.loss != nil && p.loss != nil:
			err := fmt.Errorf("%s and %s both are a loss", other.name, p.name)
			for _, pair := range [...][2]*part{{other, p}, {p, other}} {
				if loss, with := pair[0], pair[1]; (with.name == "grpo" || with.name == "dr_grpo") && loss.advance == nil && loss.penalty == nil {
					err = fmt.Errorf("%w: %s has GRPO's advantages already; -divide-by-std=false of bench reweight makes them Dr. GRPO's", err, loss.name)
				}
			}
			return err
		}
	}
	s.parts = append(s.parts, p)
	return nil
}

// Has reports whether that name of the table is the scheme's, or one of those it joins.
func (s Scheme) Has(name string) bool {
	return slices.ContainsFunc(s.parts, func(p *part) bool { return p.name == name })
}

// OwnAdvantages reports whether the scheme makes advantages in place of those of GRPO.
func (s Scheme) OwnAdvantages() bool {
	return slices.ContainsFunc(s.parts, func(p *part) bool { return p.advance != nil })
}

// EntropyPerToken reports whether the scheme reads the entropy of single tokens, and not
// its mean over some only.
func (s Scheme) EntropyPerToken() bool {
	return slices.ContainsFunc(s.parts, func(p *part) bool { return p.perToken })
}

// reads returns the arrays that the scheme reads besides role, seq_offsets, old_logprobs
// and logprobs.
func (s Scheme) reads(opt Options) []string {
	var all []string
	for _, p := range s.parts {
		all = append(all, p.arrays...)
		if p.name == actFocus {
			all = append(all, opt.ActFocus.Signal.Arrays()...)
		}
	}
	if !s.OwnAdvantages() {
		all = append(all, "rewards|advantages")
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Loss returns the options of the scheme's loss.
func (s Scheme) Loss(opt Options) reweight.LossOptions {
	loss := reweight.DefaultLoss
	for _, p := range s.parts {
		if p.loss != nil {
			loss = *p.loss
		}
	}
	if opt.Loss != nil {
		opt.Loss(&loss)
	}
	return loss
}

// Arrays returns the names of all arrays that the scheme can read.
func (s Scheme) Arrays(opt Options) []string {
	all := append(s.reads(opt), "old_logprobs", "logprobs")
	if s.Loss(opt).KLCoef != 0 {
		all = append(all, "ref_logprobs")
	}
	return strings.Split(strings.Join(all, "|"), "|")
}

// Lacks says what the scheme needs and does not have, "needs anchors and span_rewards", or
// nothing.
func (s Scheme) Lacks(b *reweight.Batch, opt Options) string {
	has := map[string]bool{}
	for _, a := range b.Arrays() {
		has[a.Name] = a.Len() > 0
	}
	var missing []string
	for _, name := range append(s.reads(opt), "old_logprobs", "logprobs") {
		either := strings.Split(name, "|")
		if !slices.ContainsFunc(either, func(name string) bool { return has[name] }) {
			missing = append(missing, strings.Join(either, " or "))
		}
	}
	if has["rewards"] && !has["group_ids"] && !s.OwnAdvantages() && !slices.Contains(missing, "group_ids") {
		missing = append(missing, "group_ids")
	}
	if s.Loss(opt).KLCoef != 0 && !has["ref_logprobs"] {
		missing = append(missing, "ref_logprobs for -kl-coef")
	}
	if opt.Delta == nil && s.Has(offPolicyMask) {
		missing = append(missing, "-delta, which has no default")
	}
	last := len(missing) - 1
	switch {
	case last < 0 && opt.TooWide != "" && slices.Contains(s.reads(opt), "entropy"):
		return opt.TooWide
	case last < 0:
		return ""
	case last == 0:
		return "needs " + missing[0]
	}
	return "needs " + strings.Join(missing[:last], ", ") + " and " + missing[last]
}

// Usage lists the names for the help of a command.
func Usage() string {
	var text strings.Builder
	text.WriteString(`The schemes. What a name does not mention is as in uniform. Names can be joined with +:
weights multiply, and so do factors; two that make the advantages, two losses, or tis and
icepop together are an error. "all" is each of them, and actfocus+aem.

`)
	for _, p := range table {
		fmt.Fprintf(&text, "  %-20s %s\n", p.name, p.about)
		if len(p.synonyms) > 0 {
			fmt.Fprintf(&text, "  %-20s (also %s)\n", "", strings.Join(p.synonyms, ", "))
		}
	}
	text.WriteByte('\n')
	return text.String()
}
