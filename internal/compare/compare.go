// Package compare compares schemes on a batch of rollouts: the loss, the gradient and the
// credit of tokens under each.
package compare

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/diagnose"
	"github.com/seed621a2839/reweight/internal/cli"
	"github.com/seed621a2839/reweight/internal/found"
	"github.com/seed621a2839/reweight/internal/printable"
	"github.com/seed621a2839/reweight/rollout"
	"github.com/seed621a2839/reweight/scheme"
)

// A Comparison describes a batch of rollouts, and its loss under several schemes.
type Comparison struct {
	File   string   `json:"file,omitempty"`  // if there is one
	Files  []string `json:"files,omitempty"` // if there are several
	Tokens struct {
		Total        int `json:"total"`
		Reasoning    int `json:"reasoning"`
		Action       int `json:"action"`
		Spans        int `json:"spans"`
		Trajectories int `json:"trajectories"`
		Groups       int `json:"groups"`
	} `json:"tokens"`

	// GivenAdvantages says that the batch has no rewards, and its own advantages take
	// the place of those of GRPO.
	GivenAdvantages bool           `json:"given_advantages,omitempty"`
	Derived         []found.Origin `json:"derived,omitempty"`   // arrays of the batch that were derived without a loss
	Estimates       []found.Origin `json:"estimates,omitempty"` // arrays of the batch that are estimates
	Warnings        []string       `json:"warnings,omitempty"`  // whole sentences

	Credit  string    `json:"credit"` // what it is
	KL      *KL       `json:"kl,omitempty"`
	Schemes []Scheme  `json:"schemes"`
	LeftOut []LeftOut `json:"left_out,omitempty"`
	Rollout Rollout   `json:"rollout"`

	// Bottleneck is the rank correlation of a group's reward variance with its mean
	// energy, over tokens of these roles; null without rewards or ref_energy. The two
	// other forms of diagnose.Bottleneck are null without span_ids, too.
	Bottleneck struct {
		roleNumbers
		FirstTurn  roleNumbers `json:"first_turn"`
		GivenTurns roleNumbers `json:"given_turns"`
	} `json:"bottleneck_spearman"`

	bottleneck *diagnose.BottleneckResult
	role       []reweight.Role
	last       *scheme.Step // of the last scheme; nil if that is left out

	// Schemes of the table whose loss has no clip, sums over tokens, has the log-probability in it.
	unclipped, sums, valueless []string
	idle                       bool // dapo did nothing
}

// Credit says what the credit of a token is.
const Credit = "The credit of a token is -dL/dlogprob: above 0, the step raises its log-probability."

// A KL is what the loss of every scheme has in it of the divergence from the reference.
type KL struct {
	Form reweight.KLForm `json:"form"`
	Coef float64         `json:"coef"`
}

// A Scheme has the figures of one scheme. Credit is that of response tokens.
type Scheme struct {
	Scheme          string       `json:"scheme"`
	Loss            bench.Number `json:"loss"`
	GradL2          bench.Number `json:"grad_l2"`
	GradL2Action    bench.Number `json:"grad_l2_action"`
	GradL2Reasoning bench.Number `json:"grad_l2_reasoning"`
	ActionShare     bench.Number `json:"action_credit_share"` // of the sum of |credit|; null if that is 0
	ClipFraction    bench.Number `json:"clip_fraction"`
	EffectiveTokens bench.Number `json:"effective_tokens"` // (sum |credit|)^2 / sum credit^2; null if all credit is 0
	// Drift is of the scheme's advantages; null without entropy or span_ids.
	Drift    bench.Number `json:"entropy_drift"`
	Spearman bench.Number `json:"spearman_uniform"` // rank correlation of the credit with that of uniform
}

// A LeftOut is a scheme that cannot be computed, and why, in words.
type LeftOut struct {
	Scheme string `json:"scheme"`
	Reason string `json:"reason"`
}

// A Rollout is one trajectory of the batch, token by token.
type Rollout struct {
	Trajectory int             `json:"trajectory"`
	Title      string          `json:"title"`
	Texts      []string        `json:"texts"`
	Role       []reweight.Role `json:"-"`
	Roles      []string        `json:"roles"`
	Spans      []int32         `json:"-"`
	Credit     []RolloutCredit `json:"credit"`
}

