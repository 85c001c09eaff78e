package gpu_test

import (
	"math"
	"slices"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/gpu"
	"github.com/seed621a2839/reweight/internal/must"
)

// ranges cuts n elements into ranges of about that length, from an element on that need
// not be the first, some of them empty.
func (t *tokenTest) ranges(n, length int) []int32 {
	at := t.IntN(min(n, 3) + 1)
	off := []int32{int32(at)}
	for at < n && t.IntN(300) > 0 {
		if t.IntN(10) > 0 {
			at = min(n, at+1+t.IntN(2*length))
		}
		off = append(off, int32(at))
	}
	return off
}

// TestSpanMeansAndMinMax compares spans and groups of all lengths.
func TestSpanMeansAndMinMax(t *testing.T) {
	rounds(t, *tokenRounds, func(t *tokenTest) {
		x := t.floats(1+t.IntN(pickOne(t, 20, 300, 6000)), t.draw())
		n := len(x)
		off := t.ranges(n, pickOne(t, 2, 20, 300, 1500))
		spans := len(off) - 1
		means, lo, hi := make([]float32, spans), make([]float32, spans), make([]float32, spans)
		must.Do(t.cpu.SpanMeans(means, x, off))
		must.Do(t.cpu.MinMax(lo, hi, x, off))
		px, poff := array(t, x), array(t, off)
		pm, plo, phi := output[float32](t, spans), output[float32](t, spans), output[float32](t, spans)
		t.check("SpanMeans", t.ws.SpanMeans(pm, px, poff, spans, n), nil)
		t.same("means", pm, means)
		t.check("MinMax", t.ws.MinMax(plo, phi, px, poff, spans, n), nil)
		t.same("lo", plo, lo)
		t.same("hi", phi, hi)
	})
}

// TestRangesErrors: offsets that are wrong are not used, Check says what is wrong with
// them as the CPU does, and what they cut out is NaN, and nothing else.
func TestRangesErrors(t *testing.T) {
	x := []float32{1, 2, 3, 4, 5, 6, 7, 8}
	rounds(t, 40, func(t *tokenTest) {
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
			spans := len(c.offsets) - 1
			means, lo, hi := make([]float32, spans), make([]float32, spans), make([]float32, spans)
			px, poff := array(t, x), array(t, c.offsets)
			pm, plo, phi := output[float32](t, spans), output[float32](t, spans), output[float32](t, spans)
			wantErr := t.cpu.SpanMeans(means, x, c.offsets)
			t.check("SpanMeans", t.ws.SpanMeans(pm, px, poff, spans, len(x)), wantErr)
			wantErr = t.cpu.MinMax(lo, hi, x, c.offsets)
			t.check("MinMax", t.ws.MinMax(plo, phi, px, poff, spans, len(x)), wantErr)
			for _, p := range []gpu.Ptr{pm, plo, phi} {
				for i, v := range readArray[float32](t, p, spans) {
					if (v != v) != slices.Contains(c.wrong, i) {
						t.Errorf("%v: element %d is %v, want NaN only at %v", c.offsets, i, v, c.wrong)
					}
				}
			}
		}
	})
}

// TestExpScale compares scopes of all lengths, in place and not.
func TestExpScale(t *testing.T) {
	rounds(t, *tokenRounds, func(t *tokenTest) {
		n := t.n()
		x := t.floats(n, t.draw())
		lo := pickOne(t, 0, 1.5, x[0], x[n-1])
		if lo-lo != 0 {
			lo = 0
		}
		rate := pickOne(t, 0, t.ExpFloat64(), 1e30, math.MaxFloat32, 1e-300)
		want := make([]float32, n)
		must.Do(t.cpu.ExpScale(want, x, lo, rate))
		px := array(t, x)
		dst := px
		if t.IntN(2) == 0 {
			dst = output[float32](t, n)
		}
		t.check("ExpScale", t.ws.ExpScale(t.overwrite(dst), px, n, lo, rate), nil)
		t.same("dst", dst, want)
	})
}

// TestArguments: what the host can see is an error of the call, and nothing is queued.
func TestArguments(t *testing.T) {
	ws := must.Get(newTokenTest(t, 0).dev.NewWorkspace(0, gpu.Size{Tokens: 10, Trajectories: 3, Spans: 5}))
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
		"Trajectories is 0, want at least 1":                                     as(func(b *gpu.Batch) { b.Trajectories = 0 }),
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
	if err := ws.Close(); err != nil {
		t.Error(err)
	}
}
