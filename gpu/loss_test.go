package gpu_test

import (
	"math"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/gpu"
	"github.com/seed621a2839/reweight/internal/must"
)

// lossOptions are any that are right.
func (t *tokenTest) lossOptions() reweight.LossOptions {
	opt := pickOne(t, reweight.DefaultLoss, reweight.LossOptions{ClipLow: 0.2, ClipHigh: 0.2}, reweight.LossOptions{ClipHigh: 1e-300, DualClip: 1.0000001},
		reweight.LossOptions{ClipLow: 1, ClipHigh: 1e38, DualClip: 1e30})
	opt.Aggregation = reweight.Aggregation(t.IntN(4))
	opt.NormLength = pickOne(t, 0, 0, 1, 1000)
	return opt
}

// old returns old log-probabilities: most ratios not far from 1, some at the clamp.
func (t *tokenTest) old(logprobs []float32) []float32 {
	old := t.floats(len(logprobs), t.draw())
	ratios := []float32{0, 0.2, -0.2, 20, -20, 20.000002, -20.000002}
	for i := range old {
		if t.IntN(10) > 0 {
			old[i] = logprobs[i] - ratios[t.IntN(len(ratios))]*float32(t.IntN(2)) - float32(t.IntN(2))*float32(0.1*t.NormFloat64())
		}
	}
	return old
}

// weights are finite: of one size, of all sizes, above and near those that are divided,
// too small to divide by, or with a sum of about 0.
func (t *tokenTest) weights(n int) []float32 {
	w := t.floats(n, finiteDraws[t.IntN(len(finiteDraws))])
	if t.IntN(4) == 0 {
		return nil
	}
	unit := pickOne[float32](t, 1, 1, 0x1p64, 0x1p63, 1e38, 1e-38, 1e-45)
	pairs := t.IntN(4) == 0
	for i := range w {
		w[i] *= unit
		if !finiteFloat(w[i]) {
			w[i] = unit
		}
		if pairs && i%2 == 1 {
			w[i] = -w[i-1]
		}
	}
	return w
}

func finiteFloat(x float32) bool { return x-x == 0 }

// offsets cut n tokens into trajectories, empty ones among them.
func (t *tokenTest) offsets(n int) []int64 {
	longest := pickOne(t, 3, 30, 300, 3000)
	off := []int64{0}
	for at := 0; at < n; {
		if t.IntN(10) > 0 {
			at = min(n, at+1+t.IntN(longest))
		}
		if len(off) == 299 { // one less than the workspace takes
			at = n
		}
		off = append(off, int64(at))
	}
	if t.IntN(4) == 0 && len(off) <= 300 {
		off = append(off, int64(n))
	}
	return off
}

// batch returns one of n tokens, in which some trajectories have no responses.
func (t *tokenTest) batch(n int) *reweight.Batch {
	b := &reweight.Batch{Role: t.roles(n), SeqOffsets: t.offsets(n), Logprobs: t.floats(n, t.draw()), Advantages: t.floats(n, t.draw())}
	b.OldLogprobs = t.old(b.Logprobs)
	if t.IntN(2) == 0 {
		b.RefLogprobs = t.floats(n, t.draw())
	} else if t.IntN(2) == 0 {
		b.RefLogprobs = t.floats(n, near)
		for i := range b.RefLogprobs { // the estimate is bounded
			if t.IntN(10) == 0 {
				b.RefLogprobs[i] = float32(math.Inf(t.IntN(2)*2 - 1))
			}
		}
	} else if t.IntN(2) == 0 {
		b.RefLogprobs = t.old(b.Logprobs)
	}
	for s := range b.Trajectories() {
		if t.IntN(10) == 0 {
			clear(b.Role[b.SeqOffsets[s]:b.SeqOffsets[s+1]])
		}
	}
	return b
}

// onDevice copies the arrays of a loss.
func (t *tokenTest) onDevice(b *reweight.Batch) *gpu.Batch {
	return &gpu.Batch{Tokens: b.Tokens(), Trajectories: b.Trajectories(), Role: array(t, b.Role), SeqOffsets: array(t, b.SeqOffsets),
		OldLogprobs: array(t, b.OldLogprobs), Logprobs: array(t, b.Logprobs), RefLogprobs: array(t, b.RefLogprobs), Advantages: array(t, b.Advantages)}
}

// gradient is memory for the gradient: one of the inputs, or memory of its own.
func (t *tokenTest) gradient(n int, inputs ...gpu.Ptr) gpu.Ptr {
	if p := inputs[t.IntN(len(inputs))]; p != 0 && t.IntN(3) > 0 {
		return t.overwrite(p)
	}
	return output[float32](t, n)
}

