package gpu_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/gpu"
	"github.com/seed621a2839/reweight/internal/raw"
	"github.com/seed621a2839/reweight/internal/test/must"
)

// What the kernels on tokens, spans and trajectories compute, and most of their errors, are compared with the CPU's by
// package gpuslices. Here is what only who has device pointers can do wrong, and what an error leaves on the device.

// workspace returns one of that size.
func (m *machine) workspace(size gpu.Size) *gpu.Workspace {
	ws := must.Get(m.dev.NewWorkspace(0, size))
	m.Cleanup(func() {
		if err := ws.Close(); err != nil {
			m.Error(err)
		}
	})
	return ws
}

// array copies x to the device.
func array[E any](m *machine, x []E) gpu.Ptr { return m.place(raw.Bytes(x), 8).Ptr }

// wantNaN wants the floats of an output to be NaN where nan says so, and nowhere else.
func (m *machine) wantNaN(what string, p *placed, nan func(i int) bool) {
	m.Helper()
	for i, x := range floatsOf(m.read(what, p)) {
		if (x != x) != nan(i) {
			m.Errorf("%s: element %d is %v; is it to be NaN: %v", what, i, x, nan(i))
		}
	}
}

// A wrongCall has the error of a call, and its text without "reweight: ".
type wrongCall struct {
	err  error
	want string
}

func wantErrors(t *testing.T, calls []wrongCall) {
	t.Helper()
	for _, c := range calls {
		var input *reweight.InputError
		if !errors.As(c.err, &input) || input.Error() != "reweight: "+c.want {
			t.Errorf("%v, want %s", c.err, c.want)
		}
	}
}

