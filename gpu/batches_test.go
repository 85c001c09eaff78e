package gpu_test

import (
	"math"
	"slices"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/gpu"
)

// The tests of the kernels on spans and trajectories make random batches, and compare
// the bits of outputs, and errors, with those of package reweight.

// placeBatch copies the arrays of b that are set to the device.
func placeBatch(t *tokenTest, b *reweight.Batch) *gpu.Batch {
	t.Helper()
	return &gpu.Batch{
		Tokens: b.Tokens(), Trajectories: b.Trajectories(),
		Role: array(t, b.Role), SeqOffsets: array(t, b.SeqOffsets), GroupIDs: array(t, b.GroupIDs), SpanIDs: array(t, b.SpanIDs),
		Entropy: array(t, b.Entropy), Rewards: array(t, b.Rewards), Values: array(t, b.Values),
	}
}

// spanBatch returns a batch of n tokens with valid spans.
func (t *tokenTest) spanBatch(n int) *reweight.Batch {
	b := &reweight.Batch{SeqOffsets: t.offsets(n), Role: make([]reweight.Role, n)}
	masked := pickOne(t, 0, 0.1, 0.5, 0.95)
	for i := range b.Role {
		if t.Float64() >= masked {
			b.Role[i] = reweight.Role(1 + t.IntN(2))
		}
	}
	t.groups(b)
	t.spans(b)
	b.Entropy = t.entropies(n)
	for i, s := range b.SpanIDs { // what no span counts does not matter
		if (s < 0 || b.Role[i] == reweight.RoleMasked) && t.IntN(4) == 0 {
			b.Entropy[i] = pickOne(t, float32(math.NaN()), float32(math.Inf(-1)), 1e38)
		}
	}
	b.Rewards = t.rewards(b.Trajectories())
	return b
}

// groups numbers groups in order or anyhow.
func (t *tokenTest) groups(b *reweight.Batch) {
	b.GroupIDs = make([]int32, b.Trajectories())
	size := pickOne(t, 1, 2, 8, 50)
	scattered := t.IntN(2) == 0
	ids := []int32{0, math.MinInt32, math.MaxInt32, -1, 1}
	for len(ids) <= len(b.GroupIDs) {
		ids = append(ids, int32(t.Uint32()))
	}
	for q := range b.GroupIDs {
		g := q / size
		if scattered {
			g = t.IntN(1 + len(b.GroupIDs)/size)
		}
		b.GroupIDs[q] = ids[g]
	}
}

// spans numbers spans: one after another or interleaved, none, or one for all tokens
// of a trajectory.
func (t *tokenTest) spans(b *reweight.Batch) {
	b.SpanIDs = slices.Repeat([]int32{-1}, b.Tokens())
	length := pickOne(t, 1, 3, 20, 100, 1500)
	open := pickOne(t, 1, 1, 1, 2, 5, 40) // spans that a token may belong to
	outside := pickOne(t, 0, 0.2, 1)      // share of masked tokens that are in no span
	if t.IntN(10) == 0 {
		clear(b.Role) // all masked
		outside = 1
	}
	next := int32(0)
	for q := range b.Trajectories() {
		first := next
		for i := b.SeqOffsets[q]; i < b.SeqOffsets[q+1]; i++ {
			if b.Role[i] == reweight.RoleMasked && t.Float64() < outside {
				continue
			}
			s := max(first, next-1-int32(t.IntN(open)))
			if next == first || t.IntN(length) == 0 {
				s = next
				next++
			}
			b.SpanIDs[i] = s
		}
	}
	has := make([]bool, next)
	for i, s := range b.SpanIDs {
		if s >= 0 && b.Role[i] != reweight.RoleMasked {
			has[s] = true
		}
	}
	for i := len(b.Role) - 1; i >= 0; i-- { // each has a response token, somewhere
		if s := b.SpanIDs[i]; s >= 0 && !has[s] {
			b.Role[i] = reweight.RoleAction
			has[s] = true
		}
	}
}

// largestEntropy is the largest float32 that AEM takes: 1e30 rounds up.
var largestEntropy = math.Nextafter32(1e30, 0)

func (t *tokenTest) entropies(n int) []float32 {
	x := make([]float32, n)
	kind, scale := t.IntN(6), pickOne[float32](t, 1e-42, 3e-39, 3e-37)
	for i := range x {
		v := float32(math.Abs(t.NormFloat64()))
		switch kind {
		case 0:
			v = 0.75
		case 1:
			v *= 2e29
		case 2:
			v *= scale
		case 3:
			v = pickOne(t, v, -v, 0, float32(math.Copysign(0, -1)), largestEntropy, -largestEntropy)
		}
		x[i] = v
	}
	return x
}

// rewards returns rewards of usual sizes, or such that are nearly their mean, or some of
// which the sum of a group depends on its order.
func (t *tokenTest) rewards(n int) []float32 {
	x := make([]float32, n)
	kind, scale := t.IntN(3), pickOne[float32](t, 1, 1, 1e30, 1e-40, 0)
	near := float32(1.5 + t.Float64()/2)
	for q := range x {
		switch kind {
		case 0:
			x[q] = scale * pickOne(t, float32(t.NormFloat64()), float32(t.IntN(2)))
		case 1:
			x[q] = pickOne(t, near, math.Nextafter32(near, 2))
		case 2:
			x[q] = pickOne(t, 1e30, -1e30, 1e10, -1e10, 1, float32(t.NormFloat64()))
		}
	}
	return x
}
