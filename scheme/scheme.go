// Package scheme is the catalogue of schemes: which token gets how much of the credit. It
// has their names, those of trainers, what each reads, and a training step under any of
// them:
//
//	s, err := scheme.Parse("actfocus+aem")
//	step, err := s.NewStep(&ws, batch) // says which arrays are missing
//	loss, err := step.Run()            // step.Grad is dL/dlogprob
//
// A scheme is one name of the catalogue, or several with + between them. What the names
// do not say is as in uniform training: the advantages are those of GRPO, or the batch's
// own if it has no rewards, every response token has the weight 1, and the loss is the
// clipped surrogate, averaged over tokens. docs/schemes.md has the formulas and says what
// makes sense together.
//
// Tests, commands and the tables of the documentation walk this catalogue.
// docs/schemes.md says how to add a scheme.
package scheme

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/problem"
)

// A Kind says what an entry computes.
type Kind uint8

const (
	Several   Kind = iota // nothing of its own: it stands for other entries
	Reward                // penalties of trajectories [S], or rewards of tokens [T]
	Advantage             // advantages of tokens [T]; one that reads advantages changes those that another has made
	Factor                // factors of the advantages [T]: they multiply
	Weight                // weights of tokens in the loss [T]: they multiply
	Loss                  // the loss of a policy, and its gradient by the log-probabilities [T]
	Critic                // the loss of the critic, and its gradient by the values [T]
)

var kindNames = [...]string{"several", "reward", "advantage", "factor", "weight", "loss", "critic"}

// String returns the kind's name.
func (k Kind) String() string { return kindNames[k] }

// An Entry is one name of the catalogue.
type Entry struct {
	Name     string   // ours, in flags and reports: "reinforce++"
	Synonyms []string // of verl, TRL, OpenRLHF and slime; Parse takes hyphens for underscores
	Title    string   // in papers: "REINFORCE++"
	Doc      string   // what it is, in one line
	Source   string   // the number in arXiv, or the trainer
	Formula  string   // what a token gets, in Markdown
	Kind     Kind
	Of       []string // Several: the names of those that it stands for

	// Method is the method of *reweight.Workspace that computes it, and DefaultName the
	// variable of package reweight with its options, if it has any.
	Method, DefaultName string

	// C is its function in C and Python, without reweight_ before it: "rollout_correction".
	// Dst is what the function calls the array that it writes: "factors". PerTrajectory says
	// that this has an element for each trajectory, and not for each token.
	C, Dst        string
	PerTrajectory bool

	// Reads has the names of the arrays that it reads with its default options, besides
	// role, as Batch.Arrays has them; "a|b" is either of two.
	Reads []string

	Masked float32 // what masked tokens get

	// Alias has the arrays that the output may be in place of; Any stands for every []float32 that
	// has an element per token.
	Alias []string

	// SingleEntropies says that it reads the entropy of single tokens, and not a mean only.
	SingleEntropies bool

	// OverBatch says that the result of a token has sums over the batch in it, so that the order of
	// the trajectories can change its last bits.
	OverBatch bool

	// One says why another entry with the same One cannot be in a step with it, and Without why
	// an entry of that kind cannot. None of it is so where they are empty.
	One     string
	Without map[Kind]string

	// NoDefault is the field of its options that somebody has to set, "" if all have defaults.
	NoDefault string

	// NotZero has the fields of its options that are refused where they are 0 and the others are not.
	NotZero []string

	// Flags are its options on the command line. Those of uniform are of every loss.
	Flags []Flag

	part   bool                        // All leaves it out: it is another scheme, or none, by itself
	loss   *reweight.LossOptions       // Loss: the options
	reads  func(opt *Options) []string // with other options, in place of Reads
	golden string                      // the file of testdata/golden

	computation // none of Several
}

// A Flag is an option of an entry on the command line: the flag's name, the field of the options
// that it sets, and what it is, with the name of a value in back quotes.
type Flag struct {
	Name, Option, Help string
}

