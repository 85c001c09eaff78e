package reweight_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/reference"
)

var (
	nan = float32(math.NaN())
	inf = float32(math.Inf(1))
)

func equal(a, b float32) bool { return a == b || a != a && b != b }

// TestEdges is the contract's table: what PyTorch returns for such rows.
func TestEdges(t *testing.T) {
	ln := func(x float64) float32 { return float32(math.Log(x)) }
	huge := float32(3e38)
	for _, c := range []struct {
		name                     string
		row                      []float32
		id                       int32
		lse, h, logprob, squares float32
	}{
		{"one element", []float32{-3.5}, 0, -3.5, 0, 0, 0},
		{"two equal", []float32{0, 0}, 1, ln(2), ln(2), -ln(2), -ln(2)},
		{"masked id", []float32{1, -inf}, 1, 1, 0, -inf, 0},
		{"masked others", []float32{-inf, 2, -inf}, 1, 2, 0, 0, 0},
		{"all -Inf", []float32{-inf, -inf}, 0, -inf, nan, nan, nan},
		{"+Inf at the id", []float32{1, inf}, 1, inf, nan, nan, nan},
		{"+Inf elsewhere", []float32{1, inf}, 0, inf, nan, nan, nan},
		{"+Inf and -Inf", []float32{-inf, inf}, 0, inf, nan, nan, nan},
		{"NaN", []float32{1, nan}, 0, nan, nan, nan, nan},
		{"NaN and +Inf", []float32{inf, nan}, 0, nan, nan, nan, nan},
		{"NaN and -Inf", []float32{-inf, nan}, 0, nan, nan, nan, nan},
		{"huge", []float32{huge, -huge}, 0, huge, 0, 0, 0},
		{"huge and unlikely", []float32{huge, 1}, 1, huge, 0, -huge, 0},
		{"huge and negative", []float32{-huge, -huge}, 0, -huge, ln(2), -ln(2), -ln(2)},
		{"largest", []float32{math.MaxFloat32, math.MaxFloat32}, 0, math.MaxFloat32, ln(2), -ln(2), -ln(2)},
		{"subnormal", []float32{1e-45, -1e-45}, 0, ln(2), ln(2), -ln(2), -ln(2)},
	} {
		for _, isa := range reweight.AvailableISAs() {
			ws := reweight.Workspace{ISA: isa}
			var got [4]float32
			err := ws.TokenStats(reweight.Stats{LSE: got[0:1], Entropy: got[1:2], Logprob: got[2:3],
				LogSumSqProbs: got[3:4]},
				reweight.Logits{Vocab: len(c.row), F32: c.row}, []int32{c.id}, reweight.DefaultTokenStats)
			if err != nil {
				t.Fatal(err)
			}
			want := [4]float32{c.lse, c.h, c.logprob, c.squares}
			if !slices.EqualFunc(got[:], want[:], equal) || math.Signbit(float64(got[3])) != (got[3] < 0) {
				t.Errorf("%s, %v: %v, want %v", c.name, isa, got, want)
			}
		}
	}
}

// TestTemperature: lse is of the raw logits, the others are of x / tau.
func TestTemperature(t *testing.T) {
	for _, tau := range []float64{0.5, 0.7, 2, 1e-3, 1e-7, 1e7, 1e-30, 1e30} {
		var row []float32
		for _, z := range []float64{1, 2, 4, -1, 0.5} {
			row = append(row, float32(tau*z))
		}
		var got [4]float32
		var ws reweight.Workspace
		dst := reweight.Stats{LSE: got[0:1], Entropy: got[1:2], Logprob: got[2:3], LogSumSqProbs: got[3:4]}
		logits, opt := reweight.Logits{Vocab: 5, F32: row}, reweight.TokenStatsOptions{Temperature: tau}
		must.Do(ws.TokenStats(dst, logits, []int32{1}, opt))
		lse, h, l, squares := reference.TokenStats(reference.Floats(row), 5, []int32{1}, tau)
		for i, want := range [...]float64{lse[0], h[0], l[0], squares[0]} {
			if math.Abs(float64(got[i])-want) > 1e-6*max(1, math.Abs(want)) {
				t.Errorf("tau %v: number %d is %v, want %v", tau, i, got[i], want)
			}
		}
	}
}

