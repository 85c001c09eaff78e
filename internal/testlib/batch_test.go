//go:build cgo && linux

package testlib_test

import (
	"math"
	"os"
	"slices"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/must"
	"github.com/seed621a2839/reweight/internal/randomcalls"
	"github.com/seed621a2839/reweight/internal/testlib"
	"github.com/seed621a2839/reweight/rollout"
)

// options are those of all schemes.
type options struct {
	actFocus reweight.ActFocusOptions
	aem      reweight.AEMOptions
	grpo     reweight.GRPOOptions
	gae      reweight.GAEOptions
	loss     reweight.LossOptions
}

var defaults = options{reweight.DefaultActFocus, reweight.DefaultAEM, reweight.DefaultGRPO, reweight.DefaultGAE, reweight.DefaultLoss}

// An input is a batch, with arrays that are no part of it: rewards are per token.
type input struct {
	*reweight.Batch
	rewards, weights []float32
	options
}

// schemes runs every scheme on the batch, with each of the values that its enumerations
// have, and returns all results; those of a scheme that lacks an array are its error.
func schemes(c randomcalls.Caller, in input) randomcalls.Outcome {
	var all randomcalls.Outcome
	T := in.Tokens()
	output := func() []float32 { return make([]float32, T) }
	weights := [][]float32{nil, in.weights}
	for in.actFocus.Signal = range reweight.SignalLogRatio + 1 {
		w := output()
		res, err := c.ActFocus(w, in.Batch, in.actFocus)
		all = append(all, err, res, w)
		if err == nil {
			weights = append(weights, w)
		}
	}
	for in.aem.Scope = range reweight.ScopeBatch + 1 {
		f := output()
		all = append(all, c.AEM(f, in.Batch, in.aem), f)
	}
	for _, in.grpo.DivideByStd = range []bool{false, true} {
		a := output()
		all = append(all, c.GRPO(a, in.Batch, in.grpo), a)
	}
	a, returns := output(), output()
	all = append(all, c.GAE(a, returns, in.rewards, in.Batch, in.gae), a, returns)
	all = append(all, c.GAE(a, nil, in.rewards, in.Batch, in.gae), a)
	for _, x := range [][]float32{in.Advantages, in.RefEnergy, in.Entropy} {
		w := output()
		all = append(all, c.Whiten(w, x, in.Role), w)
	}
	dro, clipCov, klCov := reweight.DefaultDRO, reweight.DefaultClipCov, reweight.DefaultKLCov
	dro.Beta = 0.1
	clipCov.CovShare, clipCov.CovLow, klCov.CovShare = 0.2, -1, 0.2
	for _, opt := range []reweight.LossOptions{reweight.DefaultGSPO, reweight.DefaultGRPOSLoss, reweight.DefaultCISPO, reweight.DefaultSAPO, reweight.DefaultPG, reweight.DefaultDPPOTV, reweight.DefaultVESPO,
		reweight.DefaultDPPOKL, dro, reweight.DefaultGMPO, clipCov, klCov} {
		weights := weights
		if opt.Policy >= reweight.PolicyDRO { // which has none
			weights = weights[:1]
		}
		for opt.Sequence = range reweight.SequenceSpan + 1 {
			for opt.KL = range reweight.KLAbsPlus + 1 {
				opt.KLCoef = float64(opt.KL % 3)
				grad := output()
				res, err := c.Loss(grad, weights[int(opt.KL)%len(weights)], in.Batch, opt)
				all = append(all, err, res, grad)
			}
		}
	}
	lc := c.(randomcalls.LossCaller)
	for kl := range reweight.KLAbsPlus + 1 {
		r := output()
		all = append(all, lc.KLRewards(r, in.Batch, reweight.KLRewardsOptions{KL: kl, KLCoef: 0.1}), r)
	}
	for in.loss.Aggregation = range reweight.SeqMeanTokenSumNorm + 1 {
		grad := output()
		res, err := lc.ValueLoss(grad, in.Batch, reweight.ValueLossOptions{Clip: 0.5, Aggregation: in.loss.Aggregation})
		all = append(all, err, res, grad)

		for _, w := range weights {
			for _, in.loss.NormLength = range []int{0, 100} {
				grad := output()
				res, err := c.Loss(grad, w, in.Batch, in.loss)
				all = append(all, err, res, grad)
			}
		}
	}
	return all
}

