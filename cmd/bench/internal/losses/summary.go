package losses

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/cmd/bench/internal/cli"
	"github.com/seed621a2839/reweight/internal/printable"
	"github.com/seed621a2839/reweight/reference"
	"github.com/seed621a2839/reweight/rollout"
)

// About says what a batch of rollouts is.
type About struct {
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
	GivenAdvantages bool         `json:"given_advantages,omitempty"`
	Derived         []cli.Origin `json:"derived,omitempty"`   // arrays of the batch that were derived without a loss
	Estimates       []cli.Origin `json:"estimates,omitempty"` // arrays of the batch that are estimates
	Warnings        []string     `json:"warnings,omitempty"`  // whole sentences
}

// A Summary describes a batch of rollouts and its uniform and reweighted losses.
type Summary struct {
	About

	Uniform     Figures `json:"uniform"`
	ActFocus    Figures `json:"actfocus"`
	AEM         Figures `json:"aem"`
	ActFocusAEM Figures `json:"actfocus+aem"`
	Spearman    struct {
		All       bench.Number `json:"all"`
		Reasoning bench.Number `json:"reasoning"`
		Action    bench.Number `json:"action"`
	} `json:"bottleneck_spearman"`
	Drift bench.Number `json:"entropy_drift_mean"` // mean over spans, advantages before AEM

	bottleneck reference.BottleneckResult
	without    []string // arrays that the bottleneck is undefined without
	kernels    *Computed
	agreement  agreement
}

// Tensors returns the weights, advantages and gradients that the kernels computed
// for ActFocus with AEM.
func (s *Summary) Tensors() []rollout.Tensor {
	both := s.kernels.Steps[len(names)-1]
	shape := []int64{int64(len(both.Grad))}
	return []rollout.Tensor{
		{Name: "weights", Shape: shape, Data: both.Weights},
		{Name: "advantages", Shape: shape, Data: both.Advantages},
		{Name: "grad_logprobs", Shape: shape, Data: both.Grad},
	}
}

// Err returns a *cli.FailedCheck if the kernels do not agree with float64.
func (s *Summary) Err() error {
	if s.agreement.failure == "" {
		return nil
	}
	return &cli.FailedCheck{What: s.agreement.failure}
}

// losses returns the four ways to weigh tokens, in the order of names.
func (s *Summary) losses() [len(names)]*Figures {
	return [...]*Figures{&s.Uniform, &s.ActFocus, &s.AEM, &s.ActFocusAEM}
}

var names = [...]string{"uniform", "ActFocus", "AEM", "ActFocus+AEM"}

// Figures are those of one way to weigh tokens. The weight sum is over all tokens.
// The norms are those of the gradient with respect to the log-probabilities.
type Figures struct {
	Loss         bench.Number `json:"loss"`
	GradL1       bench.Number `json:"grad_l1"`
	GradL2       bench.Number `json:"grad_l2"`
	ClipFraction bench.Number `json:"clip_fraction"`
	WeightSum    bench.Number `json:"weight_sum"`
	ActionShare  bench.Number `json:"action_weight_share"`
}

// Summarise does the four steps on a batch, with the GRPO advantages of its
// rewards and groups, or if it has no rewards, with its own. Its figures are float64, and the results of compute, in
// float32, are compared with float64. Without RefEnergy, which not every signal
// needs, or without rewards the bottleneck is NaN.
func Summarise(b *reweight.Batch, opt Options, compute Library) (*Summary, error) {
	k, err := compute(b, opt) // first, because its errors name the array that is wrong
	if err != nil {
		return nil, err
	}
	s := &Summary{About: about(b), kernels: k}
	x, err := newExact(b, opt)
	if err != nil {
		return nil, err
	}
	advantages, err := x.advantages()
	if err != nil {
		return nil, err
	}
	scaled, err := x.scale(advantages, x.opt.AEM.Guard)
	if err != nil {
		return nil, err
	}
	weights, err := x.weights()
	if err != nil {
		return nil, err
	}
	uniform := reference.UniformWeights(x.role)
	for i, in := range [...]struct{ advantages, weights []float64 }{
		{advantages, uniform}, {advantages, weights}, {scaled, uniform}, {scaled, weights},
	} {
		loss, err := x.loss(in.advantages, in.weights, 0)
		if err != nil {
			return nil, err
		}
		sum, share, err := reference.WeightMass(x.role, in.weights)
		if err != nil {
			return nil, err
		}
		l1, l2 := 0.0, 0.0
		for _, g := range loss.Gradient {
			l1 += math.Abs(g)
			l2 += g * g
		}
		*s.losses()[i] = Figures{
			Loss: bench.Number(loss.Loss), GradL1: bench.Number(l1), GradL2: bench.Number(math.Sqrt(l2)),
			ClipFraction: bench.Number(loss.ClipFraction), WeightSum: bench.Number(sum), ActionShare: bench.Number(share),
		}
	}
	if s.agreement, err = x.compare(k, advantages, weights); err != nil {
		return nil, err
	}

	drift, err := reference.EntropyDrift(x.role, b.SpanIDs, advantages, x.old, x.entropy)
	if err != nil {
		return nil, err
	}
	for _, d := range drift {
		s.Drift += bench.Number(d / float64(len(drift)))
	}
	if b.RefEnergy == nil {
		s.without = append(s.without, "ref_energy")
	}
	if b.Rewards == nil {
		s.without = append(s.without, "rewards")
	}
	if len(s.without) > 0 {
		nan := reference.Correlation{Rho: math.NaN(), P: math.NaN()}
		s.bottleneck = reference.BottleneckResult{All: nan, Reasoning: nan, Action: nan}
	} else if s.bottleneck, err = reference.Bottleneck(x.role, b.SeqOffsets, b.GroupIDs, reference.Floats(b.Rewards), reference.Floats(b.RefEnergy)); err != nil {
		return nil, err
	}
	s.Spearman.All = bench.Number(s.bottleneck.All.Rho)
	s.Spearman.Reasoning = bench.Number(s.bottleneck.Reasoning.Rho)
	s.Spearman.Action = bench.Number(s.bottleneck.Action.Rho)

	switch zero := !slices.ContainsFunc(advantages, func(a float64) bool { return a != 0 }); {
	case s.Tokens.Reasoning+s.Tokens.Action == 0: // the source warns of that
	case zero && b.Rewards == nil:
		s.Warnings = append(s.Warnings, "All advantages are 0, so all losses are 0.")
	case zero:
		s.Warnings = append(s.Warnings, "All advantages are 0, because the rewards within each group are equal, so all losses are 0.")
	}
	return s, nil
}

