package main

import (
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/dustin/go-humanize"
	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/bench"
)

// options are those of all steps.
type options struct {
	actFocus reweight.ActFocusOptions
	aem      reweight.AEMOptions
	loss     reweight.LossOptions
	grpo     reweight.GRPOOptions
}

func defaultOptions() options {
	return options{reweight.DefaultActFocus, reweight.DefaultAEM, reweight.DefaultLoss, reweight.DefaultGRPO}
}

// A summary is what uniform and reweighted losses make of a batch of rollouts.
type summary struct {
	File   string `json:"file"`
	Tokens struct {
		Total        int `json:"total"`
		Reasoning    int `json:"reasoning"`
		Action       int `json:"action"`
		Spans        int `json:"spans"`
		Trajectories int `json:"trajectories"`
		Groups       int `json:"groups"`
	} `json:"tokens"`
	Uniform     lossSummary `json:"uniform"`
	ActFocus    lossSummary `json:"actfocus"`
	AEM         lossSummary `json:"aem"`
	ActFocusAEM lossSummary `json:"actfocus+aem"`
	Spearman    struct {
		All       bench.Number `json:"all"`
		Reasoning bench.Number `json:"reasoning"`
		Action    bench.Number `json:"action"`
	} `json:"bottleneck_spearman"`
	Drift bench.Number `json:"entropy_drift_mean"` // mean over spans, advantages before AEM

	bottleneck reweight.BottleneckResult
	// Of ActFocus with AEM, one element per token.
	weights, advantages, grad []float32
}

// A lossSummary is one way to weigh tokens. Sums are over all tokens, norms of
// the gradient by log-probabilities.
type lossSummary struct {
	Loss         bench.Number `json:"loss"`
	GradL1       bench.Number `json:"grad_l1"`
	GradL2       bench.Number `json:"grad_l2"`
	ClipFraction bench.Number `json:"clip_fraction"`
	WeightSum    bench.Number `json:"weight_sum"`
	ActionShare  bench.Number `json:"action_weight_share"`
}

