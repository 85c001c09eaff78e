package gpu_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/gpu"
)

// ranges cuts n elements into ranges of about that length, from an element on that need
// not be the first, some of them empty.
func (r maker) ranges(n, length int) []int32 {
	at := r.IntN(min(n, 3) + 1)
	off := []int32{int32(at)}
	for at < n && r.IntN(300) > 0 {
		if r.IntN(10) > 0 {
			at = min(n, at+1+r.IntN(2*length))
		}
		off = append(off, int32(at))
	}
	return off
}

// TestSpanMeansAndMinMax compares them with the portable kernels.
func TestSpanMeansAndMinMax(t *testing.T) {
	dev := openDevice(t)
	ws := newWorkspace(t, dev, gpu.Size{})
	for seed := range testRounds(120) {
		r := maker{rand.New(rand.NewPCG(uint64(seed), 6))}
		m := &memory{t: t, dev: dev, r: r.Rand}
		n := 1 + r.IntN(pick(r, 20, 300, 6000))
		x, off := r.floats(n, r.IntN(2) == 0), r.ranges(n, pick(r, 2, 20, 300, 1500))
		spans := len(off) - 1
		means, lo, hi := make([]float32, spans), make([]float32, spans), make([]float32, spans)
		if err := portable().SpanMeans(means, x, off); err != nil {
			t.Fatal(err)
		}
		if err := portable().MinMax(lo, hi, x, off); err != nil {
			t.Fatal(err)
		}
		px, poff := place(m, x, false), place(m, off, false)
		pm, plo, phi := place(m, make([]float32, spans), true), place(m, make([]float32, spans), true), place(m, make([]float32, spans), true)
		if err := ws.SpanMeans(pm, px, poff, spans, n); err != nil {
			t.Fatal(err)
		}
		if err := ws.MinMax(plo, phi, px, poff, spans, n); err != nil {
			t.Fatal(err)
		}
		if err := ws.Check(); err != nil {
			t.Fatal(err)
		}
		wantBits(t, "means", read[float32](m, pm, spans), means)
		wantBits(t, "lo", read[float32](m, plo, spans), lo)
		wantBits(t, "hi", read[float32](m, phi, spans), hi)
		m.release()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// TestRangesErrors: offsets that are wrong are not used, Check says what is wrong with
// them as the CPU does, and what they cut out is NaN, and nothing else.
func TestRangesErrors(t *testing.T) {
	dev := openDevice(t)
	ws := newWorkspace(t, dev, gpu.Size{})
	x := []float32{1, 2, 3, 4, 5, 6, 7, 8}
	for _, c := range []struct {
		offsets []int32
		wrong   []int // spans
	}{
		{[]int32{-1, 2, 4, 8}, []int{0}},
		{[]int32{math.MinInt32, 2, 4, 8}, []int{0}},
		{[]int32{0, 5, 4, 8}, []int{1}},
		{[]int32{0, -7, 4, 8}, []int{0, 1}},
		{[]int32{0, 2, 4, 9}, []int{2}},
		{[]int32{0, 2, math.MaxInt32, math.MaxInt32}, []int{1, 2}},
		{[]int32{0, 2, 1 << 20, 8}, []int{1, 2}},
	} {
		for range 8 { // the lanes that report run in another order each time
			checkRanges(t, dev, ws, x, c.offsets, c.wrong)
		}
	}
}

// checkRanges cuts spans out of x and wants the error of the CPU's, and NaN where the
// offsets are wrong.
func checkRanges(t *testing.T, dev *gpu.Device, ws *gpu.Workspace, x []float32, offsets []int32, wrong []int) {
	t.Helper()
	spans := len(offsets) - 1
	means, lo, hi := make([]float32, spans), make([]float32, spans), make([]float32, spans)
	m := &memory{t: t, dev: dev, r: rand.New(rand.NewPCG(1, 1))}
	px, poff := place(m, x, false), place(m, offsets, false)
	p, q := place(m, make([]float32, spans), true), place(m, make([]float32, spans), true)

	wantErr := portable().SpanMeans(means, x, offsets)
	if err := ws.SpanMeans(p, px, poff, spans, len(x)); err != nil {
		t.Fatal(err)
	}
	wantSame(t, ws.Check(), wantErr)
	wantWrong(t, read[float32](m, p, spans), wrong)

	wantErr = portable().MinMax(lo, hi, x, offsets)
	if err := ws.MinMax(p, q, px, poff, spans, len(x)); err != nil {
		t.Fatal(err)
	}
	wantSame(t, ws.Check(), wantErr)
	wantWrong(t, read[float32](m, p, spans), wrong)
	wantWrong(t, read[float32](m, q, spans), wrong)
	m.release()
}

// wantWrong wants NaN at the indices of wrong and nowhere else.
func wantWrong(t *testing.T, got []float32, wrong []int) {
	t.Helper()
	for i, v := range got {
		if (v != v) != slices.Contains(wrong, i) {
			t.Errorf("element %d is %v, want NaN only at %v", i, v, wrong)
		}
	}
}

// TestExpScale compares it with the portable kernel, in place and not.
func TestExpScale(t *testing.T) {
	dev := openDevice(t)
	ws := newWorkspace(t, dev, gpu.Size{})
	for seed := range testRounds(80) {
		r := maker{rand.New(rand.NewPCG(uint64(seed), 7))}
		m := &memory{t: t, dev: dev, r: r.Rand}
		n := pick(r, 1+r.IntN(300), 127, 128, 129, 1024, 1025, 1+r.IntN(4000))
		x := r.floats(n, r.IntN(2) == 0)
		lo, rate := pick(r, 0, 1.5, x[0], x[n-1]), pick(r, 0, r.ExpFloat64(), 1e30, math.MaxFloat32, 1e-300)
		if lo-lo != 0 {
			lo = 0
		}
		want := make([]float32, n)
		if err := portable().ExpScale(want, x, lo, rate); err != nil {
			t.Fatal(err)
		}
		src := place(m, x, seed%2 == 0)
		dst := src
		if seed%2 != 0 {
			dst = place(m, make([]float32, n), true)
		}
		if err := ws.ExpScale(dst, src, n, lo, rate); err != nil {
			t.Fatal(err)
		}
		if err := ws.Check(); err != nil {
			t.Fatal(err)
		}
		wantBits(t, "dst", read[float32](m, dst, n), want)
		m.release()
		if t.Failed() {
			t.Fatalf("seed %d: %d elements, rate %v", seed, n, rate)
		}
	}
}

// TestArguments: what the host can see is an error of the call, and nothing is queued.
func TestArguments(t *testing.T) {
	dev := openDevice(t)
	ws := newWorkspace(t, dev, gpu.Size{Tokens: 10, Trajectories: 3, Spans: 5})
	const p gpu.Ptr = 1 << 20
	batch := func(change func(b *gpu.Batch)) *gpu.Batch {
		b := &gpu.Batch{Tokens: 10, Trajectories: 3, Role: p, SeqOffsets: p, GroupIDs: p, Rewards: p, SpanIDs: p, Entropy: p, Values: p}
		change(b)
		return b
	}
	as := func(change func(b *gpu.Batch)) error { return ws.AEM(p, batch(change), reweight.DefaultAEM) }
	option := func(change func(opt *reweight.AEMOptions)) error {
		opt := reweight.DefaultAEM
		change(&opt)
		return ws.AEM(p, batch(func(*gpu.Batch) {}), opt)
	}
	good := batch(func(*gpu.Batch) {})
	for want, err := range map[string]error{
		"dst is 0, want an address in device memory":                             ws.SpanMeans(0, p, p, 1, 1),
		"x is 0x100002, want a multiple of 4, the size of its elements":          ws.SpanMeans(p, p+2, p, 1, 1),
		"offsets is 0x100001, want a multiple of 4, the size of its elements":    ws.MinMax(p, p, p, p+1, 1, 1),
		"lo is 0, want an address in device memory":                              ws.MinMax(0, p, p, p, 1, 1),
		"hi is 0, want an address in device memory":                              ws.MinMax(p, 0, p, p, 1, 1),
		"n is -1, want at least 0":                                               ws.SpanMeans(p, p, p, -1, 1),
		"size is -1, want at least 0":                                            ws.SpanMeans(p, p, p, 1, -1),
		"n is 0, want at least 1":                                                ws.ExpScale(p, p, 0, 0, 1),
		"rate is -1, want 0 to 3.4e38":                                           ws.ExpScale(p, p, 1, 0, -1),
		"lo is NaN, want a finite number":                                        ws.ExpScale(p, p, 1, float32(math.NaN()), 1),
		"Tokens is 11, want 0 to 10, for which the workspace was made":           as(func(b *gpu.Batch) { b.Tokens = 11 }),
		"Trajectories is 4, want 0 to 3, for which the workspace was made":       as(func(b *gpu.Batch) { b.Trajectories = 4 }),
		"SeqOffsets has 1 elements, want at least 2, for one trajectory":         as(func(b *gpu.Batch) { b.Trajectories = 0 }),
		"Role is 0, want an address in device memory":                            as(func(b *gpu.Batch) { b.Role = 0 }),
		"SeqOffsets is 0x100004, want a multiple of 8, the size of its elements": as(func(b *gpu.Batch) { b.SeqOffsets = p + 4 }),
		"SpanIDs is 0, want an address in device memory":                         as(func(b *gpu.Batch) { b.SpanIDs = 0 }),
		"Entropy is 0, want an address in device memory":                         as(func(b *gpu.Batch) { b.Entropy = 0 }),
		"GroupIDs is 0, want an address in device memory":                        as(func(b *gpu.Batch) { b.GroupIDs = 0 }),
		"factors is 0, want an address in device memory":                         ws.AEM(0, good, reweight.DefaultAEM),
		"Lambda is 81, want 0 to 80":                                             option(func(opt *reweight.AEMOptions) { opt.Lambda = 81 }),
		"Guard is -1, want at least 0":                                           option(func(opt *reweight.AEMOptions) { opt.Guard = -1 }),
		"Scope is 3, want 0 to 2: one of [group trajectory batch]":               option(func(opt *reweight.AEMOptions) { opt.Scope = 3 }),
		"Eps is -1, want 0 to 3.4e38":                                            ws.GRPO(p, good, reweight.GRPOOptions{Eps: -1}),
		"Rewards is 0, want an address in device memory":                         ws.GRPO(p, batch(func(b *gpu.Batch) { b.Rewards = 0 }), reweight.DefaultGRPO),
		"Gamma is 2, want 0 to 1":                                                ws.GAE(p, p, p, good, reweight.GAEOptions{Gamma: 2}),
		"Values is 0, want an address in device memory":                          ws.GAE(p, p, p, batch(func(b *gpu.Batch) { b.Values = 0 }), reweight.DefaultGAE),
		"returns is 0x100002, want a multiple of 4, the size of its elements":    ws.GAE(p, p+2, p, good, reweight.DefaultGAE),
		"advantages is 0, want an address in device memory":                      ws.GAE(0, p, p, good, reweight.DefaultGAE),
		"rewards is 0, want an address in device memory":                         ws.GAE(p, p, 0, good, reweight.DefaultGAE),
	} {
		if err == nil || err.Error() != "reweight: "+want {
			t.Errorf("error is %v\nwant reweight: %s", err, want)
		}
	}
	if err := as(func(b *gpu.Batch) { b.Tokens = -1 }); err == nil {
		t.Error("-1 tokens are no error")
	}
	if err := ws.Check(); err != nil {
		t.Error(err)
	}
}
