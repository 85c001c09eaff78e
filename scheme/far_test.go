package scheme

import (
	"fmt"
	"math"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/test/must"
)

// TestFarPolicies: where the policy has moved absurdly far, every loss and its gradient are
// finite, and what package reference has. The log-ratios are of one token of a trajectory or
// of both, and the advantages have either sign.
func TestFarPolicies(t *testing.T) {
	seen := map[string]bool{}
	calls := 0
	for name, opt := range policies {
		seen[opt.Policy.String()] = true
		for aggregation := reweight.TokenMean; aggregation <= reweight.SeqMeanTokenSumNorm; aggregation++ {
			opt.Aggregation = aggregation
			for _, far := range []float32{19, 21, 60, 88, 89, 100, 500, 1e4} {
				for _, d := range [][2]float32{{far, 0}, {0, -far}, {far, far}, {-far, -far}, {far, -far}} {
					for _, a := range [][2]float32{{1, 1}, {-1, -1}, {1, -1}, {-1, 1}, {0, -1}} {
						b := pairOf(d, a)
						what := fmt.Sprintf("%s, %v, log-ratios %v, advantages %v", name, aggregation, d, a)
						checkFinite(t, what, &b, opt)
						calls++
					}
				}
			}
		}
	}
	t.Logf("%d calls of %d policies", calls, len(seen))
}

// pairOf returns one trajectory of two response tokens with those log-ratios and advantages.
// The larger log-probability of each token is -0.5.
func pairOf(d, a [2]float32) reweight.Batch {
	b := oneTrajectory(0, 0, 0)
	for i := range 2 {
		b.Advantages[i] = a[i]
		b.Logprobs[i], b.OldLogprobs[i] = -0.5+min(d[i], 0), -0.5-max(d[i], 0)
	}
	return b
}

// checkFinite compares the loss and its gradient with package reference on every instruction set.
func checkFinite(t *testing.T, what string, b *reweight.Batch, opt reweight.LossOptions) {
	t.Helper()
	loss, gradient := exactLoss(Widen(b), nil, &opt)
	size := lossSize(t, b, nil, opt)
	for _, isa := range reweight.AvailableISAs() {
		ws := reweight.Workspace{ISA: isa}
		grad := make([]float32, b.Tokens())
		res := must.Get(ws.Loss(grad, nil, b, opt))
		if !(math.Abs(res.Loss) <= math.MaxFloat32) ||
			!(math.Abs(res.Loss-loss) <= max(1e-5*math.Abs(loss), 1e-6*size, tiny)) {
			t.Errorf("%s, %v: loss %v, want %v", what, isa, res.Loss, loss)
		}
		for i, g := range grad {
			want := gradient[i]
			if !(math.Abs(float64(g)) <= math.MaxFloat32) ||
				!(math.Abs(float64(g)-want) <= max(3e-5*math.Abs(want), tiny)) {
				t.Errorf("%s, %v: gradient %d is %v, want %v", what, isa, i, g, want)
			}
		}
	}
}