// summarise does the four steps on a batch, with the GRPO advantages of its
// rewards and groups. refEntropy is the entropy of the reference, which a batch
// has no place for; SignalRefEntropy alone needs it. Without RefEnergy, which not
// every signal needs, the bottleneck is NaN.
func summarise(b *reweight.Batch, refEntropy []float32, opt options) (*summary, error) {
	var ws reweight.Workspace
	batch := *b // whose advantages are its own
	T := batch.Tokens()
	uniform, scaled, factors := make([]float32, T), make([]float32, T), make([]float32, T)
	if err := ws.GRPO(uniform, &batch, opt.grpo); err != nil {
		return nil, err
	}
	if err := ws.AEM(factors, &batch, opt.aem); err != nil {
		return nil, err
	}
	if err := ws.Multiply(scaled, uniform, factors); err != nil {
		return nil, err
	}
	s := &summary{weights: make([]float32, T), advantages: scaled, grad: make([]float32, T)}
	focus := batch
	if opt.actFocus.Signal == reweight.SignalRefEntropy {
		focus.RefEntropy = refEntropy
	}
	if _, err := ws.ActFocus(s.weights, &focus, opt.actFocus); err != nil {
		return nil, err
	}
	for _, step := range []struct {
		sum                 *lossSummary
		advantages, weights []float32
	}{
		{&s.Uniform, uniform, nil},
		{&s.ActFocus, uniform, s.weights},
		{&s.AEM, scaled, nil},
		{&s.ActFocusAEM, scaled, s.weights}, // last: its gradient stays
	} {
		batch.Advantages = step.advantages
		res, err := ws.Loss(s.grad, step.weights, &batch, opt.loss)
		if err != nil {
			return nil, err
		}
		share, err := reweight.WeightMass(step.weights, batch.Role)
		if err != nil {
			return nil, err
		}
		l1, l2 := 0.0, 0.0
		for _, g := range s.grad {
			l1 += math.Abs(float64(g))
			l2 += float64(g) * float64(g)
		}
		*step.sum = lossSummary{
			Loss: bench.Number(res.Loss), GradL1: bench.Number(l1), GradL2: bench.Number(math.Sqrt(l2)),
			ClipFraction: bench.Number(res.ClipFraction), WeightSum: bench.Number(res.WeightSum), ActionShare: bench.Number(share),
		}
	}

	batch.Advantages = uniform
	drift, err := ws.EntropyDrift(&batch)
	if err != nil {
		return nil, err
	}
	s.Drift = bench.Number(drift)
	if batch.RefEnergy == nil {
		nan := reweight.Correlation{Rho: math.NaN(), P: math.NaN()}
		s.bottleneck = reweight.BottleneckResult{All: nan, Reasoning: nan, Action: nan}
	} else if s.bottleneck, err = reweight.Bottleneck(&batch); err != nil {
		return nil, err
	}
	s.Spearman.All = bench.Number(s.bottleneck.All.Rho)
	s.Spearman.Reasoning = bench.Number(s.bottleneck.Reasoning.Rho)
	s.Spearman.Action = bench.Number(s.bottleneck.Action.Rho)

	s.Tokens.Total, s.Tokens.Trajectories = T, batch.Trajectories()
	for _, r := range batch.Role {
		switch r {
		case reweight.RoleReasoning:
			s.Tokens.Reasoning++
		case reweight.RoleAction:
			s.Tokens.Action++
		}
	}
	for _, id := range batch.SpanIDs {
		s.Tokens.Spans = max(s.Tokens.Spans, int(id)+1)
	}
	groups := slices.Clone(batch.GroupIDs)
	slices.Sort(groups)
	s.Tokens.Groups = len(slices.Compact(groups))
	return s, nil
}

// print prints the summary for people.
func (s *summary) print(w io.Writer) error {
	n := func(i int) string { return humanize.Comma(int64(i)) }
	fmt.Fprintf(w, "%s tokens: %s reasoning, %s action, %s masked; %s responses in %s trajectories of %s groups\n\n",
		n(s.Tokens.Total), n(s.Tokens.Reasoning), n(s.Tokens.Action), n(s.Tokens.Total-s.Tokens.Reasoning-s.Tokens.Action),
		n(s.Tokens.Spans), n(s.Tokens.Trajectories), n(s.Tokens.Groups))
	var rows [][]string
	for _, step := range []struct {
		name string
		sum  lossSummary
	}{{"uniform", s.Uniform}, {"ActFocus", s.ActFocus}, {"AEM", s.AEM}, {"ActFocus+AEM", s.ActFocusAEM}} {
		q := step.sum
		rows = append(rows, []string{
			step.name, fmt.Sprintf("%.6f", float64(q.Loss)), percent(float64(q.ActionShare)), percent(float64(q.ClipFraction)),
			fmt.Sprintf("%.6f", float64(q.GradL1)), fmt.Sprintf("%.6f", float64(q.GradL2)),
		})
	}
	if err := table(w, 1, []string{"weights", "loss", "action tokens' weight", "clipped", "gradient l1", "gradient l2"}, rows); err != nil {
		return err
	}
	c := func(c reweight.Correlation) string {
		if math.IsNaN(c.Rho) {
			return "undefined"
		}
		return fmt.Sprintf("%+.3f (p %s)", c.Rho, small(c.P))
	}
	_, err := fmt.Fprintf(w, "\nAction bottleneck, Spearman correlation of a group's reward variance with its mean reference energy:\n"+
		"all tokens %s, reasoning %s, action %s\nEntropy drift, mean over responses: %+.6f\n",
		c(s.bottleneck.All), c(s.bottleneck.Reasoning), c(s.bottleneck.Action), float64(s.Drift))
	return err
}
