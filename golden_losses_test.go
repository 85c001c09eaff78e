package reweight_test

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/reference"
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

// tiny is allowed to gradients and losses: float32 underflows. VESPO's factor can be 1e-77.
const tiny = 1e-37

// nearSum is near for a loss whose terms have sizes that add up to size. They are summed
// in float32: where signs differ and the sum cancels, 1e-5 of it is not to be had.
func nearSum(t testing.TB, what string, got, want, size float64) {
	t.Helper()
	if !(math.Abs(got-want) <= max(1e-5*math.Abs(want), 1e-6*size, tiny)) {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

// lossSize returns sum |share_t l_t| over response tokens, in float64. A token's term is
// the loss where the others have no advantage.
func lossSize(t testing.TB, b *reweight.Batch, weights []float32, opt reweight.LossOptions) (size float64) {
	t.Helper()
	x := wideBatch(b)
	w := reference.Floats(weights)
	if weights == nil {
		w = slices.Repeat([]float64{1}, b.Tokens())
	}
	alone := make([]float64, b.Tokens())
	for i, r := range x.role {
		if r == reference.RoleMasked {
			continue
		}
		alone[i] = x.advantages[i]
		term, err := reference.PolicyLoss(x.role, b.SeqOffsets, b.SpanIDs, x.logprobs, x.old, alone, w, widePolicy(opt))
		if err != nil {
			t.Fatal(err)
		}
		size += math.Abs(term.Loss)
		alone[i] = 0
	}
	return size
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
			nearSum(t, what+"loss", res.Loss, c.Loss, lossSize(t, &b, weights, opt))
			near(t, what+"clip fraction", res.ClipFraction, c.ClipFraction)
			c.check(t, grad, c.Gradient, tiny, err)
		}
	}
}

// klSize returns KLCoef sum |share_t k_t| for k1, whose terms have both signs. Those of the
// other forms do not cancel.
func klSize(t testing.TB, b *reweight.Batch, opt reweight.LossOptions) float64 {
	t.Helper()
	if opt.KL != reweight.KLK1 && opt.KL != reweight.KLK1Plus {
		return 0
	}
	x := wideBatch(b)
	size, _, err := reference.KLLoss(x.role, b.SeqOffsets, x.logprobs, x.ref, reference.KLAbs, math.Abs(opt.KLCoef), reference.Aggregation(opt.Aggregation.String()), float64(opt.NormLength))
	if err != nil {
		t.Fatal(err)
	}
	return size
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
			size := klSize(t, &b, opt)
			nearSum(t, what+"loss", res.Loss, c.Loss, size)
			nearSum(t, what+"its KL", res.KLLoss, c.Loss, size)
			c.check(t, grad, c.Gradient, tiny, err)
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
