package reweight_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/reference/diagnostics"
	"github.com/seed621a2839/reweight/scheme"
)

// TestBottleneckTies: groups whose rewards have the same variance share a rank,
// whatever their size.
func TestBottleneckTies(t *testing.T) {
	rewards := []float32{0, 0, 1, 0, 1, 1, 0, 0, 0, 1, 1, 0, 1, 0, 0}
	energy := []float32{-5, -5, -5, -4, -4, -4, -3, -3, -3, -9, -9, -9, -7, -7, -7}
	b := reweight.Batch{SeqOffsets: []int64{0}, Rewards: rewards, RefEnergy: energy}
	for i := range energy {
		b.Role = append(b.Role, reweight.RoleAction)
		b.SeqOffsets = append(b.SeqOffsets, int64(i+1))
		b.GroupIDs = append(b.GroupIDs, int32(i/3))
	}
	got, err := reweight.Bottleneck(&b)
	if err != nil {
		t.Fatal(err)
	}
	want := diagnostics.Bottleneck(scheme.Widen(&b))
	near(t, "rho", got.Action.Rho, want.Action.Rho)
	near(t, "p", got.Action.P, want.Action.P)
}

// TestNothing: inputs without rows or tokens are no panic.
func TestNothing(t *testing.T) {
	var ws reweight.Workspace
	if err := ws.RowGradient(reweight.Logits{Vocab: 5}, reweight.Logits{Vocab: 5}, nil, reweight.RowGradientInput{}, reweight.DefaultRowGradient); err != nil {
		t.Error(err)
	}
	ws.Workers = math.MaxInt
	lse := make([]float32, 2)
	if err := ws.TokenStats(reweight.Stats{LSE: lse}, reweight.Logits{Vocab: 1, F32: []float32{1, 2}}, nil, reweight.DefaultTokenStats); err != nil || lse[1] != 2 {
		t.Error(lse, err)
	}
	twice := reweight.Logits{Vocab: 2, F32: []float32{}, BF16: make([]reweight.BF16, 4)}
	if err := ws.TokenStats(reweight.Stats{LSE: lse}, twice, nil, reweight.DefaultTokenStats); err == nil {
		t.Error("two formats pass")
	}
	opt := reweight.DefaultLoss
	for opt.Aggregation = reweight.TokenMean; opt.Aggregation <= reweight.SeqMeanTokenSumNorm; opt.Aggregation++ {
		res, err := ws.Loss(nil, nil, &reweight.Batch{SeqOffsets: []int64{0, 0}}, opt)
		if err != nil || res.Loss != 0 {
			t.Errorf("aggregation %d: %+v, %v", opt.Aggregation, res, err)
		}
	}
}

// TestGradientOfUnlikely: the id's own term where its log-probability is huge.
func TestGradientOfUnlikely(t *testing.T) {
	for _, c := range []struct {
		row  []float32
		id   int32
		tau  float64
		want [2]float32
	}{
		{[]float32{3e38, 1}, 1, 1, [2]float32{-1, 1}},
		{[]float32{0, 100}, 0, 1, [2]float32{1, -1}},
		{[]float32{0, -inf}, 1, 1, [2]float32{-1, 1}},
		{[]float32{0, 1}, 0, 1e-17, [2]float32{1e17, -1e17}},
	} {
		for _, isa := range reweight.AvailableISAs() {
			ws := reweight.Workspace{ISA: isa}
			l := reweight.Logits{Vocab: 2, F32: append([]float32(nil), c.row...)}
			lp := make([]float32, 1)
			if err := ws.TokenStats(reweight.Stats{Logprob: lp}, l, []int32{c.id}, reweight.TokenStatsOptions{Temperature: c.tau}); err != nil {
				t.Fatal(err)
			}
			if err := ws.RowGradient(l, l, []int32{c.id}, reweight.RowGradientInput{Logprobs: lp, Grad: []float32{1}}, reweight.RowGradientOptions{Temperature: c.tau}); err != nil {
				t.Fatal(err)
			}
			for i, w := range c.want {
				if math.Abs(float64(l.F32[i]-w)) > 1e-5*math.Abs(float64(w)) {
					t.Errorf("%v of %v at %v, %v: %v, want %v", c.id, c.row, c.tau, isa, l.F32, c.want)
					break
				}
			}
		}
	}
}