// Any stands for every []float32 of a batch that has one element per token.
const Any = "any"

// Entries returns the catalogue, in the order of reports.
func Entries() []*Entry { return slices.Clone(table) }

// Find returns the entry that has the name, or the synonym.
func Find(name string) (*Entry, error) {
	name = underscored(name)
	for _, e := range table {
		if slices.Contains(e.names(), name) {
			return e, nil
		}
	}
	return nil, unknown(name)
}

// names returns the names that Find finds the entry by.
func (e *Entry) names() []string { return append([]string{e.Name}, e.Synonyms...) }

// Defaults returns the options of the papers, with those of the entry's loss if it is one.
func (e *Entry) Defaults() Options {
	opt := defaults()
	if e.loss != nil {
		opt.Loss = *e.loss
	}
	return opt
}

// Part returns the entry's part of the options, a pointer to a struct of package reweight;
// nil if it has none.
func (e *Entry) Part(opt *Options) any {
	if e.options == nil {
		return nil
	}
	return e.options(opt)
}

// Compute sets dst to what the entry makes of the batch: an element per token or, for
// penalties, per trajectory. Of a loss that is the gradient, with weights of 1. An entry
// that stands for several computes nothing, and is an error. The other errors are those
// of its Method, about the first thing in the batch or the options that is wrong.
func (e *Entry) Compute(ws *reweight.Workspace, dst []float32, b *reweight.Batch, opt Options) error {
	if e.call == nil {
		return fmt.Errorf("%s stands for %s: compute these", e.Name, strings.Join(e.Of, " and "))
	}
	return e.call(ws, dst, b, &opt)
}

// Exact returns what Compute makes, in float64, by package reference. The batch and the
// options are those that Compute accepts, and the entry is not one that stands for several:
// with others it panics, or returns anything.
func (e *Entry) Exact(b *reweight.Batch, opt Options) []float64 { return e.reference(Widen(b), &opt) }

// Lacks returns the names of the arrays that the entry reads and the batch does not have,
// "a or b" where either of two would do.
func (e *Entry) Lacks(b *reweight.Batch, opt Options) []string { return lacks(b, e.needs(&opt)) }

// needs returns the names of the arrays that the entry reads.
func (e *Entry) needs(opt *Options) []string {
	if e.reads != nil {
		return e.reads(opt)
	}
	return e.Reads
}

// lacks returns those of the needs that the batch does not have.
func lacks(b *reweight.Batch, needs []string) (missing []string) {
	for _, need := range needs {
		if one, other, either := strings.Cut(need, "|"); !has(b, one) && !(either && has(b, other)) {
			missing = append(missing, strings.ReplaceAll(need, "|", " or "))
		}
	}
	return missing
}

func has(b *reweight.Batch, name string) bool {
	for _, a := range b.Arrays() {
		if a.Name == name {
			return a.Len() > 0
		}
	}
	return false
}

// A Scheme says how a step gives credit to tokens. Its Options may be changed before
// NewStep.
type Scheme struct {
	Name    string // as reports have it: names of the catalogue with + between them
	Options Options

	named   []*Entry // what was asked for
	entries []*Entry // what that stands for, none of it Several, in the order of Kind
}

// All returns every scheme that can be compared with others, and ActFocus with AEM. It
// leaves out entries that are a part of others only.
func All() []Scheme {
	var all []Scheme
	for _, e := range table {
		if !e.part {
			all = append(all, MustParse(e.Name))
			if e.Name == "aem" {
				all = append(all, MustParse("actfocus+aem"))
			}
		}
	}
	return all
}

// MustParse is Parse for names that are known to be right. It panics if they are not.
func MustParse(names string) Scheme {
	s, err := Parse(names)
	if err != nil {
		panic("scheme: " + err.Error())
	}
	return s
}