// about counts what is in a batch.
func about(b *reweight.Batch) (a About) {
	a.GivenAdvantages = b.Rewards == nil
	a.Tokens.Total, a.Tokens.Trajectories = b.Tokens(), b.Trajectories()
	for _, r := range b.Role {
		switch r {
		case reweight.RoleReasoning:
			a.Tokens.Reasoning++
		case reweight.RoleAction:
			a.Tokens.Action++
		}
	}
	for _, id := range b.SpanIDs {
		a.Tokens.Spans = max(a.Tokens.Spans, int(id)+1)
	}
	groups := slices.Clone(b.GroupIDs)
	slices.Sort(groups)
	a.Tokens.Groups = len(slices.Compact(groups))
	return a
}

// write prints what the batch is for people.
func (a *About) write(w io.Writer) {
	n := func(i int) string { return humanize.Comma(int64(i)) }
	fmt.Fprintf(w, "%s tokens: %s reasoning, %s action, %s masked\n%s responses in %s trajectories of %s\n\n",
		n(a.Tokens.Total), n(a.Tokens.Reasoning), n(a.Tokens.Action), n(a.Tokens.Total-a.Tokens.Reasoning-a.Tokens.Action),
		n(a.Tokens.Spans), n(a.Tokens.Trajectories), cli.Counted(a.Tokens.Groups, "group"))
	if a.GivenAdvantages {
		fmt.Fprint(w, "There are no rewards: the advantages are those of the input, and not of GRPO.\n\n")
	}
	for _, o := range slices.Concat(a.Derived, a.Estimates) {
		fmt.Fprintf(w, "%s is %s.\n", o.Name, printable.Line(o.String()))
	}
	if len(a.Derived)+len(a.Estimates) > 0 {
		fmt.Fprintln(w)
	}
}

func (a *About) writeWarnings(w io.Writer) {
	if len(a.Warnings) > 0 {
		fmt.Fprintln(w)
	}
	for _, warning := range a.Warnings {
		cli.Warning(w, "Warning: "+printable.Line(warning))
	}
}

// Write prints the summary for people.
func (s *Summary) Write(w io.Writer) error {
	s.About.write(w)
	if err := s.WriteTable(w); err != nil {
		return err
	}
	c := func(c reference.Correlation) string {
		if math.IsNaN(c.Rho) {
			return "undefined"
		}
		return fmt.Sprintf("%+.3f (p %s)", c.Rho, cli.Small(c.P))
	}
	s.writeWarnings(w)
	why := ""
	if len(s.without) > 0 {
		why = " (the batch lacks " + strings.Join(s.without, " and ") + ")"
	}
	_, err := fmt.Fprintf(w, "\nAction bottleneck: Spearman correlation of a group's reward variance with its mean energy\n"+
		"all tokens %s, reasoning %s, action %s%s\nEntropy drift, mean over responses: %+.6f\n%s\n",
		c(s.bottleneck.All), c(s.bottleneck.Reasoning), c(s.bottleneck.Action), why, float64(s.Drift), s.agreement)
	return err
}

// WriteTable prints the four losses.
func (s *Summary) WriteTable(w io.Writer) error {
	var rows [][]string
	for i, q := range s.losses() {
		rows = append(rows, []string{
			names[i], fmt.Sprintf("%.6f", float64(q.Loss)), cli.Percent(float64(q.ActionShare)), cli.Percent(float64(q.ClipFraction)),
			fmt.Sprintf("%.6f", float64(q.GradL1)), fmt.Sprintf("%.6f", float64(q.GradL2)),
		})
	}
	return cli.WriteTable(w, 1, []string{"weights", "loss", "action tokens' weight", "clipped", "gradient l1", "gradient l2"}, rows)
}
