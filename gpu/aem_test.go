package gpu_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/gpu"
)

// batchSize are the limits of the workspaces here.
var batchSize = gpu.Size{Tokens: 4000, Trajectories: 200, Spans: 4000}

// checkAEM runs AEM on the device and wants what the CPU computes, its error included.
func checkAEM(m *memory, ws *gpu.Workspace, b *reweight.Batch, opt reweight.AEMOptions, inPlace bool) {
	m.t.Helper()
	want := make([]float32, b.Tokens())
	wantErr := portable().AEM(want, b, opt)
	var out []float32
	if inPlace {
		out = b.Entropy
	}
	d := placeBatch(m, b, out)
	factors := d.Entropy
	if !inPlace {
		factors = place(m, make([]float32, b.Tokens()), true)
	}
	if err := ws.AEM(factors, d, opt); err != nil {
		m.t.Fatal(err)
	}
	wantSame(m.t, ws.Check(), wantErr)
	if got := read[float32](m, factors, b.Tokens()); wantErr != nil {
		wantNaN(m.t, "factors", got)
	} else {
		wantBits(m.t, "factors", got, want)
	}
	m.release()
}

// wantSame wants an error with the text of the CPU's, or none where it has none.
func wantSame(t *testing.T, got, want error) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("error is %v\nwant %v", got, want)
	}
	if input := new(reweight.InputError); want != nil && !errors.As(got, &input) {
		t.Errorf("error is a %T, want an *InputError", got)
	}
}

// TestAEM compares random batches bit by bit with the portable kernels.
func TestAEM(t *testing.T) {
	dev := openDevice(t)
	ws := newWorkspace(t, dev, batchSize)
	for seed := range testRounds(160) {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			r := maker{rand.New(rand.NewPCG(uint64(seed), 1))}
			tokens, trajectories := r.size()
			opt := reweight.AEMOptions{Lambda: pick(r, 0, 1, 80, 80*r.Float64()), Guard: pick(r, 0, 0.1, 0.5, math.Inf(1)), Scope: reweight.Scope(r.IntN(3))}
			checkAEM(&memory{t: t, dev: dev, r: r.Rand}, ws, r.batch(tokens, trajectories), opt, r.IntN(4) == 0)
		})
	}
}

// TestAEMWholeGroups has scopes of 127 to 129 spans and more than a CTA takes at a time,
// and spans of 1,023 to 1,025 tokens.
func TestAEMWholeGroups(t *testing.T) {
	dev := openDevice(t)
	ws := newWorkspace(t, dev, batchSize)
	r := maker{rand.New(rand.NewPCG(1, 2))}
	for _, lengths := range [][]int{
		slices.Repeat([]int{1}, 127), slices.Repeat([]int{2}, 128), slices.Repeat([]int{1}, 129),
		slices.Repeat([]int{1}, 1023), slices.Repeat([]int{1}, 1024), slices.Repeat([]int{1}, 1025),
		{1023, 1024, 1025}, {127, 128, 129}, {15, 16, 17, 31, 32, 33}, {1},
	} {
		b := &reweight.Batch{GroupIDs: []int32{7}}
		for s, n := range lengths {
			b.SpanIDs = append(b.SpanIDs, slices.Repeat([]int32{int32(s)}, n)...)
		}
		b.Role = slices.Repeat([]reweight.Role{reweight.RoleReasoning}, len(b.SpanIDs))
		b.SeqOffsets = []int64{0, int64(len(b.Role))}
		b.Entropy = r.floats(len(b.Role), false)
		checkAEM(&memory{t: t, dev: dev, r: r.Rand}, ws, b, reweight.AEMOptions{Lambda: 3, Scope: reweight.Scope(r.IntN(3))}, false)
	}
}

// TestAEMGuard has scopes whose entropies differ by just Guard, and by so little that
// Lambda over it is just the largest float32.
func TestAEMGuard(t *testing.T) {
	dev := openDevice(t)
	ws := newWorkspace(t, dev, batchSize)
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
		b := &reweight.Batch{
			Role: slices.Repeat([]reweight.Role{reweight.RoleReasoning}, 3), SeqOffsets: []int64{0, 3}, GroupIDs: []int32{0},
			SpanIDs: []int32{0, 1, 2}, Entropy: []float32{c.low, c.high, (c.low + c.high) / 2},
		}
		checkAEM(&memory{t: t, dev: dev, r: rand.New(rand.NewPCG(1, 9))}, ws, b, c.opt, false)
	}
}

// A flaw makes a batch wrong.
type flaw struct {
	name string
	make func(r maker, b *reweight.Batch)
}

// anyIndex returns an index of x, and 0 if it is empty.
func anyIndex[E any](r maker, x []E) int { return r.IntN(max(1, len(x))) }

// response returns a response token, or any if there is none.
func (r maker) response(b *reweight.Batch) int {
	from := anyIndex(r, b.Role)
	for i := range b.Role {
		if t := (from + i) % len(b.Role); b.Role[t] != reweight.RoleMasked {
			return t
		}
	}
	return from
}

var layoutFlaws = []flaw{
	{"role", func(r maker, b *reweight.Batch) { b.Role[anyIndex(r, b.Role)] = pick[reweight.Role](r, 3, 4, 128, 255) }},
	{"first offset", func(r maker, b *reweight.Batch) { b.SeqOffsets[0] = pick[int64](r, 1, -1, math.MinInt64) }},
	{"offset", func(r maker, b *reweight.Batch) {
		b.SeqOffsets[anyIndex(r, b.SeqOffsets)] = pick[int64](r, -5, 1<<40, int64(len(b.Role))+1, math.MaxInt64, math.MinInt64)
	}},
	{"last offset", func(r maker, b *reweight.Batch) { b.SeqOffsets[len(b.SeqOffsets)-1] += pick[int64](r, -1, 1, 1000) }},
}

