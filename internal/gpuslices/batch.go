package gpuslices

import (
	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/gpu"
	"github.com/seed621a2839/reweight/internal/raw"
)

// ActFocus is that of *reweight.Workspace.
func (r *Runner) ActFocus(weights []float32, b *reweight.Batch, opt reweight.ActFocusOptions) (reweight.ActFocusResult, error) {
	m := r.memory.begin()
	m.batch(b)
	res, w := out(m, r.results.actFocus[:]), out(m, weights)
	err := r.run(func() error { return r.ws.ActFocus(m.ptr(w), m.ptr(res), &m.device, opt) })
	return resultOf(&r.results.actFocus, err)
}

// AEM is that of *reweight.Workspace.
func (r *Runner) AEM(factors []float32, b *reweight.Batch, opt reweight.AEMOptions) error {
	m := r.memory.begin()
	m.batch(b)
	f := out(m, factors)
	return r.run(func() error { return r.ws.AEM(m.ptr(f), &m.device, opt) })
}

// Loss is that of *reweight.Workspace.
func (r *Runner) Loss(grad, weights []float32, b *reweight.Batch, opt reweight.LossOptions) (reweight.LossResult, error) {
	m := r.memory.begin()
	m.batch(b)
	res, g, w := out(m, r.results.loss[:]), out(m, grad), optionalIn(m, weights)
	err := r.run(func() error { return r.ws.Loss(m.ptr(g), m.ptr(res), m.ptr(w), &m.device, opt) })
	return resultOf(&r.results.loss, err)
}

// GRPO is that of *reweight.Workspace.
func (r *Runner) GRPO(advantages []float32, b *reweight.Batch, opt reweight.GRPOOptions) error {
	m := r.memory.begin()
	m.batch(b)
	a := out(m, advantages)
	return r.run(func() error { return r.ws.GRPO(m.ptr(a), &m.device, opt) })
}

// GAE is that of *reweight.Workspace.
func (r *Runner) GAE(advantages, returns, rewards []float32, b *reweight.Batch, opt reweight.GAEOptions) error {
	m := r.memory.begin()
	m.batch(b)
	a, ret, rew := out(m, advantages), optionalOut(m, returns), in(m, rewards)
	return r.run(func() error { return r.ws.GAE(m.ptr(a), m.ptr(ret), m.ptr(rew), &m.device, opt) })
}

// batch names the arrays of b, whose addresses come to m.device, and says how large the
// workspace must be. An array that is not set has no address, unless there are no tokens, for
// which it has as many elements as it should.
func (m *memory) batch(b *reweight.Batch) {
	m.size.Tokens, m.size.Trajectories = b.Tokens(), b.Trajectories()
	for _, s := range b.SpanIDs {
		m.size.Spans = max(m.size.Spans, min(int(s)+1, b.Tokens()))
	}
	m.device = gpu.Batch{Tokens: b.Tokens(), Trajectories: b.Trajectories()}
	d, empty := &m.device, b.Tokens() == 0
	ofBatch(m, &d.Role, b.Role, empty)
	ofBatch(m, &d.SeqOffsets, b.SeqOffsets, empty)
	ofBatch(m, &d.GroupIDs, b.GroupIDs, empty)
	ofBatch(m, &d.Rewards, b.Rewards, empty)
	ofBatch(m, &d.SpanIDs, b.SpanIDs, empty)
	ofBatch(m, &d.RefEnergy, b.RefEnergy, empty)
	ofBatch(m, &d.Entropy, b.Entropy, empty)
	ofBatch(m, &d.OldLogprobs, b.OldLogprobs, empty)
	ofBatch(m, &d.Logprobs, b.Logprobs, empty)
	ofBatch(m, &d.RefLogprobs, b.RefLogprobs, false)
	ofBatch(m, &d.RefEntropy, b.RefEntropy, empty)
	ofBatch(m, &d.Advantages, b.Advantages, empty)
	ofBatch(m, &d.Values, b.Values, empty)
}

func ofBatch[E any](m *memory, to *gpu.Ptr, x []E, empty bool) {
	m.add(arg{bytes: raw.Bytes(x), absent: len(x) == 0 && !empty, to: to})
}