// Parse returns the scheme of the names, of the catalogue or of a trainer, with + between
// them: "actfocus+aem", "rloo+tis+cispo". An error begins with the names in quotes, and
// says which of them cannot stand together and why, or which name is the nearest to one
// that there is not.
func Parse(names string) (Scheme, error) {
	s := Scheme{Options: defaults()}
	for rest := underscored(names); ; {
		e, n := longest(rest)
		if e == nil {
			name, _, _ := strings.Cut(rest, "+")
			return Scheme{}, fmt.Errorf("%q: %w", names, unknown(cmp.Or(name, rest)))
		}
		if err := s.join(e); err != nil {
			return Scheme{}, fmt.Errorf("%q: %w", names, err)
		}
		if rest = rest[n:]; rest == "" {
			break
		}
		rest = rest[1:]
	}
	if e := s.entry("kl_rewards"); e != nil && !s.readsTokenRewards() {
		return Scheme{}, fmt.Errorf("%q: kl_rewards makes rewards of tokens, which no advantages here read: join reinforce++ or gae", names)
	}
	slices.SortFunc(s.named, inOrder)
	slices.SortFunc(s.entries, func(a, b *Entry) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), inOrder(a, b)) })
	if len(s.named) > 1 && s.named[0].Name == "uniform" { // which the others change
		s.named = s.named[1:]
	}
	var all []string
	for _, e := range s.named {
		all = append(all, e.Name)
	}
	s.Name = strings.Join(all, "+")
	return s, nil
}

// underscored returns a name with underscores, where verl has hyphens.
func underscored(name string) string { return strings.ReplaceAll(name, "-", "_") }

func inOrder(a, b *Entry) int { return slices.Index(table, a) - slices.Index(table, b) }

// longest returns the entry with the longest name or synonym that the text begins with,
// and that a + or the end follows, and the length of the name. Names can have a + in them.
func longest(text string) (found *Entry, n int) {
	for _, e := range table {
		for _, name := range e.names() {
			rest, ok := strings.CutPrefix(text, name)
			if ok && len(name) > n && (rest == "" || rest[0] == '+' && len(rest) > 1) {
				found, n = e, len(name)
			}
		}
	}
	return found, n
}

// join adds an entry. Weights multiply, and so do factors, but the advantages, the loss,
// the correction of the rollout and the critic are from one place each.
func (s *Scheme) join(e *Entry) error {
	for _, other := range s.named {
		if other == e {
			return fmt.Errorf("%s stands there twice", e.Name)
		}
		for _, a := range other.parts() {
			for _, b := range e.parts() {
				if why := conflict(a, b); why != "" {
					return fmt.Errorf("%s and %s %s%s", other.Name, e.Name, why, hint(other, e))
				}
			}
		}
	}
	s.named = append(s.named, e)
	for _, p := range e.parts() {
		s.entries = append(s.entries, p)
		if p.loss != nil {
			s.Options.Loss = *p.loss
		}
	}
	return nil
}

// parts returns what the entry stands for, itself if that is not several.
func (e *Entry) parts() []*Entry {
	if e.Kind != Several {
		return []*Entry{e}
	}
	var all []*Entry
	for _, name := range e.Of {
		p, err := Find(name)
		if err != nil {
			panic(err) // of the table
		}
		all = append(all, p)
	}
	return all
}

// conflict says why two entries cannot be in one step.
func conflict(a, b *Entry) string {
	switch {
	case a == b && a.Kind != Loss:
		return "both have " + a.Name
	case a.One != "" && a.One == b.One:
		return a.One
	case a.Without[b.Kind] != "":
		return "cannot stand together: " + a.Without[b.Kind]
	case b.Without[a.Kind] != "":
		return "cannot stand together: " + b.Without[a.Kind]
	}
	return ""
}

// Why a step has one entry of a sort.
const (
	oneLoss  = "both are a loss, and a step has one"
	oneMaker = "both make the advantages, and a step has them from one"
	oneRatio = "both are the ratio to the engine, which would count twice"
)

