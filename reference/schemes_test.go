package reference

import (
	"math"
	"slices"
	"testing"
)

// The numbers that a change of any formula would change, worked out by hand.

// within fails unless got is want to the six places that want is given with.
func within(t *testing.T, what string, got, want []float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("len(%s) = %d, want %d", what, len(got), len(want))
	}
	for i := range got {
		if !(math.Abs(got[i]-want[i]) <= 6e-7) {
			t.Errorf("%s[%d] = %v, want %v", what, i, got[i], want[i])
		}
	}
}

// exactly fails unless got is want.
func exactly(t *testing.T, what string, got, want []float64) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

// outcomes returns a batch of trajectories of one action token.
func outcomes(rewards []float64, groupIDs []int32) *Batch {
	b := &Batch{Rewards: rewards, GroupIDs: groupIDs, SeqOffsets: []int64{0}}
	for range rewards {
		b.Role = append(b.Role, RoleAction)
		b.SeqOffsets = append(b.SeqOffsets, int64(len(b.Role)))
	}
	return b
}

// TestMisuse: lengths that do not fit panic.
func TestMisuse(t *testing.T) {
	defer func() {
		if got, want := recover(), "reference: an array has 3 elements, want 2, one per token"; got != want {
			t.Errorf("panic %q, want %q", got, want)
		}
	}()
	EntropyMask(&Batch{Role: []Role{1, 2}, Entropy: make([]float64, 3)}, 0.2)
}

func TestActFocus(t *testing.T) {
	b := &Batch{Role: []Role{2, 2, 2, 2}, RefEnergy: []float64{-30, -28, -25, -21}}
	opt := ActFocusOptions{Signal: SignalEnergy, Alpha: 0.1, Beta: 0.5}
	within(t, "weights", ActFocus(b, opt), []float64{1.117568, 1.178344, 1.286596, 1.406864})
	b = &Batch{Role: []Role{2, 2}, RefEnergy: []float64{-7, -7}}
	exactly(t, "weights of equal signals", ActFocus(b, opt), []float64{1.25, 1.25})
	for role, want := range []float64{0, 0.1, 1 + 0.5/(1+math.Exp(-2))} {
		near(t, "weight of a token", ActFocusWeight(Role(role), 7, 3, 2, 0.1, 0.5), want, 0)
	}
	b = &Batch{Role: []Role{0, 1, 2, 2, 1, 0}, RefEnergy: []float64{1, 2, 3, 4, 5, 6}}
	exactly(t, "weights with alpha 1 and beta 0", ActFocus(b, ActFocusOptions{Signal: SignalEnergy, Alpha: 1, Eps: 1e-8}), UniformWeights(b))
	exactly(t, "uniform weights", UniformWeights(b), []float64{0, 1, 1, 1, 1, 0})
}

// Only action tokens count, and a shift or a positive scale of their signal
// changes nothing.
func TestActFocusInvariance(t *testing.T) {
	role := []Role{0, 1, 2, 2, 2}
	opt := ActFocusOptions{Signal: SignalEnergy, Alpha: 0.1, Beta: 0.5}
	a := ActFocus(&Batch{Role: role, RefEnergy: []float64{9, 9, 1, 2, 4}}, opt)
	for i, w := range ActFocus(&Batch{Role: role, RefEnergy: []float64{math.NaN(), -50, 13, 16, 22}}, opt) {
		near(t, "weight", w, a[i], 1e-15)
	}
	n, mu, sigma := ActionMoments(role, []float64{9, 9, 1, 2, 6}, 0)
	if n != 3 || mu != 3 || !(math.Abs(sigma-math.Sqrt(14.0/3)) <= 1e-15) {
		t.Errorf("ActionMoments = %v, %v, %v, want 3, 3, sqrt(14/3)", n, mu, sigma)
	}
	if n, mu, sigma := ActionMoments([]Role{0, 1}, []float64{5, 6}, 1e-8); n != 0 || mu != 0 || sigma != 0 {
		t.Errorf("ActionMoments without actions = %v, %v, %v, want zeros", n, mu, sigma)
	}
}