// A RolloutCredit is the credit of each token of a rollout under a scheme.
type RolloutCredit struct {
	Scheme string    `json:"scheme"`
	Credit []float64 `json:"credit"`
}

// Options say what Compare is to do besides.
type Options struct {
	LeaveOut bool // schemes that cannot be computed are left out; otherwise they are an error
	// LeaveLacking: of them those that the batch lacks an array for.
	LeaveLacking bool
	Trajectory   int    // that is shown token by token
	TooWide      string // what schemes that read the entropy need, "needs ...", if it is not good enough for them
}

// A Comparer is Schemes, except in tests.
type Comparer func(b *reweight.Batch, picked []scheme.Scheme, uniform scheme.Scheme, opt Options) (*Comparison, error)

// Schemes computes the schemes on a batch with the library's kernels, in this goroutine
// alone, and compares them with uniform. A scheme that the batch lacks something for, or
// whose loss or gradient is not finite, cannot be computed.
func Schemes(b *reweight.Batch, picked []scheme.Scheme, uniform scheme.Scheme, opt Options) (*Comparison, error) {
	c := &Comparison{Credit: Credit, role: b.Role}
	c.count(b)
	if loss := uniform.Options.Loss; loss.KLCoef != 0 {
		c.KL = &KL{loss.KL, loss.KLCoef}
	}
	trajectory := opt.Trajectory
	c.Rollout.Trajectory = trajectory
	from, to := b.SeqOffsets[trajectory], b.SeqOffsets[trajectory+1]
	for _, role := range b.Role[from:to] {
		c.Rollout.Roles = append(c.Rollout.Roles, role.String())
	}
	c.Rollout.Role = append(c.Rollout.Role, b.Role[from:to]...)
	if len(b.SpanIDs) > 0 {
		c.Rollout.Spans = append(c.Rollout.Spans, b.SpanIDs[from:to]...)
	}

	ws := reweight.Workspace{Workers: 1} // the batch may be a mapped file
	first, err := newCredit(&ws, b, uniform)
	if err != nil {
		return nil, err
	}
	if first.advantages == 0 && c.Tokens.Reasoning+c.Tokens.Action > 0 { // else the source warns
		why := ""
		if !c.GivenAdvantages {
			why = ", because the rewards within each group are equal"
		}
		c.Warnings = append(c.Warnings,
			"All advantages of uniform are 0"+why+": so is its credit, which others are compared with.")
	}
	var lacks lackingError
	for _, s := range picked {
		k, err := newCredit(&ws, b, s)
		if err == nil && opt.TooWide != "" && slices.Contains(s.Reads(), "entropy") {
			err = fmt.Errorf("%s %s", s.Name, opt.TooWide)
		}
		if err == nil {
			err = k.checkFinite(s.Name)
		}
		if c.last = nil; err != nil {
			if _, ok := errors.AsType[*scheme.LacksError](err); !ok && !opt.LeaveOut {
				return nil, err
			} else if ok && !opt.LeaveOut && !opt.LeaveLacking {
				lacks = append(lacks, err)
				continue
			}
			reason := strings.TrimPrefix(rollout.InFile(err).Error(), s.Name)
			c.LeftOut = append(c.LeftOut, LeftOut{s.Name, strings.TrimLeft(reason, ": ")})
			continue
		}
		c.last = k.step
		figures, err := k.figures(first)
		if err != nil {
			return nil, err
		}
		figures.Scheme = s.Name
		c.idle = c.idle || s.Name == "dapo" && slices.Equal(k.of, first.of)
		traits := k.step.Loss().Policy.Traits()
		if !traits.Clips {
			c.unclipped = append(c.unclipped, s.Name)
		}
		if traits.Valueless {
			c.valueless = append(c.valueless, s.Name)
		}
		switch k.step.Loss().Aggregation {
		case reweight.SeqMeanTokenSum, reweight.SeqMeanTokenSumNorm:
			c.sums = append(c.sums, s.Name)
		}
		c.Schemes = append(c.Schemes, figures)
		c.Rollout.Credit = append(c.Rollout.Credit, RolloutCredit{s.Name, k.of[from:to]})
	}
	if lacks != nil {
		return nil, lacks
	}
	c.findBottleneck(b)
	return c, nil
}