// orZeros returns n zeros in place of an array with another length.
func orZeros[E any](x []E, n int) []E {
	if len(x) != n {
		return make([]E, n)
	}
	return x
}

// whole returns the input with zeros for every array that it lacks, which the library has
// other words for.
func whole(in input) input {
	b, T, S := *in.Batch, in.Tokens(), in.Trajectories()
	b.GroupIDs, b.Rewards, b.SpanIDs = orZeros(b.GroupIDs, S), orZeros(b.Rewards, S), orZeros(b.SpanIDs, T)
	for _, x := range []*[]float32{&b.RefEnergy, &b.RefEntropy, &b.Entropy, &b.OldLogprobs, &b.Logprobs, &b.RefLogprobs, &b.Advantages, &b.Values, &b.NewValues, &b.Returns, &in.rewards} {
		*x = orZeros(*x, T)
	}
	if in.weights != nil {
		in.weights = orZeros(in.weights, T)
	}
	in.Batch = &b
	return in
}

// TestRollouts compares all schemes on real rollouts, on every instruction set of the library.
func TestRollouts(t *testing.T) {
	l := testlib.Open(t)
	for _, name := range []string{"frozenlake-small", "frozenlake"} {
		if testing.Short() && name == "frozenlake" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			data := must.Get(os.ReadFile("../../testdata/" + name + ".safetensors"))
			file := must.Get(rollout.Parse(data))
			b := must.Get(file.Batch())
			if b.Advantages == nil {
				b.Advantages = make([]float32, b.Tokens())
				must.Do(plain().GRPO(b.Advantages, b, reweight.DefaultGRPO))
			}
			if b.Values == nil {
				b.Values = b.RefEnergy
			}
			in := whole(input{b, b.Advantages, b.Advantages, defaults})
			want := schemes(plain(), in)
			for _, r := range each(l, 2) {
				if err := randomcalls.Differ(schemes(r, in), want); err != nil {
					t.Errorf("%v: %v", r.ISA(), err)
				}
			}
		})
	}
}

