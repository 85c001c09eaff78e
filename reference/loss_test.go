package reference

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestSurrogateCases(t *testing.T) {
	up, down := math.Log(1.5), math.Log(0.5) // both outside [0.8, 1.28]
	for _, c := range []struct {
		name          string
		diff, A       float64
		l, derivative float64
		clipped       bool
	}{
		{"inside", 0, 2, -2, -2, false},
		{"inside, A < 0", 0, -2, 2, 2, false},
		{"above, A > 0: clipped", up, 1, -1.28, 0, true},
		{"above, A < 0: not clipped", up, -1, 1.5, 1.5, false},
		{"below, A > 0: not clipped", down, 1, -.5, -.5, false},
		{"below, A < 0: clipped", down, -1, .8, 0, true},
		{"dual clip", math.Log(4), -1, 3, 0, false},
		{"dual clip only for A < 0", -20, 1, -math.Exp(-20), -math.Exp(-20), false},
		{"clamped below", -25, 1, -math.Exp(-20), 0, false},
		{"clamped above", 25, 1, -1.28, 0, true},
		{"A = 0", up, 0, 0, 0, false},
	} {
		l, derivative, clipped := Surrogate(c.diff, 0, c.A, 0.2, 0.28, 3)
		near(t, c.name+": l", l, c.l, 1e-15)
		near(t, c.name+": derivative", derivative, c.derivative, 1e-15)
		if clipped != c.clipped {
			t.Errorf("%s: clipped = %v, want %v", c.name, clipped, c.clipped)
		}
	}
	// Without the dual clip, up to the clamp and at it.
	l, derivative, _ := Surrogate(20, 0, -1, 0.2, 0.28, 0)
	near(t, "at the clamp: l", l, math.Exp(20), 1e-15)
	near(t, "at the clamp: derivative", derivative, math.Exp(20), 1e-15)
	l, derivative, _ = Surrogate(20.5, 0, -1, 0.2, 0.28, 0)
	near(t, "beyond the clamp: l", l, math.Exp(20), 1e-15)
	near(t, "beyond the clamp: derivative", derivative, 0, 0)
}

// lossBatch has rho = 1, so l = -A: a first trajectory of 2 response tokens, a
// second of 1, a third without any, a fourth whose weights are 0.
var lossBatch = struct {
	role       []Role
	offsets    []int64
	logprobs   []float64
	advantages []float64
	weights    []float64
}{
	role:       []Role{0, 1, 2, 0, 2, 0, 0, 0, 0, 0, 1},
	offsets:    []int64{0, 3, 5, 10, 11},
	logprobs:   make([]float64, 11),
	advantages: []float64{50, -1, -2, 50, -6, 50, 50, 50, 50, 50, -100},
	weights:    []float64{9, .5, 2, 9, 4, 9, 9, 9, 9, 9, 0},
}

func TestAggregations(t *testing.T) {
	b := lossBatch
	// Weighted sums of the trajectories: 4.5 (weights 2.5), 24 (4), none, 0 (0).
	for _, c := range []struct {
		aggregation Aggregation
		norm        float64
		want        float64
		gradient    float64 // of token 4
	}{
		{TokenMean, 0, 28.5 / 6.5, 24 / 6.5},
		{SeqMeanTokenSum, 0, 28.5 / 3, 24.0 / 3},
		{SeqMeanTokenMean, 0, (1.8 + 6 + 0) / 3, 6.0 / 3},
		{SeqMeanTokenSumNorm, 0, 28.5 / 5, 24.0 / 5},
		{SeqMeanTokenSumNorm, 8, 28.5 / 8, 24.0 / 8},
	} {
		opt := DefaultLoss
		opt.Aggregation, opt.NormLength = c.aggregation, c.norm
		loss := must[LossResult](t)(Loss(b.role, b.offsets, b.logprobs, b.logprobs, b.advantages, b.weights, opt))
		near(t, "loss", loss.Loss, c.want, 1e-15)
		near(t, "gradient", loss.Gradient[4], c.gradient, 1e-15)
		if loss.Gradient[0] != 0 || loss.Gradient[10] != 0 {
			t.Errorf("aggregation %s: gradient %v at a masked token, %v at weight 0, want 0", c.aggregation, loss.Gradient[0], loss.Gradient[10])
		}
	}
}

