package randomcalls

import (
	"math"
	"slices"
	"testing"

	"github.com/seed621a2839/reweight"
)

// CheckErrors makes calls with options at the edges of what they may be, and wrong calls of
// kinds that are rare among the trials. On each caller they must have the error that plain Go
// has, and write nothing.
func CheckErrors(t *testing.T, callers ...Caller) {
	t.Helper()
	d := New(1, false)
	d.wrong = false
	b := d.batch(40, 20)
	d.ofSpans(b)
	d.ofTeacher(b)
	d.ofSquares(b)
	d.ofDrops(b)
	d.ofParts(b, 2)
	b.RefLogprobs, b.NewValues, b.Returns = b.RefEnergy, b.Values, b.TokenRewards
	CheckOptions(t, b, true, callers...)

	for i, call := range wrongCalls() {
		cpu := reweight.Workspace{ISA: reweight.Portable}
		want := slices.Repeat([]float32{777}, 8)
		wantErr := call(&cpu, want)
		if wantErr == nil {
			t.Errorf("call %d is no error", i)
			continue
		}
		for _, c := range callers {
			got := slices.Repeat([]float32{777}, 8)
			if err := Differ(Outcome{call(c, got), got}, Outcome{wantErr, want}); err != nil {
				t.Errorf("call %d, %v: %v", i, wantErr, err)
			}
		}
	}
}

