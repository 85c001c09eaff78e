package reweight_test

import (
	"math"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
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
		name            string
		row             []float32
		id              int32
		lse, h, logprob float32
	}{
		{"one element", []float32{-3.5}, 0, -3.5, 0, 0},
		{"two equal", []float32{0, 0}, 1, ln(2), ln(2), -ln(2)},
		{"masked id", []float32{1, -inf}, 1, 1, 0, -inf},
		{"masked others", []float32{-inf, 2, -inf}, 1, 2, 0, 0},
		{"all -Inf", []float32{-inf, -inf}, 0, -inf, nan, nan},
		{"+Inf at the id", []float32{1, inf}, 1, inf, nan, nan},
		{"+Inf elsewhere", []float32{1, inf}, 0, inf, nan, nan},
		{"+Inf and -Inf", []float32{-inf, inf}, 0, inf, nan, nan},
		{"NaN", []float32{1, nan}, 0, nan, nan, nan},
		{"NaN and +Inf", []float32{inf, nan}, 0, nan, nan, nan},
		{"NaN and -Inf", []float32{-inf, nan}, 0, nan, nan, nan},
		{"huge", []float32{huge, -huge}, 0, huge, 0, 0},
		{"huge and unlikely", []float32{huge, 1}, 1, huge, 0, -huge},
		{"huge and negative", []float32{-huge, -huge}, 0, -huge, ln(2), -ln(2)},
		{"largest", []float32{math.MaxFloat32, math.MaxFloat32}, 0, math.MaxFloat32, ln(2), -ln(2)},
		{"subnormal", []float32{1e-45, -1e-45}, 0, ln(2), ln(2), -ln(2)},
	} {
		for _, path := range reweight.Available() {
			ws := reweight.Workspace{Path: path}
			var got [3]float32
			err := ws.TokenStats(reweight.Stats{LSE: got[0:1], Entropy: got[1:2], Logprob: got[2:3]},
				reweight.Logits{Vocab: len(c.row), F32: c.row}, []int32{c.id}, reweight.DefaultTokenStats)
			if err != nil {
				t.Fatal(err)
			}
			if want := [3]float32{c.lse, c.h, c.logprob}; !equal(got[0], want[0]) || !equal(got[1], want[1]) || !equal(got[2], want[2]) {
				t.Errorf("%s, %v: %v, want %v", c.name, path, got, want)
			}
		}
	}
}

// TestTemperature: lse is that of the raw logits, the others of x / tau.
func TestTemperature(t *testing.T) {
	row := []float32{1, 2, 4, -1, 0.5}
	for _, tau := range []float64{0.5, 0.7, 2, 1e-3, 1e-7, 1e7} {
		scaled := make([]float64, len(row))
		m, s := math.Inf(-1), 0.0
		for i, x := range row {
			scaled[i] = float64(x) / tau
			m = max(m, scaled[i])
		}
		for _, z := range scaled {
			s += math.Exp(z - m)
		}
		h := m + math.Log(s)
		l := scaled[1] - h
		for _, z := range scaled {
			h -= z * math.Exp(z-m) / s
		}
		var got [3]float32
		var ws reweight.Workspace
		if err := ws.TokenStats(reweight.Stats{LSE: got[0:1], Entropy: got[1:2], Logprob: got[2:3]},
			reweight.Logits{Vocab: 5, F32: row}, []int32{1}, reweight.TokenStatsOptions{Temperature: tau}); err != nil {
			t.Fatal(err)
		}
		near(t, "lse", float64(got[0]), math.Log(math.E+math.Exp(2)+math.Exp(4)+math.Exp(-1)+math.Exp(0.5)))
		if math.Abs(float64(got[1])-h) > 1e-6 {
			t.Errorf("tau %v: entropy %v, want %v", tau, got[1], h)
		}
		near(t, "logprob", float64(got[2]), l)
	}
}

