package reweight_test

import (
	"math"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/reference"
	"pgregory.net/rapid"
)

// TestSchemesAgreeWithReference compares every scheme with float64 on batches that
// rapid makes: groups that interleave, trajectories without response tokens, spans
// with masked tokens inside, ties.
func TestSchemesAgreeWithReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := drawSchemeBatch(t)
		x := wideBatch(b)
		var ws reweight.Workspace
		dst := make([]float32, b.Tokens())
		// An absolute error of 1e-5 is allowed to advantages and factors: where terms of 1
		// cancel, float32 has no more.
		same := func(what string, err error, want []float64, wantErr error) {
			t.Helper()
			if (err != nil) != (wantErr != nil) {
				t.Fatalf("%s: error %v, want %v", what, err, wantErr)
			}
			if err != nil {
				return
			}
			for i, w := range want {
				if !(math.Abs(float64(dst[i])-w) <= 1e-5*max(math.Abs(w), 1)) {
					t.Fatalf("%s: element %d = %v, want %v", what, i, dst[i], w)
				}
			}
		}

		// A gradient is the sum of its parts, each of which is a product and has 1e-5 of
		// itself; where they cancel, their sum has 1e-5 of their sizes.
		sameGradient := func(what string, err, wantErr error, parts ...[]float64) {
			t.Helper()
			if (err != nil) != (wantErr != nil) {
				t.Fatalf("%s: error %v, want %v", what, err, wantErr)
			}
			for i := range parts[0] {
				want, size := 0.0, 0.0
				for _, p := range parts {
					want += p[i]
					size += math.Abs(p[i])
				}
				if !(math.Abs(float64(dst[i])-want) <= max(1e-5*size, tiny)) {
					t.Fatalf("%s: element %d = %v, want %v", what, i, dst[i], want)
				}
			}
		}

		k := rapid.SampledFrom([]float64{0, 1, 2.5}).Draw(t, "k")
		want, _, _, wantErr := reference.EMPG(x.role, b.SpanIDs, b.SeqOffsets, x.entropy, x.advantages, reference.EMPGOptions{K: k, KFuture: 1, Zeta: 0.05})
		err := ws.EMPG(dst, b, reweight.EMPGOptions{K: k, KFuture: 1, Zeta: 0.05})
		same("EMPG", err, want, wantErr)

		shaping := reweight.DefaultGTPO
		shaping.Normalization = rapid.SampledFrom([]reweight.Normalization{reweight.NormalizeSeparate, reweight.NormalizeJoint, reweight.NormalizeNone}).Draw(t, "normalization")
		shaping.Scope = rapid.SampledFrom([]reweight.Scope{reweight.ScopeGroup, reweight.ScopeBatch}).Draw(t, "scope")
		if rapid.Bool().Draw(t, "clamp") {
			shaping.EntropyLow, shaping.EntropyHigh = 0.2, 0.28
		}
		exact := reference.ShapingOptions{Base: 1, Bonus: 0.1, Threshold: 0.5, EntropyLow: shaping.EntropyLow, EntropyHigh: shaping.EntropyHigh,
			Normalization: reference.Normalization(shaping.Normalization.String()), Scope: reference.Scope(shaping.Scope.String())}
		groups := b.GroupIDs
		if exact.Scope == reference.ScopeBatch {
			groups = nil // not read
		}
		_, want, wantErr = reference.GTPO(x.role, b.SeqOffsets, groups, x.rewards, x.entropy, exact)
		same("GTPO", ws.GTPO(dst, b, shaping), want, wantErr)
		_, want, wantErr = reference.GRPOS(x.role, b.SeqOffsets, groups, x.rewards, x.entropy, exact)
		want = spread(x, b, want)
		same("GRPOS", ws.GRPOS(dst, b, shaping), want, wantErr)

		rho := rapid.SampledFrom([]float64{0.01, 0.2, 0.37, 0.5, 1}).Draw(t, "rho")
		want, threshold, wantErr := reference.EntropyMask(x.role, x.entropy, rho)
		got, err := ws.EntropyMask(dst, b, reweight.EntropyMaskOptions{Rho: rho})
		same("EntropyMask", err, want, wantErr)
		if got != threshold {
			t.Fatalf("threshold %v, want %v", got, threshold)
		}

		want, wantErr = reference.RLOO(x.rewards, b.GroupIDs)
		same("RLOO", ws.RLOO(dst, b), spread(x, b, want), wantErr)
		want, wantErr = reference.GroupFilter(x.rewards, b.GroupIDs)
		same("GroupFilter", ws.GroupFilter(dst, b), spread(x, b, want), wantErr)
		gamma := rapid.SampledFrom([]float64{0, 0.9, 1}).Draw(t, "gamma")
		want, _, wantErr = reference.ReinforcePlusPlus(x.role, b.SeqOffsets, x.tokenRewards, gamma)
		same("ReinforcePlusPlus", ws.ReinforcePlusPlus(dst, nil, b, reweight.ReinforcePlusPlusOptions{Gamma: gamma}), want, wantErr)
		want, wantErr = reference.ReinforcePlusPlusBaseline(x.role, b.SeqOffsets, x.rewards, b.GroupIDs)
		same("ReinforcePlusPlusBaseline", ws.ReinforcePlusPlusBaseline(dst, b), want, wantErr)
		divide, perStep := rapid.Bool().Draw(t, "divide"), rapid.Bool().Draw(t, "per step")
		gigpo, wantErr := reference.GiGPO(x.role, b.SpanIDs, b.SeqOffsets, b.GroupIDs, x.rewards, b.Anchors, x.spanRewards, reference.GiGPOOptions{Gamma: gamma, Omega: 0.5, DivideByStd: divide, PerStep: perStep})
		same("GiGPO", ws.GiGPO(dst, b, reweight.GiGPOOptions{Gamma: gamma, Omega: 0.5, DivideByStd: divide, PerStep: perStep}), gigpo.Advantages, wantErr)

		c := reweight.CorrectionOptions{Level: rapid.SampledFrom([]reweight.CorrectionLevel{reweight.CorrectToken, reweight.CorrectSequence, reweight.CorrectGeometric}).Draw(t, "level"),
			Mask: rapid.Bool().Draw(t, "mask"), Low: 0.5137, High: rapid.SampledFrom([]float64{2.0391, math.Inf(1)}).Draw(t, "high"), Normalize: rapid.Bool().Draw(t, "normalize")}
		want, wantErr = reference.RolloutCorrection(x.role, b.SeqOffsets, x.old, x.rollout, reference.CorrectionOptions{
			Level: reference.CorrectionLevel(c.Level.String()), Mask: c.Mask, Low: c.Low, High: c.High, Normalize: c.Normalize})
		same("RolloutCorrection", ws.RolloutCorrection(dst, b, c), want, wantErr)
		bound := rapid.SampledFrom([]float64{1.7391, math.Inf(1)}).Draw(t, "bound")
		st := reweight.RejectionStatistic(rapid.IntRange(0, 10).Draw(t, "statistic"))
		want, wantErr = reference.Reject(x.role, b.SeqOffsets, x.old, x.rollout, reference.RejectionStatistic(st.String()), 0.5137, bound)
		same("Reject", ws.Reject(dst, b, reweight.RejectionOptions{Statistic: st, Low: 0.5137, High: bound}), want, wantErr)
		want, wantErr = reference.OffPolicyMask(x.role, b.SeqOffsets, x.logprobs, x.old, x.advantages, 0.0217)
		same("OffPolicyMask", ws.OffPolicyMask(dst, b, 0.0217), want, wantErr)

		form := reweight.KLForm(rapid.IntRange(0, 6).Draw(t, "form"))
		want, wantErr = reference.KLRewards(x.role, b.SeqOffsets, x.rewards, x.old, x.ref, reference.KLForm(form.String()), 0.01)
		same("KLRewards", ws.KLRewards(dst, b, reweight.KLRewardsOptions{KL: form, KLCoef: 0.01}), want, wantErr)
		aggregation := reweight.Aggregation(rapid.IntRange(0, 3).Draw(t, "aggregation"))
		norm := rapid.IntRange(0, 5).Draw(t, "norm")
		value, wantErr := reference.ValueLoss(x.role, b.SeqOffsets, x.newValues, x.values, x.returns, 0.5, reference.Aggregation(aggregation.String()), float64(norm))
		v, err := ws.ValueLoss(dst, b, reweight.ValueLossOptions{Clip: 0.5, Aggregation: aggregation, NormLength: norm})
		sameGradient("ValueLoss", err, wantErr, value.Gradient)
		nearTo(t, "value loss", v.Loss, value.Loss)
		nearTo(t, "value clip fraction", v.ClipFraction, value.ClipFraction)

		opt := rapid.SampledFrom([]reweight.LossOptions{reweight.DefaultGSPO, reweight.DefaultLUSPO, reweight.DefaultGRPOSLoss, reweight.DefaultCISPO,
			reweight.DefaultSAPO, reweight.DefaultPG, reweight.DefaultDPPOTV, reweight.DefaultVESPO}).Draw(t, "policy")
		opt.Aggregation, opt.NormLength = aggregation, norm
		if rapid.Bool().Draw(t, "by span") {
			opt.Sequence = reweight.SequenceSpan
		}
		if rapid.Bool().Draw(t, "other clip") {
			opt.ClipLow, opt.ClipHigh, opt.DualClip = 0.2, 0.28, 1.5
		}
		opt.KL, opt.KLCoef = form, rapid.SampledFrom([]float64{0, 0.01}).Draw(t, "beta")
		policy := widePolicy(opt)
		weights := make([]float32, b.Tokens())
		for i := range weights {
			weights[i] = rapid.SampledFrom([]float32{0, 0.5, 1, 2}).Draw(t, "weight")
		}
		loss, wantErr := reference.PolicyLoss(x.role, b.SeqOffsets, b.SpanIDs, x.logprobs, x.old, x.advantages, reference.Floats(weights), policy)
		kl, gradient, klErr := reference.KLLoss(x.role, b.SeqOffsets, x.logprobs, x.ref, reference.KLForm(form.String()), opt.KLCoef, policy.Aggregation, float64(norm))
		if klErr != nil {
			t.Fatal(klErr)
		}
		res, err := ws.Loss(dst, weights, b, opt)
		sameGradient("Loss of "+opt.Policy.String(), err, wantErr, loss.Gradient, gradient)
		nearTo(t, "loss of "+opt.Policy.String(), res.Loss, loss.Loss+kl)
		nearTo(t, "KL", res.KLLoss, kl)
		nearTo(t, "clip fraction", res.ClipFraction, loss.ClipFraction)
		nearTo(t, "mean log-ratio", res.MeanLogRatio, loss.MeanLogRatio)
	})
}

