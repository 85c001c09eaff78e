package measure

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/gpu"
	"github.com/seed621a2839/reweight/internal/raw"
)

// gpuStepRows is how many tokens a training step on a GPU has by default: with 151,936
// float32 logits each, its four arrays of rows take 4.6 GiB.
const gpuStepRows = 2048

// A gpuSteps is what all steps on a GPU share, as stepInput on a CPU.
type gpuSteps struct {
	deviceMemory
	spaces []*gpu.Workspace

	batch                       gpu.Batch
	size                        gpu.Size
	ids                         gpu.IDs
	rewards, minusOne           gpu.Ptr
	old, current, ref, gradient gpu.Rows
}

// overheadsOnGPU is Overheads on a GPU. A block is some steps that are queued, and a
// wait for the device.
func overheadsOnGPU(ctx context.Context, s bench.Sampler, q Steps) (_ []Overhead, err error) {
	in := gpuSteps{deviceMemory: deviceMemory{dev: q.GPU}}
	defer func() { err = errors.Join(err, in.close()) }()
	if err := in.upload(newStepInput(q.Tokens, q.Vocab)); err != nil {
		return nil, err
	}
	return q.measure(ctx, s, func(st step) (_ func() error, c cost, err error) {
		before := in.bytes
		do, ws, err := in.start(st)
		if err != nil {
			return nil, c, err
		}
		c.held = uint64(in.bytes - before)
		if err := do(); err != nil {
			return nil, c, err
		}
		if err := ws.Check(); err != nil {
			return nil, c, fmt.Errorf("the %s step: %w", st.name, err)
		}
		if c.objects, c.bytes, err = bench.FirstAllocs(do); err != nil {
			return nil, c, err
		}
		n, err := callsOfBlock(in.dev, do, s.Block)
		c.calls = float64(n)
		return queued(in.dev, do, n), c, err
	})
}

func (in *gpuSteps) close() (err error) {
	for _, ws := range in.spaces {
		err = errors.Join(err, ws.Close())
	}
	return errors.Join(err, in.free())
}

// uploaded returns an array of the device with these elements.
func uploaded[E any](in *gpuSteps, x []E) (gpu.Ptr, error) {
	p, err := in.take(len(raw.Bytes(x)))
	if err != nil {
		return 0, err
	}
	return p, gpu.Upload(in.dev, p, x, 0)
}

// upload copies the input to the device.
func (in *gpuSteps) upload(host *stepInput) (err error) {
	b := &host.batch
	n := b.Tokens()
	in.batch = gpu.Batch{Tokens: n, Trajectories: len(b.Rewards)}
	in.size = gpu.Size{Tokens: n, Trajectories: len(b.Rewards)}
	minusOne := make([]float32, n)
	for t := range minusOne {
		minusOne[t] = -1
	}
	keep := func(p gpu.Ptr, e error) gpu.Ptr {
		err = cmp.Or(err, e)
		return p
	}
	in.batch.Role = keep(uploaded(in, b.Role))
	in.batch.SeqOffsets = keep(uploaded(in, b.SeqOffsets))
	in.batch.GroupIDs = keep(uploaded(in, b.GroupIDs))
	in.batch.Rewards = keep(uploaded(in, b.Rewards))
	in.batch.SpanIDs = keep(uploaded(in, b.SpanIDs))
	in.batch.Values = keep(uploaded(in, b.Values))
	in.ids.Ptr = keep(uploaded(in, b.TokenIDs))
	in.rewards = keep(uploaded(in, host.rewards))
	in.minusOne = keep(uploaded(in, minusOne))
	for _, rows := range [...]*gpu.Rows{&in.old, &in.current, &in.ref, &in.gradient} {
		*rows = gpu.Rows{DType: reweight.DTypeF32, Rows: n, Vocab: host.vocab}
		rows.Ptr = keep(in.take(4 * n * host.vocab))
	}
	for _, rows := range [...]*gpu.Rows{&in.old, &in.current, &in.ref} {
		for t := 0; t < n && err == nil; t++ {
			err = gpu.Upload(in.dev, rows.Ptr+gpu.Ptr(4*t*host.vocab), host.row(t), 0)
		}
	}
	return err
}

