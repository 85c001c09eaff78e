package policy

import (
	"math"
	"testing"

	"gonum.org/v1/gonum/floats"
)

func TestAdam(t *testing.T) {
	p := New(5, 3, 1)
	grad := p.Zeros()
	var adam Adam
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
		adam.Update(p, grad, 0.01)
		scale := min(1, 1/floats.Norm(widen(g), 2))
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
}
