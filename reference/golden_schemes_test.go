package reference

import (
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/testdata/golden"
)

// batch has the arrays and the error that the cases of the schemes share.
type batch struct {
	Name            string
	Role            roles
	SpanIDs         []int32 `json:"span_ids"`
	SeqOffsets      []int64 `json:"seq_offsets"`
	GroupIDs        []int32 `json:"group_ids"`
	Rewards         []number
	Entropy         []number
	Logprobs        []number
	OldLogprobs     []number `json:"old_logprobs"`
	RefLogprobs     []number `json:"ref_logprobs"`
	RolloutLogprobs []number `json:"rollout_logprobs"`
	Advantages      []number
	Weights         []number
	Error           string
}

// wide returns the numbers as float64.
func wide(x []number) []float64 {
	w := make([]float64, len(x))
	for i, v := range x {
		w[i] = float64(v)
	}
	return w
}

// failed reports whether the case wants an error, and fails unless err is that one.
// The golden files name fields of a Batch, or arrays of a file, where this package has
// arguments: RefLogprobs, returns and refLogprobs. So the case of letters is not
// compared.
func (g *batch) failed(t *testing.T, err error) bool {
	t.Helper()
	want := g.Error
	if want == "fewer than two response tokens" {
		want = "want at least 2 to whiten"
	}
	switch {
	case want == "" && err != nil:
		t.Fatalf("%s: %v", g.Name, err)
	case want != "" && (err == nil || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(want))):
		t.Fatalf("%s: error %v, want one about %s", g.Name, err, want)
	}
	return want != ""
}

func TestGoldenBaselines(t *testing.T) {
	var cases []struct {
		batch
		TokenRewards []number `json:"token_rewards"`
		Options      struct {
			Gamma           float64
			Maximum, Buffer int
			Penalty         float64
		}
		RLOO, Keep, Returns, Penalty []float64
		Baseline                     []float64 `json:"baseline_advantages"`
	}
	golden.Read(t, "baselines.json", &cases)
	c := compare(t)
	c.floor = 1e-3 // sums of rewards cancel
	for _, g := range cases {
		rewards := wide(g.Rewards)
		switch {
		case g.TokenRewards != nil:
			advantages, returns, err := ReinforcePlusPlus(g.Role, g.SeqOffsets, wide(g.TokenRewards), g.Options.Gamma)
			baseline, errBaseline := ReinforcePlusPlusBaseline(g.Role, g.SeqOffsets, rewards, g.GroupIDs)
			g.failed(t, errBaseline)
			if g.failed(t, err) {
				continue
			}
			c.numbers(g.Name, advantages, wide(g.Advantages))
			c.numbers(g.Name+": returns", returns, g.Returns)
			c.numbers(g.Name+": baseline", baseline, g.Baseline)
		case g.Role != nil:
			o := g.Options
			c.numbers(g.Name, must[[]float64](t)(OverlongPenalty(g.Role, g.SeqOffsets, o.Maximum, o.Buffer, o.Penalty)), g.Penalty)
		default:
			rloo, err := RLOO(rewards, g.GroupIDs)
			keep, errKeep := GroupFilter(rewards, g.GroupIDs)
			g.failed(t, errKeep)
			if g.failed(t, err) {
				continue
			}
			c.numbers(g.Name+": RLOO", rloo, g.RLOO)
			c.numbers(g.Name+": keep", keep, g.Keep)
		}
	}
}

func TestGoldenEMPG(t *testing.T) {
	var cases []struct {
		batch
		Options       struct{ K, KF, Zeta float64 }
		AdvantagesOut []float64 `json:"advantages_out"`
		SpanScale     []float64 `json:"span_scale"`
		SpanBonus     []float64 `json:"span_bonus"`
	}
	golden.Read(t, "empg.json", &cases)
	c := compare(t)
	c.floor = 1e-3 // the mean that is subtracted cancels
	for _, g := range cases {
		opt := EMPGOptions{K: g.Options.K, KFuture: g.Options.KF, Zeta: g.Options.Zeta}
		scaled, scales, bonuses, err := EMPG(g.Role, g.SpanIDs, g.SeqOffsets, wide(g.Entropy), wide(g.batch.Advantages), opt)
		if g.failed(t, err) {
			continue
		}
		c.numbers(g.Name, scaled, g.AdvantagesOut)
		c.numbers(g.Name+": scales", scales, g.SpanScale)
		c.numbers(g.Name+": bonuses", bonuses, g.SpanBonus)
	}
}

