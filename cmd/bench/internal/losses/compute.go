// Package losses computes the loss of a batch of rollouts with uniform weights, with
// ActFocus, with AEM and with both, in float64, and compares the library's results
// with that.
package losses

import "github.com/seed621a2839/reweight"

// Options are the options of all steps.
type Options struct {
	ActFocus reweight.ActFocusOptions
	AEM      reweight.AEMOptions
	Loss     reweight.LossOptions
	GRPO     reweight.GRPOOptions
}

// Default returns the papers' options.
func Default() Options {
	return Options{reweight.DefaultActFocus, reweight.DefaultAEM, reweight.DefaultLoss, reweight.DefaultGRPO}
}

// Check returns an error if an option is out of range: that of the library, which it
// calls with a batch of one token.
func (opt Options) Check() error {
	one := []float32{0}
	_, err := Compute(&reweight.Batch{
		Role: []reweight.Role{reweight.RoleAction}, SeqOffsets: []int64{0, 1}, GroupIDs: []int32{0}, Rewards: one, SpanIDs: []int32{0},
		RefEnergy: one, RefEntropy: one, Entropy: one, OldLogprobs: one, Logprobs: one, RefLogprobs: one,
	}, opt)
	return err
}

// A Computed holds the results of the library's kernels for a batch, in float32, one
// element per token.
type Computed struct {
	Weights         []float32 // of ActFocus
	Uniform, Scaled []float32 // advantages of GRPO or of the batch, and of AEM
	Steps           [len(names)]Step
}

// A Step is one way to weigh tokens. If Weights is nil, all weights are 1.
type Step struct {
	Advantages, Weights []float32
	Loss                float64
	Grad                []float32 // with respect to the log-probabilities
}

// A Library computes the steps. It is Compute, except in tests.
type Library func(b *reweight.Batch, opt Options) (*Computed, error)

// Compute does the steps with the library's kernels, in this goroutine alone: the
// batch may be a mapped file, whose reads are guarded here only. If the batch has no
// rewards, its own advantages take the place of those of GRPO; those of masked tokens count as 0.
func Compute(b *reweight.Batch, opt Options) (*Computed, error) {
	ws := reweight.Workspace{Workers: 1}
	batch := *b // a copy, whose advantages are set below
	T := batch.Tokens()
	k := &Computed{Weights: make([]float32, T), Uniform: make([]float32, T), Scaled: make([]float32, T)}
	if batch.Rewards == nil {
		for t, role := range batch.Role {
			if role != reweight.RoleMasked {
				k.Uniform[t] = batch.Advantages[t]
			}
		}
	} else if err := ws.GRPO(k.Uniform, &batch, opt.GRPO); err != nil {
		return nil, err
	}
	if err := ws.AEM(k.Scaled, &batch, opt.AEM); err != nil {
		return nil, err
	}
	if err := ws.Multiply(k.Scaled, k.Uniform, k.Scaled); err != nil {
		return nil, err
	}
	if _, err := ws.ActFocus(k.Weights, &batch, opt.ActFocus); err != nil {
		return nil, err
	}
	k.Steps = [...]Step{
		{Advantages: k.Uniform}, {Advantages: k.Uniform, Weights: k.Weights}, {Advantages: k.Scaled}, {Advantages: k.Scaled, Weights: k.Weights},
	}
	for i := range k.Steps {
		step := &k.Steps[i]
		step.Grad = make([]float32, T)
		batch.Advantages = step.Advantages
		res, err := ws.Loss(step.Grad, step.Weights, &batch, opt.Loss)
		if err != nil {
			return nil, err
		}
		step.Loss = res.Loss
	}
	return k, nil
}