// nearTo allows an absolute error of 1e-5 to sums that cancel.
func nearTo(t *rapid.T, what string, got, want float64) {
	t.Helper()
	if !(math.Abs(got-want) <= 1e-5*max(1, math.Abs(want))) {
		t.Fatalf("%s = %v, want %v", what, got, want)
	}
}

// wideArrays are the arrays of a batch in float64.
type wideArrays struct {
	role                                                                    []reference.Role
	rewards, entropy, advantages, logprobs, old, ref, rollout, tokenRewards []float64
	values, newValues, returns, spanRewards                                 []float64
}

func wideBatch(b *reweight.Batch) wideArrays {
	f := reference.Floats
	return wideArrays{reference.Roles(b.Role), f(b.Rewards), f(b.Entropy), f(b.Advantages), f(b.Logprobs), f(b.OldLogprobs), f(b.RefLogprobs),
		f(b.RolloutLogprobs), f(b.TokenRewards), f(b.Values), f(b.NewValues), f(b.Returns), f(b.SpanRewards)}
}

// widePolicy returns the same options of the reference.
func widePolicy(opt reweight.LossOptions) reference.PolicyOptions {
	return reference.PolicyOptions{LossOptions: reference.LossOptions{ClipLow: opt.ClipLow, ClipHigh: opt.ClipHigh, DualClip: opt.DualClip,
		Aggregation: reference.Aggregation(opt.Aggregation.String()), NormLength: float64(opt.NormLength)}, Policy: reference.Policy(opt.Policy.String()),
		Sequence: reference.Sequence(opt.Sequence.String()), TauPos: opt.TauPos, TauNeg: opt.TauNeg, RatioCap: opt.RatioCap,
		PowerPos: opt.PowerPos, DecayPos: opt.DecayPos, PowerNeg: opt.PowerNeg, DecayNeg: opt.DecayNeg}
}