// TestErrors: bad input is named, and nothing is written. Package randomcalls has the calls
// that other languages refuse too, package scheme the arrays of batches.
func TestErrors(t *testing.T) {
	type L = reweight.Logits
	type S = reweight.Stats
	const mark = 12345
	out := make([]float32, 8)
	row := func(n int) []float32 { return out[:n:n] }
	f := make([]float32, 12)
	ids := []int32{0, 1}
	stats := func(dst S, l L, ids []int32, tau float64) func(*reweight.Workspace) error {
		return func(ws *reweight.Workspace) error {
			return ws.TokenStats(dst, l, ids, reweight.TokenStatsOptions{Temperature: tau})
		}
	}
	gradient := func(dst, l L, ids []int32, lp, h, g, gh []float32,
		opt reweight.RowGradientOptions) func(*reweight.Workspace) error {
		return func(ws *reweight.Workspace) error {
			return ws.RowGradient(dst, l, ids,
				reweight.RowGradientInput{Logprobs: lp, Entropy: h, Grad: g, GradEntropy: gh}, opt)
		}
	}
	batch := reweight.Batch{Role: []reweight.Role{0, 1, 2, 2}, SeqOffsets: []int64{0, 2, 4},
		OldLogprobs: f[:4], Logprobs: f[:4], Advantages: f[:4]}
	for _, c := range []struct {
		want string
		call func(*reweight.Workspace) error
	}{
		{"ids has 1 elements, want 2, one per row", stats(S{LSE: row(2), Logprob: row(2)}, L{Vocab: 6, F32: f}, ids[:1], 1)},
		{"dst.Entropy has 1 elements, want 2, one per row", stats(S{LSE: row(2), Entropy: row(1)}, L{Vocab: 6, F32: f}, ids, 1)},
		{"dst.LogSumSqProbs has 1 elements, want 2, one per row", stats(S{LSE: row(2), LogSumSqProbs: row(1)}, L{Vocab: 6, F32: f}, ids, 1)},
		{"no output", stats(S{}, L{Vocab: 6, F32: f}, ids, 1)},
		{"logits has 12 logits, want a multiple of its vocabulary of 5", stats(S{LSE: row(2)}, L{Vocab: 5, F32: f}, ids, 1)},
		{"dst.LSE has 2 elements, want 3, one per row", stats(S{LSE: row(2)}, L{Vocab: 4, F32: f}, ids, 1)},
		{"2 formats set", stats(S{LSE: row(2)}, L{Vocab: 6, F32: f, BF16: make([]reweight.BF16, 12)}, ids, 1)},
		{"ISA is ISA(99)", func(ws *reweight.Workspace) error {
			ws.ISA = 99
			return stats(S{LSE: row(2)}, L{Vocab: 6, F32: f}, ids, 1)(ws)
		}},
		{"Logprobs has 1 elements, want 2, one per row", gradient(L{Vocab: 4, F32: row(8)}, L{Vocab: 4, F32: f[:8]}, ids, f[:1], nil, f[:2], nil, reweight.DefaultRowGradient)},
		{"Entropy has 0 elements, want 2, one per row", gradient(L{Vocab: 4, F32: row(8)}, L{Vocab: 4, F32: f[:8]}, ids, f[:2], nil, f[:2], nil, reweight.RowGradientOptions{Temperature: 1, EntropyBonus: 1})},
		{"Entropy has 0 elements, want 2, one per row", gradient(L{Vocab: 4, F32: row(8)}, L{Vocab: 4, F32: f[:8]}, ids, f[:2], nil, f[:2], f[:2], reweight.DefaultRowGradient)},
		{"ids[1] is -1, want 0 to 3, for rows of 4 logits", gradient(L{Vocab: 4, F32: row(8)}, L{Vocab: 4, F32: f[:8]}, []int32{0, -1}, f[:2], nil, f[:2], nil, reweight.DefaultRowGradient)},
		{"ids[1] is -2, want -1 to 3, for rows of 4 logits", func(ws *reweight.Workspace) error {
			of := reweight.RowGradientInput{Logprobs: f[:2], Grad: f[:2], LSE: f[:2]}
			return ws.RowGradient(L{Vocab: 4, F32: row(8)}, L{Vocab: 4, F32: f[:8]}, []int32{-1, -2}, of,
				reweight.DefaultRowGradient)
		}},
		{"Temperature is 9e-31, want 1e-30 to 1e+30", stats(S{LSE: row(2)}, L{Vocab: 6, F32: f}, ids, 9e-31)},
		{"Temperature is 1.1e+30, want 1e-30 to 1e+30", gradient(L{Vocab: 4, F32: row(8)}, L{Vocab: 4, F32: f[:8]}, ids, f[:2], nil, f[:2], nil, reweight.RowGradientOptions{Temperature: 1.1e30})},
		{"GradEntropy has 1 elements, want 2, one per row", gradient(L{Vocab: 4, F32: row(8)}, L{Vocab: 4, F32: f[:8]}, ids, f[:2], f[:2], f[:2], f[:1], reweight.DefaultRowGradient)},
		{"dst.Entropy has 3 elements, want 2, one per row", stats(S{Entropy: row(3)}, L{Vocab: 6, F32: f}, ids, 1)},
		{"Grad has 3 elements, want 2, one per row", gradient(L{Vocab: 4, F32: row(8)}, L{Vocab: 4, F32: f[:8]}, ids, f[:2], nil, f[:3], nil, reweight.DefaultRowGradient)},
		{"shift is NaN", func(ws *reweight.Workspace) error {
			_, err := ws.MaskedMoments(f[:4], make([]reweight.Role, 4), 1, math.NaN())
			return err
		}},
		{"weights has 3 elements, want 4, one per token", func(ws *reweight.Workspace) error {
			_, err := ws.Loss(row(4), f[:3], &batch, reweight.DefaultLoss)
			return err
		}},
		{"offsets has 2 elements, want 3, one more than lo", func(ws *reweight.Workspace) error { return ws.MinMax(row(2), row(2), f, []int32{0, 3}) }},
		{"a has 3 elements, want 4", func(ws *reweight.Workspace) error { return ws.Multiply(row(4), f[:3], f[:4]) }},
	} {
		for i := range out {
			out[i] = mark
		}
		var ws reweight.Workspace
		err := c.call(&ws)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "reweight: ") ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("error %q, want it to contain %q", err, c.want)
		}
		if input, ok := errors.AsType[*reweight.InputError](err); !ok || input.Arg == "" ||
			err.Error() != "reweight: "+input.Sentence(input.Arg) {
			t.Errorf("error %q is no InputError, or not its sentence", err)
		}
		for i := range out {
			if out[i] != mark {
				t.Errorf("%s: output %d was written", c.want, i)
				break
			}
		}
	}
}

