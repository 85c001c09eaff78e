package scheme

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/reference"
)

// TestSequenceLossesInFloat64 holds the ratios of sequences, longer than a piece of work
// too, to the reference.
func TestSequenceLossesInFloat64(t *testing.T) {
	for name, opt := range policies {
		if traits := opt.Policy.Traits(); !traits.BySequence || traits.PerTrajectory {
			continue
		}
		opt.Aggregation, opt.NormLength = reweight.SeqMeanTokenSumNorm, 1
		for _, n := range []int{1, 100, 70_001, 140_000} {
			b := longBatch(n)
			grad := make([]float32, n)
			var ws reweight.Workspace
			res := must.Get(ws.Loss(grad, nil, &b, opt))
			want := reference.Loss(Widen(&b), nil, lossOptions(&opt))
			size := 0.0
			for i, g := range want.Gradient {
				if math.Abs(float64(grad[i])-g) > 3e-5*math.Abs(g)+1e-30 {
					t.Fatalf("%s, %d tokens: gradient %d is %v, want %v", name, n, i, grad[i], g)
				}
				size += math.Abs(float64(b.Advantages[i]))
			}
			if math.Abs(res.Loss-want.Loss) > 1e-5*size || math.Abs(res.ClipFraction-want.ClipFraction) > 1e-12 {
				t.Errorf("%s, %d tokens: loss %v and clipped %v, want %v and %v", name, n, res.Loss, res.ClipFraction,
					want.Loss, want.ClipFraction)
			}
		}
	}
}

// longBatch returns one trajectory of two spans, one inside the other.
func longBatch(n int) reweight.Batch {
	r := rand.New(rand.NewPCG(uint64(n), 3))
	b := reweight.Batch{Role: make([]reweight.Role, n), SpanIDs: make([]int32, n), SeqOffsets: []int64{0, int64(n)}}
	for i := range n {
		b.Role[i] = reweight.Role(r.IntN(3))
		if i == 0 || i == n/3 {
			b.Role[i] = reweight.RoleAction
		}
		if i > 0 && i >= n/3 && i < n/2 {
			b.SpanIDs[i] = 1
		}
		l := float32(-2 * r.Float64())
		b.Logprobs = append(b.Logprobs, l)
		b.OldLogprobs = append(b.OldLogprobs, l-float32(0.3*r.NormFloat64()-0.0001))
		b.Advantages = append(b.Advantages, float32(r.NormFloat64()))
	}
	return b
}

// TestLossesOfManySequences: the float32 groups that terms are summed in do not run on
// from one short sequence to the next.
func TestLossesOfManySequences(t *testing.T) {
	const n = 40_000
	b := reweight.Batch{SeqOffsets: []int64{0}, Logprobs: make([]float32, n), OldLogprobs: make([]float32, n),
		Advantages: slices.Repeat([]float32{-0.1}, n)}
	for i := range n {
		b.Role, b.SpanIDs = append(b.Role, reweight.RoleAction), append(b.SpanIDs, int32(i))
		b.SeqOffsets = append(b.SeqOffsets, int64(i+1))
	}
	for name, opt := range policies {
		if traits := opt.Policy.Traits(); !traits.BySequence || !traits.Clips || traits.PerTrajectory {
			continue
		}
		opt.Aggregation = reweight.TokenMean
		var ws reweight.Workspace
		res, err := ws.Loss(make([]float32, n), nil, &b, opt)
		if want := float64(float32(0.1)); err != nil || math.Abs(res.Loss-want) > 1e-7*want {
			t.Errorf("%s: loss %v, want %v; %v", name, res.Loss, want, err)
		}
	}
}

