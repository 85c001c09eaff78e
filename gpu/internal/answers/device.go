package answers

import (
	"errors"
	"fmt"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/gpu"
	"github.com/seed621a2839/reweight/internal/raw"
)

// An onGPU calls the methods of a GPU on slices, as package gpuslices does, whose tests need package gpu/cuda and so
// this one. It has memory for one check, each array of which is somewhere else.
type onGPU struct {
	dev     *gpu.Device
	ws      *gpu.Workspace
	memory  gpu.Ptr
	used    int
	results []func() error // which copy the results back
	err     error
}

const room = 1 << 20 // bytes for all arrays of a check

// onDevice returns what the device computes, and gives back what that took.
func onDevice(dev *gpu.Device, call answer) (got []result, err error) {
	d := &onGPU{dev: dev}
	if d.ws, err = dev.NewWorkspace(0, gpu.Size{Tokens: tokens, Trajectories: 8, Spans: 32}); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.ws.Close()) }()
	if d.memory, err = dev.Alloc(room); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, dev.Free(d.memory)) }()
	return call(d)
}

// in copies a slice to the device and returns where it is; 0 if it has no elements.
func in[E any](d *onGPU, x []E) gpu.Ptr {
	if len(x) == 0 {
		return 0
	}
	p := d.memory + gpu.Ptr(d.used)
	if d.used += (len(raw.Bytes(x)) + 255) &^ 255; d.used > room {
		d.err = fmt.Errorf("gpu: the arrays of a check take more than %d bytes", room)
	}
	if d.err == nil {
		d.err = gpu.Upload(d.dev, p, x, 0)
	}
	return p
}

// out is in for a slice whose elements the call writes.
func out[E any](d *onGPU, x []E) gpu.Ptr {
	p := in(d, x)
	if p != 0 {
		d.results = append(d.results, func() error { return gpu.Download(d.dev, x, p, 0) })
	}
	return p
}

// run calls a method, waits for it and copies the results back.
func (d *onGPU) run(method func() error) error {
	if d.err == nil {
		d.err = method()
	}
	if d.err == nil {
		d.err = d.ws.Check()
	}
	for _, copyBack := range d.results {
		if d.err == nil {
			d.err = copyBack()
		}
	}
	d.results, d.used = nil, 0
	return d.err
}

// rows returns rows of logits at p.
func rows(p gpu.Ptr, l reweight.Logits) gpu.Rows {
	return gpu.Rows{Ptr: p, DType: l.DType(), Rows: l.Rows(), Vocab: l.Vocab}
}

func (d *onGPU) TokenStats(dst reweight.Stats, logits reweight.Logits, ids []int32,
	opt reweight.TokenStatsOptions) error {
	x, y := rows(in(d, raw.Logits(logits)), logits), gpu.IDs{Ptr: in(d, ids)}
	s := gpu.Stats{LSE: out(d, dst.LSE), Entropy: out(d, dst.Entropy), Logprob: out(d, dst.Logprob),
		LogSumSqProbs: out(d, dst.LogSumSqProbs)}
	return d.run(func() error { return d.ws.TokenStats(s, x, y, opt) })
}

func (d *onGPU) RowGradient(dst, logits reweight.Logits, ids []int32, of reweight.RowGradientInput,
	opt reweight.RowGradientOptions) error {
	to := rows(out(d, raw.Logits(dst)), dst)
	x, y := rows(in(d, raw.Logits(logits)), logits), gpu.IDs{Ptr: in(d, ids)}
	arrays := gpu.RowGradientInput{Logprobs: in(d, of.Logprobs), Entropy: in(d, of.Entropy), Grad: in(d, of.Grad),
		LSE: in(d, of.LSE)}
	return d.run(func() error { return d.ws.RowGradient(to, x, y, arrays, opt) })
}

func (d *onGPU) MaskedMoments(x []float32, role []reweight.Role, roles reweight.RoleSet,
	shift float64) (reweight.Moments, error) {
	var m [1]reweight.Moments
	to, from, of := out(d, m[:]), in(d, x), in(d, role)
	err := d.run(func() error { return d.ws.MaskedMoments(to, from, of, len(x), roles, shift) })
	return m[0], err
}

func (d *onGPU) ActFocus(weights []float32, b *reweight.Batch,
	opt reweight.ActFocusOptions) (reweight.ActFocusResult, error) {
	var r [1]reweight.ActFocusResult
	to, result, batch := out(d, weights), out(d, r[:]), d.batch(b)
	err := d.run(func() error { return d.ws.ActFocus(to, result, batch, opt) })
	return r[0], err
}