// TestArguments: what the host can see is an error of the call, and nothing is queued.
func TestArguments(t *testing.T) {
	ws := newMachine(t).workspace(gpu.Size{Tokens: 10, Trajectories: 3, Spans: 5})
	const p gpu.Ptr = 1 << 20 // nothing is there
	with := func(change func(b *gpu.Batch)) *gpu.Batch {
		b := &gpu.Batch{Tokens: 10, Trajectories: 3, Role: p, SeqOffsets: p, GroupIDs: p, Rewards: p, SpanIDs: p,
			Entropy: p, Values: p, Logprobs: p, OldLogprobs: p, RefLogprobs: p, Advantages: p, RefEnergy: p}
		change(b)
		return b
	}
	good := with(func(*gpu.Batch) {})
	aem := func(change func(b *gpu.Batch)) error { return ws.AEM(p, with(change), reweight.DefaultAEM) }
	option := func(change func(opt *reweight.AEMOptions)) error {
		opt := reweight.DefaultAEM
		change(&opt)
		return ws.AEM(p, good, opt)
	}
	focus := func(signal reweight.Signal) reweight.ActFocusOptions {
		return reweight.ActFocusOptions{Beta: 1, Signal: signal}
	}
	loss := reweight.DefaultLoss
	byTrajectory, noClip := loss, loss
	byTrajectory.Aggregation, noClip.Policy = reweight.SeqMeanTokenSum, reweight.PPO{ClipLow: 2}
	wantErrors(t, []wrongCall{
		{ws.Multiply(p, p, p, -1), "n is -1, want at least 0"},
		{ws.Multiply(p, p+2, p, 1), "a is 0x100002, want a multiple of 4, the size of its elements"},
		{ws.MaskedMoments(0, p, p, 1, 0, 0), "result is 0, want an address in device memory"},
		{ws.MaskedMoments(p+4, p, p, 1, 0, 0), "result is 0x100004, want a multiple of 8, the size of its elements"},
		{ws.MaskedMoments(p, 0, p, 1, 0, 0), "x is 0, want an address in device memory"},
		{ws.MaskedMoments(p, p, p, 1, 0, math.Inf(1)), "shift is +Inf, want a finite number"},
		{ws.ActFocusWeights(p, p, 0, 1, 0, 0, focus(0)), "role is 0, want an address in device memory"},
		{ws.ActFocusWeights(p, p, p, 1, 0, -1, focus(0)), "sigma is -1, want 0 to 3.4e38"},
		{ws.ActFocusWeights(p, p, p, 1, 0, 0, reweight.ActFocusOptions{Alpha: 2}), "Alpha is 2, want 0 to 1"},
		{ws.ActFocus(p, p, good, reweight.ActFocusOptions{}), "Alpha is 0 like Beta, want one that is not 0, as in DefaultActFocus"},
		{ws.ActFocus(p, 0, good, focus(0)), "result is 0, want an address in device memory"},
		{ws.ActFocus(p, p, with(func(b *gpu.Batch) { b.Tokens = -1 }), focus(0)), "Tokens is -1, want at least 0"},
		{ws.ActFocus(p, p, good, focus(reweight.SignalRefEntropy)), "RefEntropy is 0, want an address in device memory"},
		{ws.ActFocus(p, p, with(func(b *gpu.Batch) { b.RefLogprobs = 0 }), focus(reweight.SignalLogRatio)), "RefLogprobs is 0, want an address in device memory"},
		{ws.ActFocus(p, p, good, focus(9)), "Signal is 9, want 0 to 3: one of [energy ref_entropy surprisal log_ratio]"},
		{ws.Whiten(0, p, p, 1), "dst is 0, want an address in device memory"},
		{ws.Surrogate(p, p, p, p, p, 0, p, 11, 1, loss), "n is 11, want 0 to 10, for which the workspace was made"},
		{ws.Surrogate(p, p, p, p, p, p+1, p, 1, 1, loss), "weights is 0x100001, want a multiple of 4, the size of its elements"},
		{ws.Surrogate(p, p, p, p, p, 0, p, 1, math.NaN(), loss), "scale is NaN, want a number that float32 can hold"},
		{ws.Loss(p, p, p, with(func(b *gpu.Batch) { b.Tokens = 11 }), loss), "Tokens is 11, want 0 to 10, for which the workspace was made"},
		{ws.Loss(p, p, p, with(func(b *gpu.Batch) { b.Advantages = 0 }), loss), "Advantages is 0, want an address in device memory"},
		{ws.Loss(p, p, p, with(func(b *gpu.Batch) { b.RefLogprobs = p + 1 }), loss), "RefLogprobs is 0x100001, want a multiple of 4, the size of its elements"},
		{ws.Loss(p, p, p, with(func(b *gpu.Batch) { b.Trajectories = 0 }), byTrajectory), "Trajectories is 0, want at least 1"},
		{ws.Loss(p, p, p, with(func(b *gpu.Batch) { b.Trajectories = 4 }), byTrajectory), "Trajectories is 4, want 0 to 3, for which the workspace was made"},
		{ws.Loss(p, p, p, with(func(b *gpu.Batch) { b.SeqOffsets = 0 }), byTrajectory), "SeqOffsets is 0, want an address in device memory"},
		{ws.Loss(p, p, p, good, noClip), "ClipLow is 2, want 0 to 1"},
		{ws.SpanMeans(0, p, p, 1, 1), "dst is 0, want an address in device memory"},
		{ws.SpanMeans(p, p+2, p, 1, 1), "x is 0x100002, want a multiple of 4, the size of its elements"},
		{ws.MinMax(p, p, p, p+1, 1, 1), "offsets is 0x100001, want a multiple of 4, the size of its elements"},
		{ws.MinMax(0, p, p, p, 1, 1), "lo is 0, want an address in device memory"},
		{ws.MinMax(p, 0, p, p, 1, 1), "hi is 0, want an address in device memory"},
		{ws.SpanMeans(p, p, p, -1, 1), "n is -1, want at least 0"},
		{ws.SpanMeans(p, p, p, 1, -1), "size is -1, want at least 0"},
		{ws.ExpScale(p, p, 0, 0, 1), "n is 0, want at least 1"},
		{ws.ExpScale(p, p, 1, 0, -1), "rate is -1, want 0 to 3.4e38"},
		{ws.ExpScale(p, p, 1, float32(math.NaN()), 1), "lo is NaN, want a finite number"},
		{aem(func(b *gpu.Batch) { b.Tokens = 11 }), "Tokens is 11, want 0 to 10, for which the workspace was made"},
		{aem(func(b *gpu.Batch) { b.Trajectories = 4 }), "Trajectories is 4, want 0 to 3, for which the workspace was made"},
		{aem(func(b *gpu.Batch) { b.Trajectories = 0 }), "Trajectories is 0, want at least 1"},
		{aem(func(b *gpu.Batch) { b.Role = 0 }), "Role is 0, want an address in device memory"},
		{aem(func(b *gpu.Batch) { b.SeqOffsets = p + 4 }), "SeqOffsets is 0x100004, want a multiple of 8, the size of its elements"},
		{aem(func(b *gpu.Batch) { b.SpanIDs = 0 }), "SpanIDs is 0, want an address in device memory"},
		{aem(func(b *gpu.Batch) { b.Entropy = 0 }), "Entropy is 0, want an address in device memory"},
		{aem(func(b *gpu.Batch) { b.GroupIDs = 0 }), "GroupIDs is 0, want an address in device memory"},
		{ws.AEM(0, good, reweight.DefaultAEM), "factors is 0, want an address in device memory"},
		{option(func(opt *reweight.AEMOptions) { opt.Lambda = 81 }), "Lambda is 81, want 0 to 80"},
		{option(func(opt *reweight.AEMOptions) { opt.Guard = -1 }), "Guard is -1, want at least 0"},
		{option(func(opt *reweight.AEMOptions) { opt.Scope = 3 }), "Scope is 3, want 0 to 2: one of [group trajectory batch]"},
		{ws.GRPO(p, good, reweight.GRPOOptions{Eps: -1}), "Eps is -1, want 0 to 3.4e38"},
		{ws.GRPO(p, with(func(b *gpu.Batch) { b.Rewards = 0 }), reweight.DefaultGRPO), "Rewards is 0, want an address in device memory"},
		{ws.GAE(p, p, p, good, reweight.GAEOptions{Gamma: 2}), "Gamma is 2, want 0 to 1"},
		{ws.GAE(p, p, p, with(func(b *gpu.Batch) { b.Values = 0 }), reweight.DefaultGAE), "Values is 0, want an address in device memory"},
		{ws.GAE(p, p+2, p, good, reweight.DefaultGAE), "returns is 0x100002, want a multiple of 4, the size of its elements"},
		{ws.GAE(0, p, p, good, reweight.DefaultGAE), "advantages is 0, want an address in device memory"},
		{ws.GAE(p, p, 0, good, reweight.DefaultGAE), "rewards is 0, want an address in device memory"},
		{aem(func(b *gpu.Batch) { b.Tokens = -1 }), "Tokens is -1, want 0 to 10, for which the workspace was made"},
	})
	if err := ws.Check(); err != nil {
		t.Errorf("the device says %v", err)
	}
}

