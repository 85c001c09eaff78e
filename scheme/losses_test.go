package scheme

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/must"
)

var inf = float32(math.Inf(1))

// policies are the losses of the catalogue, and what else they can be.
var policies = func() map[string]reweight.LossOptions {
	all := map[string]reweight.LossOptions{
		"gspo, wide":  {Policy: reweight.PolicyGSPO, ClipLow: 0.2, ClipHigh: 0.28, DualClip: 3},
		"gspo, spans": {Policy: reweight.PolicyGSPO, ClipLow: 0.2, ClipHigh: 0.28, Sequence: reweight.SequenceSpan},
		"grpo-s, spans": {Policy: reweight.PolicyGRPOS, ClipLow: 0.2, ClipHigh: 0.28, DualClip: 3, Sequence: reweight.SequenceSpan,
			Aggregation: reweight.SeqMeanTokenSumNorm},
		"cispo, both": {Policy: reweight.PolicyCISPO, ClipLow: 0.2, ClipHigh: 0.2, Aggregation: reweight.SeqMeanTokenSum},
		"vespo, span": {Policy: reweight.PolicyVESPO, PowerPos: 2, DecayPos: 3, PowerNeg: 3, DecayNeg: 2, Sequence: reweight.SequenceSpan}, // not its business
	}
	for _, e := range losses() {
		all[e.Name] = *e.loss
	}
	dro := reweight.DefaultDRO
	dro.Beta = 0.3
	all["dro"] = dro
	all["clip_cov, many"] = reweight.LossOptions{Policy: reweight.PolicyClipCov, ClipLow: 0.2, ClipHigh: 0.28, CovShare: 0.3, CovLow: -1, CovHigh: 1, Seed: 7}
	all["kl_cov, many"] = reweight.LossOptions{Policy: reweight.PolicyKLCov, CovShare: 0.3, CovCoef: 0.5, Aggregation: reweight.SeqMeanTokenMean}
	return all
}()

// weightsFor returns the weights of the batch, or nil if the policy refuses them.
func (b *lossBatch) weightsFor(opt *reweight.LossOptions) []float32 {
	if unweighted(opt.Policy) {
		return nil
	}
	return b.weights
}

// eachPolicy runs f with the policies, without a divergence from the reference and with one.
func eachPolicy(t *testing.T, f func(t *testing.T, opt reweight.LossOptions)) {
	for name, opt := range policies {
		t.Run(name, func(t *testing.T) { f(t, opt) })
		opt.KL, opt.KLCoef = reweight.KLForm(len(name)%7), 0.25
		t.Run(name+", "+opt.KL.String(), func(t *testing.T) { f(t, opt) })
	}
}

// A lossBatch is a batch with weights, nil or not.
type lossBatch struct {
	reweight.Batch
	weights []float32
}

// drawLossBatch draws trajectories with responses of several turns, some of which are
// interrupted by masked tokens; some have no response. A few log-ratios are far from 0.
func drawLossBatch(t *rapid.T) *lossBatch {
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
	b := &lossBatch{}
	b.SeqOffsets = []int64{0}
	spans := int32(0)
	for range rapid.IntRange(1, 5).Draw(t, "trajectories") {
		for range r.IntN(4) { // turns
			for range r.IntN(4) {
				b.Role, b.SpanIDs = append(b.Role, 0), append(b.SpanIDs, -1)
			}
			if r.IntN(4) == 0 {
				continue
			}
			for i := range 1 + r.IntN(40)*r.IntN(4) {
				role, span := reweight.Role(r.IntN(3)), spans
				if i == 0 {
					role = reweight.RoleReasoning
				} else if role == 0 && r.IntN(2) == 0 {
					span = -1
				}
				b.Role, b.SpanIDs = append(b.Role, role), append(b.SpanIDs, span)
			}
			spans++
		}
		b.SeqOffsets = append(b.SeqOffsets, int64(len(b.Role)))
		b.Rewards = append(b.Rewards, float32(r.NormFloat64()))
	}
	n := len(b.Role)
	normal := func(scale float64) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(scale * r.NormFloat64())
		}
		return x
	}
	b.Logprobs, b.RefLogprobs, b.Advantages = normal(2), normal(2), normal(1)
	b.NewValues, b.Values, b.Returns = normal(1), normal(1), normal(1)
	b.OldLogprobs = slices.Clone(b.Logprobs)
	far := rapid.SampledFrom([]float64{0, 0.01, 0.3, 30}).Draw(t, "log-ratio")
	for i, d := range normal(far) {
		b.OldLogprobs[i] -= d
		if r.IntN(8) == 0 {
			b.RefLogprobs[i] = b.Logprobs[i]
		}
		if r.IntN(8) == 0 {
			b.Advantages[i] = 0
		}
	}
	if rapid.Bool().Draw(t, "weights") {
		b.weights = normal(1)
		for i := range b.weights {
			b.weights[i] = max(0, b.weights[i])
		}
	}
	return b
}

