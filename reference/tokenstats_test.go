package reference

import (
	"math"
	"math/rand/v2"
	"testing"
)

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

func TestTokenStatsNotFinite(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	log2 := math.Log(2)
	for _, c := range []struct {
		name                  string
		x                     []float64
		id                    int32
		lse, entropy, logprob float64
	}{
		{"some -inf", []float64{0, -inf, 0}, 0, log2, log2, -log2},
		{"some -inf, the id too", []float64{0, -inf, 0}, 1, log2, log2, -inf},
		{"all -inf", []float64{-inf, -inf}, 0, -inf, nan, nan},
		{"one -inf", []float64{-inf}, 0, -inf, nan, nan},
		{"+inf, the id too", []float64{inf, 0}, 0, inf, nan, nan},
		{"+inf, another id", []float64{inf, 0}, 1, inf, nan, nan},
		{"+inf and -inf", []float64{-inf, inf}, 0, inf, nan, nan},
		{"NaN first", []float64{nan, 0, 0}, 1, nan, nan, nan},
		{"NaN last", []float64{0, 0, nan}, 1, nan, nan, nan},
		{"NaN and +inf", []float64{inf, nan, 0}, 2, nan, nan, nan},
		{"NaN and -inf", []float64{-inf, nan}, 0, nan, nan, nan},
	} {
		for _, tau := range []float64{1, 0.5} {
			lse, entropy, logprob, err := TokenStats(c.x, len(c.x), []int32{c.id}, tau)
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range []struct {
				what      string
				got, want float64
			}{{"lse", lse[0], c.lse}, {"entropy", entropy[0], c.entropy}, {"logprob", logprob[0], c.logprob}} {
				same := v.got == v.want || math.IsNaN(v.got) && math.IsNaN(v.want) || math.Abs(v.got-v.want) < 1e-15
				if !same {
					t.Errorf("%s, tau %v: %s = %v, want %v", c.name, tau, v.what, v.got, v.want)
				}
			}
			grad := must[[]float64](t)(RowGradient(c.x, c.id, tau, 1, 0.1))
			for v, g := range grad {
				if math.IsNaN(g) != math.IsNaN(c.entropy) {
					t.Errorf("%s, tau %v: gradient[%d] = %v with entropy %v", c.name, tau, v, g, c.entropy)
				}
			}
		}
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
	lse, entropy, logprob, err := TokenStats(x, len(x), []int32{3}, tau)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "lse", lse[0], must[float64](t)(LogSumExp(x)), 0)
	near(t, "energy", must[float64](t)(Energy(x)), -lse[0], 0)
	near(t, "entropy", entropy[0], must[float64](t)(Entropy(z, 1)), 1e-15)
	near(t, "logprob", logprob[0], z[3]-must[float64](t)(LogSumExp(z)), 1e-14)
}

// A row with nearly all its mass at one id: the rest is far below the rounding
// of 1, and still counts.
func TestPeakedRow(t *testing.T) {
	x := []float64{0, -50}
	rest := math.Exp(-50)
	near(t, "entropy / e^-50", must[float64](t)(Entropy(x, 1))/rest, 51, 1e-14)
	near(t, "logprob / e^-50", must[float64](t)(Logprob(x, 0, 1))/rest, -1, 1e-14)
}

func TestRowGradientIsTheDerivative(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	for _, tau := range []float64{1, 0.6, 1.7} {
		x := randomRow(r, 12)
		id, g, bonus := int32(5), 1.3, 0.4
		value := func() float64 {
			return g*must[float64](t)(Logprob(x, id, tau)) - bonus*must[float64](t)(Entropy(x, tau))
		}
		grad := must[[]float64](t)(RowGradient(x, id, tau, g, bonus))
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
	entropy, err := Entropy(x, 1e-320)
	if err != nil {
		t.Fatal(err)
	}
	logprob, err := Logprob(x, 1, 1e-320)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "entropy", entropy, math.Ln2, 1e-15)
	near(t, "log-probability", logprob, -math.Ln2, 1e-15)
}
