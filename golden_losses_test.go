package reweight_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/testdata/golden"
)

// failed compares an error with the one that is wanted, and reports whether one is.
func (g *schemeCase) failed(t *testing.T, err error) bool {
	t.Helper()
	if g.Error == "" {
		if err != nil {
			t.Errorf("%s: %v", g.Name, err)
		}
		return err != nil
	}
	var input *reweight.InputError
	if !errors.As(err, &input) {
		t.Errorf("%s: error %v, want one about %s", g.Name, err, g.Error)
	} else if got := input.Arg + "[" + strconv.Itoa(input.Index) + "]"; !strings.EqualFold(got, g.Error) {
		t.Errorf("%s: error about %s, want %s", g.Name, got, g.Error)
	}
	return true
}

func aggregation(t *testing.T, name string) (a reweight.Aggregation) {
	t.Helper()
	if err := a.UnmarshalText([]byte(name)); err != nil {
		t.Fatal(err)
	}
	return a
}

func TestGoldenPolicyLosses(t *testing.T) {
	var cases []struct {
		schemeCase
		Weights, Gradient []number
		Options           struct {
			Kind, Agg, Level  string
			Lo, Hi, Dual, Cap float64
			Norm              int
			TauPos            float64 `json:"tau_pos"`
			TauNeg            float64 `json:"tau_neg"`
			PowerPos          float64 `json:"k_pos"`
			DecayPos          float64 `json:"l_pos"`
			PowerNeg          float64 `json:"k_neg"`
			DecayNeg          float64 `json:"l_neg"`
		}
		Loss         float64
		ClipFraction float64 `json:"clip_fraction"`
	}
	golden.Read(t, "policy_losses.json", &cases)
	for _, isa := range reweight.AvailableISAs() {
		ws := reweight.Workspace{ISA: isa}
		for _, c := range cases {
			o := &c.Options
			opt := reweight.LossOptions{ClipLow: o.Lo, ClipHigh: o.Hi, DualClip: o.Dual, Aggregation: aggregation(t, o.Agg), NormLength: o.Norm,
				TauPos: o.TauPos, TauNeg: o.TauNeg, RatioCap: o.Cap, PowerPos: o.PowerPos, DecayPos: o.DecayPos, PowerNeg: o.PowerNeg, DecayNeg: o.DecayNeg}
			if err := opt.Policy.UnmarshalText([]byte(o.Kind)); err != nil {
				t.Fatal(err)
			}
			if err := opt.Sequence.UnmarshalText([]byte(o.Level)); err != nil {
				t.Fatal(err)
			}
			b := c.batch()
			var weights []float32
			if c.Weights != nil {
				weights = floats(c.Weights)
			}
			grad := make([]float32, len(c.Role))
			res, err := ws.Loss(grad, weights, &b, opt)
			if c.failed(t, err) {
				continue
			}
			what := c.Name + ": " + o.Kind + ", " + o.Level + ": "
			near(t, what+"loss", res.Loss, c.Loss)
			near(t, what+"clip fraction", res.ClipFraction, c.ClipFraction)
			nearAll(t, what+"gradient", grad, c.Gradient)
		}
	}
}

// TestGoldenKL: the policy's own part is 0, so that the loss and the gradient are those
// of the divergence.
func TestGoldenKL(t *testing.T) {
	var cases []struct {
		schemeCase
		KL, Derivative, Gradient []number
		Ref                      []number `json:"ref_logprobs"`
		Options                  struct {
			Kind, Agg string
			Coef      float64
		}
		Loss float64
	}
	golden.Read(t, "kl.json", &cases)
	for _, isa := range reweight.AvailableISAs() {
		ws := reweight.Workspace{ISA: isa}
		for _, c := range cases {
			opt := reweight.LossOptions{Policy: reweight.PolicyPG, KLCoef: c.Options.Coef}
			if err := opt.KL.UnmarshalText([]byte(c.Options.Kind)); err != nil {
				t.Fatal(err)
			}
			if c.Error != "" {
				opt.KLCoef = 1
			} else {
				opt.Aggregation = aggregation(t, c.Options.Agg)
			}
			T := len(c.Role)
			b := c.batch()
			b.RefLogprobs = floats(c.Ref)
			b.OldLogprobs, b.Advantages = b.Logprobs, make([]float32, T)
			grad, rewards := make([]float32, T), make([]float32, T)
			what := c.Name + ": " + c.Options.Kind + ": "

			if !c.failed(t, ws.KLRewards(rewards, &b, reweight.KLRewardsOptions{KL: opt.KL, KLCoef: opt.KLCoef})) {
				nearAll(t, what+"rewards", rewards, c.TokenR)
			}
			res, err := ws.Loss(grad, nil, &b, opt)
			if c.failed(t, err) {
				continue
			}
			near(t, what+"loss", res.Loss, c.Loss)
			near(t, what+"its KL", res.KLLoss, c.Loss)
			nearAll(t, what+"gradient", grad, c.Gradient)
		}
	}
}

func TestGoldenValueLoss(t *testing.T) {
	var cases []struct {
		schemeCase
		Values, Returns, Gradient []number
		NewValues                 []number `json:"new_values"`
		Options                   struct {
			Clip float64
			Agg  string
			Norm int
		}
		Loss         float64
		ClipFraction float64 `json:"clip_fraction"`
	}
	golden.Read(t, "value_loss.json", &cases)
	for _, isa := range reweight.AvailableISAs() {
		ws := reweight.Workspace{ISA: isa}
		for _, c := range cases {
			b := c.batch()
			b.NewValues, b.Values, b.Returns = floats(c.NewValues), floats(c.Values), floats(c.Returns)
			grad := make([]float32, len(c.Role))
			opt := reweight.ValueLossOptions{Clip: c.Options.Clip, Aggregation: aggregation(t, c.Options.Agg), NormLength: c.Options.Norm}
			res, err := ws.ValueLoss(grad, &b, opt)
			if c.failed(t, err) {
				continue
			}
			near(t, c.Name+": loss", res.Loss, c.Loss)
			near(t, c.Name+": clip fraction", res.ClipFraction, c.ClipFraction)
			nearAll(t, c.Name+": gradient", grad, c.Gradient)
		}
	}
}