// clone copies the arrays of floats that are per token.
func (b *lossBatch) clone() *lossBatch {
	c := &lossBatch{b.Batch, slices.Clone(b.weights)}
	for _, x := range c.floats() {
		*x = slices.Clone(*x)
	}
	return c
}

// floats are the arrays of floats that losses read, by name.
func (b *lossBatch) floats() map[string]*[]float32 {
	arrays := map[string]*[]float32{"Logprobs": &b.Logprobs, "OldLogprobs": &b.OldLogprobs, "RefLogprobs": &b.RefLogprobs, "Advantages": &b.Advantages,
		"NewValues": &b.NewValues, "Values": &b.Values, "Returns": &b.Returns}
	if b.weights != nil {
		arrays["weights"] = &b.weights
	}
	return arrays
}

// A lossOutcome is the result of one of the calls; the others are zero.
type lossOutcome struct {
	loss  reweight.LossResult
	sums  reweight.SurrogateSums
	value reweight.ValueLossResult
}

// A lossCall writes one array per token and returns a result.
type lossCall struct {
	call  func(ws *reweight.Workspace, dst []float32, b *lossBatch) (lossOutcome, error)
	reads []string // the arrays whose values must be finite
}

// lossCalls are all the losses, and the rewards that have a divergence in them.
func lossCalls() map[string]lossCall {
	calls := map[string]lossCall{}
	for name, opt := range map[string]reweight.ValueLossOptions{"ValueLoss": reweight.DefaultValueLoss,
		"ValueLoss by trajectory": {Clip: 0.1, Aggregation: reweight.SeqMeanTokenMean}} {
		calls[name] = lossCall{func(ws *reweight.Workspace, dst []float32, b *lossBatch) (res lossOutcome, err error) {
			res.value, err = ws.ValueLoss(dst, &b.Batch, opt)
			return res, err
		}, []string{"NewValues", "Values", "Returns"}}
	}
	for form := range reweight.KLForm(7) {
		calls["KLRewards "+form.String()] = lossCall{func(ws *reweight.Workspace, dst []float32, b *lossBatch) (lossOutcome, error) {
			return lossOutcome{}, ws.KLRewards(dst, &b.Batch, reweight.KLRewardsOptions{KL: form, KLCoef: 0.1})
		}, []string{"OldLogprobs", "RefLogprobs"}}
	}
	add := func(name string, opt reweight.LossOptions) {
		loss := lossCall{call: func(ws *reweight.Workspace, dst []float32, b *lossBatch) (res lossOutcome, err error) {
			res.loss, err = ws.Loss(dst, b.weightsFor(&opt), &b.Batch, opt)
			return res, err
		}}
		surrogate := lossCall{call: func(ws *reweight.Workspace, dst []float32, b *lossBatch) (res lossOutcome, err error) {
			res.sums, err = ws.Surrogate(dst, b.Logprobs, b.OldLogprobs, b.Advantages, b.weightsFor(&opt), b.Role, 0.5, opt)
			return res, err
		}}
		loss.reads = []string{"weights"}
		if opt.Policy != reweight.PolicyPPO {
			surrogate.reads = []string{"weights", "Logprobs", "OldLogprobs", "Advantages"}
			if unweighted(opt.Policy) {
				surrogate.reads = surrogate.reads[1:]
			}
			loss.reads = append(slices.Clone(surrogate.reads), "RefLogprobs")
		} else if opt.KLCoef != 0 {
			loss.reads = []string{"weights", "Logprobs", "RefLogprobs"}
		}
		calls["Loss "+name] = loss
		if opt.Sequence == reweight.SequenceTrajectory && opt.KLCoef == 0 {
			calls["Surrogate "+name] = surrogate
		}
	}
	for name, opt := range policies {
		add(name, opt)
		opt.KL, opt.KLCoef = reweight.KLForm(len(name)%7), -0.25
		add(name+" with "+opt.KL.String(), opt)
	}
	return calls
}