var spanFlaws = []flaw{
	{"any span", func(r maker, b *reweight.Batch) {
		b.SpanIDs[anyIndex(r, b.SpanIDs)] = pick[int32](r, -2, math.MinInt32, math.MaxInt32, math.MaxInt32-1, 4000, 3999, int32(r.IntN(4000)))
	}},
	{"next span", func(r maker, b *reweight.Batch) { b.SpanIDs[anyIndex(r, b.SpanIDs)] += int32(1 + r.IntN(2)) }},
	{"earlier span", func(r maker, b *reweight.Batch) {
		t := r.response(b)
		b.SpanIDs[t] = max(0, b.SpanIDs[t]-int32(1+r.IntN(5)))
	}},
	{"no span", func(r maker, b *reweight.Batch) { b.SpanIDs[r.response(b)] = -1 }},
	{"swapped spans", func(r maker, b *reweight.Batch) {
		i, j := anyIndex(r, b.SpanIDs), anyIndex(r, b.SpanIDs)
		b.SpanIDs[i], b.SpanIDs[j] = b.SpanIDs[j], b.SpanIDs[i]
	}},
	{"random spans", func(r maker, b *reweight.Batch) {
		for t := range b.SpanIDs {
			b.SpanIDs[t] = int32(r.Uint32())
		}
	}},
	{"small random spans", func(r maker, b *reweight.Batch) {
		for t := range b.SpanIDs {
			b.SpanIDs[t] = int32(r.IntN(8)) - 1
		}
	}},
	{"moved boundary", func(r maker, b *reweight.Batch) {
		if len(b.SeqOffsets) > 2 {
			q := 1 + r.IntN(len(b.SeqOffsets)-2)
			b.SeqOffsets[q] = min(b.SeqOffsets[q]+1, b.SeqOffsets[q+1])
		}
	}},
	{"silent span", func(r maker, b *reweight.Batch) {
		s := b.SpanIDs[r.response(b)]
		for t := range b.Role {
			if b.SpanIDs[t] == s {
				b.Role[t] = reweight.RoleMasked
			}
		}
	}},
	{"entropy", func(r maker, b *reweight.Batch) {
		b.Entropy[r.response(b)] = pick(r, float32(math.Inf(1)), float32(math.Inf(-1)), 1e30, -1e30)
	}},
	{"no entropy", func(r maker, b *reweight.Batch) { b.Entropy[r.response(b)] = float32(math.NaN()) }},
}

// TestAEMErrors makes batches wrong, in one way and in several at once, and wants the
// error that the CPU returns: of several, the same one.
func TestAEMErrors(t *testing.T) {
	dev := openDevice(t)
	ws := newWorkspace(t, dev, batchSize)
	flaws := append(slices.Clip(layoutFlaws), spanFlaws...)
	check := func(name string, seed uint64, several bool) {
		t.Run(fmt.Sprint(name, " seed", seed), func(t *testing.T) {
			r := maker{rand.New(rand.NewPCG(seed, 3))}
			tokens, trajectories := r.size()
			b := r.batch(1+tokens%1000, trajectories)
			for _, f := range flaws {
				if f.name == name || several && r.IntN(4) == 0 {
					f.make(r, b)
				}
			}
			opt := reweight.AEMOptions{Lambda: 1, Scope: reweight.Scope(r.IntN(3))}
			checkAEM(&memory{t: t, dev: dev, r: r.Rand}, ws, b, opt, r.IntN(2) == 0)
		})
	}
	for _, f := range flaws {
		for seed := range testRounds(8) {
			check(f.name, uint64(seed), false)
		}
	}
	for seed := range testRounds(48) {
		check("several", uint64(seed), true)
	}
}

// TestAEMTooManySpans: the host cannot count spans, so the device says when there are
// more than the workspace was made for.
func TestAEMTooManySpans(t *testing.T) {
	dev := openDevice(t)
	ws := newWorkspace(t, dev, gpu.Size{Tokens: 100, Trajectories: 10, Spans: 7})
	for _, spans := range []int{7, 8, 40} {
		r := maker{rand.New(rand.NewPCG(1, uint64(spans)))}
		m := &memory{t: t, dev: dev, r: r.Rand}
		b := &reweight.Batch{SeqOffsets: []int64{0, 20, 40}, GroupIDs: []int32{1, 1}}
		for s := range 40 {
			b.Role = append(b.Role, reweight.RoleAction)
			b.SpanIDs = append(b.SpanIDs, int32(s*spans/40))
		}
		b.SeqOffsets[1] = int64(slices.Index(b.SpanIDs, int32(spans/2)))
		b.Entropy = r.floats(40, false)
		if spans == 7 {
			checkAEM(m, ws, b, reweight.DefaultAEM, false)
			continue
		}
		d := placeBatch(m, b, b.Entropy)
		if err := ws.AEM(d.Entropy, d, reweight.DefaultAEM); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("reweight: SpanIDs has %d spans, want at most 7, for which the workspace was made", spans)
		if err := ws.Check(); err == nil || err.Error() != want {
			t.Errorf("error is %v, want %s", err, want)
		}
		wantNaN(t, "factors", read[float32](m, d.Entropy, 40))
		m.release()
	}
}