// A lackingError says what a batch lacks for each of several schemes.
type lackingError []error

func (e lackingError) Error() string {
	var all []string
	for _, err := range e {
		all = append(all, err.Error())
	}
	return strings.Join(all, "; ")
}

func (e lackingError) Unwrap() []error { return e }

// count fills in what there is in a batch.
func (c *Comparison) count(b *reweight.Batch) {
	c.GivenAdvantages = b.Rewards == nil
	n := &c.Tokens
	n.Total, n.Trajectories = b.Tokens(), b.Trajectories()
	for _, r := range b.Role {
		switch r {
		case reweight.RoleReasoning:
			n.Reasoning++
		case reweight.RoleAction:
			n.Action++
		}
	}
	for _, id := range b.SpanIDs {
		n.Spans = max(n.Spans, int(id)+1)
	}
	groups := slices.Clone(b.GroupIDs)
	slices.Sort(groups)
	n.Groups = len(slices.Compact(groups))
}

// A roleNumbers is a number for all response tokens, for reasoning and for action tokens.
type roleNumbers struct {
	All       bench.Number `json:"all"`
	Reasoning bench.Number `json:"reasoning"`
	Action    bench.Number `json:"action"`
}

// numbersOf returns the coefficients; NaN stands for those of nil.
func numbersOf(r *diagnose.RoleCorrelations) roleNumbers {
	if r == nil {
		none := bench.Number(math.NaN())
		return roleNumbers{none, none, none}
	}
	return roleNumbers{bench.Number(r.All.Rho), bench.Number(r.Reasoning.Rho), bench.Number(r.Action.Rho)}
}

// findBottleneck fills in the action bottleneck, if the batch has what it takes.
func (c *Comparison) findBottleneck(b *reweight.Batch) {
	of := &c.Bottleneck
	of.roleNumbers, of.FirstTurn, of.GivenTurns = numbersOf(nil), numbersOf(nil), numbersOf(nil)
	if rollout.Require(b, "ref_energy", "rewards", "group_ids") != nil {
		return
	}
	r, err := diagnose.Bottleneck(b)
	if err != nil {
		return // an energy is not finite, which a scheme that reads it says
	}
	of.roleNumbers, of.FirstTurn, of.GivenTurns = numbersOf(&r.RoleCorrelations), numbersOf(&r.FirstTurn),
		numbersOf(&r.GivenTurns)
	c.bottleneck = &r
}

// Tensors returns the weights, advantages and gradients of the last scheme. It is an error
// if that was left out.
func (c *Comparison) Tensors() ([]rollout.Tensor, error) {
	if c.last == nil {
		left := c.LeftOut[len(c.LeftOut)-1]
		return nil, fmt.Errorf("%s, the last scheme, %s", left.Scheme, left.Reason)
	}
	weights := c.last.Weights
	if weights == nil {
		weights = make([]float32, len(c.role))
		for t, role := range c.role {
			if role != reweight.RoleMasked {
				weights[t] = 1
			}
		}
	}
	shape := []int64{int64(len(weights))}
	return []rollout.Tensor{
		{Name: "weights", Shape: shape, Data: weights},
		{Name: "advantages", Shape: shape, Data: c.last.Advantages},
		{Name: "grad_logprobs", Shape: shape, Data: c.last.Grad},
	}, nil
}

// A credit is what a step gives to each token, 0 to masked ones.
type credit struct {
	of         []float64
	role       []reweight.Role
	res        reweight.LossResult
	step       *scheme.Step
	drift      float64
	advantages int // that are not 0
}

func newCredit(ws *reweight.Workspace, b *reweight.Batch, s scheme.Scheme) (*credit, error) {
	step, err := s.NewStep(ws, b)
	if lacks, ok := errors.AsType[*scheme.LacksError](err); ok {
		for i, need := range lacks.Needs {
			lacks.Needs[i] = strings.NewReplacer("Options.OffPolicyMask.Delta", "-delta", "Options.Loss.Policy.Beta",
				"-dro-beta").Replace(need)
		}
	}
	if err != nil {
		return nil, err
	}
	res, err := step.Run()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Name, err)
	}
	k := &credit{of: make([]float64, len(step.Grad)), role: b.Role, res: res, step: step, drift: math.NaN()}
	for t, g := range step.Grad {
		if k.of[t] = -float64(g); g == 0 {
			k.of[t] = 0 // not -0
		}
		if step.Advantages[t] != 0 {
			k.advantages++
		}
	}
	if rollout.Require(b, "entropy", "span_ids") == nil {
		one := *b
		one.Advantages = step.Advantages
		k.drift, err = diagnose.EntropyDrift(&one)
	}
	return k, err
}