func TestActFocusSignal(t *testing.T) {
	b := &Batch{Role: []Role{1, 2}, RefEnergy: []float64{-3, -4}, RefEntropy: []float64{1, 2}, OldLogprobs: []float64{-0.5, -1}, RefLogprobs: []float64{-2, -0.25}}
	for signal, want := range map[Signal][]float64{
		SignalEnergy:     {-3, -4},
		SignalRefEntropy: {1, 2},
		SignalSurprisal:  {0.5, 1},
		SignalLogRatio:   {1.5, -0.75},
	} {
		exactly(t, string(signal), ActFocusSignal(b, signal), want)
	}
}

func TestGRPOGroupsThatInterleave(t *testing.T) {
	std := 10 / math.Sqrt2
	want := []float64{-2 / (2 + 1e-6), -5 / (std + 1e-6), 0, 5 / (std + 1e-6), 2 / (2 + 1e-6), 4 / (1 + 1e-6)}
	for i, a := range GRPO(outcomes([]float64{1, 10, 3, 20, 5, 4}, []int32{-5, 90000, -5, 90000, -5, 3}), true) {
		near(t, "advantage", a, want[i], 1e-15)
	}
	b := &Batch{Role: []Role{0, 1, 2, 0, 1}, SeqOffsets: []int64{0, 3, 3, 5}, Rewards: []float64{2, 9, -1}, GroupIDs: []int32{1, 2, 3}}
	exactly(t, "advantages of tokens", GRPO(b, false), []float64{0, 2, 2, 0, -1})
}

// With gamma = lambda = 1 the advantage is the reward to come, over response
// tokens, minus the value; nothing passes from one trajectory to another.
func TestGAEIsRewardToCome(t *testing.T) {
	b := &Batch{Role: []Role{1, 1, 2, 0, 1, 0, 2}, SeqOffsets: []int64{0, 4, 7}, TokenRewards: []float64{0, 0, 1, 0, 5, 0, -2}, Values: []float64{.5, .25, .75, 8, .5, 8, .125}}
	advantages, returns := GAE(b, 1, 1)
	want := []float64{1 - .5, 1 - .25, 1 - .75, 0, 3 - .5, -2 - .125, -2 - .125}
	exactly(t, "advantages", advantages, want)
	for i, a := range want {
		near(t, "return", returns[i], a+b.Values[i], 0)
	}
}

func TestWhiten(t *testing.T) {
	b := &Batch{Role: []Role{1, 0, 2, 1, 1}}
	white := Whiten(b, []float64{3, 1000, -1, 7, 4})
	total, squares := 0.0, 0.0
	for _, v := range b.masked(white) {
		total += v
		squares += v * v
	}
	near(t, "mean", total, 0, 1e-15)
	variance := 32.75 / 3 // of 3, -1, 7, 4
	near(t, "variance", squares/3, variance/(variance+1e-8), 1e-15)
	near(t, "masked element", white[1], (1000-3.25)/math.Sqrt(variance+1e-8), 1e-15)
}

func TestAEMFourSpans(t *testing.T) {
	within(t, "a", AEMFactors([]float64{.2, .5, .9, 1.4}, 1, 0), []float64{1.478899, 1.151767, .825277, .544056})
}

// aemBatch has four trajectories of one or two spans with one token each, and
// groups 7 and -2 that interleave.
var aemBatch = &Batch{
	Role:       []Role{0, 1, 2, 0, 1, 0, 1, 1, 2},
	SpanIDs:    []int32{-1, 0, 1, 1, 2, -1, 3, 4, 5},
	SeqOffsets: []int64{0, 4, 5, 7, 9},
	GroupIDs:   []int32{7, -2, 7, -2},
	Entropy:    []float64{9, .2, .5, 9, .3, 9, 1.4, .7, .1},
}

func TestAEMScopes(t *testing.T) {
	hbar := SpanEntropies(aemBatch)
	for scope, groups := range map[Scope][][]int{
		ScopeGroup:      {{0, 1, 3}, {2, 4, 5}},
		ScopeTrajectory: {{0, 1}, {2}, {3}, {4, 5}},
		ScopeBatch:      {{0, 1, 2, 3, 4, 5}},
	} {
		a := AEMSpans(aemBatch, 1.5, 0.1, scope)
		for _, group := range groups {
			near(t, "mean factor", mean(pick(a, group)), 1, 1e-15)
			exactly(t, "factors", pick(a, group), AEMFactors(pick(hbar, group), 1.5, 0.1))
		}
		exactly(t, string(scope)+": tokens", AEM(aemBatch, 1.5, 0.1, scope), []float64{1, a[0], a[1], 1, a[2], 1, a[3], a[4], a[5]})
	}
}