func TestGoldenGTPO(t *testing.T) {
	var cases []struct {
		batch
		Options struct {
			A1, A2, Threshold, Lo float64
			Hi                    number
			Norm                  Normalization
			SeqNorm               Normalization `json:"seq_norm"`
			Scope                 Scope
		}
		Shaped        []float64
		SeqShaped     []float64 `json:"seq_shaped"`
		SeqAdvantages []float64 `json:"seq_advantages"`
	}
	golden.Read(t, "gtpo.json", &cases)
	c := compare(t)
	c.floor = 1 // u - mean cancels, and what is left is divided by as little as 1e-4
	for _, g := range cases {
		o := g.Options
		opt := ShapingOptions{Base: o.A1, Bonus: o.A2, Threshold: o.Threshold, EntropyLow: o.Lo, EntropyHigh: float64(o.Hi), Normalization: o.Norm, Scope: o.Scope}
		shaped, advantages, err := GTPO(g.Role, g.SeqOffsets, g.GroupIDs, wide(g.Rewards), wide(g.Entropy), opt)
		opt.Normalization = o.SeqNorm
		seqShaped, seqAdvantages, errSeq := GRPOS(g.Role, g.SeqOffsets, g.GroupIDs, wide(g.Rewards), wide(g.Entropy), opt)
		g.failed(t, errSeq)
		if g.failed(t, err) {
			continue
		}
		c.numbers(g.Name+": u", shaped, g.Shaped)
		c.numbers(g.Name, advantages, wide(g.Advantages))
		c.numbers(g.Name+": GRPO-S: u", seqShaped, g.SeqShaped)
		c.numbers(g.Name+": GRPO-S", seqAdvantages, g.SeqAdvantages)
	}
}

func TestGoldenEntropyMask(t *testing.T) {
	var cases []struct {
		batch
		Options   struct{ Rho float64 }
		Mask      []float64
		Threshold float64 // null without response tokens, which leaves 0
	}
	golden.Read(t, "entropy_mask.json", &cases)
	c := compare(t)
	for _, g := range cases {
		mask, threshold, err := EntropyMask(g.Role, wide(g.Entropy), g.Options.Rho)
		if g.failed(t, err) {
			continue
		}
		c.numbers(g.Name, mask, g.Mask)
		c.number(g.Name+": threshold", threshold, g.Threshold)
	}
}

// aggregationOf returns verl's aggregation by this package's name.
func aggregationOf(verl string) Aggregation {
	return Aggregation(strings.ReplaceAll(verl, "-", "_"))
}

func TestGoldenPolicyLosses(t *testing.T) {
	var cases []struct {
		batch
		Options struct {
			Kind, Agg    string
			Lo, Hi, Dual float64
			Level        Sequence
			TauPos       float64 `json:"tau_pos"`
			TauNeg       float64 `json:"tau_neg"`
			Cap, Norm    float64
			KPos         float64 `json:"k_pos"`
			LPos         float64 `json:"l_pos"`
			KNeg         float64 `json:"k_neg"`
			LNeg         float64 `json:"l_neg"`
		}
		Loss         float64
		Gradient     []float64
		ClipFraction float64 `json:"clip_fraction"`
	}
	golden.Read(t, "policy_losses.json", &cases)
	c := compare(t)
	seen := map[Policy]bool{}
	for _, g := range cases {
		o := g.Options
		opt := PolicyOptions{
			LossOptions: LossOptions{ClipLow: o.Lo, ClipHigh: o.Hi, DualClip: o.Dual, Aggregation: aggregationOf(o.Agg), NormLength: o.Norm},
			Policy:      Policy(strings.ReplaceAll(o.Kind, "-", "_")), Sequence: o.Level,
			TauPos: o.TauPos, TauNeg: o.TauNeg, RatioCap: o.Cap,
			PowerPos: o.KPos, DecayPos: o.LPos, PowerNeg: o.KNeg, DecayNeg: o.LNeg,
		}
		seen[opt.Policy] = true
		weights := wide(g.Weights)
		if g.Weights == nil {
			weights = ones(len(g.Role))
		}
		loss, err := PolicyLoss(g.Role, g.SeqOffsets, g.SpanIDs, wide(g.Logprobs), wide(g.OldLogprobs), wide(g.Advantages), weights, opt)
		if g.failed(t, err) {
			continue
		}
		c.number(g.Name, loss.Loss, g.Loss)
		c.numbers(g.Name+": gradient", loss.Gradient, g.Gradient)
		c.number(g.Name+": clip fraction", loss.ClipFraction, g.ClipFraction)
	}
	if len(seen) != 7 {
		t.Errorf("the cases have %d policy losses, want 7", len(seen))
	}
}