// TestScratch: with less scratch memory than reweight_scratch_size says, a call is an
// error before it writes, or does not need so much.
func TestScratch(t *testing.T) {
	const T, S = 60, 5
	b := &reweight.Batch{SeqOffsets: []int64{0}}
	for s := range S {
		b.SeqOffsets = append(b.SeqOffsets, int64((s+1)*T/S))
		b.GroupIDs = append(b.GroupIDs, int32(s/2))
		b.Rewards = append(b.Rewards, float32(s%3))
	}
	x, weights := make([]float32, T), make([]float32, T)
	for t := range T {
		b.Role = append(b.Role, reweight.Role(1+t%2))
		b.SpanIDs = append(b.SpanIDs, int32(t/6))
		x[t] = float32(t*t%17) / 4
		weights[t] = 1e30 * float32(t+1) // large ones are divided in scratch memory
	}
	b.Entropy, b.OldLogprobs, b.RefLogprobs, b.Logprobs, b.Advantages = x, x, x, x, x
	surprisal, logRatio := reweight.DefaultActFocus, reweight.DefaultActFocus
	surprisal.Signal, logRatio.Signal = reweight.SignalSurprisal, reweight.SignalLogRatio
	l := testlib.Open(t)
	for name, call := range map[string]func(c randomcalls.Caller, out []float32) error{
		"ActFocus, surprisal": func(c randomcalls.Caller, out []float32) error { _, err := c.ActFocus(out, b, surprisal); return err },
		"ActFocus, log-ratio": func(c randomcalls.Caller, out []float32) error { _, err := c.ActFocus(out, b, logRatio); return err },
		"AEM":                 func(c randomcalls.Caller, out []float32) error { return c.AEM(out, b, reweight.DefaultAEM) },
		"GRPO":                func(c randomcalls.Caller, out []float32) error { return c.GRPO(out, b, reweight.DefaultGRPO) },
		"Loss": func(c randomcalls.Caller, out []float32) error {
			_, err := c.Loss(out, weights, b, reweight.DefaultLoss)
			return err
		},
		"Loss, spans": func(c randomcalls.Caller, out []float32) error {
			opt := reweight.DefaultGSPO
			opt.Sequence = reweight.SequenceSpan
			_, err := c.Loss(out, nil, b, opt)
			return err
		},
		"Loss, tokens that are chosen": func(c randomcalls.Caller, out []float32) error {
			_, err := c.Loss(out, nil, b, reweight.DefaultKLCov)
			return err
		},
		"Surrogate, tokens that are chosen": func(c randomcalls.Caller, out []float32) error {
			_, err := c.Surrogate(out, x, x, x, nil, b.Role, 1, reweight.DefaultKLCov)
			return err
		},
		"Loss, KL": func(c randomcalls.Caller, out []float32) error {
			opt, b := reweight.DefaultLoss, *b
			opt.KLCoef = 0.1
			copy(out, x)
			b.Logprobs = out // which has to be kept
			_, err := c.Loss(out, weights, &b, opt)
			if err != nil && slices.Equal(out, x) {
				clear(out) // it was not written
			}
			return err
		},
	} {
		want := make([]float32, T)
		must.Do(call(plain(), want))
		for _, r := range each(l, 1) {
			errors := 0
			for _, lack := range []int64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 40, 100, 240, 300, 1000, 1 << 40} {
				r.Lack(lack)
				out := make([]float32, T)
				err := call(r, out)
				input, _ := err.(*reweight.InputError)
				switch {
				case err == nil:
					if d := randomcalls.Differ(randomcalls.Outcome{out}, randomcalls.Outcome{want}); d != nil {
						t.Errorf("%s, %v, %d bytes less: %v", name, r.ISA(), lack, d)
					}
				case input == nil || input.Arg != "scratch" && input.Arg != "scratch_size" || input.Index != -1 || lack == 0:
					t.Errorf("%s, %v, %d bytes less: %v", name, r.ISA(), lack, err)
				case slices.Max(out) != 0 || slices.Min(out) != 0:
					t.Errorf("%s, %v, %d bytes less: an output is written", name, r.ISA(), lack)
				default:
					errors++
				}
			}
			if errors == 0 {
				t.Errorf("%s, %v: needs no scratch memory", name, r.ISA())
			}
		}
	}
}