// TestErrors: bad input is named, and nothing is written.
func TestErrors(t *testing.T) {
	type L = reweight.Logits
	type S = reweight.Stats
	const mark = 12345
	out := make([]float32, 8)
	row := func(n int) []float32 { return out[:n:n] }
	f := make([]float32, 12)
	ids := []int32{0, 1}
	bad := []float32{0, nan, 1, 2}
	stats := func(dst S, l L, ids []int32, tau float64) func(*reweight.Workspace) error {
		return func(ws *reweight.Workspace) error {
			return ws.TokenStats(dst, l, ids, reweight.TokenStatsOptions{Temperature: tau})
		}
	}
	gradient := func(dst, l L, ids []int32, lp, h, g []float32, opt reweight.RowGradientOptions) func(*reweight.Workspace) error {
		return func(ws *reweight.Workspace) error { return ws.RowGradient(dst, l, ids, lp, h, g, opt) }
	}
	batch := func() reweight.Batch {
		return reweight.Batch{Role: []uint8{0, 1, 2, 2}, SeqOffsets: []int64{0, 2, 4}, GroupIDs: []int32{0, 0}, Rewards: []float32{0, 1},
			SpanIDs: []int32{-1, 0, 1, 1}, RefEnergy: f[:4], Entropy: f[:4], OldLogprobs: f[:4], Logprobs: f[:4], Advantages: f[:4], Values: f[:4]}
	}
	with := func(change func(*reweight.Batch), call func(*reweight.Workspace, *reweight.Batch) error) func(*reweight.Workspace) error {
		return func(ws *reweight.Workspace) error { b := batch(); change(&b); return call(ws, &b) }
	}
	actFocus := func(opt reweight.ActFocusOptions) func(*reweight.Workspace, *reweight.Batch) error {
		return func(ws *reweight.Workspace, b *reweight.Batch) error {
			_, err := ws.ActFocus(row(4), b, opt)
			return err
		}
	}
	aem := func(opt reweight.AEMOptions) func(*reweight.Workspace, *reweight.Batch) error {
		return func(ws *reweight.Workspace, b *reweight.Batch) error { return ws.AEM(row(4), b, opt) }
	}
	loss := func(opt reweight.LossOptions, weights []float32) func(*reweight.Workspace, *reweight.Batch) error {
		return func(ws *reweight.Workspace, b *reweight.Batch) error {
			_, err := ws.Loss(row(4), weights, b, opt)
			return err
		}
	}
	grpo := func(ws *reweight.Workspace, b *reweight.Batch) error { return ws.GRPO(row(4), b, reweight.DefaultGRPO) }
	gae := func(opt reweight.GAEOptions) func(*reweight.Workspace, *reweight.Batch) error {
		return func(ws *reweight.Workspace, b *reweight.Batch) error { return ws.GAE(row(4), nil, f[:4], b, opt) }
	}
	keep := func(*reweight.Batch) {}
	for _, c := range []struct {
		want string
		call func(*reweight.Workspace) error
	}{
		{"len(ids) = 1, want 2 rows", stats(S{LSE: row(2), Logprob: row(2)}, L{Vocab: 6, F32: f}, ids[:1], 1)},
		{"ids[1] = 6, want 0 to 5", stats(S{Logprob: row(2)}, L{Vocab: 6, F32: f}, []int32{0, 6}, 1)},
		{"ids[0] = -1, want 0 to 5", stats(S{Logprob: row(2)}, L{Vocab: 6, F32: f}, []int32{-1, 0}, 1)},
		{"len(dst.Entropy) = 1, want 2 rows", stats(S{LSE: row(2), Entropy: row(1)}, L{Vocab: 6, F32: f}, ids, 1)},
		{"no output", stats(S{}, L{Vocab: 6, F32: f}, ids, 1)},
		{"logits.Vocab = 0", stats(S{LSE: row(2)}, L{F32: f}, ids, 1)},
		{"12 elements, want a multiple of Vocab = 5", stats(S{LSE: row(2)}, L{Vocab: 5, F32: f}, ids, 1)},
		{"holds 3 rows of 4, want 2 rows", stats(S{LSE: row(2)}, L{Vocab: 4, F32: f}, ids, 1)},
		{"2 formats set", stats(S{LSE: row(2)}, L{Vocab: 6, F32: f, BF16: make([]reweight.BF16, 12)}, ids, 1)},
		{"Temperature = 0", stats(S{LSE: row(2)}, L{Vocab: 6, F32: f}, ids, 0)},
		{"Temperature = NaN", stats(S{LSE: row(2)}, L{Vocab: 6, F32: f}, ids, math.NaN())},
		{"Temperature = +Inf", stats(S{LSE: row(2)}, L{Vocab: 6, F32: f}, ids, math.Inf(1))},
		{"ISA(99)", func(ws *reweight.Workspace) error {
			ws.Path = 99
			return stats(S{LSE: row(2)}, L{Vocab: 6, F32: f}, ids, 1)(ws)
		}},
		{"dst holds 4 rows of 2, want 2", gradient(L{Vocab: 2, F32: row(8)}, L{Vocab: 6, F32: f}, ids, f[:2], nil, f[:2], reweight.DefaultRowGradient)},
		{"len(logprobs) = 1, want 2 rows", gradient(L{Vocab: 4, F32: row(8)}, L{Vocab: 4, F32: f[:8]}, ids, f[:1], nil, f[:2], reweight.DefaultRowGradient)},
		{"len(entropy) = 0, want 2 rows", gradient(L{Vocab: 4, F32: row(8)}, L{Vocab: 4, F32: f[:8]}, ids, f[:2], nil, f[:2], reweight.RowGradientOptions{Temperature: 1, EntropyBonus: 1})},
		{"EntropyBonus = NaN", gradient(L{Vocab: 4, F32: row(8)}, L{Vocab: 4, F32: f[:8]}, ids, f[:2], f[:2], f[:2], reweight.RowGradientOptions{Temperature: 1, EntropyBonus: math.NaN()})},
		{"float32 logits into float32", gradient(L{Vocab: 4, F32: row(8)}, L{Vocab: 4, BF16: make([]reweight.BF16, 8)}, ids, f[:2], nil, f[:2], reweight.DefaultRowGradient)},
		{"len(RefEnergy) = 3, want 4 tokens", with(func(b *reweight.Batch) { b.RefEnergy = f[:3] }, actFocus(reweight.DefaultActFocus))},
		{"RefEnergy[2] = NaN", with(func(b *reweight.Batch) { b.RefEnergy = []float32{0, 0, nan, 0} }, actFocus(reweight.DefaultActFocus))},
		{"RefEnergy[3] = -Inf", with(func(b *reweight.Batch) { b.RefEnergy = []float32{0, 0, 0, -inf} }, actFocus(reweight.DefaultActFocus))},
		{"Alpha = 2, want 0 to 1", with(keep, actFocus(reweight.ActFocusOptions{Alpha: 2}))},
		{"Beta = -1", with(keep, actFocus(reweight.ActFocusOptions{Beta: -1}))},
		{"Eps = NaN", with(keep, actFocus(reweight.ActFocusOptions{Eps: math.NaN()}))},
		{"Signal = 4", with(keep, actFocus(reweight.ActFocusOptions{Signal: 4}))},
		{"Role[1] = 3, want 0, 1 or 2", with(func(b *reweight.Batch) { b.Role = []uint8{0, 3, 2, 2} }, actFocus(reweight.DefaultActFocus))},
		{"len(RefLogprobs) = 0, want 4 tokens", with(keep, actFocus(reweight.ActFocusOptions{Signal: reweight.SignalLogRatio}))},
		{"Lambda = NaN", with(keep, aem(reweight.AEMOptions{Lambda: math.NaN()}))},
		{"Guard = -1", with(keep, aem(reweight.AEMOptions{Guard: -1}))},
		{"Scope = 3", with(keep, aem(reweight.AEMOptions{Scope: 3}))},
		{"Entropy[1] = NaN in span 0", with(func(b *reweight.Batch) { b.Entropy = bad }, aem(reweight.DefaultAEM))},
		{"SpanIDs[2] = 5, want -1 to 1", with(func(b *reweight.Batch) { b.SpanIDs = []int32{-1, 0, 5, 1} }, aem(reweight.DefaultAEM))},
		{"SpanIDs[2] = 0 is in trajectory 1", with(func(b *reweight.Batch) { b.SpanIDs = []int32{-1, 0, 0, 1} }, aem(reweight.DefaultAEM))},
		{"SpanIDs[1] = -1, but Role[1] = 1", with(func(b *reweight.Batch) { b.SpanIDs = []int32{-1, -1, 0, 0} }, aem(reweight.DefaultAEM))},
		{"span 0 has no response token", with(func(b *reweight.Batch) { b.Role = []uint8{0, 0, 1, 2} }, aem(reweight.DefaultAEM))},
		{"len(GroupIDs) = 1, want 2 trajectories", with(func(b *reweight.Batch) { b.GroupIDs = []int32{0} }, aem(reweight.DefaultAEM))},
		{"SeqOffsets[2] = 3 is below SeqOffsets[1] = 5", with(func(b *reweight.Batch) { b.SeqOffsets = []int64{0, 5, 3} }, aem(reweight.DefaultAEM))},
		{"SeqOffsets[2] = 3, want 4 tokens", with(func(b *reweight.Batch) { b.SeqOffsets = []int64{0, 2, 3} }, grpo)},
		{"SeqOffsets[0] = 1, want 0", with(func(b *reweight.Batch) { b.SeqOffsets = []int64{1, 2, 4} }, grpo)},
		{"Role[0] = 7, want 0, 1 or 2", with(func(b *reweight.Batch) { b.Role = []uint8{7, 1, 2, 2} }, grpo)},
		{"Role[3] = 9, want 0, 1 or 2", with(func(b *reweight.Batch) { b.Role = []uint8{0, 1, 2, 9} }, gae(reweight.DefaultGAE))},
		{"RefEnergy[1] = NaN", with(func(b *reweight.Batch) { b.RefEnergy = bad }, func(_ *reweight.Workspace, b *reweight.Batch) error { _, err := reweight.Bottleneck(b); return err })},
		{"shift = NaN", func(ws *reweight.Workspace) error {
			_, err := ws.MaskedMoments(f[:4], make([]uint8, 4), 1, math.NaN())
			return err
		}},
		{"scale = +Inf", func(ws *reweight.Workspace) error {
			_, err := ws.Surrogate(row(4), f[:4], f[:4], f[:4], nil, make([]uint8, 4), math.Inf(1), reweight.DefaultLoss)
			return err
		}},
		{"len(SeqOffsets) = 0", with(func(b *reweight.Batch) { b.SeqOffsets = nil }, grpo)},
		{"Rewards[1] = NaN", with(func(b *reweight.Batch) { b.Rewards = []float32{0, nan} }, grpo)},
		{"len(Rewards) = 1, want 2 trajectories", with(func(b *reweight.Batch) { b.Rewards = f[:1] }, grpo)},
		{"Gamma = 2", with(keep, gae(reweight.GAEOptions{Gamma: 2}))},
		{"Lambda = -1", with(keep, gae(reweight.GAEOptions{Lambda: -1}))},
		{"len(Values) = 0, want 4 tokens", with(func(b *reweight.Batch) { b.Values = nil }, gae(reweight.DefaultGAE))},
		{"1 response tokens, want at least 2", func(ws *reweight.Workspace) error { return ws.Whiten(row(2), f[:2], []uint8{0, 1}) }},
		{"not finite", func(ws *reweight.Workspace) error { return ws.Whiten(row(4), bad, []uint8{1, 1, 1, 1}) }},
		{"len(Logprobs) = 2, want 4 tokens", with(func(b *reweight.Batch) { b.Logprobs = f[:2] }, loss(reweight.DefaultLoss, nil))},
		{"len(weights) = 3, want 4 tokens", with(keep, loss(reweight.DefaultLoss, f[:3]))},
		{"add up to NaN", with(keep, loss(reweight.DefaultLoss, bad))},
		{"DualClip = 0.5", with(keep, loss(reweight.LossOptions{DualClip: 0.5}, nil))},
		{"ClipLow = 1.5", with(keep, loss(reweight.LossOptions{ClipLow: 1.5}, nil))},
		{"ClipHigh = NaN", with(keep, loss(reweight.LossOptions{ClipHigh: math.NaN()}, nil))},
		{"Aggregation = 9", with(keep, loss(reweight.LossOptions{Aggregation: 9}, nil))},
		{"NormLength = -1", with(keep, loss(reweight.LossOptions{NormLength: -1}, nil))},
		{"offsets[2] = 13, want at most len(x) = 12", func(ws *reweight.Workspace) error { return ws.SpanMeans(row(2), f, []int32{0, 3, 13}) }},
		{"len(offsets) = 2, want len(lo) + 1 = 3", func(ws *reweight.Workspace) error { return ws.MinMax(row(2), row(2), f, []int32{0, 3}) }},
		{"offsets[1] = 2 is below offsets[0] = 3", func(ws *reweight.Workspace) error { return ws.SpanMeans(row(1), f, []int32{3, 2}) }},
		{"len(a) = 3 and len(b) = 4, want 4", func(ws *reweight.Workspace) error { return ws.Multiply(row(4), f[:3], f[:4]) }},
		{"rate = -1", func(ws *reweight.Workspace) error { return ws.ExpScale(row(4), f[:4], 0, -1) }},
	} {
		for i := range out {
			out[i] = mark
		}
		var ws reweight.Workspace
		err := c.call(&ws)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "reweight: ") || strings.Contains(err.Error(), "\n") {
			t.Errorf("error %q, want it to contain %q", err, c.want)
		}
		for i := range out {
			if out[i] != mark {
				t.Errorf("%s: output %d was written", c.want, i)
				break
			}
		}
	}
}
