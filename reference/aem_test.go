package reference

import (
	"math"
	"testing"
)

func TestAEMFourSpans(t *testing.T) {
	a := must[[]float64](t)(AEMFactors([]float64{.2, .5, .9, 1.4}, 1, 0))
	for i, want := range []float64{1.478899, 1.151767, .825277, .544056} {
		if !(math.Abs(a[i]-want) <= 5e-7) {
			t.Errorf("a[%d] = %v, want %v", i, a[i], want)
		}
	}
}

// aemBatch has four trajectories of one or two spans with one token each, and
// groups 7 and -2 that interleave.
var aemBatch = struct {
	role     []Role
	spanIDs  []int32
	offsets  []int64
	groupIDs []int32
	entropy  []float64
}{
	role:     []Role{0, 1, 2, 0, 1, 0, 1, 1, 2},
	spanIDs:  []int32{-1, 0, 1, 1, 2, -1, 3, 4, 5},
	offsets:  []int64{0, 4, 5, 7, 9},
	groupIDs: []int32{7, -2, 7, -2},
	entropy:  []float64{9, .2, .5, 9, .3, 9, 1.4, .7, .1},
}

func TestAEMScopes(t *testing.T) {
	b := aemBatch
	for scope, groups := range map[Scope][][]int{
		ScopeGroup:      {{0, 1, 3}, {2, 4, 5}},
		ScopeTrajectory: {{0, 1}, {2}, {3}, {4, 5}},
		ScopeBatch:      {{0, 1, 2, 3, 4, 5}},
	} {
		hbar, spanFactors, token, err := AEM(b.role, b.spanIDs, b.offsets, b.groupIDs, b.entropy, 1.5, 0.1, scope)
		if err != nil {
			t.Fatal(err)
		}
		for _, group := range groups {
			var h []float64
			m := 0.0
			for _, s := range group {
				h = append(h, hbar[s])
				m += spanFactors[s] / float64(len(group))
			}
			near(t, "mean factor", m, 1, 1e-15)
			for i, want := range must[[]float64](t)(AEMFactors(h, 1.5, 0.1)) {
				near(t, "factor", spanFactors[group[i]], want, 0)
			}
		}
		for i, want := range []float64{1, spanFactors[0], spanFactors[1], 1, spanFactors[2], 1, spanFactors[3], spanFactors[4], spanFactors[5]} {
			if token[i] != want {
				t.Errorf("scope %s: token %d has %v, want %v", scope, i, token[i], want)
			}
		}
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
		a := must[[]float64](t)(AEMFactors(c.hbar, 1, c.guard))
		if (a[0] == 1) != c.ones || math.IsNaN(a[0]) {
			t.Errorf("AEMFactors(%v, guard %v) = %v", c.hbar, c.guard, a)
		}
	}
}

func TestAEMSpanWithoutResponseTokens(t *testing.T) {
	hbar, spanFactors, token, err := AEM([]Role{0, 1, 1}, []int32{0, 1, 2}, []int64{0, 3}, []int32{0}, []float64{5, .2, .8}, 1, 0.1, ScopeGroup)
	if err != nil {
		t.Fatal(err)
	}
	if hbar[0] != 0 || spanFactors[0] != 1 || token[0] != 1 {
		t.Errorf("masked span: entropy %v, factor %v, token %v, want 0, 1, 1", hbar[0], spanFactors[0], token[0])
	}
	near(t, "mean of the other two", (spanFactors[1]+spanFactors[2])/2, 1, 1e-15)
}

func TestScaleAdvantagesKeepsTheSign(t *testing.T) {
	b := aemBatch
	_, _, token, err := AEM(b.role, b.spanIDs, b.offsets, b.groupIDs, b.entropy, 3, 0, ScopeGroup)
	if err != nil {
		t.Fatal(err)
	}
	a := []float64{0, 1, -1, 0, 2, 0, -2, 3, -3}
	for i, scaled := range must[[]float64](t)(ScaleAdvantages(a, token)) {
		if scaled*a[i] < 0 || (scaled == 0) != (a[i] == 0) {
			t.Errorf("advantage %v became %v", a[i], scaled)
		}
		near(t, "scaled advantage", scaled, a[i]*token[i], 0)
	}
}

func TestEMPGIsAEMOverTheBatch(t *testing.T) {
	b := aemBatch
	hbar, spanFactors, _, err := AEM(b.role, b.spanIDs, b.offsets, b.groupIDs, b.entropy, 1, 0, ScopeBatch)
	if err != nil {
		t.Fatal(err)
	}
	for s, g := range must[[]float64](t)(EMPGScales(hbar, 1)) {
		near(t, "g", g, spanFactors[s], 3e-8) // the two constants of 1e-8
	}
}

// A spread as small as the constant in the first denominator halves Htil.
func TestEMPGConstants(t *testing.T) {
	g := must[[]float64](t)(EMPGScales([]float64{0, 1e-8}, 2))
	e := math.Exp(-1)
	near(t, "g of the least", g[0], 1/((1+e)/2+1e-8), 1e-15)
	near(t, "g of the most", g[1], e/((1+e)/2+1e-8), 1e-15)
}