func TestAEMGuard(t *testing.T) {
	for _, c := range []struct {
		hbar  []float64
		guard float64
		ones  bool
	}{
		{[]float64{.5, .5625}, 0.1, true},
		{[]float64{.5, .625}, 0.125, false}, // at the guard, not below it
		{[]float64{.5, .5625}, 0, false},
		{[]float64{.5, .5}, 0, true}, // 0/0 without the rule for equal entropies
		{[]float64{.5}, 0, true},
	} {
		a := AEMFactors(c.hbar, 1, c.guard)
		if (a[0] == 1) != c.ones || math.IsNaN(a[0]) {
			t.Errorf("AEMFactors(%v, guard %v) = %v", c.hbar, c.guard, a)
		}
	}
}

func TestAEMSpanWithoutResponseTokens(t *testing.T) {
	b := &Batch{Role: []Role{0, 1, 1}, SpanIDs: []int32{0, 1, 2}, SeqOffsets: []int64{0, 3}, GroupIDs: []int32{0}, Entropy: []float64{5, .2, .8}}
	spans, tokens := AEMSpans(b, 1, 0.1, ScopeGroup), AEM(b, 1, 0.1, ScopeGroup)
	if spans[0] != 1 || tokens[0] != 1 {
		t.Errorf("masked span: factor %v, token %v, want 1", spans[0], tokens[0])
	}
	near(t, "mean of the other two", (spans[1]+spans[2])/2, 1, 1e-15)
}

func TestEMPGFourSpans(t *testing.T) {
	b := &Batch{Role: []Role{1, 2, 1, 2}, SpanIDs: []int32{0, 1, 2, 3}, SeqOffsets: []int64{0, 2, 4}, Entropy: []float64{.2, .5, .9, 1.4}, Advantages: []float64{1, 1, -1, -1}}
	within(t, "advantages", EMPG(b, EMPGOptions{K: 1, KFuture: 1, Zeta: 0.05}), []float64{1.188172, .822101, -1.136550, -.873723})
}

func TestEMPGIsAEMOverTheBatch(t *testing.T) {
	a := AEMSpans(aemBatch, 1, 0, ScopeBatch)
	for s, g := range EMPGScales(SpanEntropies(aemBatch), 1) {
		near(t, "g", g, a[s], 3e-8) // the two constants of 1e-8
	}
}

// A spread as small as the constant in the first denominator halves Htil.
func TestEMPGConstants(t *testing.T) {
	g := EMPGScales([]float64{0, 1e-8}, 2)
	e := math.Exp(-1)
	near(t, "g of the least", g[0], 1/((1+e)/2+1e-8), 1e-15)
	near(t, "g of the most", g[1], e/((1+e)/2+1e-8), 1e-15)
}

var (
	defaultGTPO  = ShapingOptions{Base: 1, Bonus: 0.1, Threshold: 0.5, EntropyHigh: math.Inf(1), Normalization: NormalizeSeparate, Scope: ScopeGroup}
	defaultGRPOS = ShapingOptions{Base: 1, Bonus: 0.1, Threshold: 0.5, EntropyHigh: math.Inf(1), Normalization: NormalizeJoint, Scope: ScopeGroup}
)

func TestGTPOThreeTrajectories(t *testing.T) {
	b := &Batch{Role: []Role{1, 2, 1, 2, 1, 2}, SeqOffsets: []int64{0, 2, 4, 6}, GroupIDs: []int32{5, 5, 5}, Rewards: []float64{1, 1, 0}, Entropy: []float64{3, 1, 1, 3, 2, 2}}
	shaped := defaultGTPO
	shaped.Normalization = NormalizeNone
	within(t, "u", GTPO(b, shaped), []float64{1.15, 1.05, 1.05, 1.15, -1.1, -1.1})
	within(t, "advantages", GTPO(b, defaultGTPO), []float64{.999998, -.999998, -.999998, .999998, 0, 0})
	b.Entropy = []float64{3, 1, 1, 2, 2, 2}
	within(t, "u of GRPO-S", GRPOS(b, shaped), []float64{1.114286, 1.114286, 1.085714, 1.085714, -1.1, -1.1})
}