func TestSurrogateBits(t *testing.T) {
	rounds(t, 2**tokenRounds, func(t *tokenTest) {
		b := t.batch(t.n())
		n := b.Tokens()
		weights := t.floats(n, t.draw())
		if t.IntN(3) == 0 {
			weights = nil
		}
		opt, scale := t.lossOptions(), pickOne(t, 1, t.NormFloat64(), 0, 1e30)
		want := make([]float32, n)
		sums, err := t.cpu.Surrogate(want, b.Logprobs, b.OldLogprobs, b.Advantages, weights, b.Role, scale, opt)
		if err != nil {
			t.Fatal(err)
		}
		t.spoilRole(b.Role)
		_, err = t.cpu.Surrogate(make([]float32, n), b.Logprobs, b.OldLogprobs, b.Advantages, weights, b.Role, scale, opt)
		for i, r := range b.Role {
			if r > reweight.RoleAction {
				want[i] = float32(math.NaN())
			}
		}
		d, w := t.onDevice(b), array(t, weights)
		grad := t.gradient(n, d.Logprobs, d.OldLogprobs, d.Advantages, w)
		result := output[reweight.SurrogateSums](t, 1)
		t.check("Surrogate", t.ws.Surrogate(grad, result, d.Logprobs, d.OldLogprobs, d.Advantages, w, d.Role, n, scale, opt), err)
		t.same("gradient", grad, want)
		got := readArray[reweight.SurrogateSums](t, result, 1)[0]
		if err != nil {
			if got.Loss == got.Loss || got.LogRatio == got.LogRatio {
				t.Fatalf("%+v after %v, want sums that are NaN", got, err)
			}
			return
		}
		if got.Tokens != sums.Tokens || got.Clipped != sums.Clipped || !sameDouble(got.Loss, sums.Loss) || !sameDouble(got.LogRatio, sums.LogRatio) {
			t.Fatalf("%+v, want %+v", got, sums)
		}
	})
}

// sameLoss wants a result at p with the bits of want.
func (t *tokenTest) sameLoss(p gpu.Ptr, want reweight.LossResult) {
	t.Helper()
	got := readArray[reweight.LossResult](t, p, 1)[0]
	if got.Tokens != want.Tokens || !sameDouble(got.Loss, want.Loss) || !sameDouble(got.WeightSum, want.WeightSum) ||
		!sameDouble(got.ClipFraction, want.ClipFraction) || !sameDouble(got.MeanLogRatio, want.MeanLogRatio) || !sameDouble(got.KL, want.KL) {
		t.Fatalf("%+v\nwant %+v", got, want)
	}
}

func TestLossBits(t *testing.T) {
	rounds(t, 2**tokenRounds, func(t *tokenTest) {
		b := t.batch(t.n())
		weights := t.weights(b.Tokens())
		for i, r := range b.Role { // what masked tokens have does not matter
			if weights != nil && r == reweight.RoleMasked && t.IntN(3) == 0 {
				weights[i] = float32(math.NaN())
			}
		}
		t.loss(b, weights, t.lossOptions())
	})
}

// loss compares a loss that has no errors.
func (t *tokenTest) loss(b *reweight.Batch, weights []float32, opt reweight.LossOptions) {
	t.Helper()
	n := b.Tokens()
	want := make([]float32, n)
	res := must.Get(t.cpu.Loss(want, weights, b, opt))
	d, w := t.onDevice(b), array(t, weights)
	grad := t.gradient(n, d.Logprobs, d.OldLogprobs, d.Advantages, d.RefLogprobs, w)
	result := output[reweight.LossResult](t, 1)
	t.check("Loss", t.ws.Loss(grad, result, w, d, opt), nil)
	t.same("gradient", grad, want)
	t.sameLoss(result, res)
}

// TestLossAtCorners has batches that are rare in TestLossBits.
func TestLossAtCorners(t *testing.T) {
	rounds(t, 1, func(t *tokenTest) {
		for agg := range reweight.Aggregation(4) {
			opt := reweight.DefaultLoss
			opt.Aggregation = agg
			t.loss(&reweight.Batch{SeqOffsets: []int64{0, 0, 0}}, nil, opt)
			for _, role := range []reweight.Role{reweight.RoleMasked, reweight.RoleAction} {
				one := []float32{-1}
				t.loss(&reweight.Batch{Role: []reweight.Role{role}, SeqOffsets: []int64{0, 0, 1}, Logprobs: one, OldLogprobs: one, Advantages: one}, nil, opt)
			}
			// A group of 128 tokens that ends where the next trajectory begins, and one that
			// does not; many trajectories of one token.
			b := t.batch(600)
			b.SeqOffsets = []int64{0, 128, 256, 300, 428, 428, 600}
			t.loss(b, t.weights(600), opt)
			b.SeqOffsets = b.SeqOffsets[:0]
			for s := range int64(300) {
				b.SeqOffsets = append(b.SeqOffsets, s)
			}
			b.SeqOffsets = append(b.SeqOffsets, 600)
			t.loss(b, t.weights(600), opt)
		}
	})
}