// init sets what follows from the rest of the entries.
func init() {
	for _, e := range table {
		switch {
		case e.Kind == Loss:
			e.One = oneLoss
		case e.makesAdvantages():
			e.One = oneMaker
		}
		switch {
		case e.loss != nil && e.loss.Policy.Traits().Unweighted:
			e.Without = map[Kind]string{Factor: e.Name + " has no factors of tokens",
				Weight: e.Name + " has no weights of tokens"}
		case slices.Contains(e.Reads, "reward_parts"):
			e.Without = map[Kind]string{Reward: "the advantages are made from the parts of the reward, to which nothing is added"}
		}
	}
}

// makesAdvantages reports whether the entry makes advantages, and not from others.
func (e *Entry) makesAdvantages() bool {
	return e.Kind == Advantage && !slices.Contains(e.Reads, "advantages")
}

// hint says how to have the advantages of one with the loss of the other.
func hint(a, b *Entry) string {
	advantages := map[string]string{
		"grpo":    ": %s alone has the advantages of GRPO",
		"dr_grpo": ": %s+group_mean has the advantages of Dr. GRPO",
		"gpg":     ": %s+gpg_advantages has the advantages of GPG",
	}
	for _, pair := range [...][2]*Entry{{a, b}, {b, a}} {
		several, other := pair[0].Name, pair[1]
		if several == "gpg" && other.makesAdvantages() {
			return fmt.Sprintf(": %s+pg has the loss of GPG", other.Name)
		}
		if text := advantages[several]; text != "" && other.Kind == Loss {
			return fmt.Sprintf(text, other.Name)
		}
	}
	return ""
}

// unknown is the error about a name that no entry has.
func unknown(name string) error {
	if slices.Contains(leftOut[:], name) {
		return fmt.Errorf("%s is verl's, and not here: docs/schemes.md lists what is left out", name)
	}
	nearest, least := "", 3 // one letter more or less, or two that have changed places
	var all []string
	for _, e := range table {
		all = append(all, e.Name)
		for _, candidate := range e.names() {
			if d := distance(name, candidate); d < least && d < len(candidate)/2 {
				nearest, least = candidate, d
			}
		}
	}
	if nearest != "" {
		return fmt.Errorf("no scheme has the name %q; the nearest is %q", name, nearest)
	}
	return fmt.Errorf("no scheme has the name %q; there are %s", name, strings.Join(all, ", "))
}

// distance returns how many letters have to be added, left out or changed to make one
// name of the other.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			d := diagonal
			if a[i] != b[j] {
				d = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], d
		}
	}
	return row[len(b)]
}

// Has reports whether the scheme has the entry of that name: by name, or as a part of
// another one.
func (s Scheme) Has(name string) bool {
	return s.entry(name) != nil || slices.ContainsFunc(s.named, func(e *Entry) bool { return e.Name == name })
}

// entry returns the one of that name, or nil.
func (s Scheme) entry(name string) *Entry {
	for _, e := range s.entries {
		if e.Name == name {
			return e
		}
	}
	return nil
}

// Entries returns what a step of the scheme computes, in that order. What the scheme does
// not name, the advantages of GRPO and the loss of uniform, is not among them.
func (s Scheme) Entries() []*Entry { return slices.Clone(s.entries) }

// maker returns the entry that makes the advantages; nil stands for those of GRPO or of
// the batch.
func (s Scheme) maker() *Entry {
	for _, e := range s.entries {
		if e.makesAdvantages() {
			return e
		}
	}
	return nil
}

// OwnAdvantages reports whether the scheme makes advantages in place of those of GRPO.
func (s Scheme) OwnAdvantages() bool { return s.maker() != nil }

// SingleEntropies reports whether the scheme reads the entropy of single tokens, and not
// its mean over some only.
func (s Scheme) SingleEntropies() bool {
	return slices.ContainsFunc(s.entries, func(e *Entry) bool { return e.SingleEntropies })
}