// checkFinite wants a finite loss and finite credit: numbers of a file that are finite can
// be too large for float32 in a scheme.
func (k *credit) checkFinite(name string) error {
	if l := k.res.Loss; l-l != 0 {
		return fmt.Errorf("%s: the loss is not finite", name)
	}
	if slices.ContainsFunc(k.of, func(c float64) bool { return c-c != 0 }) {
		return fmt.Errorf("%s: the gradient is not finite", name)
	}
	return nil
}

// figures returns those of the credit, compared with that of uniform training.
func (k *credit) figures(uniform *credit) (Scheme, error) {
	var sum, squares [reweight.RoleAction + 1]float64
	var own, others []float64
	for t, role := range k.role {
		c := k.of[t]
		sum[role] += math.Abs(c)
		squares[role] += float64(c * c)
		if role != reweight.RoleMasked {
			own, others = append(own, c), append(others, uniform.of[t])
		}
	}
	rank, err := diagnose.Spearman(own, others)
	mass := sum[reweight.RoleReasoning] + sum[reweight.RoleAction]
	square := squares[reweight.RoleReasoning] + squares[reweight.RoleAction]
	return Scheme{
		Loss: bench.Number(k.res.Loss), GradL2: bench.Number(math.Sqrt(square)),
		GradL2Action:    bench.Number(math.Sqrt(squares[reweight.RoleAction])),
		GradL2Reasoning: bench.Number(math.Sqrt(squares[reweight.RoleReasoning])),
		ActionShare:     bench.Number(sum[reweight.RoleAction] / mass),
		ClipFraction:    bench.Number(k.res.ClipFraction), EffectiveTokens: bench.Number(mass * mass / square),
		Drift: bench.Number(k.drift), Spearman: bench.Number(rank.Rho),
	}, err
}

// Header names the columns of Rows.
var Header = []string{"scheme", "loss", "gradient l2", "of action", "of reasoning", "clipped", "action tokens' credit",
	"effective tokens", "entropy drift", "rank correlation"}

// Rows returns the figures of the schemes as cells for people: the first is text.
func (c *Comparison) Rows() (rows [][]string) {
	cell := func(format string, x bench.Number) string {
		if math.IsNaN(float64(x)) {
			return "-"
		}
		return fmt.Sprintf(format, float64(x))
	}
	percent := func(x bench.Number) string { return cell("%.1f%%", 100*x) }
	for _, s := range c.Schemes {
		rows = append(rows, []string{
			s.Scheme, cell("%.6f", s.Loss), cell("%.6f", s.GradL2), cell("%.6f", s.GradL2Action), cell("%.6f", s.GradL2Reasoning), percent(s.ClipFraction),
			percent(s.ActionShare), cell("%.0f", s.EffectiveTokens), cell("%+.6f", s.Drift), cell("%+.3f", s.Spearman),
		})
	}
	return rows
}

