package scheme

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/test/must"
)

// policies are the losses of the catalogue, and what else they can be.
var policies = func() map[string]reweight.LossOptions {
	all := map[string]reweight.LossOptions{
		"gspo, wide":  {Policy: reweight.GSPO{ClipLow: 0.2, ClipHigh: 0.28, DualClip: 3}},
		"gspo, spans": {Policy: reweight.GSPO{ClipLow: 0.2, ClipHigh: 0.28, Sequence: reweight.SequenceSpan}},
		"grpo-s, spans": {Policy: reweight.GRPOS{ClipLow: 0.2, ClipHigh: 0.28, DualClip: 3,
			Sequence: reweight.SequenceSpan},
			Aggregation: reweight.SeqMeanTokenSumNorm},
		"cispo, both": {Policy: reweight.CISPO{ClipLow: 0.2, ClipHigh: 0.2}, Aggregation: reweight.SeqMeanTokenSum},
	}
	for _, e := range losses() {
		all[e.Name] = *e.loss
	}
	all["dro"] = reweight.LossOptions{Policy: reweight.DRO{Beta: 0.3}}
	all["clip_cov, many"] = reweight.LossOptions{
		Policy: reweight.ClipCov{ClipLow: 0.2, ClipHigh: 0.28, CovShare: 0.3, CovLow: -1, CovHigh: 1, Seed: 7}}
	all["kl_cov, many"] = reweight.LossOptions{Policy: reweight.KLCov{CovShare: 0.3, CovCoef: 0.5},
		Aggregation: reweight.SeqMeanTokenMean}
	return all
}()

// setLoss sets a constant of the policy loss, if it has one of that name.
func (o *Options) setLoss(name string, value any) { SetField(&o.Loss, name, reflect.ValueOf(value)) }

// setMissing sets what has no default.
func (o *Options) setMissing(delta float64) {
	o.OffPolicyMask.Delta = delta
	o.setLoss("Beta", 0.3)
}

// weightsFor returns the weights of the batch, or nil if the policy refuses them.
func weightsFor(b *reweight.Batch, opt *reweight.LossOptions) []float32 {
	if opt.Policy.Traits().Unweighted {
		return nil
	}
	return b.ActFocusWeights
}

// TestSurrogateIsOneTrajectory: Loss of one trajectory, summed, has Surrogate's bits.
func TestSurrogateIsOneTrajectory(t *testing.T) {
	for name, opt := range policies {
		if opt.Policy.Traits().BySpan {
			continue
		}
		opt.Aggregation = reweight.SeqMeanTokenSum
		t.Run(name, rapid.MakeCheck(func(t *rapid.T) {
			b := drawBatch(t)
			n := b.Tokens()
			b.SeqOffsets = []int64{0, int64(n)}
			weights := weightsFor(b, &opt)
			if rapid.Bool().Draw(t, "without weights") {
				weights = nil
			}
			var ws reweight.Workspace
			want, got := make([]float32, n), make([]float32, n)
			sums := must.Get(ws.Surrogate(want, b.Logprobs, b.OldLogprobs, b.Advantages, weights, b.Role, 1, opt))
			res := must.Get(ws.Loss(got, weights, b, opt))
			responses := float64(max(1, sums.Tokens))
			sums.LogRatio /= responses
			again := reweight.SurrogateSums{Tokens: res.Tokens, Clipped: int(math.Round(res.ClipFraction * responses)),
				Loss: res.Loss, LogRatio: res.MeanLogRatio}
			result{got, numbers{sums: again}}.same(t, "Loss", result{want, numbers{sums: sums}})
		}))
	}
}

// forgiveTiny takes differences out of got that are no larger than subnormal terms make them.
func forgiveTiny(got, want []float32) {
	for i, w := range want {
		if math.Abs(float64(got[i]-w)) <= 1e-30 {
			got[i] = w
		}
	}
}

// TestLossesOfLargeWeights: where weights divide, a power of two in all of them, which
// takes products beyond float32, changes nothing.
func TestLossesOfLargeWeights(t *testing.T) {
	for name, opt := range policies {
		if opt.Policy.Traits().Unweighted {
			continue
		}
		for _, opt.Aggregation = range []reweight.Aggregation{reweight.TokenMean, reweight.SeqMeanTokenMean} {
			t.Run(name+", "+opt.Aggregation.String(), rapid.MakeCheck(func(t *rapid.T) {
				b := drawBatch(t)
				weights := make([]float32, b.Tokens())
				for i := range weights {
					weights[i] = float32(1 + i%3)
				}
				want, got := make([]float32, b.Tokens()), make([]float32, b.Tokens())
				var ws reweight.Workspace
				small := must.Get(ws.Loss(want, weights, b, opt))
				for i := range weights {
					weights[i] *= 0x1p124
				}
				large := must.Get(ws.Loss(got, weights, b, opt))
				small.WeightSum *= 0x1p124
				if !(math.Abs(large.Loss-small.Loss) <= 1e-9*math.Abs(small.Loss)) {
					t.Fatalf("loss %v, want %v", large.Loss, small.Loss)
				}
				large.Loss = small.Loss
				// The gradient is scaled by powers of two on the way, unless a term is subnormal.
				forgiveTiny(got, want)
				result{got, numbers{loss: large}}.same(t, "large", result{want, numbers{loss: small}})
			}))
		}
	}
}

