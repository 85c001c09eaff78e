package gpu_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/gpu"
	"github.com/seed621a2839/reweight/internal/must"
)

// checkAEM runs AEM on the device and wants what the CPU computes, its error included.
func (t *tokenTest) checkAEM(b *reweight.Batch, opt reweight.AEMOptions) {
	t.Helper()
	want := make([]float32, b.Tokens())
	wantErr := t.cpu.AEM(want, b, opt)
	d := placeBatch(t, b)
	factors := d.Entropy
	if t.IntN(3) > 0 {
		factors = output[float32](t, b.Tokens())
	}
	t.check("AEM", t.ws.AEM(t.overwrite(factors), d, opt), wantErr)
	t.wantFloats("factors", factors, want, wantErr)
}

// TestAEM compares random batches.
func TestAEM(t *testing.T) {
	rounds(t, 3**tokenRounds, func(t *tokenTest) {
		opt := reweight.AEMOptions{Lambda: pickOne(t, 0, 1, 80, 80*t.Float64()), Guard: pickOne(t, 0, 0.1, 0.5, math.Inf(1)), Scope: reweight.Scope(t.IntN(3))}
		if opt.Lambda == 0 {
			opt.Guard = max(opt.Guard, 0.1)
		}
		t.checkAEM(t.spanBatch(t.n()), opt)
	})
}

// oneTrajectory is a batch of one trajectory of response tokens, with spans of these
// lengths one after another.
func oneTrajectory(lengths ...int) *reweight.Batch {
	b := &reweight.Batch{GroupIDs: []int32{7}}
	for s, n := range lengths {
		b.SpanIDs = append(b.SpanIDs, slices.Repeat([]int32{int32(s)}, n)...)
	}
	b.Role = slices.Repeat([]reweight.Role{reweight.RoleReasoning}, len(b.SpanIDs))
	b.SeqOffsets = []int64{0, int64(len(b.Role))}
	return b
}

// TestAEMEdges has scopes and spans whose lengths are about those that sums are cut at.
func TestAEMEdges(t *testing.T) {
	rounds(t, 1, func(t *tokenTest) {
		for _, lengths := range [][]int{
			slices.Repeat([]int{1}, 127), slices.Repeat([]int{2}, 128), slices.Repeat([]int{1}, 129),
			slices.Repeat([]int{1}, 1023), slices.Repeat([]int{1}, 1024), slices.Repeat([]int{1}, 1025),
			{1023, 1024, 1025}, {127, 128, 129}, {15, 16, 17, 31, 32, 33}, {1},
		} {
			b := oneTrajectory(lengths...)
			b.Entropy = t.floats(b.Tokens(), draws[0])
			t.checkAEM(b, reweight.AEMOptions{Lambda: 3, Scope: reweight.Scope(t.IntN(3))})
		}
	})
}

// TestAEMGuard has scopes whose entropies differ by just Guard, and by so little that
// Lambda over it is just the largest float32.
func TestAEMGuard(t *testing.T) {
	rounds(t, 1, func(t *tokenTest) {
		for _, c := range []struct {
			low, high float32
			opt       reweight.AEMOptions
		}{
			{0.25, 0.75, reweight.AEMOptions{Lambda: 1, Guard: 0.5}},
			{0.25, 0.75, reweight.AEMOptions{Lambda: 1, Guard: math.Nextafter(0.5, 1)}},
			{0.25, 0.75, reweight.AEMOptions{Lambda: 1, Guard: math.Nextafter(0.5, 0)}},
			{0, 0x1p-130, reweight.AEMOptions{Lambda: 0x1p-130 * math.MaxFloat32}},
			{0, 0x1p-130, reweight.AEMOptions{Lambda: math.Nextafter(0x1p-130*math.MaxFloat32, 0)}},
			{0, 0x1p-130, reweight.AEMOptions{Lambda: math.Nextafter(0x1p-130*math.MaxFloat32, 1)}},
			{-1e-8, 1e8, reweight.AEMOptions{Lambda: 80}}, // float32 cannot hold the difference
		} {
			b := oneTrajectory(1, 1, 1)
			b.Entropy = []float32{c.low, c.high, (c.low + c.high) / 2}
			t.checkAEM(b, c.opt)
		}
	})
}

// A flaw makes a batch wrong.
type flaw = func(t *tokenTest, b *reweight.Batch)

// response returns a response token, or any if there is none.
func (t *tokenTest) response(b *reweight.Batch) int {
	from := t.IntN(b.Tokens())
	for i := range b.Role {
		if k := (from + i) % len(b.Role); b.Role[k] != reweight.RoleMasked {
			return k
		}
	}
	return from
}

