package reference

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// The losses with the constants of their papers; LUSPO is GSPO with another aggregation.
var (
	defaultPPO = LossOptions{Aggregating: Aggregating{Aggregation: TokenMean}, Policy: PolicyPPO, ClipLow: 0.2,
		ClipHigh: 0.28, DualClip: 3}
	defaultGSPO = LossOptions{Aggregating: Aggregating{Aggregation: SeqMeanTokenMean}, Policy: PolicyGSPO,
		Sequence: SequenceTrajectory, ClipLow: 3e-4, ClipHigh: 4e-4}
	defaultPG = LossOptions{Aggregating: Aggregating{Aggregation: TokenMean}, Policy: PolicyPG}

	policyDefaults = []LossOptions{
		defaultPPO, defaultGSPO, defaultPG,
		{Aggregating: Aggregating{Aggregation: SeqMeanTokenMean}, Policy: PolicyGRPOS, Sequence: SequenceTrajectory, ClipLow: 0.2, ClipHigh: 0.28},
		{Aggregating: Aggregating{Aggregation: TokenMean}, Policy: PolicyCISPO, ClipLow: 1, ClipHigh: 4},
		{Aggregating: Aggregating{Aggregation: SeqMeanTokenMean}, Policy: PolicySAPO, TauPos: 1, TauNeg: 1.05},
		{Aggregating: Aggregating{Aggregation: TokenMean}, Policy: PolicyDPPOTV, RatioCap: 20, ClipLow: 0.2, ClipHigh: 0.2},
		{Aggregating: Aggregating{Aggregation: TokenMean}, Policy: PolicyVESPO, PowerPos: 2, DecayPos: 3, PowerNeg: 3, DecayNeg: 2},
	}

	aggregations = []Aggregation{TokenMean, SeqMeanTokenSum, SeqMeanTokenMean, SeqMeanTokenSumNorm}
)

// lossBatch has rho = 1, so l = -A: a first trajectory of 2 response tokens, a
// second of 1, a third without any, a fourth whose weights are 0.
var lossBatch = &Batch{
	Role:        []Role{0, 1, 2, 0, 2, 0, 0, 0, 0, 0, 1},
	SeqOffsets:  []int64{0, 3, 5, 10, 11},
	Logprobs:    make([]float64, 11),
	OldLogprobs: make([]float64, 11),
	Advantages:  []float64{50, -1, -2, 50, -6, 50, 50, 50, 50, 50, -100},
}

func TestGradientIsTheDerivative(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	const T = 40
	b := &Batch{Role: make([]Role, T), SeqOffsets: []int64{0, 11, 11, 30, T}, Logprobs: make([]float64, T),
		OldLogprobs: make([]float64, T), Advantages: make([]float64, T)}
	weights := make([]float64, T)
	for i := range T {
		b.Role[i] = Role(r.IntN(3))
		b.OldLogprobs[i] = -2 * r.Float64()
		b.Logprobs[i] = b.OldLogprobs[i] + 0.6*r.NormFloat64()
		b.Advantages[i] = r.NormFloat64()
		weights[i] = r.Float64()
	}
	b.Logprobs[5] = b.OldLogprobs[5] + 3 // where A < 0, the dual clip
	b.Advantages[5], b.Role[5] = -1, 2
	b.Logprobs[6] = b.OldLogprobs[6] - 21 // clamped
	b.Role[6] = 2
	for _, aggregation := range aggregations {
		opt := defaultPPO
		opt.Aggregation = aggregation
		gradient, zeros := Loss(b, weights, opt).Gradient, 0
		for i, at := range b.Logprobs {
			const h = 1e-6
			b.Logprobs[i] = at + h
			up := Loss(b, weights, opt).Loss
			b.Logprobs[i] = at - h
			down := Loss(b, weights, opt).Loss
			b.Logprobs[i] = at
			near(t, "gradient", gradient[i], (up-down)/(2*h), 1e-8)
			if gradient[i] == 0 && b.Role[i] != RoleMasked {
				zeros++
			}
		}
		if zeros < 3 {
			t.Errorf("%d response tokens have no gradient, want clipped, dual-clipped and clamped ones", zeros)
		}
	}
}

// TestNoWeight: nothing that is divided by 0 is NaN.
func TestNoWeight(t *testing.T) {
	for _, opt := range policyDefaults {
		for _, opt.Aggregation = range aggregations {
			masked := *lossBatch
			masked.Role = make([]Role, 11)
			for name, b := range map[string]*Batch{"weights 0": lossBatch, "all masked": &masked} {
				loss := Loss(b, make([]float64, 11), opt)
				if loss.Loss != 0 || loss.MeanLogRatio != 0 || slices.ContainsFunc(loss.Gradient, func(g float64) bool {
					return g != 0
				}) {
					t.Errorf("%s, %s, %s: loss %+v, want 0", opt.Policy, opt.Aggregation, name, loss)
				}
			}
			if empty := Loss(&Batch{SeqOffsets: []int64{0}}, nil, opt); empty.Loss != 0 {
				t.Errorf("%s: loss of nothing = %v, want 0", opt.Policy, empty.Loss)
			}
		}
	}
}

func TestK3(t *testing.T) {
	for _, c := range []struct{ x, want float64 }{
		{0, 0},
		{1e-9, 5.000000001666667e-19}, // e^x - x - 1 in float64 gives 0 or 1e-16
		{-1e-4, 4.99983333750000e-9},
		{0.5, 0.148721270700128146848650787814},
		{-1, math.Exp(-1)},
		{2, math.Exp(2) - 3},
		{3, 10},   // e^3 - 4 = 16.1
		{-15, 10}, // 14
		{50, 10},
	} {
		if got := K3(0, c.x); !(math.Abs(got-c.want) <= 1e-12*c.want) {
			t.Errorf("k3 at %v = %v, want %v", c.x, got, c.want)
		}
	}
}

func TestClipFractionAndMeanLogRatio(t *testing.T) {
	b := &Batch{Role: []Role{1, 2, 0, 1, 1}, SeqOffsets: []int64{0, 5}, Logprobs: []float64{0.5, -0.5, 9, 30, 0.1},
		OldLogprobs: make([]float64, 5), Advantages: ones(5)}
	loss := Loss(b, []float64{0, 0, 1, 1, 1}, defaultPPO) // the two diagnostics are not weighted
	near(t, "clip fraction", loss.ClipFraction, 2.0/4, 0)
	near(t, "mean log-ratio", loss.MeanLogRatio, 20.1/4, 1e-15)
}