// TestEdgesOfOptions: options at, and right beyond, the ends of their ranges.
func TestEdgesOfOptions(t *testing.T) {
	l := testlib.Open(t)
	b := &reweight.Batch{Role: []reweight.Role{2, 1, 2}, SeqOffsets: []int64{0, 2, 3}, SpanIDs: []int32{0, 0, 1}, GroupIDs: []int32{4, 4}, Rewards: []float32{0, 1}}
	x := []float32{1, -2, 4}
	b.RefLogprobs, b.NewValues, b.Returns = x, x, x
	b.Entropy, b.RefEnergy, b.Logprobs, b.OldLogprobs, b.Advantages, b.Values = x, x, x, []float32{1, -1, 4}, x, x
	var edges []float64
	for _, v := range []float64{0, 1, 80, math.MaxFloat32} {
		for _, v := range []float64{v, math.Nextafter(v, math.Inf(-1)), math.Nextafter(v, math.Inf(1))} {
			edges = append(edges, v, -v)
		}
	}
	for _, v := range edges {
		run := func(c randomcalls.Caller) randomcalls.Outcome {
			var all randomcalls.Outcome
			out := func() []float32 { return make([]float32, 3) }
			call := func(f func(out []float32) error) {
				o := out()
				all = append(all, f(o), o)
			}
			for _, opt := range []reweight.ActFocusOptions{{Alpha: v}, {Beta: v}, {Eps: v}} {
				call(func(o []float32) error { _, err := c.ActFocus(o, b, opt); return err })
			}
			for _, opt := range []reweight.AEMOptions{{Lambda: v}, {Lambda: 1, Guard: v}} {
				call(func(o []float32) error { return c.AEM(o, b, opt) })
			}
			for _, opt := range []reweight.GAEOptions{{Gamma: v}, {Lambda: v}} {
				call(func(o []float32) error { return c.GAE(o, nil, x, b, opt) })
			}
			for _, opt := range []reweight.LossOptions{{ClipLow: v}, {ClipHigh: v}, {DualClip: v},
				{Policy: reweight.PolicyCISPO, ClipLow: v}, {Policy: reweight.PolicyDPPOTV, ClipLow: v}, {Policy: reweight.PolicyDPPOTV, ClipLow: 1, RatioCap: v},
				{Policy: reweight.PolicySAPO, TauPos: v, TauNeg: 1}, {Policy: reweight.PolicySAPO, TauPos: 1, TauNeg: v}, {Policy: reweight.PolicySAPO, TauPos: v / 80 * 1e30, TauNeg: 1e-30},
				{Policy: reweight.PolicyVESPO, PowerPos: v}, {Policy: reweight.PolicyVESPO, DecayPos: v}, {Policy: reweight.PolicyVESPO, PowerNeg: v}, {Policy: reweight.PolicyVESPO, DecayNeg: v},
				{Policy: reweight.PolicyDPPOKL, ClipLow: v, RatioCap: 1}, {Policy: reweight.PolicyDPPOKL, ClipLow: 1, RatioCap: v}, {Policy: reweight.PolicyDRO, Beta: v}, {Policy: reweight.PolicyGMPO, ClipHigh: v},
				{Policy: reweight.PolicyClipCov, ClipLow: v, CovShare: 1, CovHigh: 5}, {Policy: reweight.PolicyClipCov, ClipHigh: 1, CovShare: v, CovHigh: 5}, {Policy: reweight.PolicyClipCov, ClipHigh: 1, CovShare: 1, CovLow: v, CovHigh: 5},
				{Policy: reweight.PolicyClipCov, ClipHigh: 1, CovShare: 1, CovHigh: v}, {Policy: reweight.PolicyKLCov, CovShare: 1, CovCoef: v},
				{Policy: reweight.PolicyPG, KLCoef: v}, {Policy: reweight.PolicyGSPO, ClipHigh: v, DualClip: v}, {Policy: reweight.PolicyGRPOS, ClipLow: v}} {
				call(func(o []float32) error { _, err := c.Loss(o, nil, b, opt); return err })
			}
			call(func(o []float32) error {
				_, err := c.(randomcalls.LossCaller).ValueLoss(o, b, reweight.ValueLossOptions{Clip: v})
				return err
			})
			call(func(o []float32) error {
				return c.(randomcalls.LossCaller).KLRewards(o, b, reweight.KLRewardsOptions{KLCoef: v})
			})
			call(func(o []float32) error { return c.GRPO(o, b, reweight.GRPOOptions{Eps: v, DivideByStd: true}) })
			call(func(o []float32) error { return c.ActFocusWeights(o, x, b.Role, v, 1, reweight.DefaultActFocus) })
			call(func(o []float32) error { return c.ActFocusWeights(o, x, b.Role, 1, v, reweight.DefaultActFocus) })
			call(func(o []float32) error { return c.ExpScale(o, x, 1, v) })
			call(func(o []float32) error { return c.ExpScale(o, x, float32(v), 1) })
			call(func(o []float32) error {
				_, err := c.Surrogate(o, x, x, x, nil, b.Role, v, reweight.DefaultLoss)
				return err
			})
			return all
		}
		want := run(plain())
		for _, r := range each(l, 1) {
			if err := randomcalls.Differ(run(r), want); err != nil {
				t.Errorf("%v, %v: %v", v, r.ISA(), err)
			}
		}
	}
}
