package gpuslices

import (
	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/gpu"
	"github.com/seed621a2839/reweight/internal/raw"
)

// ActFocus is that of *reweight.Workspace.
func (r *Runner) ActFocus(weights []float32, b *reweight.Batch,
	opt reweight.ActFocusOptions) (reweight.ActFocusResult, error) {
	m := r.begin()
	m.batch(b)
	res, w := out(m, r.results.actFocus[:]), out(m, weights)
	err := r.run(func() error { return r.ws.ActFocus(*w, *res, &m.device, opt) })
	return r.results.actFocus[0], err
}

// AEM is that of *reweight.Workspace.
func (r *Runner) AEM(factors []float32, b *reweight.Batch, opt reweight.AEMOptions) error {
	m := r.begin()
	m.batch(b)
	f := out(m, factors)
	return r.run(func() error { return r.ws.AEM(*f, &m.device, opt) })
}

// Loss is that of *reweight.Workspace.
func (r *Runner) Loss(grad, weights []float32, b *reweight.Batch,
	opt reweight.LossOptions) (reweight.LossResult, error) {
	m := r.begin()
	m.batch(b)
	res, g, w := out(m, r.results.loss[:]), out(m, grad), in(m, weights)
	err := r.run(func() error { return r.ws.Loss(*g, *res, *w, &m.device, opt) })
	return r.results.loss[0], err
}

// GRPO is that of *reweight.Workspace.
func (r *Runner) GRPO(advantages []float32, b *reweight.Batch, opt reweight.GRPOOptions) error {
	m := r.begin()
	m.batch(b)
	a := out(m, advantages)
	return r.run(func() error { return r.ws.GRPO(*a, &m.device, opt) })
}

// GAE is that of *reweight.Workspace.
func (r *Runner) GAE(advantages, returns, rewards []float32, b *reweight.Batch, opt reweight.GAEOptions) error {
	m := r.begin()
	m.batch(b)
	a, ret, rew := out(m, advantages), out(m, returns), in(m, rewards)
	return r.run(func() error { return r.ws.GAE(*a, *ret, *rew, &m.device, opt) })
}

// batch names the arrays of b, whose addresses come to m.device, and says how large the
// workspace must be.
func (m *memory) batch(b *reweight.Batch) {
	m.size.Tokens, m.size.Trajectories = b.Tokens(), b.Trajectories()
	for _, s := range b.SpanIDs {
		m.size.Spans = max(m.size.Spans, min(int(s)+1, b.Tokens()))
	}
	m.device = gpu.Batch{Tokens: b.Tokens(), Trajectories: b.Trajectories()}
	d := &m.device
	m.add(arg{bytes: raw.Bytes(b.Role), to: &d.Role})
	m.add(arg{bytes: raw.Bytes(b.SeqOffsets), to: &d.SeqOffsets})
	m.add(arg{bytes: raw.Bytes(b.GroupIDs), to: &d.GroupIDs})
	m.add(arg{bytes: raw.Bytes(b.Rewards), to: &d.Rewards})
	m.add(arg{bytes: raw.Bytes(b.SpanIDs), to: &d.SpanIDs})
	m.add(arg{bytes: raw.Bytes(b.RefEnergy), to: &d.RefEnergy})
	m.add(arg{bytes: raw.Bytes(b.Entropy), to: &d.Entropy})
	m.add(arg{bytes: raw.Bytes(b.OldLogprobs), to: &d.OldLogprobs})
	m.add(arg{bytes: raw.Bytes(b.Logprobs), to: &d.Logprobs})
	m.add(arg{bytes: raw.Bytes(b.RefLogprobs), to: &d.RefLogprobs})
	m.add(arg{bytes: raw.Bytes(b.RefEntropy), to: &d.RefEntropy})
	m.add(arg{bytes: raw.Bytes(b.Advantages), to: &d.Advantages})
	m.add(arg{bytes: raw.Bytes(b.Values), to: &d.Values})
}