// TestChosenMaskedID: the formula of the row gradient at an id of probability 0
// that was chosen all the same.
func TestChosenMaskedID(t *testing.T) {
	inf := float32(math.Inf(1))
	x := reweight.Logits{Vocab: 3, F32: []float32{0, -inf, 0}}
	dst := reweight.Logits{Vocab: 3, F32: make([]float32, 3)}
	var ws reweight.Workspace
	err := ws.RowGradient(dst, x, []int32{1}, reweight.RowGradientInput{Logprobs: []float32{-inf}, Grad: []float32{3}}, reweight.RowGradientOptions{Temperature: 2})
	if want := []float32{-0.75, 1.5, -0.75}; err != nil || !slices.Equal(dst.F32, want) {
		t.Errorf("%v, %v, want %v", dst.F32, err, want)
	}
}

// TestSurePValue: a p-value far below what is left of 1 in float64.
func TestSurePValue(t *testing.T) {
	const groups = 40
	b := reweight.Batch{SeqOffsets: []int64{0}}
	for g := range groups {
		for i := range 2 {
			b.Role = append(b.Role, reweight.RoleAction)
			b.SeqOffsets = append(b.SeqOffsets, int64(len(b.Role)))
			b.GroupIDs = append(b.GroupIDs, int32(g))
			b.Rewards = append(b.Rewards, float32(i*(g^1))) // almost in order
			b.RefEnergy = append(b.RefEnergy, float32(g))
		}
	}
	got, err := reweight.Bottleneck(&b)
	if err != nil {
		t.Fatal(err)
	}
	want := diagnostics.Bottleneck(scheme.Widen(&b))
	if !(want.Action.P > 0 && want.Action.P < 1e-30) {
		t.Errorf("p = %v tests nothing", want.Action.P)
	}
	near(t, "rho", got.Action.Rho, want.Action.Rho)
	near(t, "p", got.Action.P, want.Action.P)
}

// TestSpearman compares correlations and their p-values with gonum's, and wants NaN where
// an element is.
func TestSpearman(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for n := 2; n < 300; n += 1 + n/3 {
		for _, noise := range []float64{0.01, 1, 10} {
			x, y := make([]float64, n), make([]float64, n)
			for i := range x {
				x[i] = math.Round(9 * r.NormFloat64()) // ties
				y[i] = noise*r.NormFloat64() - x[i]
			}
			got, err := reweight.Spearman(x, y)
			if err != nil {
				t.Fatal(err)
			}
			want := diagnostics.Spearman(x, y)
			near(t, "rho", got.Rho, want.Rho)
			near(t, "p", got.P, want.P)
			x[n/2] = math.NaN()
			if got, err := reweight.Spearman(x, y); err != nil || !math.IsNaN(got.Rho) || !math.IsNaN(got.P) {
				t.Errorf("%v, %v of NaN", got, err)
			}
			if _, err := reweight.Spearman(x, y[1:]); err == nil || err.Error() != fmt.Sprintf("reweight: y has %d elements, want %d, one per element of x", n-1, n) {
				t.Error(err)
			}
		}
	}
}