func (d *onGPU) ActFocusWeights(dst, signal []float32, role []reweight.Role, mean, sigma float64,
	opt reweight.ActFocusOptions) error {
	to, from, of := out(d, dst), in(d, signal), in(d, role)
	return d.run(func() error { return d.ws.ActFocusWeights(to, from, of, len(dst), mean, sigma, opt) })
}

func (d *onGPU) SpanMeans(dst, x []float32, offsets []int32) error {
	to, from, of := out(d, dst), in(d, x), in(d, offsets)
	return d.run(func() error { return d.ws.SpanMeans(to, from, of, len(dst), len(x)) })
}

func (d *onGPU) MinMax(lo, hi, x []float32, offsets []int32) error {
	least, largest, from, of := out(d, lo), out(d, hi), in(d, x), in(d, offsets)
	return d.run(func() error { return d.ws.MinMax(least, largest, from, of, len(lo), len(x)) })
}

func (d *onGPU) ExpScale(dst, x []float32, lo float32, rate float64) error {
	to, from := out(d, dst), in(d, x)
	return d.run(func() error { return d.ws.ExpScale(to, from, len(x), lo, rate) })
}

func (d *onGPU) Multiply(dst, a, b []float32) error {
	to, x, y := out(d, dst), in(d, a), in(d, b)
	return d.run(func() error { return d.ws.Multiply(to, x, y, len(dst)) })
}

func (d *onGPU) Surrogate(grad, logprobs, old, advantages, weights []float32, role []reweight.Role, scale float64,
	opt reweight.LossOptions) (reweight.SurrogateSums, error) {
	var s [1]reweight.SurrogateSums
	to, result, l, o := out(d, grad), out(d, s[:]), in(d, logprobs), in(d, old)
	a, w, of := in(d, advantages), in(d, weights), in(d, role)
	err := d.run(func() error { return d.ws.Surrogate(to, result, l, o, a, w, of, len(role), scale, opt) })
	return s[0], err
}

func (d *onGPU) AEM(factors []float32, b *reweight.Batch, opt reweight.AEMOptions) error {
	to, batch := out(d, factors), d.batch(b)
	return d.run(func() error { return d.ws.AEM(to, batch, opt) })
}

func (d *onGPU) Loss(grad, weights []float32, b *reweight.Batch,
	opt reweight.LossOptions) (reweight.LossResult, error) {
	var r [1]reweight.LossResult
	to, result, w, batch := out(d, grad), out(d, r[:]), in(d, weights), d.batch(b)
	err := d.run(func() error { return d.ws.Loss(to, result, w, batch, opt) })
	return r[0], err
}

func (d *onGPU) GRPO(advantages []float32, b *reweight.Batch, opt reweight.GRPOOptions) error {
	to, batch := out(d, advantages), d.batch(b)
	return d.run(func() error { return d.ws.GRPO(to, batch, opt) })
}

func (d *onGPU) GAE(advantages, returns, rewards []float32, b *reweight.Batch, opt reweight.GAEOptions) error {
	a, r, from, batch := out(d, advantages), out(d, returns), in(d, rewards), d.batch(b)
	return d.run(func() error { return d.ws.GAE(a, r, from, batch, opt) })
}

func (d *onGPU) Whiten(dst, x []float32, role []reweight.Role) error {
	to, from, of := out(d, dst), in(d, x), in(d, role)
	return d.run(func() error { return d.ws.Whiten(to, from, of, len(role)) })
}

func (d *onGPU) batch(b *reweight.Batch) *gpu.Batch {
	return &gpu.Batch{
		Tokens: b.Tokens(), Trajectories: b.Trajectories(),
		Role: in(d, b.Role), SeqOffsets: in(d, b.SeqOffsets), GroupIDs: in(d, b.GroupIDs), Rewards: in(d, b.Rewards),
		SpanIDs: in(d, b.SpanIDs), RefEnergy: in(d, b.RefEnergy), Entropy: in(d, b.Entropy),
		OldLogprobs: in(d, b.OldLogprobs), Logprobs: in(d, b.Logprobs), RefLogprobs: in(d, b.RefLogprobs),
		Advantages: in(d, b.Advantages), Values: in(d, b.Values),
	}
}
