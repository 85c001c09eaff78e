package reference

import (
	"math"
	"slices"
	"testing"
)

// The numbers that a change of any formula would change, worked out by hand.

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

var (
	defaultGTPO  = ShapingOptions{Base: 1, Bonus: 0.1, Threshold: 0.5, EntropyHigh: math.Inf(1), Normalization: NormalizeSeparate, Scope: ScopeGroup}
	defaultGRPOS = ShapingOptions{Base: 1, Bonus: 0.1, Threshold: 0.5, EntropyHigh: math.Inf(1), Normalization: NormalizeJoint, Scope: ScopeGroup}
)

// Three rewards of 0.1 have a standard deviation above 0 in some arithmetic.
func TestGroupFilterComparesExactly(t *testing.T) {
	exactly(t, "keep", GroupFilter(outcomes([]float64{.1, .1, .1, 0, 1, 5}, []int32{1, 1, 1, 2, 2, 3})), []float64{0, 0, 0, 1, 1, 1})
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

// The first two numbers of SplitMix64 from the state 0, as its author has published them.
func TestHash(t *testing.T) {
	if a, b := Hash(0, 0), Hash(0, 1); a != 0xe220a8397b1dcdaf || b != 0x6e789e6aa1b965f4 {
		t.Errorf("%#x, %#x", a, b)
	}
}