// start allocates what the step needs and returns a function that queues it, and its
// workspace.
func (in *gpuSteps) start(st step) (do func() error, ws *gpu.Workspace, err error) {
	size := in.size
	actFocus, aem := st.scheme.Has("actfocus"), st.scheme.Has("aem")
	if aem {
		size.Spans = size.Tokens
	}
	if ws, err = in.dev.NewWorkspace(0, size); err != nil {
		return nil, nil, &fullError{size.Bytes(), err}
	}
	in.spaces = append(in.spaces, ws)
	in.bytes += size.Bytes()
	floats := func() (p gpu.Ptr) {
		if err == nil {
			p, err = in.take(4 * in.batch.Tokens)
		}
		return p
	}
	b := in.batch
	b.OldLogprobs, b.Logprobs, b.Advantages = floats(), floats(), floats()
	grad := floats()
	var weights, factors, result gpu.Ptr
	if st.kl {
		b.RefLogprobs = floats()
	}
	if actFocus {
		b.RefEnergy = floats()
		weights = b.RefEnergy // in place
	}
	if aem {
		b.Entropy = floats()
		factors = b.Entropy // in place
	}
	if err == nil {
		result, err = in.take(resultBytes)
	}
	return func() error { return st.queue(ws, in, &b, grad, weights, factors, result) }, ws, err
}

// resultBytes is enough for a reweight.ActFocusResult and for a reweight.LossResult, which
// come to the same place: nobody reads them.
const resultBytes = 256

// queue queues the step, as scheme.Step does it on the CPU: package gpu has these schemes only.
func (st step) queue(ws *gpu.Workspace, in *gpuSteps, b *gpu.Batch, grad, weights, factors, result gpu.Ptr) error {
	n, opt := b.Tokens, &st.scheme.Options
	actFocus, aem := st.scheme.Has("actfocus"), st.scheme.Has("aem")
	old := gpu.Stats{Logprob: b.OldLogprobs, Entropy: b.Entropy}
	if err := ws.TokenStats(old, in.old, in.ids, reweight.DefaultTokenStats); err != nil {
		return err
	}
	if st.kl || actFocus {
		ref := gpu.Stats{LSE: b.RefEnergy, Logprob: b.RefLogprobs}
		if err := ws.TokenStats(ref, in.ref, in.ids, reweight.DefaultTokenStats); err != nil {
			return err
		}
	}
	if actFocus { // the energy is -lse
		if err := ws.Multiply(b.RefEnergy, b.RefEnergy, in.minusOne, n); err != nil {
			return err
		}
	}
	if err := ws.TokenStats(gpu.Stats{Logprob: b.Logprobs}, in.current, in.ids,
		reweight.DefaultTokenStats); err != nil {
		return err
	}
	if st.ppo {
		if err := ws.GAE(b.Advantages, 0, in.rewards, b, opt.GAE); err != nil {
			return err
		}
		if err := ws.Whiten(b.Advantages, b.Advantages, b.Role, n); err != nil {
			return err
		}
	} else if err := ws.GRPO(b.Advantages, b, opt.GRPO); err != nil {
		return err
	}
	if aem {
		if err := ws.AEM(factors, b, opt.AEM); err != nil {
			return err
		}
		if err := ws.Multiply(b.Advantages, b.Advantages, factors, n); err != nil {
			return err
		}
	}
	if actFocus {
		if err := ws.ActFocus(weights, result, b, opt.ActFocus); err != nil {
			return err
		}
	}
	if err := ws.Loss(grad, result, weights, b, opt.Loss); err != nil {
		return err
	}
	return ws.RowGradient(in.gradient, in.current, in.ids, gpu.RowGradientInput{Logprobs: b.Logprobs, Grad: grad},
		reweight.DefaultRowGradient)
}