// wrongCalls returns calls that have memory of eight elements for what they write.
func wrongCalls() (calls []func(c Caller, dst []float32) error) {
	type L = reweight.Logits
	nan := float32(math.NaN())
	f := make([]float32, 12)
	roles, wrongRoles := []reweight.Role{0, 1, 2, 2}, []reweight.Role{0, 1, 2, 3}
	half, bf16 := make([]reweight.F16, 8), make([]reweight.BF16, 8)

	calls = append(calls, func(c Caller, dst []float32) error {
		return c.TokenStats(reweight.Stats{LSE: dst[:2]}, L{F32: f}, []int32{0, 1}, reweight.DefaultTokenStats)
	})
	for _, of := range []func(x []float32) (dst, logits L){
		func(x []float32) (dst, logits L) { return L{Vocab: 2, F32: x}, L{Vocab: 6, F32: f} },
		func(x []float32) (dst, logits L) { return L{Vocab: 4, F32: x}, L{Vocab: 2, F32: f[:4]} },
		func(x []float32) (dst, logits L) { return L{Vocab: 4, F32: x}, L{Vocab: 4, BF16: bf16} },
		func(x []float32) (dst, logits L) { return L{Vocab: 4, F16: half}, L{Vocab: 4, F16: half} },
		func(x []float32) (dst, logits L) { return L{Vocab: 4, F16: half}, L{Vocab: 4, F32: f[:8]} },
		func(x []float32) (dst, logits L) { return L{Vocab: 4, BF16: bf16}, L{Vocab: 4, F32: f[:8]} },
	} {
		calls = append(calls, func(c Caller, x []float32) error {
			dst, logits := of(x)
			input := reweight.RowGradientInput{Logprobs: f[:2], Grad: f[:2]}
			return c.RowGradient(dst, logits, []int32{0, 1}, input, reweight.DefaultRowGradient)
		})
	}
	for _, ids := range [][]int32{{-1, -2}, {4, -1}} { // -1 is that of another column
		calls = append(calls, func(c Caller, dst []float32) error {
			input := reweight.RowGradientInput{Logprobs: f[:2], Grad: f[:2], LSE: f[:2]}
			return c.RowGradient(L{Vocab: 4, F32: dst}, L{Vocab: 4, F32: f[:8]}, ids, input,
				reweight.DefaultRowGradient)
		})
	}
	for _, offsets := range [][]int32{{0, 3, 13}, {-3, 2, 4}, {0, 3, math.MaxInt32}} {
		calls = append(calls,
			func(c Caller, dst []float32) error { return c.SpanMeans(dst[:2], f, offsets) },
			func(c Caller, dst []float32) error { return c.MinMax(dst[:2], dst[2:4], f, offsets) })
	}

	logRatio, surprisal, refEntropy := reweight.DefaultActFocus, reweight.DefaultActFocus, reweight.DefaultActFocus
	logRatio.Signal, surprisal.Signal = reweight.SignalLogRatio, reweight.SignalSurprisal
	refEntropy.Signal = reweight.SignalRefEntropy
	byTrajectory := reweight.DefaultLoss
	byTrajectory.Aggregation = reweight.SeqMeanTokenSum
	actFocus := func(opt reweight.ActFocusOptions) func(c Caller, dst []float32, b *reweight.Batch) error {
		return func(c Caller, dst []float32, b *reweight.Batch) error {
			_, err := c.ActFocus(dst, b, opt)
			return err
		}
	}
	aem := func(c Caller, dst []float32, b *reweight.Batch) error { return c.AEM(dst, b, reweight.DefaultAEM) }
	loss := func(opt reweight.LossOptions, weights []float32) func(c Caller, dst []float32, b *reweight.Batch) error {
		return func(c Caller, dst []float32, b *reweight.Batch) error {
			_, err := c.Loss(dst, weights, b, opt)
			return err
		}
	}
	gae := func(c Caller, dst []float32, b *reweight.Batch) error {
		return c.GAE(dst, nil, f[:4], b, reweight.DefaultGAE)
	}
	for _, x := range []struct {
		call   func(c Caller, dst []float32, b *reweight.Batch) error
		change func(b *reweight.Batch)
	}{
		{actFocus(logRatio), func(b *reweight.Batch) { b.RefLogprobs = []float32{0, 0, nan, 0} }},
		{actFocus(logRatio), func(b *reweight.Batch) {
			b.OldLogprobs, b.RefLogprobs = []float32{0, 0, 0, nan}, []float32{0, 0, nan, 0}
		}},
		{actFocus(refEntropy), func(b *reweight.Batch) { b.RefEntropy = []float32{0, 0, nan, 0} }},
		{actFocus(surprisal), func(b *reweight.Batch) { b.OldLogprobs = []float32{0, 0, float32(math.Inf(1)), nan} }},
		{aem, func(b *reweight.Batch) { b.SpanIDs = []int32{-1, 0, 5, 1} }},
		{aem, func(b *reweight.Batch) { b.SpanIDs = []int32{-2, 0, 1, 1} }},
		{aem, func(b *reweight.Batch) { b.SpanIDs = []int32{-1, -1, 0, 0} }},
		{aem, func(b *reweight.Batch) { b.Role = []reweight.Role{0, 0, 1, 2} }},
		{aem, func(b *reweight.Batch) { b.Role = wrongRoles }},
		{aem, func(b *reweight.Batch) { b.SeqOffsets = []int64{0, 5, 3} }},
		{aem, func(b *reweight.Batch) { b.Entropy = []float32{nan, 0, 1, nan} }},
		{aem, func(b *reweight.Batch) { b.Entropy = []float32{0, 2e30, 1, 2} }},
		{loss(reweight.DefaultLoss, []float32{0, nan, 1, 2}), func(*reweight.Batch) {}},
		{loss(reweight.DefaultLoss, nil), func(b *reweight.Batch) { b.Role = wrongRoles }},
		{loss(byTrajectory, nil), func(b *reweight.Batch) { b.SeqOffsets = []int64{0, 5, 3} }},
		{gae, func(b *reweight.Batch) { b.SeqOffsets = []int64{0, 4, 2} }},
	} {
		b := &reweight.Batch{
			Role: roles, SeqOffsets: []int64{0, 2, 4}, SpanIDs: []int32{-1, 0, 1, 1},
			GroupIDs: []int32{0, 0}, Rewards: []float32{0, 1}, RefEnergy: f[:4], RefEntropy: f[:4], Entropy: f[:4],
			OldLogprobs: f[:4], Logprobs: f[:4], Advantages: f[:4], Values: f[:4],
		}
		x.change(b)
		calls = append(calls, func(c Caller, dst []float32) error { return x.call(c, dst[:4], b) })
	}
	return calls
}