func (s Scheme) readsTokenRewards() bool {
	return slices.ContainsFunc(s.entries, func(e *Entry) bool { return slices.Contains(e.Reads, tokenRewards) })
}

// needs returns the names of the arrays that the parts of a step read; "a|b" is either of
// two.
func (s Scheme) needs() []string {
	all := append([]string{"role"}, lossReads(&s.Options.Loss)...)
	for _, e := range s.entries {
		if e.Kind != Loss {
			all = append(all, e.needs(&s.Options)...)
		}
	}
	if !s.OwnAdvantages() {
		all = append(all, "rewards|advantages")
	}
	switch {
	case !s.hasKind(Reward):
	case s.readsTokenRewards():
		all = append(all, tokenRewards)
	default:
		all = append(all, "rewards") // that a penalty is added to
	}
	return all
}

// makes reports whether a step makes the array itself.
func (s Scheme) makes(name string) bool {
	return name == "advantages" || name == "returns" && s.entry("gae") != nil
}

func (s Scheme) hasKind(k Kind) bool {
	return slices.ContainsFunc(s.entries, func(e *Entry) bool { return e.Kind == k })
}

// Reads returns the names of all arrays that a step of the scheme can read, as
// Batch.Arrays has them.
func (s Scheme) Reads() []string {
	var all []string
	for _, need := range s.needs() {
		if !s.makes(need) {
			all = append(all, strings.Split(need, "|")...)
		}
	}
	if !s.OwnAdvantages() {
		all = append(all, outcome...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// A LacksError says what a step of a scheme needs and the batch does not have.
type LacksError struct {
	Scheme string
	Needs  []string // names of arrays, "rewards or advantages", and the option Delta
}

// Error returns "gigpo needs anchors and span_rewards".
func (e *LacksError) Error() string {
	last := len(e.Needs) - 1
	if last == 0 {
		return e.Scheme + " needs " + e.Needs[0]
	}
	return fmt.Sprintf("%s needs %s and %s", e.Scheme, strings.Join(e.Needs[:last], ", "), e.Needs[last])
}

// check returns a *LacksError if something is missing, or a *reweight.InputError.
func (s Scheme) check(b *reweight.Batch) error {
	needs := s.needs()
	if !s.OwnAdvantages() && has(b, "rewards") {
		needs = append(needs, outcome...)
	}
	missing := lacks(b, needs)
	slices.Sort(missing)
	missing = slices.DeleteFunc(slices.Compact(missing), s.makes)
	if delta := s.Options.OffPolicyMask.Delta; delta != delta && s.entry("off_policy_mask") != nil {
		missing = append(missing, "Options.OffPolicyMask.Delta, which has no default")
	}
	if s.Options.Loss.Policy == (reweight.DRO{}) {
		missing = append(missing, "Options.Loss.Policy.Beta, which has no default")
	}
	if len(missing) > 0 {
		return &LacksError{s.Name, missing}
	}
	// Parse has looked at the loss of the names; this one may be another.
	if policy := s.Options.Loss.Policy; traitsOf(policy).Unweighted && s.hasKind(Factor) {
		return &reweight.InputError{Arg: "Options.Loss.Policy", Index: -1,
			Problem: fmt.Sprintf("is %v, want one with factors of tokens, which %s has", policy, s.Name)}
	}
	for _, a := range [...]struct {
		field   string
		n, want int
		per     string
		reads   bool // the step itself; others check what they read
	}{
		{"Advantages", len(b.Advantages), b.Tokens(), "token", !s.OwnAdvantages() && len(b.Rewards) == 0},
		{"TokenRewards", len(b.TokenRewards), b.Tokens(), "token", s.readsTokenRewards()},
		{"Rewards", len(b.Rewards), b.Trajectories(), "trajectory", s.hasKind(Reward)},
	} {
		if a.reads && a.n != 0 && a.n != a.want {
			return &reweight.InputError{Arg: a.field, Index: -1, Problem: problem.Length.Says(a.n, a.want, a.per)}
		}
	}
	return nil
}