// TestKLBesideLoss: the divergence adds to the loss and to the gradient what it is without
// a policy, whatever the weights are.
func TestKLBesideLoss(t *testing.T) {
	for name, loss := range policies {
		both := loss
		both.KL, both.KLCoef = reweight.KLForm(len(name)%7), 0.25
		kl := reweight.LossOptions{Policy: reweight.PG{}, Aggregation: loss.Aggregation, KL: both.KL,
			KLCoef: both.KLCoef}
		t.Run(name, rapid.MakeCheck(func(t *rapid.T) {
			b := drawBatch(t)
			n := b.Tokens()
			alone, without, with := make([]float32, n), make([]float32, n), make([]float32, n)
			var ws reweight.Workspace
			weights := weightsFor(b, &loss)
			all := must.Get(ws.Loss(with, weights, b, both))
			policy := must.Get(ws.Loss(without, weights, b, loss))
			clear(b.Advantages) // with which PG has no loss
			divergence := must.Get(ws.Loss(alone, nil, b, kl))
			if all.KLLoss != divergence.Loss || policy.KLLoss != 0 || all.Loss != policy.Loss+divergence.Loss ||
				all.KL != policy.KL || all.ClipFraction != policy.ClipFraction {
				t.Fatalf("%+v\nis not %+v\nand %+v", all, policy, divergence)
			}
			for i := range with {
				if with[i] != without[i]+alone[i] {
					t.Fatalf("gradient %d is %v, want %v and %v", i, with[i], without[i], alone[i])
				}
			}
		}))
	}
}

// TestLossesRefuse what they have no use for, and leave alone what others have.
func TestLossesRefuse(t *testing.T) {
	x := []float32{-1}
	b := reweight.Batch{Role: []reweight.Role{1}, SeqOffsets: []int64{0, 1}, SpanIDs: []int32{0}, Rewards: []float32{3},
		Logprobs: x, OldLogprobs: x, Advantages: x, NewValues: x, Values: x, Returns: x}
	var ws reweight.Workspace
	grad := []float32{777}
	_, err := ws.Surrogate(grad, x, x, x, nil, b.Role, 1, policies["gspo, spans"])
	wantError(t, "Surrogate", err, "Sequence")
	for name, opt := range policies {
		if opt.Policy.Traits().Unweighted {
			_, err := ws.Loss(grad, x, &b, opt)
			wantError(t, name, err, "weights")
			_, err = ws.Surrogate(grad, x, x, x, x, b.Role, 1, opt)
			wantError(t, name, err, "weights")
		}
	}
	wrong := b
	wrong.SeqOffsets = []int64{0, 2}
	_, err = ws.ValueLoss(grad, &wrong, reweight.ValueLossOptions{Clip: 1, Aggregation: reweight.SeqMeanTokenSum})
	wantError(t, "ValueLoss", err, "SeqOffsets")
	if grad[0] != 777 {
		t.Errorf("wrote %v", grad)
	}
	b.OldLogprobs = nil
	if err := ws.KLRewards(grad, &b, reweight.KLRewardsOptions{}); err != nil || grad[0] != 3 {
		t.Errorf("rewards without a divergence: %v, %v", grad, err)
	}
}

func wantError(t *testing.T, what string, err error, arg string) {
	t.Helper()
	var input *reweight.InputError
	if !errors.As(err, &input) || input.Arg != arg {
		t.Errorf("%s: error %v, want one about %s", what, err, arg)
	}
}

// TestNormLength: all three parts of a loss are divided by it.
func TestNormLength(t *testing.T) {
	x := []float32{-1, -2}
	b := reweight.Batch{Role: []reweight.Role{1, 2}, SeqOffsets: []int64{0, 2}, Logprobs: x, OldLogprobs: x,
		RefLogprobs: []float32{-2, -1}, Advantages: x, NewValues: x, Values: x, Returns: []float32{1, 1}}
	run := func(norm int) (policy, kl, value float64) {
		var ws reweight.Workspace
		grad := make([]float32, 2)
		res := must.Get(ws.Loss(grad, nil, &b, reweight.LossOptions{Policy: reweight.PG{},
			Aggregation: reweight.SeqMeanTokenSumNorm, NormLength: norm, KLCoef: 1}))
		v := must.Get(ws.ValueLoss(grad, &b,
			reweight.ValueLossOptions{Clip: 1, Aggregation: reweight.SeqMeanTokenSumNorm, NormLength: norm}))
		return res.Loss - res.KLLoss, res.KLLoss, v.Loss
	}
	policy, kl, value := run(1)
	policy8, kl8, value8 := run(8)
	if policy == 0 || kl == 0 || value == 0 || policy != 8*policy8 || kl != 8*kl8 || value != 8*value8 {
		t.Errorf("%v, %v, %v by 1; %v, %v, %v by 8", policy, kl, value, policy8, kl8, value8)
	}
}