func TestGradientIsTheDerivative(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	offsets := []int64{0, 11, 11, 30, 40}
	T := 40
	role := make([]Role, T)
	logprobs, old, advantages, weights := make([]float64, T), make([]float64, T), make([]float64, T), make([]float64, T)
	for i := range T {
		role[i] = Role(r.IntN(3))
		old[i] = -2 * r.Float64()
		logprobs[i] = old[i] + 0.6*r.NormFloat64()
		advantages[i] = r.NormFloat64()
		weights[i] = r.Float64()
	}
	logprobs[5] = old[5] + 3 // where A < 0, the dual clip
	advantages[5], role[5] = -1, 2
	logprobs[6] = old[6] - 21 // clamped
	role[6] = 2
	for _, aggregation := range aggregations {
		opt := DefaultLoss
		opt.Aggregation = aggregation
		value := func() LossResult {
			return must[LossResult](t)(Loss(role, offsets, logprobs, old, advantages, weights, opt))
		}
		gradient, zeros := value().Gradient, 0
		for i := range logprobs {
			at, h := logprobs[i], 1e-6
			logprobs[i] = at + h
			up := value().Loss
			logprobs[i] = at - h
			down := value().Loss
			logprobs[i] = at
			near(t, "gradient", gradient[i], (up-down)/(2*h), 1e-8)
			if gradient[i] == 0 && role[i] != RoleMasked {
				zeros++
			}
		}
		if zeros < 3 {
			t.Errorf("%d response tokens have no gradient, want clipped, dual-clipped and clamped ones", zeros)
		}
	}
}

// aggregations lists them all.
var aggregations = []Aggregation{TokenMean, SeqMeanTokenSum, SeqMeanTokenMean, SeqMeanTokenSumNorm}

func TestNoWeight(t *testing.T) {
	b := lossBatch
	opt := DefaultLoss
	for _, aggregation := range aggregations {
		opt.Aggregation = aggregation
		for name, role := range map[string][]Role{"weights 0": b.role, "all masked": make([]Role, 11)} {
			loss := must[LossResult](t)(Loss(role, b.offsets, b.logprobs, b.logprobs, b.advantages, make([]float64, 11), opt))
			if loss.Loss != 0 || loss.ClipFraction != 0 || loss.MeanLogRatio != 0 {
				t.Errorf("%s: loss %+v, want 0", name, loss)
			}
			for i, g := range loss.Gradient {
				if g != 0 {
					t.Errorf("%s: gradient[%d] = %v, want 0", name, i, g)
				}
			}
		}
	}
	empty := must[LossResult](t)(Loss(nil, []int64{0}, nil, nil, nil, nil, opt))
	if empty.Loss != 0 {
		t.Errorf("loss of nothing = %v, want 0", empty.Loss)
	}
}

func TestClipFractionAndMeanLogRatio(t *testing.T) {
	role := []Role{1, 2, 0, 1, 1}
	old := make([]float64, 5)
	logprobs := []float64{0.5, -0.5, 9, 30, 0.1}
	advantages := []float64{1, 1, 1, 1, 1}
	weights := []float64{0, 0, 1, 1, 1} // the two diagnostics are not weighted
	loss := must[LossResult](t)(Loss(role, []int64{0, 5}, logprobs, old, advantages, weights, DefaultLoss))
	near(t, "clip fraction", loss.ClipFraction, 2.0/4, 0)
	near(t, "mean log-ratio", loss.MeanLogRatio, 20.1/4, 1e-15)
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
	m := must[float64](t)(K3Mean([]Role{1, 0, 2}, []float64{0, 0, -2}, []float64{-1, 5, 0}))
	near(t, "mean k3", m, (math.Exp(-1)+math.Exp(2)-3)/2, 1e-15)
}