// TestVESPOBounds: log-ratios are kept within 20 token by token, and their sum within 20.
func TestVESPOBounds(t *testing.T) {
	opt := reweight.LossOptions{Policy: reweight.VESPO{PowerPos: 1, PowerNeg: 2}, Aggregation: reweight.SeqMeanTokenSum}
	for _, c := range []struct{ first, second, y float64 }{{1, 0.5, 1.5}, {25, -18, 2}, {-25, 18, -2}, {15, 15, 20},
		{-15, -15, math.Log(1e-8)}} {
		b := reweight.Batch{Role: []reweight.Role{1, 0, 2}, SeqOffsets: []int64{0, 3},
			Logprobs: []float32{float32(c.first), 0, float32(c.second)}, OldLogprobs: make([]float32, 3),
			Advantages: []float32{1, 1, -1}}
		grad := make([]float32, 3)
		var ws reweight.Workspace
		must.Get(ws.Loss(grad, nil, &b, opt))
		near(t, "gradient where A > 0", float64(grad[0]), -math.Exp(c.y))
		near(t, "gradient where A < 0", float64(grad[2]), math.Exp(2*c.y))
	}
}

// oneTrajectory returns response tokens with these log-ratios and the advantage a.
func oneTrajectory(a float32, logRatios ...float32) reweight.Batch {
	n := len(logRatios)
	b := reweight.Batch{Role: slices.Repeat([]reweight.Role{reweight.RoleAction}, n), SpanIDs: make([]int32, n),
		SeqOffsets: []int64{0, int64(n)}, OldLogprobs: slices.Repeat([]float32{-1}, n),
		Advantages: slices.Repeat([]float32{a}, n)}
	for _, d := range logRatios {
		b.Logprobs = append(b.Logprobs, d-1)
	}
	return b
}

// TestTies: at the very bound of a clip the ratio is not clipped, and the gradient is not 0.
func TestTies(t *testing.T) {
	var ws reweight.Workspace
	loss := func(b reweight.Batch, opt reweight.LossOptions) ([]float32, reweight.LossResult) {
		t.Helper()
		grad := make([]float32, b.Tokens())
		res := must.Get(ws.Loss(grad, nil, &b, opt))
		return grad, res
	}
	for _, policy := range []reweight.Policy{reweight.PPO{}, reweight.GSPO{}, reweight.GRPOS{}} {
		for _, sequence := range []reweight.Sequence{reweight.SequenceTrajectory, reweight.SequenceSpan} {
			all := Options{Loss: reweight.LossOptions{Policy: policy}}
			all.setLoss("ClipHigh", 1e-300)
			all.setLoss("Sequence", sequence)
			for _, a := range []float32{2, -2} { // a ratio of 1 in a clip to [1, 1]
				grad, res := loss(oneTrajectory(a, 0, 0, 0, 0), all.Loss)
				same(t, policy.String(), grad, slices.Repeat([]float32{-a / 4}, 4))
				if res.ClipFraction != 0 || res.Loss != float64(-a) {
					t.Errorf("%v, on policy: %+v", policy, res)
				}
			}

			if policy == (reweight.GSPO{}) {
				continue // whose ratio is not a float32
			}
			// A ratio that is the bound of the dual clip: the loss of one token is its ratio.
			b := oneTrajectory(-1, 1.1)
			_, res := loss(b, all.Loss)
			bound := res.Loss
			all.setLoss("DualClip", bound)
			grad, res := loss(b, all.Loss)
			if float64(grad[0]) != bound || res.Loss != bound {
				t.Errorf("%v: a ratio of %v, where the dual clip is: loss %v, gradient %v", policy, bound,
					res.Loss, grad)
			}
		}
	}
	// GSPO's mean log-ratio of 10 still has a gradient.
	grad, _ := loss(oneTrajectory(-1, 12, 8), reweight.DefaultGSPO)
	nearAll(t, "gradient", grad, []number{number(math.Exp(10) / 2), number(math.Exp(10) / 2)})
	grad, _ = loss(oneTrajectory(-1, 12, 8.25), reweight.DefaultGSPO)
	nearAll(t, "gradient", grad, []number{0, 0})
}