// TestOtherPolicies: what the CPU has and the GPU does not is an error, and nothing is queued.
func TestOtherPolicies(t *testing.T) {
	m := newMachine(t)
	ws := m.workspace(gpu.Size{Tokens: 10, Trajectories: 1})
	const p gpu.Ptr = 1 << 20
	d := &gpu.Batch{Tokens: 10, Trajectories: 1, Role: p, SeqOffsets: p, Logprobs: p, OldLogprobs: p, Advantages: p}
	var calls []wrongCall
	for _, policy := range []reweight.Policy{reweight.GSPO{}, reweight.GRPOS{}, reweight.GMPO{}, reweight.CISPO{},
		reweight.PG{}, reweight.DPPO{}, reweight.VESPO{}, reweight.SAPO{}, reweight.DRO{}, reweight.ClipCov{},
		reweight.KLCov{}} {
		opt := reweight.LossOptions{Policy: policy}
		want := "Policy is " + policy.String() + ", want ppo: the GPU has no other loss yet"
		calls = append(calls, wrongCall{ws.Loss(p, p, 0, d, opt), want},
			wrongCall{ws.Surrogate(p, p, p, p, p, 0, p, 10, 1, opt), want})
	}
	type other struct{ reweight.PPO }
	for is, policy := range map[string]reweight.Policy{
		"nil": nil, "*reweight.PPO": &reweight.PPO{}, "gpu_test.other": other{},
	} {
		opt := reweight.LossOptions{Policy: policy}
		want := "Policy is " + is + ", want the loss of a policy, such as the one of DefaultLoss"
		ofLoss, ofSurrogate := ws.Loss(p, p, 0, d, opt), ws.Surrogate(p, p, p, p, p, 0, p, 10, 1, opt)
		calls = append(calls, wrongCall{ofLoss, want}, wrongCall{ofSurrogate, want})
	}
	opt := reweight.DefaultLoss
	opt.KLCoef = 0.001
	wantErrors(t, append(calls, wrongCall{ws.Loss(p, p, 0, d, opt),
		"KLCoef is 0.001, want 0: the GPU adds no divergence to the loss yet"}))
	m.must(ws.Check())
}

// TestNoTokens: a batch without tokens is no error, as on the CPU, and nothing is written, whatever the addresses:
// those of PyTorch's empty tensors are 0.
func TestNoTokens(t *testing.T) {
	m := newMachine(t)
	ws := m.workspace(gpu.Size{Tokens: 10, Trajectories: 2, Spans: 2})
	for _, empty := range []gpu.Ptr{0, m.place(nil, 16).Ptr} {
		d := &gpu.Batch{Trajectories: 2, Role: empty, SpanIDs: empty, Entropy: empty, Values: empty,
			SeqOffsets: array(m, []int64{0, 0, 0}), GroupIDs: array(m, []int32{1, 1}),
			Rewards: array(m, []float32{0, 1})}
		mean := m.output(1)
		for _, err := range []error{
			ws.AEM(empty, d, reweight.DefaultAEM),
			ws.GRPO(empty, d, reweight.DefaultGRPO),
			ws.GAE(empty, empty, empty, d, reweight.DefaultGAE),
			ws.SpanMeans(empty, empty, empty, 0, 0),
			ws.MinMax(empty, empty, empty, empty, 0, 0),
			ws.CopyMemory(empty, empty, 0),
			ws.SpanMeans(mean.Ptr, empty, array(m, []int32{0, 0}), 1, 0), // of an empty span
			ws.Check(),
		} {
			if err != nil {
				t.Error(err)
			}
		}
		m.wantNaN("mean", mean, func(int) bool { return true })
	}
	m.free()
}