// Notes say how the table is to be read, and what is not in it, in lines for people.
func (c *Comparison) Notes() []string {
	notes := []string{
		Credit,
		"Gradient norms are over all response tokens, over actions and over reasoning.",
		"Clipped is the share of response tokens whose clip was active.",
		"Action tokens' credit is their share of the sum of |credit|.",
		fmt.Sprintf("Effective tokens are (sum |credit|)^2 / sum credit^2; there are %s response tokens.", humanize.Comma(int64(c.Tokens.Reasoning+c.Tokens.Action))),
		"The entropy drift is the change by the scheme's advantages, before weights and clips.",
		"It is in nats, and above 0 where the entropy rises.",
		"The rank correlation is Spearman's, between a token's credit and its credit under uniform.",
		"The uniform scheme in this comparison uses your flags as well.",
	}
	if c.KL != nil {
		notes = append(notes, fmt.Sprintf("Every loss, and with it the credit, has %v times the KL from the reference in it, in the form %v.", c.KL.Coef, c.KL.Form))
	}
	some := func(format string, names []string) {
		if len(names) > 0 {
			notes = append(notes, fmt.Sprintf(format, strings.Join(names, ", ")))
		}
	}
	some("Losses without a clip, so that clipped is 0: %s.", c.unclipped)
	some("Losses that sum over tokens, so that their gradients do not compare with the others: %s.", c.sums)
	some("Losses whose value means nothing, only their gradient does: %s.", c.valueless)
	if c.idle {
		notes = append(notes, "dapo is uniform here: its penalty and its filter change the credit of no token.")
	}
	if c.bottleneck != nil {
		rank := func(c diagnose.Correlation) string {
			if math.IsNaN(c.Rho) {
				return "undefined"
			}
			return fmt.Sprintf("%+.3f (p %s)", c.Rho, cli.Small(c.P))
		}
		form := func(name string, r diagnose.RoleCorrelations) {
			notes = append(notes, name, fmt.Sprintf("all tokens %s, reasoning %s, action %s.", rank(r.All),
				rank(r.Reasoning), rank(r.Action)))
		}
		form("Action bottleneck, the rank correlation of a group's reward variance with its mean energy:", c.bottleneck.RoleCorrelations)
		if first := c.bottleneck.FirstTurn; first.All.Rho == first.All.Rho {
			form("Longer episodes see other states, which alone can change this correlation. On first turns alone:", first)
			form("Given the number of turns:", c.bottleneck.GivenTurns)
		}
	}
	var reasons []string
	left := map[string][]string{} // the schemes, by reason
	for _, l := range c.LeftOut {
		if left[l.Reason] == nil {
			reasons = append(reasons, l.Reason)
		}
		left[l.Reason] = append(left[l.Reason], l.Scheme)
	}
	for _, reason := range reasons {
		notes = append(notes, "Left out: "+strings.Join(left[reason], ", ")+": "+reason)
	}
	return notes
}

// Write prints the comparison for people: tables of at most 100 columns.
func (c *Comparison) Write(w io.Writer) error {
	n := func(i int) string { return humanize.Comma(int64(i)) }
	fmt.Fprintf(w, "%s tokens: %s reasoning, %s action, %s masked\n%s responses in %s trajectories of %s\n\n",
		n(c.Tokens.Total), n(c.Tokens.Reasoning), n(c.Tokens.Action),
		n(c.Tokens.Total-c.Tokens.Reasoning-c.Tokens.Action),
		n(c.Tokens.Spans), n(c.Tokens.Trajectories), cli.Counted(c.Tokens.Groups, "group"))
	if c.GivenAdvantages {
		fmt.Fprint(w, "There are no rewards: the advantages come from the input, and not from GRPO.\n\n")
	}
	for _, o := range slices.Concat(c.Derived, c.Estimates) {
		fmt.Fprintf(w, "%s is %s.\n", o.Name, printable.Line(o.String()))
	}
	if len(c.Derived)+len(c.Estimates) > 0 {
		fmt.Fprintln(w)
	}
	if err := c.WriteTables(w); err != nil {
		return err
	}
	if len(c.Warnings) > 0 {
		fmt.Fprintln(w)
	}
	for _, warning := range c.Warnings {
		cli.Warning(w, "Warning: "+printable.Line(warning))
	}
	fmt.Fprintln(w)
	for _, note := range c.Notes() {
		if _, err := fmt.Fprintln(w, printable.Line(note)); err != nil {
			return err
		}
	}
	return nil
}

// WriteTables prints the figures alone.
func (c *Comparison) WriteTables(w io.Writer) error {
	rows := c.Rows()
	for i, columns := range [...][]int{{0, 1, 2, 3, 4, 5}, {0, 6, 7, 8, 9}} {
		if i > 0 {
			fmt.Fprintln(w)
		}
		pick := func(row []string) (some []string) {
			for _, k := range columns {
				some = append(some, row[k])
			}
			return some
		}
		some := make([][]string, len(rows))
		for k, row := range rows {
			some[k] = pick(row)
		}
		if err := cli.WriteTable(w, 1, pick(Header), some); err != nil {
			return err
		}
	}
	return nil
}