func eachLossCall(t *testing.T, f func(t *testing.T, c lossCall)) {
	for name, c := range lossCalls() {
		t.Run(name, func(t *testing.T) { f(t, c) })
	}
}

// sameLoss wants equal results and equal arrays.
func sameLoss(t *rapid.T, what string, got, want lossOutcome, gotDst, wantDst []float32) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: %+v, want %+v", what, got, want)
	}
	for i, w := range wantDst {
		if gotDst[i] != w {
			t.Fatalf("%s: element %d is %x, want %x", what, i, gotDst[i], w)
		}
	}
}

// TestLossesDoNotDependOn the instruction set, the workers, what a workspace did before,
// the array that the output is, or on what stands at masked tokens.
func TestLossesDoNotDependOn(t *testing.T) {
	var used reweight.Workspace
	eachLossCall(t, func(t *testing.T, c lossCall) {
		rapid.Check(t, func(t *rapid.T) {
			b := drawLossBatch(t)
			want := make([]float32, b.Tokens())
			res := must.Get(c.call(&reweight.Workspace{ISA: reweight.Portable, Workers: 1}, want, b))
			same := func(what string, ws *reweight.Workspace, got []float32, b *lossBatch) {
				t.Helper()
				r, err := c.call(ws, got, b)
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				sameLoss(t, what, r, res, got, want)
			}
			for _, isa := range reweight.AvailableISAs() {
				for _, workers := range []int{1, 3} {
					same(isa.String(), &reweight.Workspace{ISA: isa, Workers: workers}, make([]float32, b.Tokens()), b)
				}
			}
			same("a workspace that was used", &used, make([]float32, b.Tokens()), b)
			for name := range b.floats() {
				d := b.clone()
				same("into "+name, &used, *d.floats()[name], d)
			}
			d := b.clone()
			for _, x := range d.floats() {
				for i, r := range d.Role {
					if r == reweight.RoleMasked {
						(*x)[i] = rapid.SampledFrom([]float32{7, -3e38, -inf, inf, float32(math.NaN())}).Draw(t, "masked")
					}
				}
			}
			same("other values at masked tokens", &used, make([]float32, b.Tokens()), d)
			for i, r := range b.Role {
				if r == reweight.RoleMasked && want[i] != 0 {
					t.Fatalf("masked token %d has %v", i, want[i])
				}
			}
		})
	})
}

// TestLossesNotFinite: a value of a response token that is read and is not finite is an
// error that names it, and nothing is written.
func TestLossesNotFinite(t *testing.T) {
	parameters := map[string]string{"Logprobs": "logprobs", "OldLogprobs": "old", "Advantages": "advantages"} // of Surrogate
	b := rapid.Custom(drawLossBatch).Filter(func(b *lossBatch) bool {
		return b.weights != nil && b.Tokens() > 40 && b.Tokens() < 100 && slices.Contains(b.Role, reweight.RoleMasked)
	}).Example(1)
	eachLossCall(t, func(t *testing.T, c lossCall) {
		var ws reweight.Workspace
		dst := make([]float32, b.Tokens())
		for name, x := range b.floats() {
			for i, r := range b.Role {
				for _, v := range []float32{float32(math.NaN()), inf, -inf} {
					kept := (*x)[i]
					(*x)[i] = v
					for j := range dst {
						dst[j] = 777
					}
					_, err := c.call(&ws, dst, b)
					(*x)[i] = kept
					if !slices.Contains(c.reads, name) || r == reweight.RoleMasked {
						if err != nil {
							t.Fatalf("%s[%d] is %v: %v", name, i, v, err)
						}
						continue
					}
					var input *reweight.InputError
					if !errors.As(err, &input) || input.Arg != name && input.Arg != parameters[name] || input.Index != i {
						t.Fatalf("%s[%d] is %v: error %v", name, i, v, err)
					}
					if slices.ContainsFunc(dst, func(f float32) bool { return f != 777 }) {
						t.Fatalf("%s[%d] is %v: something is written", name, i, v)
					}
				}
			}
		}
	})
}