var layoutFlaws = []flaw{
	func(t *tokenTest, b *reweight.Batch) { // a role
		b.Role[t.IntN(b.Tokens())] = pickOne[reweight.Role](t, 3, 4, 128, 255)
	},
	func(t *tokenTest, b *reweight.Batch) { // the first offset
		b.SeqOffsets[0] = pickOne[int64](t, 1, -1, math.MinInt64)
	},
	func(t *tokenTest, b *reweight.Batch) { // any offset
		b.SeqOffsets[t.IntN(len(b.SeqOffsets))] = pickOne(t, -5, 1<<40, int64(b.Tokens())+1, math.MaxInt64, math.MinInt64)
	},
	func(t *tokenTest, b *reweight.Batch) { // the last offset
		b.SeqOffsets[b.Trajectories()] += pickOne[int64](t, -1, 1, 1000)
	},
}

var spanFlaws = []flaw{
	func(t *tokenTest, b *reweight.Batch) { // any span
		b.SpanIDs[t.IntN(b.Tokens())] = pickOne(t, -2, math.MinInt32, math.MaxInt32, math.MaxInt32-1, 5000, 4999, t.Int32N(4000))
	},
	func(t *tokenTest, b *reweight.Batch) { // a later span
		b.SpanIDs[t.IntN(b.Tokens())] += 1 + t.Int32N(2)
	},
	func(t *tokenTest, b *reweight.Batch) { // an earlier span
		i := t.response(b)
		b.SpanIDs[i] = max(0, b.SpanIDs[i]-1-t.Int32N(5))
	},
	func(t *tokenTest, b *reweight.Batch) { b.SpanIDs[t.response(b)] = -1 },
	func(t *tokenTest, b *reweight.Batch) { // spans that change places
		i, j := t.IntN(b.Tokens()), t.IntN(b.Tokens())
		b.SpanIDs[i], b.SpanIDs[j] = b.SpanIDs[j], b.SpanIDs[i]
	},
	func(t *tokenTest, b *reweight.Batch) { // random spans
		for i := range b.SpanIDs {
			b.SpanIDs[i] = int32(t.Uint32())
		}
	},
	func(t *tokenTest, b *reweight.Batch) { // random spans with small ids
		for i := range b.SpanIDs {
			b.SpanIDs[i] = t.Int32N(8) - 1
		}
	},
	func(t *tokenTest, b *reweight.Batch) { // a trajectory that ends one token later
		if q := t.IntN(b.Trajectories()); q > 0 {
			b.SeqOffsets[q] = min(b.SeqOffsets[q]+1, b.SeqOffsets[q+1])
		}
	},
	func(t *tokenTest, b *reweight.Batch) { // a span without a response token
		s := b.SpanIDs[t.response(b)]
		for i := range b.Role {
			if b.SpanIDs[i] == s {
				b.Role[i] = reweight.RoleMasked
			}
		}
	},
	func(t *tokenTest, b *reweight.Batch) {
		b.Entropy[t.response(b)] = pickOne(t, float32(math.Inf(1)), float32(math.Inf(-1)), 1e30, -1e30)
	},
	func(t *tokenTest, b *reweight.Batch) { b.Entropy[t.response(b)] = float32(math.NaN()) },
}

// TestAEMErrors makes batches wrong, in one way or in several at once, and wants the
// error that the CPU returns: of several, the same one.
func TestAEMErrors(t *testing.T) {
	flaws := slices.Concat(layoutFlaws, spanFlaws)
	rounds(t, 4**tokenRounds, func(t *tokenTest) {
		b := t.spanBatch(min(t.n(), 1000))
		for range pickOne(t, 1, 1, 2, 4) {
			pickOne(t, flaws...)(t, b)
		}
		t.checkAEM(b, reweight.AEMOptions{Lambda: 1, Scope: reweight.Scope(t.IntN(3))})
	})
}

// TestAEMTooManySpans: the host cannot count spans, so the device says when there are
// more than the workspace was made for.
func TestAEMTooManySpans(t *testing.T) {
	rounds(t, 3, func(t *tokenTest) {
		ws := must.Get(t.dev.NewWorkspace(0, gpu.Size{Tokens: 100, Trajectories: 10, Spans: 7}))
		for _, spans := range []int{7, 8, 40} {
			b := oneTrajectory(slices.Repeat([]int{1}, spans)...)
			b.SeqOffsets, b.GroupIDs = []int64{0, 5, int64(spans)}, []int32{1, 1}
			b.Entropy = t.floats(spans, draws[0])
			d, factors := placeBatch(t, b), output[float32](t, spans)
			must.Do(ws.AEM(factors, d, reweight.DefaultAEM))
			err := ws.Check()
			if spans == 7 {
				if err != nil {
					t.Error(err)
				}
				continue
			}
			want := fmt.Sprintf("reweight: SpanIDs has %d spans, want at most 7, for which the workspace was made", spans)
			if err == nil || err.Error() != want {
				t.Errorf("error is %v, want %s", err, want)
			}
			t.allNaN("factors", factors, spans)
		}
		must.Do(ws.Close())
	})
}