// TestLossErrors: what only the device can see has the text of the CPU's error, and
// leaves NaN; and the next loss is right.
func TestLossErrors(t *testing.T) {
	rounds(t, 2**tokenRounds, func(t *tokenTest) {
		b := t.batch(2 + t.IntN(1000))
		n, S := b.Tokens(), b.Trajectories()
		weights := t.weights(n)
		opt := t.lossOptions()
		b.Role[t.IntN(n)] = reweight.RoleReasoning
		switch t.IntN(3) {
		case 0:
			b.Role[t.IntN(n)] = reweight.Role(3 + t.IntN(253))
		case 1:
			if weights == nil {
				weights = make([]float32, n)
			}
			for i, r := range b.Role {
				if r != reweight.RoleMasked && (t.IntN(n) == 0 || i == n-1) || i == n-1 {
					b.Role[i] = reweight.RoleAction
					weights[i] = pickOne(t, float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)))
					break
				}
			}
		default:
			opt.Aggregation = reweight.Aggregation(1 + t.IntN(3))
			s := pickOne(t, 0, t.IntN(S+1), S)
			b.SeqOffsets[s] = pickOne(t, -1, int64(n)+1, math.MaxInt64, math.MinInt64, 1<<40)
			if s == 0 && t.IntN(2) == 0 {
				b.SeqOffsets[s] = 1 + t.Int64N(int64(n))
			}
		}
		_, want := t.cpu.Loss(make([]float32, n), weights, b, opt)
		if want == nil {
			t.Fatal("the CPU has no error")
		}
		d, w := t.onDevice(b), array(t, weights)
		grad := t.gradient(n, d.Logprobs, d.OldLogprobs, d.Advantages, d.RefLogprobs, w)
		result := output[reweight.LossResult](t, 1)
		if b.SeqOffsets[0] == 0 {
			t.check("Loss", t.ws.Loss(grad, result, w, d, opt), want)
		} else if err := t.ws.Loss(grad, result, w, d, opt); err != nil { // both the first offset and the next are wrong
			t.Fatal(err)
		} else if err := t.ws.Check(); err == nil || !strings.HasPrefix(err.Error(), "reweight: SeqOffsets[") {
			t.Fatalf("error %v, want %v", err, want)
		}
		t.allNaN("gradient", grad, n)
		nan := math.NaN()
		t.sameLoss(result, reweight.LossResult{Loss: nan, WeightSum: nan, ClipFraction: nan, MeanLogRatio: nan, KL: nan})

		t.loss(t.batch(t.n()), nil, t.lossOptions())
	})
}

// TestOtherPolicies: what the CPU has and the GPU does not is an error, and nothing is
// queued.
func TestOtherPolicies(t *testing.T) {
	rounds(t, 1, func(t *tokenTest) {
		b := t.batch(t.n() + 1)
		d := t.onDevice(b)
		grad, result := array(t, make([]float32, b.Tokens())), output[reweight.LossResult](t, 1)
		want := func(what string, err error, text string) {
			t.Helper()
			if err == nil || err.Error() != text {
				t.Errorf("%s: error %v, want %s", what, err, text)
			}
		}
		for policy := reweight.PolicyPPO + 1; policy <= reweight.PolicyVESPO+1; policy++ {
			opt := reweight.LossOptions{Policy: policy}
			text := "reweight: Policy is " + policy.String() + ", want ppo: the GPU has no other loss yet"
			want("Loss", t.ws.Loss(grad, result, 0, d, opt), text)
			want("Surrogate", t.ws.Surrogate(grad, result, d.Logprobs, d.OldLogprobs, d.Advantages, 0, d.Role, b.Tokens(), 1, opt), text)
		}
		opt := reweight.DefaultLoss
		opt.KLCoef = 0.001
		want("Loss", t.ws.Loss(grad, result, 0, d, opt), "reweight: KLCoef is 0.001, want 0: the GPU adds no divergence to the loss yet")
		t.same("gradient", grad, make([]float32, b.Tokens()))
	})
}