func TestGoldenRolloutCorrection(t *testing.T) {
	var cases []struct {
		batch
		Options struct {
			Level  CorrectionLevel
			Mode   string
			Lo, Hi float64
			Norm   bool `json:"batch_norm"`
			Stat   RejectionStatistic
			Delta  float64
		}
		Factors, Keep []float64
		OffPolicy     []float64 `json:"keep_factors"`
	}
	golden.Read(t, "rollout_correction.json", &cases)
	c := compare(t)
	for _, g := range cases {
		o := g.Options
		old, rollout := wide(g.OldLogprobs), wide(g.RolloutLogprobs)
		var got []float64
		var err error
		switch {
		case o.Mode != "":
			got, err = RolloutCorrection(g.Role, g.SeqOffsets, old, rollout, CorrectionOptions{Level: o.Level, Mask: o.Mode == "mask", Low: o.Lo, High: o.Hi, Normalize: o.Norm})
		case o.Stat != "":
			got, err = Reject(g.Role, g.SeqOffsets, old, rollout, o.Stat, o.Lo, o.Hi)
		default:
			got, err = OffPolicyMask(g.Role, g.SeqOffsets, wide(g.Logprobs), old, wide(g.Advantages), o.Delta)
		}
		if g.failed(t, err) {
			continue
		}
		want := append(append(g.Factors, g.Keep...), g.OffPolicy...) // the one that is there
		c.numbers(g.Name+" "+string(o.Level)+string(o.Stat), got, want)
	}
}

func TestGoldenKL(t *testing.T) {
	var cases []struct {
		batch
		Options struct {
			Kind KLForm
			Coef float64
			Agg  string
		}
		KL, Derivative, Gradient []float64
		Loss                     float64
		TokenRewards             []float64 `json:"token_rewards"`
	}
	golden.Read(t, "kl.json", &cases)
	c := compare(t)
	seen := map[KLForm]bool{}
	for _, g := range cases {
		o := g.Options
		seen[o.Kind] = true
		if g.Error != "" {
			o.Agg = "token-mean" // the case has only the form
		}
		logprobs, ref := wide(g.Logprobs), wide(g.RefLogprobs)
		loss, gradient, err := KLLoss(g.Role, g.SeqOffsets, logprobs, ref, o.Kind, o.Coef, aggregationOf(o.Agg), 0)
		if g.failed(t, err) {
			continue
		}
		for i, r := range g.Role {
			if r != RoleMasked {
				k, derivative, err := KL(o.Kind, logprobs[i], ref[i])
				if err != nil {
					t.Fatal(err)
				}
				c.number(g.Name+": kl", k, g.KL[i])
				c.number(g.Name+": derivative", derivative, g.Derivative[i])
			}
		}
		c.number(g.Name+": loss", loss, g.Loss)
		c.numbers(g.Name+": gradient", gradient, g.Gradient)
		// The case's log-probabilities stand for the old ones here.
		rewards := must[[]float64](t)(KLRewards(g.Role, g.SeqOffsets, wide(g.Rewards), logprobs, ref, o.Kind, o.Coef))
		c.numbers(g.Name+": rewards", rewards, g.TokenRewards)
	}
	if len(seen) != 7 {
		t.Errorf("the cases have %d forms, want 7", len(seen))
	}
}

func TestGoldenValueLoss(t *testing.T) {
	var cases []struct {
		batch
		NewValues []number `json:"new_values"`
		Values    []number
		Returns   []number
		Options   struct {
			Clip, Norm float64
			Agg        string
		}
		Loss         float64
		Gradient     []float64
		ClipFraction float64 `json:"clip_fraction"`
	}
	golden.Read(t, "value_loss.json", &cases)
	c := compare(t)
	for _, g := range cases {
		loss, err := ValueLoss(g.Role, g.SeqOffsets, wide(g.NewValues), wide(g.Values), wide(g.Returns), g.Options.Clip, aggregationOf(g.Options.Agg), g.Options.Norm)
		if g.failed(t, err) {
			continue
		}
		c.number(g.Name, loss.Loss, g.Loss)
		c.numbers(g.Name+": gradient", loss.Gradient, g.Gradient)
		c.number(g.Name+": clip fraction", loss.ClipFraction, g.ClipFraction)
	}
}

func TestGoldenGiGPO(t *testing.T) {
	var cases []struct {
		batch
		Anchors     []int32
		SpanRewards []number `json:"span_rewards"`
		Options     struct {
			Gamma, Omega float64
			Std          bool
			PerStep      bool `json:"per_step"`
		}
		Episode, Step, Returns []float64
	}
	golden.Read(t, "gigpo.json", &cases)
	c := compare(t)
	c.floor = 1e-3 // differences of returns cancel
	for _, g := range cases {
		opt := GiGPOOptions{Gamma: g.Options.Gamma, Omega: g.Options.Omega, DivideByStd: g.Options.Std, PerStep: g.Options.PerStep}
		got, err := GiGPO(g.Role, g.SpanIDs, g.SeqOffsets, g.GroupIDs, wide(g.Rewards), g.Anchors, wide(g.SpanRewards), opt)
		if g.failed(t, err) {
			continue
		}
		c.numbers(g.Name, got.Advantages, wide(g.Advantages))
		c.numbers(g.Name+": episode", got.Episode, g.Episode)
		c.numbers(g.Name+": step", got.Step, g.Step)
		c.numbers(g.Name+": returns", got.Returns, g.Returns)
	}
}