// TestSurrogateIsOneTrajectory: Loss of one trajectory, summed, has Surrogate's bits.
func TestSurrogateIsOneTrajectory(t *testing.T) {
	for name, opt := range policies {
		if opt.Sequence == reweight.SequenceSpan {
			continue
		}
		opt.Aggregation = reweight.SeqMeanTokenSum
		t.Run(name, rapid.MakeCheck(func(t *rapid.T) {
			b := drawLossBatch(t)
			n := b.Tokens()
			b.SeqOffsets = []int64{0, int64(n)}
			var ws reweight.Workspace
			want, got := make([]float32, n), make([]float32, n)
			sums := must.Get(ws.Surrogate(want, b.Logprobs, b.OldLogprobs, b.Advantages, b.weightsFor(&opt), b.Role, 1, opt))
			res := must.Get(ws.Loss(got, b.weightsFor(&opt), &b.Batch, opt))
			responses := float64(max(1, sums.Tokens))
			sums.LogRatio /= responses
			again := reweight.SurrogateSums{Tokens: res.Tokens, Clipped: int(math.Round(res.ClipFraction * responses)), Loss: res.Loss, LogRatio: res.MeanLogRatio}
			sameLoss(t, "Loss", lossOutcome{sums: again}, lossOutcome{sums: sums}, got, want)
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
		if unweighted(opt.Policy) {
			continue
		}
		for _, opt.Aggregation = range []reweight.Aggregation{reweight.TokenMean, reweight.SeqMeanTokenMean} {
			t.Run(name+", "+opt.Aggregation.String(), rapid.MakeCheck(func(t *rapid.T) {
				b := drawLossBatch(t)
				b.weights = make([]float32, b.Tokens())
				for i := range b.weights {
					b.weights[i] = float32(1 + i%3)
				}
				want, got := make([]float32, b.Tokens()), make([]float32, b.Tokens())
				var ws reweight.Workspace
				small := must.Get(ws.Loss(want, b.weights, &b.Batch, opt))
				for i := range b.weights {
					b.weights[i] *= 0x1p124
				}
				large := must.Get(ws.Loss(got, b.weights, &b.Batch, opt))
				small.WeightSum *= 0x1p124
				if !(math.Abs(large.Loss-small.Loss) <= 1e-9*math.Abs(small.Loss)) {
					t.Fatalf("loss %v, want %v", large.Loss, small.Loss)
				}
				large.Loss = small.Loss
				// The gradient is scaled by powers of two on the way, unless a term is subnormal.
				forgiveTiny(got, want)
				sameLoss(t, "large", lossOutcome{loss: large}, lossOutcome{loss: small}, got, want)
			}))
		}
	}
}

// TestKLBesideLoss: the divergence adds to the loss and to the gradient what it is without
// a policy, whatever the weights are.
func TestKLBesideLoss(t *testing.T) {
	eachPolicy(t, func(t *testing.T, opt reweight.LossOptions) {
		rapid.Check(t, func(t *rapid.T) {
			b := drawLossBatch(t)
			n := b.Tokens()
			alone, without, with := make([]float32, n), make([]float32, n), make([]float32, n)
			var ws reweight.Workspace
			loss := func(grad, weights []float32, opt reweight.LossOptions) reweight.LossResult {
				t.Helper()
				res := must.Get(ws.Loss(grad, weights, &b.Batch, opt))
				return res
			}
			all := loss(with, b.weightsFor(&opt), opt)
			form, coef := opt.KL, opt.KLCoef
			opt.KLCoef = 0
			policy := loss(without, b.weightsFor(&opt), opt)
			opt.KLCoef = coef
			clear(b.Advantages)
			if unweighted(opt.Policy) { // some have a loss without advantages
				aggregation := opt.Aggregation
				opt = reweight.DefaultPG
				opt.Aggregation, opt.KL, opt.KLCoef = aggregation, form, coef
			}
			kl := loss(alone, nil, opt)
			if all.KLLoss != kl.Loss || policy.KLLoss != 0 || all.Loss != policy.Loss+kl.Loss || all.KL != policy.KL || all.ClipFraction != policy.ClipFraction {
				t.Fatalf("%+v\nis not %+v\nand %+v", all, policy, kl)
			}
			for i := range with {
				if with[i] != without[i]+alone[i] {
					t.Fatalf("gradient %d is %v, want %v and %v", i, with[i], without[i], alone[i])
				}
			}
		})
	})
}

// TestLossesWithoutResponses: nothing to learn from is a loss of 0, and no error.
func TestLossesWithoutResponses(t *testing.T) {
	nan := float32(math.NaN())
	none := []float32{nan, inf, nan}
	eachLossCall(t, func(t *testing.T, c lossCall) {
		for _, b := range []*lossBatch{
			{Batch: reweight.Batch{SeqOffsets: []int64{0, 0}, Rewards: []float32{1}, Role: []reweight.Role{}}},
			{Batch: reweight.Batch{Role: make([]reweight.Role, 3), SeqOffsets: []int64{0, 0, 2, 3}, SpanIDs: []int32{-1, -1, -1}, Rewards: []float32{1, 2, 3},
				Logprobs: none, OldLogprobs: none, RefLogprobs: none, Advantages: none, NewValues: none, Values: none, Returns: none}},
		} {
			dst := slices.Repeat([]float32{777}, b.Tokens())
			var ws reweight.Workspace
			res := must.Get(c.call(&ws, dst, b))
			if res != (lossOutcome{}) {
				t.Errorf("%+v", res)
			}
			if slices.ContainsFunc(dst, func(f float32) bool { return f != 0 }) {
				t.Errorf("wrote %v", dst)
			}
		}
	})
}

// TestLossesOfOptions: what is out of range is an error that names it.
func TestLossesOfOptions(t *testing.T) {
	nan := math.NaN()
	x := []float32{-1}
	b := reweight.Batch{Role: []reweight.Role{1}, SeqOffsets: []int64{0, 1}, SpanIDs: []int32{0}, Rewards: []float32{1}, Logprobs: x, OldLogprobs: x,
		RefLogprobs: x, Advantages: x, NewValues: x, Values: x, Returns: x}
	with := func(opt reweight.LossOptions, change func(opt *reweight.LossOptions)) reweight.LossOptions {
		change(&opt)
		return opt
	}
	type opts = reweight.LossOptions
	var ws reweight.Workspace
	grad := []float32{777}
	for i, c := range []struct {
		arg string
		opt opts
	}{
		{"Policy", with(reweight.DefaultPG, func(o *opts) { o.Policy = 13 })},
		{"Aggregation", with(reweight.DefaultPG, func(o *opts) { o.Aggregation = 4 })},
		{"NormLength", with(reweight.DefaultPG, func(o *opts) { o.NormLength = -1 })},
		{"Sequence", with(reweight.DefaultGSPO, func(o *opts) { o.Sequence = 2 })},
		{"ClipLow", with(reweight.DefaultGSPO, func(o *opts) { o.ClipLow = 1.5 })},
		{"ClipLow", with(reweight.DefaultGRPOSLoss, func(o *opts) { o.ClipLow = nan })},
		{"ClipLow", with(reweight.DefaultCISPO, func(o *opts) { o.ClipLow = -1 })},
		{"ClipLow", with(reweight.DefaultDPPOTV, func(o *opts) { o.ClipLow = nan })},
		{"ClipHigh", with(reweight.DefaultGSPO, func(o *opts) { o.ClipHigh = -1 })},
		{"ClipHigh", with(reweight.DefaultCISPO, func(o *opts) { o.ClipHigh = math.Inf(1) })},
		{"ClipHigh", with(reweight.DefaultDPPOTV, func(o *opts) { o.ClipHigh = -0.5 })},
		{"DualClip", with(reweight.DefaultGSPO, func(o *opts) { o.DualClip = 1 })},
		{"DualClip", with(reweight.DefaultGRPOSLoss, func(o *opts) { o.DualClip = nan })},
		{"TauPos", with(reweight.DefaultSAPO, func(o *opts) { o.TauPos = 0 })},
		{"TauNeg", with(reweight.DefaultSAPO, func(o *opts) { o.TauNeg = -1 })},
		{"TauNeg", with(reweight.DefaultSAPO, func(o *opts) { o.TauNeg = math.Inf(1) })},
		{"RatioCap", with(reweight.DefaultDPPOTV, func(o *opts) { o.RatioCap = 0 })},
		{"RatioCap", with(reweight.DefaultDPPOTV, func(o *opts) { o.RatioCap = nan })},
		{"PowerPos", with(reweight.DefaultVESPO, func(o *opts) { o.PowerPos = -1 })},
		{"DecayPos", with(reweight.DefaultVESPO, func(o *opts) { o.DecayPos = nan })},
		{"PowerNeg", with(reweight.DefaultVESPO, func(o *opts) { o.PowerNeg = math.Inf(1) })},
		{"DecayNeg", with(reweight.DefaultVESPO, func(o *opts) { o.DecayNeg = -0.1 })},
		{"ClipLow", with(reweight.DefaultDPPOTV, func(o *opts) { o.ClipLow, o.ClipHigh = 0, 0 })},
		{"ClipLow", with(reweight.DefaultDPPOKL, func(o *opts) { o.ClipLow = nan })},
		{"RatioCap", with(reweight.DefaultDPPOKL, func(o *opts) { o.RatioCap = 0 })},
		{"Beta", reweight.DefaultDRO},
		{"Beta", with(reweight.DefaultDRO, func(o *opts) { o.Beta = math.Inf(1) })},
		{"ClipHigh", with(reweight.DefaultGMPO, func(o *opts) { o.ClipHigh = -1 })},
		{"ClipLow", with(reweight.DefaultClipCov, func(o *opts) { o.ClipLow = 2 })},
		{"CovShare", with(reweight.DefaultClipCov, func(o *opts) { o.CovShare = 1.5 })},
		{"CovLow", with(reweight.DefaultClipCov, func(o *opts) { o.CovLow = nan })},
		{"CovHigh", with(reweight.DefaultClipCov, func(o *opts) { o.CovHigh = 0.5 })},
		{"CovShare", with(reweight.DefaultKLCov, func(o *opts) { o.CovShare = nan })},
		{"CovCoef", with(reweight.DefaultKLCov, func(o *opts) { o.CovCoef = -1 })},
		{"KL", with(reweight.DefaultPG, func(o *opts) { o.KL = 7 })},
		{"KLCoef", with(reweight.DefaultPG, func(o *opts) { o.KLCoef = nan })},
		{"KLCoef", with(reweight.DefaultLoss, func(o *opts) { o.KLCoef = 1e39 })},
	} {
		_, err := ws.Loss(grad, nil, &b, c.opt)
		wantError(t, fmt.Sprint("Loss ", i), err, c.arg)
		_, err = ws.Surrogate(grad, x, x, x, nil, b.Role, 1, c.opt)
		wantError(t, fmt.Sprint("Surrogate ", i), err, c.arg)
	}
	for name, opt := range policies {
		if opt.Sequence = 2; opt.Policy == reweight.PolicyGSPO || opt.Policy == reweight.PolicyGRPOS {
			continue
		}
		if _, err := ws.Loss(make([]float32, 1), nil, &b, opt); err != nil {
			t.Errorf("%s, which has no sequence: %v", name, err)
		}
	}
	for name, opt := range policies {
		if opt.KLCoef = 0; unweighted(opt.Policy) {
			_, err := ws.Loss(grad, x, &b, opt)
			wantError(t, name, err, "weights")
			_, err = ws.Surrogate(grad, x, x, x, x, b.Role, 1, opt)
			wantError(t, name, err, "weights")
		}
	}
	_, err := ws.Surrogate(grad, x, x, x, nil, b.Role, 1, policies["gspo, spans"])
	wantError(t, "Surrogate", err, "Sequence")
	wantError(t, "KLRewards", ws.KLRewards(grad, &b, reweight.KLRewardsOptions{KL: 7}), "KL")
	wantError(t, "KLRewards", ws.KLRewards(grad, &b, reweight.KLRewardsOptions{KLCoef: math.Inf(1)}), "KLCoef")
	for arg, opt := range map[string]reweight.ValueLossOptions{"Clip": {Clip: -1}, "Aggregation": {Aggregation: 4}, "NormLength": {NormLength: -1}} {
		_, err = ws.ValueLoss(grad, &b, opt)
		wantError(t, "ValueLoss", err, arg)
	}

	// Shapes.
	for arg, change := range map[string]func(b *reweight.Batch){
		"Logprobs":    func(b *reweight.Batch) { b.Logprobs = nil },
		"OldLogprobs": func(b *reweight.Batch) { b.OldLogprobs = nil },
		"RefLogprobs": func(b *reweight.Batch) { b.RefLogprobs = nil },
		"Advantages":  func(b *reweight.Batch) { b.Advantages = nil },
		"SpanIDs":     func(b *reweight.Batch) { b.SpanIDs = nil },
		"SeqOffsets":  func(b *reweight.Batch) { b.SeqOffsets = nil },
		"Role":        func(b *reweight.Batch) { b.Role = []reweight.Role{3} },
	} {
		wrong := b
		change(&wrong)
		opt := policies["gspo, spans"]
		opt.KLCoef = 1
		_, err := ws.Loss(grad, nil, &wrong, opt)
		wantError(t, "Loss", err, arg)
		if arg == "OldLogprobs" || arg == "RefLogprobs" || arg == "Role" || arg == "SeqOffsets" {
			wantError(t, "KLRewards", ws.KLRewards(grad, &wrong, reweight.DefaultKLRewards), arg)
		}
	}
	for arg, change := range map[string]func(b *reweight.Batch){
		"NewValues":  func(b *reweight.Batch) { b.NewValues = nil },
		"Values":     func(b *reweight.Batch) { b.Values = nil },
		"Returns":    func(b *reweight.Batch) { b.Returns = nil },
		"SeqOffsets": func(b *reweight.Batch) { b.SeqOffsets = []int64{0, 2} },
		"Role":       func(b *reweight.Batch) { b.Role = []reweight.Role{3} },
	} {
		wrong := b
		change(&wrong)
		_, err := ws.ValueLoss(grad, &wrong, reweight.ValueLossOptions{Clip: 1, Aggregation: reweight.SeqMeanTokenSum})
		wantError(t, "ValueLoss", err, arg)
	}
	wrong := b
	wrong.Rewards = []float32{inf}
	wantError(t, "KLRewards", ws.KLRewards(grad, &wrong, reweight.DefaultKLRewards), "Rewards")
	wantError(t, "KLRewards", ws.KLRewards(nil, &b, reweight.DefaultKLRewards), "rewards")
	if grad[0] != 777 {
		t.Errorf("wrote %v", grad)
	}
	wrong.Rewards, wrong.OldLogprobs, wrong.RefLogprobs = []float32{3}, nil, nil
	if err := ws.KLRewards(grad, &wrong, reweight.KLRewardsOptions{}); err != nil || grad[0] != 3 {
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

// TestLossesDoNotAllocate in steady state.
func TestLossesDoNotAllocate(t *testing.T) {
	b := rapid.Custom(drawLossBatch).Filter(func(b *lossBatch) bool { return b.weights != nil && b.Tokens() > 100 }).Example(2)
	b.weights[slices.Index(b.Role, reweight.RoleReasoning)] = 1e30
	var ws reweight.Workspace
	dst := make([]float32, b.Tokens())
	eachLossCall(t, func(t *testing.T, c lossCall) {
		into := b.clone() // what the divergence needs is kept then
		if allocs := testing.AllocsPerRun(20, func() {
			c.call(&ws, dst, b)
			copy(into.Logprobs, b.Logprobs)
			c.call(&ws, into.Logprobs, into)
		}); allocs != 0 {
			t.Errorf("%v allocations", allocs)
		}
	})
}

// TestNormLength: all three parts of a loss are divided by it.
func TestNormLength(t *testing.T) {
	x := []float32{-1, -2}
	b := reweight.Batch{Role: []reweight.Role{1, 2}, SeqOffsets: []int64{0, 2}, Logprobs: x, OldLogprobs: x, RefLogprobs: []float32{-2, -1}, Advantages: x,
		NewValues: x, Values: x, Returns: []float32{1, 1}}
	run := func(norm int) (policy, kl, value float64) {
		var ws reweight.Workspace
		grad := make([]float32, 2)
		res := must.Get(ws.Loss(grad, nil, &b, reweight.LossOptions{Policy: reweight.PolicyPG, Aggregation: reweight.SeqMeanTokenSumNorm, NormLength: norm, KLCoef: 1}))
		v := must.Get(ws.ValueLoss(grad, &b, reweight.ValueLossOptions{Clip: 1, Aggregation: reweight.SeqMeanTokenSumNorm, NormLength: norm}))
		return res.Loss - res.KLLoss, res.KLLoss, v.Loss
	}
	policy, kl, value := run(1)
	policy8, kl8, value8 := run(8)
	if policy == 0 || kl == 0 || value == 0 || policy != 8*policy8 || kl != 8*kl8 || value != 8*value8 {
		t.Errorf("%v, %v, %v by 1; %v, %v, %v by 8", policy, kl, value, policy8, kl8, value8)
	}
}
