package schemes

import (
	"slices"

	"github.com/seed621a2839/reweight"
)

// A Step computes the loss of a batch under a scheme. Its slices have one element per
// token, and Do allocates nothing.
type Step struct {
	Advantages []float32
	Weights    []float32 // nil if all are 1
	Grad       []float32 // dL/dlogprob

	scheme Scheme
	opt    Options
	loss   reweight.LossOptions
	ws     *reweight.Workspace
	batch  reweight.Batch // whose advantages are those of the step
	given  []float32      // those of the batch

	scratch, rewards, tokenRewards []float32
	givenTokenRewards              []float32 // of the batch, where a penalty is added to them
}

// NewStep returns the step for a batch that lacks nothing. It may be used while the
// slices of the batch are.
func (s Scheme) NewStep(ws *reweight.Workspace, b *reweight.Batch, opt Options) *Step {
	floats := func() []float32 { return make([]float32, b.Tokens()) }
	st := &Step{Advantages: floats(), Grad: floats(), scheme: s, opt: opt, loss: s.Loss(opt), ws: ws, batch: *b, given: b.Advantages}
	st.batch.Advantages = st.Advantages
	more := 0 // arrays that are multiplied
	for _, p := range s.parts {
		if p.factor != nil {
			more++
		}
		if p.weight != nil {
			if st.Weights != nil {
				more++
			} else {
				st.Weights = floats()
			}
		}
		if p.penalty != nil {
			st.rewards = make([]float32, b.Trajectories())
		}
		if slices.Contains(p.arrays, tokenRewards) && (len(b.TokenRewards) == 0 || st.rewards != nil) { // dapo stands before the schemes that read them
			st.tokenRewards = floats()
			st.batch.TokenRewards, st.givenTokenRewards = st.tokenRewards, b.TokenRewards
		}
	}
	if more > 0 {
		st.scratch = floats()
	}
	return st
}

// Do computes the step.
func (st *Step) Do() (res reweight.LossResult, err error) {
	if err := st.advance(); err != nil {
		return res, err
	}
	b, weighed := &st.batch, false
	for _, p := range st.scheme.parts {
		if p.reshape == nil {
			continue
		}
		if err := p.reshape(st.ws, st.Advantages, b, &st.opt); err != nil {
			return res, err
		}
	}
	for _, p := range st.scheme.parts {
		if p.factor != nil {
			if err := st.multiply(st.Advantages, p.factor); err != nil {
				return res, err
			}
		}
		switch {
		case p.weight == nil:
		case weighed:
			err = st.multiply(st.Weights, p.weight)
		default:
			err, weighed = p.weight(st.ws, st.Weights, b, &st.opt), true
		}
		if err != nil {
			return res, err
		}
	}
	return st.ws.Loss(st.Grad, st.Weights, b, st.loss)
}

// multiply multiplies dst by what the call computes.
func (st *Step) multiply(dst []float32, by call) error {
	if err := by(st.ws, st.scratch, &st.batch, &st.opt); err != nil {
		return err
	}
	return st.ws.Multiply(dst, dst, st.scratch)
}

// advance makes the advantages: those of a part of the scheme, of GRPO, or without
// rewards those of the batch.
func (st *Step) advance() error {
	b, made := &st.batch, call(grpo)
	rewards := b.Rewards // without the penalty, which is not what groups are filtered by
	defer func() { b.Rewards = rewards }()
	for _, p := range st.scheme.parts {
		if p.penalty != nil {
			if err := p.penalty(st.ws, st.rewards, b, &st.opt); err != nil {
				return err
			}
			if len(st.givenTokenRewards) == 0 { // else the outcome is among them
				for s, r := range rewards {
					st.rewards[s] += r
				}
			}
			b.Rewards = st.rewards
		}
		if p.advance != nil {
			made = p.advance
		}
	}
	if st.tokenRewards != nil { // the outcome, or the penalty alone, at the last response token
		if err := st.ws.KLRewards(st.tokenRewards, b, reweight.KLRewardsOptions{}); err != nil {
			return err
		}
		for t, r := range st.givenTokenRewards {
			st.tokenRewards[t] += r
		}
	}
	if !st.scheme.OwnAdvantages() && len(rewards) == 0 {
		for t, role := range b.Role {
			st.Advantages[t] = 0
			if role != reweight.RoleMasked {
				st.Advantages[t] = st.given[t]
			}
		}
		return nil
	}
	return made(st.ws, st.Advantages, b, &st.opt)
}

// Loss returns the options of the loss.
func (st *Step) Loss() reweight.LossOptions { return st.loss }

// Idle reports whether dapo did nothing in a step with that result: there was no penalty,
// and no group was left out. Other schemes are never idle.
func (st *Step) Idle(res reweight.LossResult) bool {
	return st.scheme.Name == "dapo" && slices.Equal(st.rewards, st.batch.Rewards) && res.WeightSum == float64(res.Tokens)
}