// TestTooManySpans: the host cannot count spans, so the device says when there are more than
// the workspace was made for.
func TestTooManySpans(t *testing.T) {
	m := newMachine(t)
	ws := m.workspace(gpu.Size{Tokens: 100, Trajectories: 10, Spans: 7})
	for spans, want := range map[int]string{
		7: "", 8: "reweight: SpanIDs has 8 spans, want at most 7, for which the workspace was made",
		40: "reweight: SpanIDs has 40 spans, want at most 7, for which the workspace was made",
	} {
		ids := make([]int32, spans)
		for i := range ids {
			ids[i] = int32(i)
		}
		d := &gpu.Batch{Tokens: spans, Trajectories: 2, Role: array(m, slices.Repeat([]reweight.Role{1}, spans)),
			SpanIDs: array(m, ids), SeqOffsets: array(m, []int64{0, 5, int64(spans)}),
			GroupIDs: array(m, []int32{1, 1}), Entropy: array(m, make([]float32, spans))}
		factors := m.output(spans)
		m.must(ws.AEM(factors.Ptr, d, reweight.DefaultAEM))
		if err := ws.Check(); want == "" && err != nil || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%d spans: error %v, want %s", spans, err, want)
		}
		m.wantNaN("factors", factors, func(int) bool { return want != "" })
		m.free()
	}
}

// TestWrongRoles: a token with a role that there is not has NaN, like the sums that it is in, and no other token has.
func TestWrongRoles(t *testing.T) {
	m := newMachine(t)
	ws := m.workspace(gpu.Size{Tokens: 3, Trajectories: 1})
	x, role := array(m, []float32{-1, -2, -3}), array(m, []reweight.Role{1, 3, 2})
	wrong := func(i int) bool { return i == 1 }
	weights, gradient := m.output(3), m.output(3)
	sums, moments := make([]reweight.SurrogateSums, 1), make([]reweight.Moments, 1)
	atSums, atMoments := array(m, sums), array(m, moments)
	for _, call := range []func() error{
		func() error { return ws.ActFocusWeights(weights.Ptr, x, role, 3, 0, 1, reweight.DefaultActFocus) },
		func() error {
			return ws.Surrogate(gradient.Ptr, atSums, x, x, x, 0, role, 3, 1, reweight.DefaultLoss)
		},
		func() error { return ws.MaskedMoments(atMoments, x, role, 3, reweight.Responses, 0) },
	} {
		m.must(call())
		if err := ws.Check(); err == nil || !strings.HasPrefix(err.Error(), "reweight: role[1] is 3") {
			t.Errorf("error %v", err)
		}
	}
	m.wantNaN("weights", weights, wrong)
	m.wantNaN("gradient", gradient, wrong)
	m.must(gpu.Download(m.dev, sums, atSums, 0))
	m.must(gpu.Download(m.dev, moments, atMoments, 0))
	if s, x := sums[0], moments[0]; s.Loss == s.Loss || s.LogRatio == s.LogRatio || x.Sum == x.Sum ||
		x.Squares == x.Squares {
		t.Errorf("%+v and %+v, want NaN", s, x)
	}
	m.free()
}

// TestRangesErrors: offsets that are wrong are not used, Check says what is wrong with them as the CPU does, and what
// they cut out is NaN, and nothing else.
func TestRangesErrors(t *testing.T) {
	m := newMachine(t)
	ws := m.workspace(gpu.Size{Tokens: 10, Trajectories: 1, Spans: 5})
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
		spans := len(c.offsets) - 1
		means, lo, hi := make([]float32, spans), make([]float32, spans), make([]float32, spans)
		px, poff := array(m, x), array(m, c.offsets)
		pm, plo, phi := m.output(spans), m.output(spans), m.output(spans)
		for _, calls := range []struct{ device, cpu error }{
			{errors.Join(ws.SpanMeans(pm.Ptr, px, poff, spans, len(x)), ws.Check()), m.cpu.SpanMeans(means, x, c.offsets)},
			{errors.Join(ws.MinMax(plo.Ptr, phi.Ptr, px, poff, spans, len(x)), ws.Check()), m.cpu.MinMax(lo, hi, x, c.offsets)},
		} {
			if calls.device == nil || calls.cpu == nil || calls.device.Error() != calls.cpu.Error() {
				t.Errorf("%v: error %v, want %v", c.offsets, calls.device, calls.cpu)
			}
		}
		for _, p := range []*placed{pm, plo, phi} {
			m.wantNaN("ranges", p, func(i int) bool { return slices.Contains(c.wrong, i) })
		}
		m.free()
	}
}