// TestNothing: inputs without rows or tokens are no panic.
func TestNothing(t *testing.T) {
	var ws reweight.Workspace
	if err := ws.RowGradient(reweight.Logits{Vocab: 5}, reweight.Logits{Vocab: 5}, nil, reweight.RowGradientInput{},
		reweight.DefaultRowGradient); err != nil {
		t.Error(err)
	}
	ws.Workers = math.MaxInt
	lse := make([]float32, 2)
	if err := ws.TokenStats(reweight.Stats{LSE: lse}, reweight.Logits{Vocab: 1, F32: []float32{1, 2}}, nil,
		reweight.DefaultTokenStats); err != nil || lse[1] != 2 {
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

// TestMeanOverRollouts: where the trajectories of a rollout stand side by side, the loss of a batch with the offsets of
// the rollouts is the mean over rollouts of sum w l / sum w, for every policy that looks at tokens alone.
func TestMeanOverRollouts(t *testing.T) {
	b := &reweight.Batch{SeqOffsets: []int64{0, 5, 9}} // of trajectories they were 0, 3, 5, 9
	weights, losses := make([]float32, 9), make([]float64, 9)
	of := func(from, to int) (loss, total float64) {
		for i := from; i < to; i++ {
			loss += float64(weights[i]) * losses[i]
			total += float64(weights[i])
		}
		return loss, total
	}
	for i := range weights {
		b.Role = append(b.Role, reweight.RoleAction)
		b.Advantages = append(b.Advantages, float32(i%4)-1.5)
		b.OldLogprobs = append(b.OldLogprobs, -1-float32(i)/8)
		b.Logprobs = append(b.Logprobs, b.OldLogprobs[i]+float32(i%3)/16)
		ratio := math.Exp(float64(b.Logprobs[i]) - float64(b.OldLogprobs[i]))
		weights[i], losses[i] = float32(1+i%2), -ratio*float64(b.Advantages[i])
	}
	opt := reweight.DefaultLoss
	opt.Aggregation = reweight.SeqMeanTokenMean
	var ws reweight.Workspace
	grad := make([]float32, 9)
	res, err := ws.Loss(grad, weights, b, opt)
	must.Do(err)
	one, ofOne := of(0, 5)
	two, ofTwo := of(5, 9)
	if want := (one/ofOne + two/ofTwo) / 2; math.Abs(res.Loss-want) > 1e-6 {
		t.Errorf("loss %v, want %v", res.Loss, want)
	}
	for i, g := range grad {
		total := ofOne
		if i >= 5 {
			total = ofTwo
		}
		if want := float64(weights[i]) * losses[i] / total / 2; math.Abs(float64(g)-want) > 1e-6 {
			t.Errorf("gradient %v at %d, want %v", g, i, want)
		}
	}
}

// TestGradientOfUnlikely: the id's own term where its log-probability is huge, or its
// probability 0.
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
		{[]float32{0, -inf}, 1, 2, [2]float32{-0.5, 0.5}},
		{[]float32{0, 1}, 0, 1e-17, [2]float32{1e17, -1e17}},
	} {
		for _, isa := range reweight.AvailableISAs() {
			ws := reweight.Workspace{ISA: isa}
			l := reweight.Logits{Vocab: 2, F32: append([]float32(nil), c.row...)}
			lp := make([]float32, 1)
			must.Do(ws.TokenStats(reweight.Stats{Logprob: lp}, l, []int32{c.id},
				reweight.TokenStatsOptions{Temperature: c.tau}))
			must.Do(ws.RowGradient(l, l, []int32{c.id}, reweight.RowGradientInput{Logprobs: lp, Grad: []float32{1}},
				reweight.RowGradientOptions{Temperature: c.tau}))
			for i, w := range c.want {
				if math.Abs(float64(l.F32[i]-w)) > 1e-5*math.Abs(float64(w)) {
					t.Errorf("%v of %v at %v, %v: %v, want %v", c.id, c.row, c.tau, isa, l.F32, c.want)
					break
				}
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
	must.Do(ws.SpanMeans(means, x, offsets))
	must.Do(ws.MinMax(lo, hi, x, offsets))
	for i := range n {
		var mean, low, high [1]float32
		must.Do(ws.SpanMeans(mean[:], x, offsets[i:i+2]))
		must.Do(ws.MinMax(low[:], high[:], x, offsets[i:i+2]))
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
	must.Do(ws.TokenStats(reweight.Stats{Logprob: l, Entropy: h}, logits, ids, reweight.DefaultTokenStats))
	gradient := func(gradEntropy []float32, bonus float64) []float32 {
		dst := make([]float32, rows*vocab)
		err := ws.RowGradient(reweight.Logits{Vocab: vocab, F32: dst}, logits, ids,
			reweight.RowGradientInput{Logprobs: l, Entropy: h, Grad: grad, GradEntropy: gradEntropy},
			reweight.RowGradientOptions{Temperature: 1, EntropyBonus: bonus})
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
		if err := form.UnmarshalText([]byte(name)); err == nil ||
			!strings.Contains(err.Error(), "want one of [k3 k2 k1 abs k3+ k1+ abs+]") || form != reweight.KLAbs {
			t.Errorf("%q: %v, %v", name, form, err)
		}
	}
}

// TestActFocusWithoutSignal: with Beta 0 the signal's arrays may be missing, one of them or all.
func TestActFocusWithoutSignal(t *testing.T) {
	b := &reweight.Batch{Role: []reweight.Role{0, 1, 2, 2}, SeqOffsets: []int64{0, 4},
		OldLogprobs: []float32{0, -1, -2, -3}}
	var ws reweight.Workspace
	for _, signal := range []reweight.Signal{reweight.SignalEnergy, reweight.SignalRefEntropy, reweight.SignalSurprisal,
		reweight.SignalLogRatio} {
		weights := []float32{7, 7, 7, 7}
		opt := reweight.ActFocusOptions{Alpha: 0.3, Eps: 1e-8, Signal: signal}
		if res, err := ws.ActFocus(weights, b, opt); err != nil || res.Actions != 2 ||
			!slices.Equal(weights, []float32{0, 0.3, 1, 1}) {
			t.Errorf("%v: %v, %+v, %v", signal, weights, res, err)
		}
		opt.Beta = 0.5
		if _, err := ws.ActFocus(weights, b, opt); err == nil && signal != reweight.SignalSurprisal {
			t.Errorf("%v: no error with Beta 0.5", signal)
		}
	}
	b.RefEnergy = make([]float32, 3)
	if _, err := ws.ActFocus(make([]float32, 4), b, reweight.ActFocusOptions{Alpha: 0.3}); err == nil {
		t.Error("no error of a wrong length")
	}
}
