package reference

import (
	"math"
	"math/rand/v2"
	"testing"
)

// The numbers of single kernels, worked out by hand.
func TestKernels(t *testing.T) {
	role, x := []Role{0, 1, 2, 1}, []float64{math.NaN(), 2, 5, -1}
	n, total, squares := MaskedMoments(role, x, 1, RoleReasoning, RoleAction)
	exactly(t, "moments", []float64{float64(n), total, squares}, []float64{3, 1 + 4 - 2, 1 + 16 + 4})
	exactly(t, "means of spans", SpanMeans([]float64{3, 1, 2, 9}, []int32{0, 1, 4}), []float64{3, 4})
	least, largest := MinMax([]float64{2, -5, 3})
	exactly(t, "extremes", []float64{least, largest}, []float64{-5, 3})
	e, sum := ExpScale([]float64{5, 6, 5 + math.Log(2)/2}, 5, 2), 1+math.Exp(-2)+0.5
	for i, want := range []float64{3 / sum, 3 * math.Exp(-2) / sum, 1.5 / sum} {
		near(t, "factor", e[i], want, 1e-15)
	}
}

// A long sum keeps its digits: one after another, a million times 0.1 is off
// by 1.3e-11 of itself.
func TestSumIsAccurate(t *testing.T) {
	x := make([]float64, 1e6)
	for i := range x {
		x[i] = 0.1
	}
	near(t, "sum", sum(x), 1e5, 1e-14)
	near(t, "sum of one", sum(x[:1]), 0.1, 0)
	near(t, "sum of nothing", sum(nil), 0, 0)
}

func same(a, b float64) bool { return a == b || a != a && b != b }

func randomRow(r *rand.Rand, n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = 3 * r.NormFloat64()
	}
	return x
}

// near fails unless got is want up to a relative error, absolute near 0.
func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tolerance*max(1, math.Abs(want))) {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

// The log-sum-exp is that of the raw logits at any temperature; the entropy and
// the log-probability are those of the tempered logits.
func TestTemperature(t *testing.T) {
	x := randomRow(rand.New(rand.NewPCG(1, 1)), 20)
	tau := 0.7
	z := make([]float64, len(x))
	for v := range x {
		z[v] = x[v] / tau
	}
	lse, entropy, logprob, squares := TokenStats(x, len(x), []int32{3}, tau)
	near(t, "lse", lse[0], LogSumExp(x), 0)
	near(t, "entropy", entropy[0], Entropy(z, 1), 1e-15)
	near(t, "logprob", logprob[0], z[3]-LogSumExp(z), 1e-14)
	near(t, "log-sum of squares", squares[0], LogSumSqProbs(z, 1), 1e-14)
	sum := 0.0
	for v := range z {
		sum += math.Exp(2 * (z[v] - LogSumExp(z)))
	}
	near(t, "log-sum of squares", squares[0], math.Log(sum), 1e-14)
}

// A row with nearly all its mass at one id: the rest is far below the rounding
// of 1, and still counts.
func TestPeakedRow(t *testing.T) {
	x := []float64{0, -50}
	rest := math.Exp(-50)
	near(t, "entropy / e^-50", Entropy(x, 1)/rest, 51, 1e-14)
	near(t, "logprob / e^-50", Logprob(x, 0, 1)/rest, -1, 1e-14)
	near(t, "log-sum of squares / e^-50", LogSumSqProbs(x, 1)/rest, -2, 1e-14)
}

func TestRowGradientIsTheDerivative(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	for _, tau := range []float64{1, 0.6, 1.7} {
		x := randomRow(r, 12)
		id, g, bonus := int32(5), 1.3, 0.4
		value := func() float64 {
			return g*Logprob(x, id, tau) - bonus*Entropy(x, tau)
		}
		grad := RowGradient(x, id, tau, g, bonus)
		sum := 0.0
		for v := range x {
			at, h := x[v], 1e-5
			x[v] = at + h
			up := value()
			x[v] = at - h
			down := value()
			x[v] = at
			near(t, "gradient", grad[v], (up-down)/(2*h), 1e-8)
			sum += grad[v]
		}
		near(t, "sum of the gradient", sum, 0, 1e-14) // l and H do not change when all logits shift
	}
}

// TestTinyTemperature: logits that overflow when they are divided by the
// temperature have an entropy and a log-probability all the same.
func TestTinyTemperature(t *testing.T) {
	x := []float64{1, 2, 2}
	entropy := Entropy(x, 1e-320)
	logprob := Logprob(x, 1, 1e-320)
	near(t, "entropy", entropy, math.Ln2, 1e-15)
	near(t, "log-probability", logprob, -math.Ln2, 1e-15)
}

// The bounds are the entropies of the two distributions that the known tokens allow.
func TestEntropyBoundsAreReached(t *testing.T) {
	log := math.Log
	entropy := func(p ...float64) float64 {
		h := 0.0
		for _, v := range p {
			h -= v * log(v)
		}
		return h
	}
	for _, c := range []struct {
		name         string
		logprobs     []float64
		extra, vocab int
		lower, upper float64
	}{
		{"nothing known", nil, -1, 8, 0, log(8)},
		{"all known", []float64{log(0.5), log(0.5)}, -1, 2, log(2), log(2)},
		{"two tokens of the last and a remainder", []float64{log(0.5), log(0.2)}, -1, 6, entropy(0.5, 0.2, 0.2, 0.1), entropy(0.5, 0.2, 0.075, 0.075, 0.075, 0.075)},
		{"the last is no limit", []float64{log(0.5), log(0.1)}, 1, 5, entropy(0.5, 0.4, 0.1), entropy(0.5, 0.1, 0.4/3, 0.4/3, 0.4/3)},
		{"only the sampled one", []float64{log(0.25)}, 0, 4, entropy(0.25, 0.75), log(4)},
		{"more mass than fits", []float64{log(0.5), log(0.1)}, -1, 4, entropy(0.5, 0.1, 0.2, 0.2), entropy(0.5, 0.1, 0.2, 0.2)},
		{"more than 1", []float64{log(0.6), log(0.405)}, -1, 4, entropy(0.6, 0.405), entropy(0.6, 0.405)},
		{"-inf", []float64{0, math.Inf(-1)}, -1, 3, 0, 0},
	} {
		lower, upper := EntropyBounds(c.logprobs, c.extra, c.vocab)
		near(t, c.name+": lower", lower, c.lower, 1e-14)
		near(t, c.name+": upper", upper, c.upper, 1e-14)
	}
}