// spread gives response tokens the value of their trajectory.
func spread(x wideArrays, b *reweight.Batch, of []float64) []float64 {
	spread, err := reference.TokenAdvantages(x.role, b.SeqOffsets, of)
	if err != nil {
		panic(err)
	}
	return spread
}

func drawSchemeBatch(t *rapid.T) *reweight.Batch {
	b := &reweight.Batch{SeqOffsets: []int64{0}}
	add := func(role reweight.Role, span int32) {
		b.Role = append(b.Role, role)
		b.SpanIDs = append(b.SpanIDs, span)
	}
	for range rapid.IntRange(1, 6).Draw(t, "trajectories") {
		for range rapid.IntRange(0, 3).Draw(t, "spans") {
			for range rapid.IntRange(0, 2).Draw(t, "masked before") {
				add(0, -1)
			}
			span := int32(len(b.Anchors))
			b.Anchors = append(b.Anchors, rapid.Int32Range(0, 2).Draw(t, "anchor"))
			b.SpanRewards = append(b.SpanRewards, rapid.SampledFrom([]float32{-0.1, 0, 0, 1}).Draw(t, "span reward"))
			add(1, span)
			for range rapid.IntRange(0, 20).Draw(t, "more tokens") {
				add(reweight.Role(rapid.IntRange(0, 2).Draw(t, "role")), span)
			}
		}
		b.SeqOffsets = append(b.SeqOffsets, int64(len(b.Role)))
		b.GroupIDs = append(b.GroupIDs, rapid.Int32Range(-1, 1).Draw(t, "group"))
		b.Rewards = append(b.Rewards, rapid.SampledFrom([]float32{0, 0.1, 0.8, 1}).Draw(t, "reward"))
	}
	draw := func(low, high float64) []float32 {
		x := make([]float32, len(b.Role))
		coarse := rapid.Bool().Draw(t, "coarse")
		for i := range x {
			grid := 256.0 // so that differences are exact, and both sides agree where a clip begins
			if coarse {
				grid = 4 // ties
			}
			x[i] = float32(math.Round(rapid.Float64Range(low, high).Draw(t, "x")*grid) / grid)
			if b.Role[i] == 0 {
				x[i] = float32(math.NaN())
			}
		}
		return x
	}
	b.Entropy, b.Advantages, b.TokenRewards = draw(0, 3), draw(-2, 2), draw(-1, 1)
	b.Values, b.NewValues, b.Returns = draw(-1, 1), draw(-1, 1), draw(-1, 1)
	b.Logprobs, b.OldLogprobs = draw(-3, 0), draw(-3, 0)
	b.RefLogprobs, b.RolloutLogprobs = draw(-3, 0), draw(-3, 0)
	return b
}
