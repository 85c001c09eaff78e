package reference

import (
	"math"
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

func TestEMPGFourSpans(t *testing.T) {
	scaled, _, _, err := EMPG([]Role{1, 2, 1, 2}, []int32{0, 1, 2, 3}, []int64{0, 2, 4}, []float64{.2, .5, .9, 1.4}, []float64{1, 1, -1, -1}, DefaultEMPG)
	if err != nil {
		t.Fatal(err)
	}
	within(t, "advantages", scaled, []float64{1.188172, .822101, -1.136550, -.873723})
}

func TestGTPOThreeTrajectories(t *testing.T) {
	role, offsets, group := []Role{1, 2, 1, 2, 1, 2}, []int64{0, 2, 4, 6}, []int32{5, 5, 5}
	rewards := []float64{1, 1, 0}
	shaped, advantages, err := GTPO(role, offsets, group, rewards, []float64{3, 1, 1, 3, 2, 2}, DefaultGTPO)
	if err != nil {
		t.Fatal(err)
	}
	within(t, "u", shaped, []float64{1.15, 1.05, 1.05, 1.15, -1.1, -1.1})
	within(t, "advantages", advantages, []float64{.999998, -.999998, -.999998, .999998, 0, 0})

	shaped, _, err = GRPOS(role, offsets, group, rewards, []float64{3, 1, 1, 2, 2, 2}, DefaultGRPOS)
	if err != nil {
		t.Fatal(err)
	}
	within(t, "u of GRPO-S", shaped, []float64{1.114286, 1.085714, -1.1})
}

func TestGSPOThreeTokens(t *testing.T) {
	opt := DefaultGSPO
	opt.ClipLow, opt.ClipHigh = 0.2, 0.28
	raw := []float64{.02, -.01, .05}
	loss := must[LossResult](t)(PolicyLoss([]Role{1, 1, 2}, []int64{0, 3}, nil, raw, make([]float64, 3), ones(3), ones(3), opt))
	within(t, "loss", []float64{loss.Loss}, []float64{-1.020201})
	within(t, "gradient", loss.Gradient, []float64{-.340067, -.340067, -.340067})
}

func TestTokenLossNumbers(t *testing.T) {
	up := math.Log(1.5)
	l, g := SAPO(up, 0, 1, 1, 1.05)
	within(t, "SAPO", []float64{l, g}, []float64{-2.489837, -1.410022})
	l, g = SAPO(up, 0, -1, 1, 1.05)
	within(t, "SAPO, A < 0", []float64{l, g}, []float64{2.393585, 1.401210})
	within(t, "phi", []float64{VESPOFactor([]float64{up}, []float64{0}, 2, 3)}, []float64{.502043})
	k, _, err := KL(KLK3, .5, 0)
	if err != nil {
		t.Fatal(err)
	}
	within(t, "k3", []float64{k}, []float64{.106531})
}

func TestDPPOTVKeeps(t *testing.T) {
	half, eighth := math.Log(.5), math.Log(.125)
	for _, c := range []struct {
		name                           string
		new, old, advantage            float64
		clipLow, clipHigh, cap, factor float64 // -l'/A
		clipped                        bool
	}{
		{"up by 3/8 with A > 0", half, eighth, 2, .2, .2, 20, 0, true},
		{"up by 3/8 with A < 0", half, eighth, -2, .2, .2, 20, 4, false},
		{"down by 3/8 with A > 0", eighth, half, 2, .2, .2, 20, .25, false},
		{"down by 3/8 with A < 0", eighth, half, -2, .2, .2, 20, 0, true},
		{"at the bound", half, eighth, 2, .2, .375, 20, 4, false},
		{"capped", half, eighth, -2, .2, .2, 3, 3, false},
	} {
		l, g, clipped := DPPOTV(c.new, c.old, c.advantage, c.clipLow, c.clipHigh, c.cap)
		near(t, c.name+": derivative", g, -c.factor*c.advantage, 1e-15)
		near(t, c.name+": l", l, g*c.new, 1e-15)
		if clipped != c.clipped {
			t.Errorf("%s: clipped = %v, want %v", c.name, clipped, c.clipped)
		}
	}
}

// Three rewards of 0.1 have a standard deviation above 0 in some arithmetic.
func TestGroupFilterComparesExactly(t *testing.T) {
	keep := must[[]float64](t)(GroupFilter([]float64{.1, .1, .1, 0, 1, 5}, []int32{1, 1, 1, 2, 2, 3}))
	for i, want := range []float64{0, 0, 0, 1, 1, 1} {
		if keep[i] != want {
			t.Errorf("keep[%d] = %v, want %v", i, keep[i], want)
		}
	}
}

func TestOverlongPenalty(t *testing.T) {
	role := make([]Role, 30)
	for i := range role[:28] {
		role[i] = 1 // two masked tokens, which do not count
	}
	for n, want := range map[int64]float64{0: 0, 10: 0, 12: 0, 14: -.25, 16: -.5, 20: -1, 28: -1} {
		p := must[[]float64](t)(OverlongPenalty(role, []int64{0, 28 - n, 28, 30}, 20, 8, 1))
		near(t, "penalty", p[1], want, 0)
		near(t, "penalty without response tokens", p[2], 0, 0)
	}
}

func TestValueTermCases(t *testing.T) {
	for _, c := range []struct {
		name           string
		v, old, target float64
		l, derivative  float64
		clipped        bool
	}{
		{"inside", 1.25, 1, 3, 1.53125, -1.75, false},
		{"beyond, towards the target", 2, 1, 3, 1.125, 0, true},
		{"beyond, away from the target", 0, 1, 3, 4.5, -3, false},
		{"equally far", 1, 0, .75, .03125, .25, false},
	} {
		l, derivative, clipped := ValueTerm(c.v, c.old, c.target, .5)
		near(t, c.name+": l", l, c.l, 1e-15)
		near(t, c.name+": derivative", derivative, c.derivative, 1e-15)
		if clipped != c.clipped {
			t.Errorf("%s: clipped = %v, want %v", c.name, clipped, c.clipped)
		}
	}
}

// With every anchor once GiGPO is GRPO.
func TestGiGPOWithoutSharedStatesIsGRPO(t *testing.T) {
	role, offsets, group := []Role{1, 0, 2, 1, 1, 2}, []int64{0, 3, 5, 6}, []int32{1, 1, 2}
	rewards := []float64{1, -2, 7}
	opt := DefaultGiGPO
	opt.DivideByStd = true
	got := must[GiGPOResult](t)(GiGPO(role, []int32{0, -1, 1, 2, 2, 3}, offsets, group, rewards, []int32{0, 1, 2, 3}, []float64{4, 5, 6, 7}, opt))
	grpo := must[[]float64](t)(GRPO(rewards, group, true))
	for i, want := range must[[]float64](t)(TokenAdvantages(role, offsets, grpo)) {
		near(t, "advantage", got.Advantages[i], want, 0)
	}
}

// REINFORCE++-baseline is REINFORCE++ with the centred outcome as the last reward.
func TestReinforcePlusPlusBaselineIsReinforcePlusPlus(t *testing.T) {
	role, offsets, group := []Role{1, 0, 2, 1, 1, 2, 0}, []int64{0, 3, 5, 7}, []int32{1, 1, 2}
	rewards := []float64{1, -2, 7}
	baseline := must[[]float64](t)(ReinforcePlusPlusBaseline(role, offsets, rewards, group))
	tokenRewards := must[[]float64](t)(KLRewards(role, offsets, []float64{1.5, -1.5, 7}, nil, nil, KLK1, 0))
	a, _, err := ReinforcePlusPlus(role, offsets, tokenRewards, 1)
	if err != nil {
		t.Fatal(err)
	}
	for i := range a {
		near(t, "advantage", a[i], baseline[i], 1e-15)
	}
}

// k1 is -z: what is bounded is the ratio of the rollout's policy to the old one. Bounds
// that are not each other's inverses tell it from z.
func TestRejectStatistics(t *testing.T) {
	role, offsets := []Role{1, 0, 2, 1}, []int64{0, 3, 4}
	third := math.Log(3)
	old, rollout := []float64{0, 0, -third, 0}, []float64{-third, 9, 0, third} // z = log 3, masked, -log 3; -log 3
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
		got := must[[]float64](t)(Reject(role, offsets, old, rollout, c.statistic, c.low, c.high))
		for i, want := range c.want {
			if got[i] != want {
				t.Errorf("%s in %v to %v: keep[%d] = %v, want %v", c.statistic, c.low, c.high, i, got[i], want)
			}
		}
	}
}
