package policy

import (
	"math"
	"testing"
)

func TestAdam(t *testing.T) {
	p := New(5, 3, 1)
	grad := p.Zeros()
	adam := Adam{LearningRate: 0.01, MaxNorm: 2}
	want := widen(p.Parameters)
	first, second := make([]float64, len(want)), make([]float64, len(want))
	for step := 1; step <= 50; step++ {
		g := uniform(len(want), uint64(step))
		if step%2 == 0 { // a norm that is not cut
			for i := range g {
				g[i] /= 16
			}
		}
		copy(grad.Parameters, g)
		var squares float64
		for _, g := range g {
			squares += float64(g) * float64(g)
		}
		if norm := adam.Update(p, grad); math.Abs(norm-math.Sqrt(squares)) > 1e-12 {
			t.Fatalf("norm %v, want %v", norm, math.Sqrt(squares))
		}
		scale := min(1, 2/math.Sqrt(squares))
		for i, g := range g {
			g := float64(g) * scale
			first[i] = 0.9*first[i] + 0.1*g
			second[i] = 0.999*second[i] + 0.001*g*g
			m := first[i] / (1 - math.Pow(0.9, float64(step)))
			v := second[i] / (1 - math.Pow(0.999, float64(step)))
			want[i] -= 0.01 * m / (math.Sqrt(v) + 1e-8)
			if math.Abs(float64(p.Parameters[i])-want[i]) > 1e-6 {
				t.Fatalf("step %d: parameter %d is %v, want %v", step, i, p.Parameters[i], want[i])
			}
			if grad.Parameters[i] != 0 {
				t.Fatalf("step %d: gradient %v is left", step, grad.Parameters[i])
			}
		}
	}

	// What is not finite changes nothing.
	for _, bad := range []float64{math.NaN(), math.Inf(1)} {
		before := p.Clone()
		moments := append([]float64(nil), adam.first...)
		grad.Parameters[1] = 1
		grad.Parameters[3] = float32(bad)
		if norm := adam.Update(p, grad); norm == norm && !math.IsInf(norm, 1) {
			t.Errorf("norm %v of a gradient with %v", norm, bad)
		}
		if !sameBits(p.Parameters, before.Parameters) || grad.Parameters[1] != 0 || moments[1] != adam.first[1] {
			t.Errorf("a gradient with %v has changed something", bad)
		}
	}
}