// TestPolicyConstants: a constant of a policy that is out of range is an error that names it, and
// nothing is written. So are options without a policy, or with the address of one.
func TestPolicyConstants(t *testing.T) {
	x := []float32{-1}
	b := reweight.Batch{Role: []reweight.Role{1}, SeqOffsets: []int64{0, 1}, SpanIDs: []int32{0}, Logprobs: x,
		OldLogprobs: x, Advantages: x}
	grad := []float32{777}
	var ws reweight.Workspace
	errs := func(opt reweight.LossOptions) [2]error {
		_, ofLoss := ws.Loss(grad, nil, &b, opt)
		_, ofSurrogate := ws.Surrogate(grad, x, x, x, nil, b.Role, 1, opt)
		return [2]error{ofLoss, ofSurrogate}
	}
	fine := []string{"clip_cov.CovHigh of +Inf", "clip_cov.CovHigh of 1e+39", "clip_cov.CovLow of -1"}
	calls := 0
	refuses := func(what, arg string, opt reweight.LossOptions) {
		t.Helper()
		for _, err := range errs(opt) {
			calls++
			if wantError(t, what, err, arg); grad[0] != 777 {
				t.Fatalf("%s: wrote %v", what, grad)
			}
		}
	}
	zeros := map[string]string{"ppo": "ClipLow", "gspo": "ClipLow", "grpo_s": "ClipLow", "gmpo": "ClipLow",
		"cispo": "ClipLow", "dppo_tv": "RatioCap", "vespo": "PowerPos", "sapo": "TauPos", "dro": "Beta",
		"clip_cov": "CovShare", "kl_cov": "CovShare"}
	for _, e := range losses() {
		all := Options{Loss: *e.loss}
		all.setMissing(0)
		name := all.Loss.Policy.String()
		for field, v := range Fields(all.Loss.Policy) {
			values := map[reflect.Kind][]any{reflect.Float64: {math.NaN(), math.Inf(1), math.Inf(-1), -1.0, 1e39},
				reflect.Uint8: {uint8(2), uint8(255)}}[v.Kind()]
			for _, value := range values {
				wrong := all
				wrong.setLoss(field, reflect.ValueOf(value).Convert(v.Type()).Interface())
				what, arg := fmt.Sprintf("%s.%s of %v", name, field, value), field
				if field == "CovLow" && value == 1e39 {
					arg = "CovHigh" // which is below it
				}
				if slices.Contains(fine, what) {
					if errs := errs(wrong.Loss); errs != [2]error{} {
						t.Errorf("%s: %v", what, errs)
					}
					grad[0] = 777
					continue
				}
				refuses(what, arg, wrong.Loss)
			}
		}
		zero := all.Loss
		zero.Policy = reflect.Zero(reflect.TypeOf(zero.Policy)).Interface().(reweight.Policy)
		if arg := zeros[zero.Policy.String()]; arg != "" {
			refuses("the zero value of "+name, arg, zero)
		} else if errs := errs(zero); errs != [2]error{} {
			t.Errorf("the zero value of %s: %v", name, errs)
		}
		grad[0] = 777
		pointer := reflect.New(reflect.TypeOf(zero.Policy))
		refuses("the address of "+name, "Policy", reweight.LossOptions{Policy: pointer.Interface().(reweight.Policy)})
		refuses("no address of "+name, "Policy",
			reweight.LossOptions{Policy: reflect.Zero(pointer.Type()).Interface().(reweight.Policy)})
		refuses(name+" in another struct", "Policy", reweight.LossOptions{Policy: otherPolicy{all.Loss.Policy}})
	}
	refuses("a struct with no policy in it", "Policy", reweight.LossOptions{Policy: otherPolicy{}})
	refuses("a struct without a name", "Policy", reweight.LossOptions{Policy: struct{ reweight.PG }{}})
	refuses("no policy", "Policy", reweight.LossOptions{})
	if want := "reweight: Policy is nil, want the loss of a policy, such as the one of DefaultLoss"; errs(reweight.LossOptions{})[0].Error() != want {
		t.Errorf("no policy: %v, want %s", errs(reweight.LossOptions{})[0], want)
	}
	if calls < 300 {
		t.Errorf("%d calls are refused, want 300 at least", calls)
	}
	b.Rewards, b.GroupIDs = x, []int32{0}
	for _, p := range []reweight.Policy{nil, (*reweight.PPO)(nil), otherPolicy{}} { // in a step, too
		s := MustParse("uniform")
		s.Options.Loss = reweight.LossOptions{Policy: p}
		_, err := must.Get(s.NewStep(&ws, &b)).Run()
		wantError(t, fmt.Sprintf("a step with %T", p), err, "Policy")
	}
}

// An otherPolicy has the methods of the policy in it, and is none.
type otherPolicy struct{ reweight.Policy }
