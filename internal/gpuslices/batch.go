package gpuslices

import (
	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/gpu"
)

// ActFocus is that of *reweight.Workspace.
func (r *Runner) ActFocus(weights []float32, b *reweight.Batch, opt reweight.ActFocusOptions) (reweight.ActFocusResult, error) {
	m := r.memory.begin()
	arrays := m.batch(b)
	res, w := out(m, r.results.actFocus[:]), out(m, weights)
	if err := m.upload(); err != nil {
		return reweight.ActFocusResult{}, err
	}
	err := r.finish(r.ws.ActFocus(m.ptr(w), m.ptr(res), m.onDevice(b, arrays), opt))
	return resultOf(&r.results.actFocus, err)
}

// AEM is that of *reweight.Workspace.
func (r *Runner) AEM(factors []float32, b *reweight.Batch, opt reweight.AEMOptions) error {
	T := b.Tokens()
	spans := 0
	for _, s := range b.SpanIDs {
		spans = max(spans, min(int(s)+1, T))
	}
	if err := r.ensure(gpu.Size{Tokens: T, Trajectories: b.Trajectories(), Spans: spans}); err != nil {
		return err
	}
	m := r.memory.begin()
	arrays, f := m.batch(b), out(m, factors)
	if err := m.upload(); err != nil {
		return err
	}
	return r.finish(r.ws.AEM(m.ptr(f), m.onDevice(b, arrays), opt))
}

// Loss is that of *reweight.Workspace.
func (r *Runner) Loss(grad, weights []float32, b *reweight.Batch, opt reweight.LossOptions) (reweight.LossResult, error) {
	if err := r.ensure(gpu.Size{Tokens: b.Tokens(), Trajectories: b.Trajectories()}); err != nil {
		return reweight.LossResult{}, err
	}
	m := r.memory.begin()
	arrays := m.batch(b)
	res, g, w := out(m, r.results.loss[:]), out(m, grad), optionalIn(m, weights)
	if err := m.upload(); err != nil {
		return reweight.LossResult{}, err
	}
	err := r.finish(r.ws.Loss(m.ptr(g), m.ptr(res), m.ptr(w), m.onDevice(b, arrays), opt))
	return resultOf(&r.results.loss, err)
}

// GRPO is that of *reweight.Workspace.
func (r *Runner) GRPO(advantages []float32, b *reweight.Batch, opt reweight.GRPOOptions) error {
	if err := r.ensure(gpu.Size{Tokens: b.Tokens(), Trajectories: b.Trajectories()}); err != nil {
		return err
	}
	m := r.memory.begin()
	arrays, a := m.batch(b), out(m, advantages)
	if err := m.upload(); err != nil {
		return err
	}
	return r.finish(r.ws.GRPO(m.ptr(a), m.onDevice(b, arrays), opt))
}

// GAE is that of *reweight.Workspace.
func (r *Runner) GAE(advantages, returns, rewards []float32, b *reweight.Batch, opt reweight.GAEOptions) error {
	if err := r.ensure(gpu.Size{Tokens: b.Tokens(), Trajectories: b.Trajectories()}); err != nil {
		return err
	}
	m := r.memory.begin()
	arrays := m.batch(b)
	a, ret, rew := out(m, advantages), optionalOut(m, returns), in(m, rewards)
	if err := m.upload(); err != nil {
		return err
	}
	return r.finish(r.ws.GAE(m.ptr(a), m.ptr(ret), m.ptr(rew), m.onDevice(b, arrays), opt))
}

// batchArrays are the handles of a batch's arrays.
type batchArrays struct {
	role, offsets, groups, rewards, spans                          handle
	energy, entropy, old, now, ref, refEntropy, advantages, values handle
}

// batch names the arrays of b. One that is not set has no address, unless there are no
// tokens, for which it has as many elements as it should.
func (m *memory) batch(b *reweight.Batch) batchArrays {
	empty := b.Tokens() == 0
	return batchArrays{
		role: ofBatch(m, b.Role, empty), offsets: ofBatch(m, b.SeqOffsets, empty), groups: ofBatch(m, b.GroupIDs, empty),
		rewards: ofBatch(m, b.Rewards, empty), spans: ofBatch(m, b.SpanIDs, empty),
		energy: ofBatch(m, b.RefEnergy, empty), entropy: ofBatch(m, b.Entropy, empty), old: ofBatch(m, b.OldLogprobs, empty),
		now: ofBatch(m, b.Logprobs, empty), ref: ofBatch(m, b.RefLogprobs, false), refEntropy: ofBatch(m, b.RefEntropy, empty),
		advantages: ofBatch(m, b.Advantages, empty), values: ofBatch(m, b.Values, empty),
	}
}

func ofBatch[E any](m *memory, x []E, empty bool) handle {
	return m.add(arg{bytes: bytesOf(x), absent: len(x) == 0 && !empty})
}

// onDevice returns the batch on the device.
func (m *memory) onDevice(b *reweight.Batch, h batchArrays) *gpu.Batch {
	m.device = gpu.Batch{
		Tokens: b.Tokens(), Trajectories: b.Trajectories(),
		Role: m.ptr(h.role), SeqOffsets: m.ptr(h.offsets), GroupIDs: m.ptr(h.groups), Rewards: m.ptr(h.rewards), SpanIDs: m.ptr(h.spans),
		RefEnergy: m.ptr(h.energy), Entropy: m.ptr(h.entropy), OldLogprobs: m.ptr(h.old), Logprobs: m.ptr(h.now),
		RefLogprobs: m.ptr(h.ref), RefEntropy: m.ptr(h.refEntropy), Advantages: m.ptr(h.advantages), Values: m.ptr(h.values),
	}
	return &m.device
}
