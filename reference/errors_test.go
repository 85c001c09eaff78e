package reference

import (
	"math"
	"testing"
)

// TestErrors gives every function input that it must refuse, and wants to read
// which argument is wrong and how.
func TestErrors(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	two, three := make([]float64, 2), make([]float64, 3)
	role, span := []Role{1, 2}, []int32{0, 0}
	off, group := []int64{0, 2}, []int32{0}
	opt := DefaultLoss
	with := func(change func(*LossOptions)) LossOptions {
		o := opt
		change(&o)
		return o
	}
	loss := func(role []Role, off []int64, a, b, c, w []float64, o LossOptions) error {
		_, err := Loss(role, off, a, b, c, w, o)
		return err
	}
	stats := func(x []float64, vocab int, ids []int32, tau float64) error {
		_, _, _, err := TokenStats(x, vocab, ids, tau)
		return err
	}
	aem := func(role []Role, span []int32, off []int64, group []int32, entropy []float64, lambda, guard float64, scope Scope) error {
		_, _, _, err := AEM(role, span, off, group, entropy, lambda, guard, scope)
		return err
	}
	gae := func(r, v []float64, role []Role, off []int64, gamma, lambda float64) error {
		_, _, err := GAE(r, v, role, off, gamma, lambda)
		return err
	}
	moments := func(role []Role, x []float64) error {
		_, _, _, err := MaskedMoments(role, x, 0)
		return err
	}
	mass := func(role []Role, w []float64) error {
		_, _, err := WeightMass(role, w)
		return err
	}
	empg := func(role []Role, span []int32, off []int64, entropy, advantages []float64, o EMPGOptions) error {
		_, _, _, err := EMPG(role, span, off, entropy, advantages, o)
		return err
	}
	gtpo := func(rewards, entropy []float64, change func(*ShapingOptions)) error {
		o := DefaultGTPO
		change(&o)
		_, _, err := GTPO(role, off, group, rewards, entropy, o)
		return err
	}
	mask := func(rho float64) error {
		_, _, err := EntropyMask(role, two, rho)
		return err
	}
	policy := func(change func(*PolicyOptions)) error {
		o := DefaultGSPO
		change(&o)
		_, err := PolicyLoss(role, off, nil, two, two, two, two, o)
		return err
	}
	for _, c := range []struct {
		err  error
		want string
	}{
		{second(LogSumExp(nil)), "reference: len(x) = 0, want at least 1 logit"},
		{second(Energy(nil)), "reference: len(x) = 0, want at least 1 logit"},
		{second(Entropy(nil, 1)), "reference: len(x) = 0, want at least 1 logit"},
		{second(Entropy(two, 0)), "reference: tau = 0, want a finite number above 0"},
		{second(Logprob(nil, 0, 1)), "reference: len(x) = 0, want at least 1 logit"},
		{second(Logprob(two, 2, 1)), "reference: id = 2, want 0 to 1"},
		{second(Logprob(two, -1, 1)), "reference: id = -1, want 0 to 1"},
		{second(Logprob(two, 0, nan)), "reference: tau = NaN, want a finite number above 0"},
		{second(RowGradient(two, 2, 1, 1, 0)), "reference: id = 2, want 0 to 1"},
		{second(RowGradient(two, 0, -1, 1, 0)), "reference: tau = -1, want a finite number above 0"},
		{stats(two, 0, nil, 1), "reference: vocab = 0, want at least 1"},
		{stats(three, 2, []int32{0}, 1), "reference: len(logits) = 3, want a multiple of vocab = 2"},
		{stats(make([]float64, 8), 1, make([]int32, 7), 1), "reference: len(ids) = 7, want 8 rows"},
		{stats(two, 1, []int32{0, 1}, 1), "reference: ids[1] = 1, want 0 to 0"},
		{stats(nil, 1, nil, math.Inf(1)), "reference: tau = +Inf, want a finite number above 0"},

		{second(ActFocusSignal("energies", nil, nil, nil, nil)), `reference: signal = "energies", want "energy", "ref_entropy", "surprisal" or "log_ratio"`},
		{second(ActFocusSignal(SignalLogRatio, nil, nil, two, three)), "reference: len(refLogprobs) = 3, want 2 tokens"},
		{second(ActFocusWeights(role, three, .1, .5, 0)), "reference: len(signal) = 3, want 2 tokens"},
		{second(ActFocusWeights([]Role{3}, two[:1], .1, .5, 0)), "reference: role[0] = 3, want 0, 1 or 2"},
		{second(ActFocusWeights(role, two, 1.5, .5, 0)), "reference: alpha = 1.5, want 0 to 1"},
		{second(ActFocusWeights(role, two, nan, .5, 0)), "reference: alpha = NaN, want 0 to 1"},
		{second(ActFocusWeights(role, two, .1, -1, 0)), "reference: beta = -1, want a finite number, 0 or more"},
		{second(ActFocusWeights(role, two, .1, .5, nan)), "reference: eps = NaN, want a finite number, 0 or more"},

		{aem(role, span[:1], off, group, two, 1, 0, ScopeGroup), "reference: len(spanIDs) = 1, want 2 tokens"},
		{aem(role, []int32{0, -2}, off, group, two, 1, 0, ScopeGroup), "reference: spanIDs[1] = -2, want -1 to 1"},
		{aem(role, []int32{0, 2}, off, group, two, 1, 0, ScopeGroup), "reference: spanIDs[1] = 2, want -1 to 1"},
		{aem(role, span, []int64{0, 1, 2}, []int32{0, 0}, two, 1, 0, ScopeGroup), "reference: spanIDs[1] = 0 is in trajectory 1, but the span began in trajectory 0"},
		{aem(role, span, off, []int32{0, 0}, two, 1, 0, ScopeGroup), "reference: len(groupIDs) = 2, want 1 trajectories"},
		{aem(role, span, off, group, three, 1, 0, ScopeGroup), "reference: len(entropy) = 3, want 2 tokens"},
		{aem(role, span, off, group, two, -1, 0, ScopeGroup), "reference: lambda = -1, want a finite number, 0 or more"},
		{aem(role, span, off, group, two, 1, nan, ScopeGroup), "reference: guard = NaN, want a finite number, 0 or more"},
		{aem(role, span, off, group, two, 1, 0, "all"), `reference: scope = "all", want "group", "trajectory" or "batch"`},
		{moments([]Role{3}, two[:1]), "reference: role[0] = 3, want 0, 1 or 2"},
		{moments(role, three), "reference: len(x) = 3, want 2 tokens"},
		{second(SpanMeans(two, nil)), "reference: len(offsets) = 0, want at least 1"},
		{second(SpanMeans(two, []int64{0, 3})), "reference: offsets[1] = 3, want 2 tokens"},
		{second(ExpScale(two, 0, -1)), "reference: rate = -1, want a finite number, 0 or more"},

		{second(ScaleAdvantages(two, three)), "reference: len(factors) = 3, want 2 tokens"},
		{second(EMPGScales(two, nan)), "reference: k = NaN, want a finite number, 0 or more"},

		{second(GRPO(two, group, true)), "reference: len(groupIDs) = 1, want 2 trajectories"},
		{second(TokenAdvantages(role, off, two)), "reference: len(advantages) = 2, want 1 trajectories"},
		{second(TokenAdvantages(role, nil, nil)), "reference: len(offsets) = 0, want at least 1"},
		{second(TokenAdvantages(role, []int64{1, 2}, two[:1])), "reference: offsets[0] = 1, want 0"},
		{second(TokenAdvantages(role, []int64{0, 2, 1}, two)), "reference: offsets[2] = 1 is below offsets[1] = 2"},
		{second(TokenAdvantages(role, []int64{0, 3}, two[:1])), "reference: offsets[1] = 3, want 2 tokens"},
		{gae(three, two, role, off, 1, 1), "reference: len(rewards) = 3, want 2 tokens"},
		{gae(two, three, role, off, 1, 1), "reference: len(values) = 3, want 2 tokens"},
		{gae(two, two, role, off, 1.1, 1), "reference: gamma = 1.1, want 0 to 1"},
		{gae(two, two, role, off, 1, nan), "reference: lambda = NaN, want 0 to 1"},
		{second(Whiten(two, []Role{0, 1})), "reference: role has 1 response tokens, want at least 2 to whiten"},
		{second(Whiten(three, role)), "reference: len(x) = 3, want 2 tokens"},

		{loss(role, off, three, two, two, two, opt), "reference: len(logprobs) = 3, want 2 tokens"},
		{loss(role, off, two, three, two, two, opt), "reference: len(oldLogprobs) = 3, want 2 tokens"},
		{loss(role, off, two, two, three, two, opt), "reference: len(advantages) = 3, want 2 tokens"},
		{loss(role, off, two, two, two, three, opt), "reference: len(weights) = 3, want 2 tokens"},
		{loss(role, off, two, two, two, two, with(func(o *LossOptions) { o.ClipLow = nan })), "reference: opt.ClipLow = NaN, want a finite number, 0 or more"},
		{loss(role, off, two, two, two, two, with(func(o *LossOptions) { o.ClipHigh = -1 })), "reference: opt.ClipHigh = -1, want a finite number, 0 or more"},
		{loss(role, off, two, two, two, two, with(func(o *LossOptions) { o.ClipHigh = math.Inf(1) })), "reference: opt.ClipHigh = +Inf, want a finite number, 0 or more"},
		{loss(role, off, two, two, two, two, with(func(o *LossOptions) { o.DualClip = -1 })), "reference: opt.DualClip = -1, want a finite number above 1, or 0 for none"},
		{loss(role, off, two, two, two, two, with(func(o *LossOptions) { o.NormLength = nan })), "reference: opt.NormLength = NaN, want a finite number, 0 or more"},
		{loss(role, off, two, two, two, two, with(func(o *LossOptions) { o.Aggregation = "mean" })), `reference: opt.Aggregation = "mean", want "token_mean", "seq_mean_token_sum", "seq_mean_token_mean" or "seq_mean_token_sum_norm"`},
		{second(K3Mean(role, three, two)), "reference: len(logprobs) = 3, want 2 tokens"},
		{second(K3Mean(role, two, three)), "reference: len(refLogprobs) = 3, want 2 tokens"},

		{empg(role, []int32{0, 0}, off, two, two, EMPGOptions{K: -1}), "reference: k = -1, want a finite number, 0 or more"},
		{empg(role, []int32{0, 0}, off, two, two, EMPGOptions{KFuture: nan}), "reference: opt.KFuture = NaN, want a finite number, 0 or more"},
		{empg(role, []int32{1, 0}, off, two, two, DefaultEMPG), "reference: spanIDs[0] = 1, want at most 0: spans are numbered in the order in which they begin"},
		{empg(role, []int32{0, -1}, off, two, two, DefaultEMPG), "reference: spanIDs[1] = -1 at a response token, want its span"},
		{empg([]Role{0, 1}, []int32{0, 1}, off, two, two, DefaultEMPG), "reference: spanIDs[0] = 0 is a span without response tokens"},
		{empg(role, span, off, two, []float64{0, inf}, DefaultEMPG), "reference: advantages[1] = +Inf, want a finite number"},

		{gtpo(two[:1], two, func(o *ShapingOptions) { o.Base = nan }), "reference: opt.Base = NaN, want a finite number, 0 or more"},
		{gtpo(two[:1], two, func(o *ShapingOptions) { o.EntropyHigh = -1 }), "reference: opt.EntropyHigh = -1, want at least opt.EntropyLow = 0"},
		{gtpo(two[:1], two, func(o *ShapingOptions) { o.Normalization = "both" }), `reference: opt.Normalization = "both", want "separate", "joint" or "none"`},
		{gtpo(two[:1], two, func(o *ShapingOptions) { o.Scope = ScopeTrajectory }), `reference: opt.Scope = "trajectory", want "group" or "batch"`},
		{gtpo([]float64{nan}, two, func(*ShapingOptions) {}), "reference: rewards[0] = NaN, want a finite number"},
		{gtpo(two[:1], three, func(*ShapingOptions) {}), "reference: len(entropy) = 3, want 2 tokens"},
		{mask(0), "reference: rho = 0, want above 0, up to 1"},
		{mask(nan), "reference: rho = NaN, want above 0, up to 1"},

		{policy(func(o *PolicyOptions) { o.Policy = "ppo" }), `reference: opt.Policy = "ppo", want "gspo", "grpo_s", "cispo", "sapo", "pg", "dppo_tv" or "vespo"`},
		{policy(func(o *PolicyOptions) { o.Sequence = "" }), `reference: opt.Sequence = "", want "trajectory" or "span"`},
		{policy(func(o *PolicyOptions) { o.Sequence = SequenceSpan }), "reference: len(spanIDs) = 0, want 2 tokens"},
		{policy(func(o *PolicyOptions) { *o = DefaultSAPO; o.TauNeg = 0 }), "reference: opt.TauNeg = 0, want a finite number above 0"},
		{policy(func(o *PolicyOptions) { *o = DefaultDPPOTV; o.RatioCap = inf }), "reference: opt.RatioCap = +Inf, want a finite number above 0"},
		{policy(func(o *PolicyOptions) { *o = DefaultVESPO; o.PowerNeg = nan }), "reference: opt.PowerNeg = NaN, want a finite number, 0 or more"},
		{policy(func(o *PolicyOptions) { *o = DefaultVESPO; o.DecayPos = -1 }), "reference: opt.DecayPos = -1, want a finite number, 0 or more"},
		{policy(func(o *PolicyOptions) { o.DualClip = 1 }), "reference: opt.DualClip = 1, want a finite number above 1, or 0 for none"},
		{loss(role, off, two, two, two, two, with(func(o *LossOptions) { o.DualClip = 0.5 })), "reference: opt.DualClip = 0.5, want a finite number above 1, or 0 for none"},
		{policy(func(o *PolicyOptions) { o.Aggregation = "" }), `reference: opt.Aggregation = "", want "token_mean", "seq_mean_token_sum", "seq_mean_token_mean" or "seq_mean_token_sum_norm"`},

		{second(RLOO(two, group)), "reference: len(groupIDs) = 1, want 2 trajectories"},
		{second(GroupFilter([]float64{inf}, group)), "reference: rewards[0] = +Inf, want a finite number"},
		{second(OverlongPenalty(role, off, 1, 2, 1)), "reference: maximum = 1, want at least buffer = 2"},
		{second(OverlongPenalty(role, off, 1, 0, 1)), "reference: buffer = 0, want at least 1"},
		{second(OverlongPenalty(role, off, 2, 1, -1)), "reference: penalty = -1, want a finite number, 0 or more"},
		{second(ReinforcePlusPlusBaseline([]Role{0, 1}, off, two[:1], group)), "reference: role has 1 response tokens, want at least 2 to whiten"},
		{second(RolloutCorrection(role, off, two, two, CorrectionOptions{Level: "span"})), `reference: opt.Level = "span", want "token", "sequence" or "geometric"`},
		{second(RolloutCorrection(role, off, two, two, CorrectionOptions{Level: CorrectToken, Low: inf, High: inf})), "reference: opt.Low = +Inf, want a finite number, 0 or more"},
		{second(RolloutCorrection(role, off, two, two, CorrectionOptions{Level: CorrectToken, Low: 2, High: 1})), "reference: opt.Low = 2 and opt.High = 1, want 0 <= Low <= High"},
		{second(Reject(role, off, two, two, RejectTokenK1, 0, 2)), "reference: low = 0, want a finite number above 0"},
		{second(Reject(role, off, two, two, RejectTokenK1, inf, inf)), "reference: low = +Inf, want a finite number above 0"},
		{second(Reject(role, off, two, two, RejectTokenK1, 2, 1)), "reference: low = 2 and high = 1, want 0 < low <= high"},
		{second(Reject(role, off, two, two, RejectSeqMaxK3, 0, nan)), "reference: high = NaN, want at least 0"},
		{second(Reject(role, off, two, two, "seq_max_k1", 1, 2)), `reference: statistic = "seq_max_k1", want a measure of tokens or of trajectories such as "token_k1" or "seq_mean_k3"`},
		{second(OffPolicyMask(role, off, two, two, two, nan)), "reference: delta = NaN, want a finite number"},
		{second(KLRewards(role, off, two[:1], two, two, "k4", 0)), `reference: form = "k4", want "k1", "abs", "k2", "k3", "k1+", "abs+" or "k3+"`},
		{second(ValueLoss(role, off, two, two, two, -1, TokenMean, 0)), "reference: clip = -1, want a finite number, 0 or more"},
		{second(GiGPO(role, span, off, group, two[:1], nil, nil, DefaultGiGPO)), "reference: len(anchors) = 0, want 1 spans"},
		{second(GiGPO(role, span, off, group, two[:1], group, two[:1], GiGPOOptions{Gamma: 2})), "reference: opt.Gamma = 2, want 0 to 1"},

		{second(Bottleneck(role, off, group, two, two)), "reference: len(rewards) = 2, want 1 trajectories"},
		{second(Bottleneck(role, off, group, two[:1], three)), "reference: len(energy) = 3, want 2 tokens"},
		{second(EntropyDrift(role, span, three, two, two)), "reference: len(advantages) = 3, want 2 tokens"},
		{second(EntropyDrift(role, span, two, three, two)), "reference: len(oldLogprobs) = 3, want 2 tokens"},
		{second(EntropyDrift(role, span, two, two, three)), "reference: len(entropy) = 3, want 2 tokens"},
		{mass(role, three), "reference: len(weights) = 3, want 2 tokens"},
		{second(Spearman(two, three)), "reference: len(y) = 3, want 2 pairs"},
	} {
		if c.err == nil || c.err.Error() != c.want {
			t.Errorf("error %v, want %s", c.err, c.want)
		}
	}
}

func second[T any](_ T, err error) error { return err }