// Three rewards of 0.1 have a standard deviation above 0 in some arithmetic.
func TestGroupFilterComparesExactly(t *testing.T) {
	exactly(t, "keep", GroupFilter(outcomes([]float64{.1, .1, .1, 0, 1, 5}, []int32{1, 1, 1, 2, 2, 3})), []float64{0, 0, 0, 1, 1, 1})
}

func TestOverlongPenalty(t *testing.T) {
	role := make([]Role, 30)
	for i := range role[:28] {
		role[i] = 1 // two masked tokens, which do not count
	}
	for n, want := range map[int64]float64{0: 0, 10: 0, 12: 0, 14: -.25, 16: -.5, 20: -1, 28: -1} {
		p := OverlongPenalty(&Batch{Role: role, SeqOffsets: []int64{0, 28 - n, 28, 30}}, 20, 8, 1)
		near(t, "penalty", p[1], want, 0)
		near(t, "penalty without response tokens", p[2], 0, 0)
	}
}

// With every anchor once GiGPO is GRPO.
func TestGiGPOWithoutSharedStatesIsGRPO(t *testing.T) {
	b := &Batch{Role: []Role{1, 0, 2, 1, 1, 2}, SpanIDs: []int32{0, -1, 1, 2, 2, 3}, SeqOffsets: []int64{0, 3, 5, 6}, GroupIDs: []int32{1, 1, 2},
		Rewards: []float64{1, -2, 7}, Anchors: []int32{0, 1, 2, 3}, SpanRewards: []float64{4, 5, 6, 7}}
	exactly(t, "advantages", GiGPO(b, GiGPOOptions{Gamma: 0.95, Omega: 1, DivideByStd: true}), GRPO(b, true))
}

// REINFORCE++-baseline is REINFORCE++ with the centred outcome as the last reward.
func TestReinforcePlusPlusBaselineIsReinforcePlusPlus(t *testing.T) {
	b := &Batch{Role: []Role{1, 0, 2, 1, 1, 2, 0}, SeqOffsets: []int64{0, 3, 5, 7}, GroupIDs: []int32{1, 1, 2}, Rewards: []float64{1, -2, 7}}
	baseline := ReinforcePlusPlusBaseline(b)
	b.Rewards = []float64{1.5, -1.5, 7}
	b.TokenRewards = KLRewards(b, KLK1, 0)
	for i, a := range ReinforcePlusPlus(b, 1) {
		near(t, "advantage", a, baseline[i], 1e-15)
	}
}

// k1 is -z: what is bounded is the ratio of the rollout's policy to the old one. Bounds
// that are not each other's inverses tell it from z.
func TestRejectStatistics(t *testing.T) {
	third := math.Log(3)
	b := &Batch{Role: []Role{1, 0, 2, 1}, SeqOffsets: []int64{0, 3, 4},
		OldLogprobs: []float64{0, 0, -third, 0}, RolloutLogprobs: []float64{-third, 9, 0, third}} // z = log 3, masked, -log 3; -log 3
	for _, c := range []struct {
		statistic RejectionStatistic
		low, high float64
		want      []float64
	}{
		{RejectTokenK1, .5, 4, []float64{0, 0, 1, 1}},
		{RejectTokenK1, .25, 2, []float64{1, 0, 0, 0}},
		{RejectTokenK2, 0, .7, []float64{1, 0, 1, 1}}, // 0.603
		{RejectTokenK3, 0, .7, []float64{0, 0, 1, 1}}, // 0.901 and 0.432
		{RejectSeqSumK1, 2, 4, []float64{0, 0, 0, 1}}, // 0 and log 3
		{RejectSeqSumK1, .5, 2, []float64{1, 0, 1, 0}},
		{RejectSeqSumK2, 0, 1, []float64{0, 0, 0, 1}}, // 1.207
		{RejectSeqSumK3, 0, 1, []float64{0, 0, 0, 1}}, // 1.333
		{RejectSeqMeanK1, .5, 2, []float64{1, 0, 1, 0}},
		{RejectSeqMeanK2, 0, .5, []float64{0, 0, 0, 0}},
		{RejectSeqMeanK3, 0, .5, []float64{0, 0, 0, 1}}, // 0.667
		{RejectSeqMaxK2, 0, .7, []float64{1, 0, 1, 1}},
		{RejectSeqMaxK3, 0, .7, []float64{0, 0, 0, 1}},
	} {
		exactly(t, string(c.statistic), Reject(b, c.statistic, c.low, c.high), c.want)
	}
}
