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
	b := &Batch{Role: []Role{1, 2}, RefEnergy: []float64{-3, -4}, RefEntropy: []float64{1, 2},
		OldLogprobs: []float64{-0.5, -1}, RefLogprobs: []float64{-2, -0.25}}
	for signal, want := range map[Signal][]float64{
		SignalEnergy:     {-3, -4},
		SignalRefEntropy: {1, 2},
		SignalSurprisal:  {0.5, 1},
		SignalLogRatio:   {1.5, -0.75},
	} {
		exactly(t, string(signal), ActFocusSignal(b, signal), want)
	}
}

var (
	defaultGTPO = ShapingOptions{Base: 1, Bonus: 0.1, Threshold: 0.5, EntropyHigh: math.Inf(1),
		Normalization: NormalizeSeparate, Scope: ScopeGroup}
	defaultGRPOS = ShapingOptions{Base: 1, Bonus: 0.1, Threshold: 0.5, EntropyHigh: math.Inf(1),
		Normalization: NormalizeJoint, Scope: ScopeGroup}
)

// Three rewards of 0.1 have a standard deviation above 0 in some arithmetic.
func TestGroupFilterComparesExactly(t *testing.T) {
	exactly(t, "keep", GroupFilter(outcomes([]float64{.1, .1, .1, 0, 1, 5}, []int32{1, 1, 1, 2, 2, 3})),
		[]float64{0, 0, 0, 1, 1, 1})
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
		exactly(t, string(scope)+": tokens", AEM(aemBatch, 1.5, 0.1, scope),
			[]float64{1, a[0], a[1], 1, a[2], 1, a[3], a[4], a[5]})
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

func TestActFocus(t *testing.T) {
	b := &Batch{Role: []Role{2, 2}, RefEnergy: []float64{-7, -7}}
	opt := ActFocusOptions{Signal: SignalEnergy, Alpha: 0.1, Beta: 0.5}
	exactly(t, "weights of equal signals", ActFocus(b, opt), []float64{1.25, 1.25})
	for role, want := range []float64{0, 0.1, 1 + 0.5/(1+math.Exp(-2))} {
		near(t, "weight of a token", ActFocusWeight(Role(role), 7, 3, 2, 0.1, 0.5), want, 0)
	}
	b = &Batch{Role: []Role{0, 1, 2, 2, 1, 0}, RefEnergy: []float64{1, 2, 3, 4, 5, 6}}
	exactly(t, "weights with alpha 1 and beta 0",
		ActFocus(b, ActFocusOptions{Signal: SignalEnergy, Alpha: 1, Eps: 1e-8}), UniformWeights(b))
	exactly(t, "uniform weights", UniformWeights(b), []float64{0, 1, 1, 1, 1, 0})
}

// The first two numbers of SplitMix64 from the state 0, as its author has published them.
func TestHash(t *testing.T) {
	if a, b := Hash(0, 0), Hash(0, 1); a != 0xe220a8397b1dcdaf || b != 0x6e789e6aa1b965f4 {
		t.Errorf("%#x, %#x", a, b)
	}
}