// TestPieces: spans and groups that are more than one piece of work together give
// the same results as one by one.
func TestPieces(t *testing.T) {
	var ws reweight.Workspace
	r := rand.New(rand.NewPCG(1, 2))
	x := make([]float32, 300_000)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	offsets := []int32{5}
	for at := 5; at < len(x); {
		at = min(len(x), at+r.IntN(40_000)*r.IntN(4)/2) // empty ones too
		offsets = append(offsets, int32(at))
	}
	n := len(offsets) - 1
	means, lo, hi := make([]float32, n), make([]float32, n), make([]float32, n)
	if err := ws.SpanMeans(means, x, offsets); err != nil {
		t.Fatal(err)
	}
	if err := ws.MinMax(lo, hi, x, offsets); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		var mean, low, high [1]float32
		if err := ws.SpanMeans(mean[:], x, offsets[i:i+2]); err != nil {
			t.Fatal(err)
		}
		if err := ws.MinMax(low[:], high[:], x, offsets[i:i+2]); err != nil {
			t.Fatal(err)
		}
		if mean[0] != means[i] && mean[0] == mean[0] || low[0] != lo[i] || high[0] != hi[i] {
			t.Fatalf("range %d: %v, %v, %v together and %v, %v, %v alone", i, means[i], lo[i], hi[i], mean, low, high)
		}
	}
}

// TestGradientOfEntropy: a gradient of every row's entropy is an entropy bonus of the
// other sign, and a row with neither gets 0.
func TestGradientOfEntropy(t *testing.T) {
	const rows, vocab = 3, 37
	x, grad := make([]float32, rows*vocab), []float32{1, 0, -2}
	for i := range x {
		x[i] = float32(i%11) - float32(i%7)
	}
	logits, ids := reweight.Logits{Vocab: vocab, F32: x}, []int32{0, 36, 5}
	l, h := make([]float32, rows), make([]float32, rows)
	var ws reweight.Workspace
	if err := ws.TokenStats(reweight.Stats{Logprob: l, Entropy: h}, logits, ids, reweight.DefaultTokenStats); err != nil {
		t.Fatal(err)
	}
	gradient := func(gradEntropy []float32, bonus float64) []float32 {
		dst := make([]float32, rows*vocab)
		err := ws.RowGradient(reweight.Logits{Vocab: vocab, F32: dst}, logits, ids, reweight.RowGradientInput{Logprobs: l, Entropy: h, Grad: grad, GradEntropy: gradEntropy}, reweight.RowGradientOptions{Temperature: 1, EntropyBonus: bonus})
		if err != nil {
			t.Fatal(err)
		}
		return dst
	}
	same := func(name string, got, want []float32) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	quarter := []float32{0.25, 0.25, 0.25}
	same("zeros", gradient(make([]float32, rows), 0.25), gradient(nil, 0.25))
	same("instead of a bonus", gradient([]float32{-0.25, -0.25, -0.25}, 0), gradient(nil, 0.25))
	same("against a bonus", gradient(quarter, 0.25), gradient(nil, 0))
	mixed := gradient([]float32{0, 0, -1}, 0)
	same("row 0", mixed[:vocab], gradient(nil, 0)[:vocab])
	same("row 1, which has neither", mixed[vocab:2*vocab], make([]float32, vocab))
	same("row 2", mixed[2*vocab:], gradient(nil, 1)[2*vocab:])
}

// TestKLNames: verl's names are read, and ours are printed.
func TestKLNames(t *testing.T) {
	for name, want := range map[string]string{
		"kl": "k1", "mse": "k2", "low_var_kl": "k3", "low-var-kl": "k3", "kl+": "k1+", "mse+": "k2", "k2+": "k2", "low_var_kl+": "k3+", "abs+": "abs+",
	} {
		var form reweight.KLForm
		if err := form.UnmarshalText([]byte(name)); err != nil || form.String() != want {
			t.Errorf("%s: %v, %v, want %s", name, form, err, want)
		}
	}
	for _, name := range []string{"", "+", "full", "kl++", "low_var", "KL"} {
		form := reweight.KLAbs
		if err := form.UnmarshalText([]byte(name)); err == nil || !strings.Contains(err.Error(), "want one of [k3 k2 k1 abs k3+ k1+ abs+]") || form != reweight.KLAbs {
			t.Errorf("%q: %v, %v", name, form, err)
		}
	}
}
