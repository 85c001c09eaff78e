package scheme

import (
	"fmt"
	"math"

	"github.com/seed621a2839/reweight"
)

// A Step computes the loss of a batch under a scheme. Its slices have one element per
// token and belong to the caller too, who may read and change them between calls; the
// next call overwrites them.
type Step struct {
	Advantages []float32 // after shaping and factors
	Weights    []float32 // nil if all are 1
	Grad       []float32 // dL/dLogprobs

	// Of a scheme with value_loss; nil and zero in others.
	Returns   []float32 // with gae
	ValueGrad []float32 // dL/dNewValues
	Value     reweight.ValueLossResult

	scheme Scheme
	ws     *reweight.Workspace
	given  reweight.Batch
	batch  reweight.Batch // given, with what the step makes in place of its arrays

	scratch, rewards, tokenRewards []float32
}

// NewStep returns a step of the scheme for a batch, or a *LacksError that says which of
// the arrays that it reads the batch does not have, or a *reweight.InputError. The step reads the slices of the
// batch whenever it is done, so that a caller who changes their elements has the loss of
// the new ones; it never writes to them. ws serves the step and whoever else uses it, one
// call at a time.
func (s Scheme) NewStep(ws *reweight.Workspace, b *reweight.Batch) (*Step, error) {
	if err := s.check(b); err != nil {
		return nil, err
	}
	floats := func() []float32 { return make([]float32, b.Tokens()) }
	st := &Step{Advantages: floats(), Grad: floats(), scheme: s, ws: ws, given: *b, batch: *b}
	st.batch.Advantages = st.Advantages
	weights := 0
	for _, e := range s.entries {
		if e.Kind == Weight {
			weights++
		}
	}
	if weights > 0 {
		st.Weights = floats()
	}
	if weights > 1 || s.hasKind(Factor) { // which are multiplied
		st.scratch = floats()
	}
	if s.hasKind(Reward) {
		st.rewards = make([]float32, b.Trajectories())
	}
	if s.hasKind(Critic) {
		st.ValueGrad = floats()
	}
	if s.hasKind(Critic) && s.entry("gae") != nil {
		st.Returns = floats()
		st.batch.Returns = st.Returns
	}
	if s.readsTokenRewards() && (len(b.TokenRewards) == 0 || st.rewards != nil) {
		st.tokenRewards = floats()
		st.batch.TokenRewards = st.tokenRewards
	}
	return st, nil
}

// Run computes the advantages, the weights, the loss and its gradient, and allocates
// nothing once the workspace has grown. The errors are about the first thing in the batch
// or the options that is wrong, an *reweight.InputError.
func (st *Step) Run() (reweight.LossResult, error) {
	if err := st.Credit(); err != nil {
		return reweight.LossResult{}, err
	}
	if st.ValueGrad != nil {
		var err error
		if st.Value, err = st.ws.ValueLoss(st.ValueGrad, &st.batch, st.scheme.Options.ValueLoss); err != nil {
			return reweight.LossResult{}, err
		}
	}
	return st.ws.Loss(st.Grad, st.Weights, &st.batch, st.scheme.Options.Loss)
}

// Credit computes the advantages and the weights alone, for a caller who takes losses of
// parts of the batch with them.
func (st *Step) Credit() error {
	if err := st.advance(); err != nil {
		return err
	}
	weighed := false
	for _, e := range st.scheme.entries {
		var err error
		switch {
		case e.Kind == Advantage && !e.makesAdvantages():
			err = st.compute(e, st.Advantages)
		case e.Kind == Factor:
			err = st.multiply(e, st.Advantages)
		case e.Kind == Weight && weighed:
			err = st.multiply(e, st.Weights)
		case e.Kind == Weight:
			err, weighed = st.compute(e, st.Weights), true
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (st *Step) compute(e *Entry, dst []float32) error {
	return e.call(st.ws, dst, &st.batch, &st.scheme.Options)
}

// multiply multiplies dst by what the entry computes.
func (st *Step) multiply(e *Entry, dst []float32) error {
	if err := st.compute(e, st.scratch); err != nil {
		return err
	}
	return st.ws.Multiply(dst, dst, st.scratch)
}

// advance makes the advantages: those of an entry, of GRPO, or without rewards those of
// the batch.
func (st *Step) advance() error {
	b, opt := &st.batch, &st.scheme.Options
	defer func() { b.Rewards = st.given.Rewards }() // without the penalty, which groups are not filtered by
	if err := st.reward(); err != nil {
		return err
	}
	if st.Returns != nil {
		if err := st.ws.GAE(st.Advantages, st.Returns, b.TokenRewards, b, opt.GAE); err != nil {
			return err
		}
	}
	if e := st.scheme.maker(); e != nil {
		return st.compute(e, st.Advantages)
	}
	if len(st.given.Rewards) == 0 {
		for t, role := range b.Role {
			st.Advantages[t] = 0
			if role != reweight.RoleMasked {
				st.Advantages[t] = st.given.Advantages[t]
			}
		}
		return nil
	}
	return st.ws.GRPO(st.Advantages, b, opt.GRPO)
}

// reward sets the rewards of the batch to what the advantages are made from. Where the
// batch has rewards of tokens, the outcome is among them.
func (st *Step) reward() error {
	b, opt := &st.batch, &st.scheme.Options
	ofTokens := st.tokenRewards != nil && len(st.given.TokenRewards) > 0
	if st.rewards != nil {
		clear(st.rewards)
		if e := st.scheme.entry("overlong"); e != nil {
			if err := st.compute(e, st.rewards); err != nil {
				return err
			}
		}
		if !ofTokens {
			for s, r := range b.Rewards {
				st.rewards[s] += r
			}
		}
		b.Rewards = st.rewards
	}
	if st.tokenRewards == nil {
		return nil
	}
	var kl reweight.KLRewardsOptions // the reward at the last response token, and no KL
	if st.scheme.entry("kl_rewards") != nil {
		kl = opt.KLRewards
	}
	if err := st.ws.KLRewards(st.tokenRewards, b, kl); err != nil {
		return err
	}
	if ofTokens {
		for t, r := range st.given.TokenRewards {
			st.tokenRewards[t] += r
		}
	}
	return nil
}

// Loss returns the options of the step's loss.
func (st *Step) Loss() reweight.LossOptions { return st.scheme.Options.Loss }

// Check compares the advantages, the weights, the gradient and the loss of the last Run,
// whose result it is given, with the same step in float64, by package reference. The error
// names the first element that is further off than 1e-5 of the largest of its array, or
// says that the loss is by 1e-5 of the sum of |gradient|. A ratio of probabilities that is
// at the very bound of a clip, or an entropy at a threshold, may fall on either side of it
// in float32, and be an error. Check allocates, and does not look at the critic.
func (st *Step) Check(res reweight.LossResult) error {
	advantages, weights, loss, grad := st.scheme.exact(&st.given)
	var size float64
	for _, a := range []struct {
		what string
		got  []float32
		want []float64
	}{{"advantages", st.Advantages, advantages}, {"weights", st.Weights, weights}, {"gradient", st.Grad, grad}} {
		if a.got == nil { // weights of 1
			continue
		}
		largest := 0.0
		size = 0
		for _, w := range a.want {
			largest, size = max(largest, math.Abs(w)), size+math.Abs(w)
		}
		for t, w := range a.want {
			if g := float64(a.got[t]); !(math.Abs(g-w) <= 1e-5*largest) {
				return fmt.Errorf("%s: %s[%d] = %v, float64 has %v", st.scheme.Name, a.what, t, a.got[t], w)
			}
		}
	}
	if !(math.Abs(res.Loss-loss) <= 1e-5*max(size, math.Abs(loss))) {
		return fmt.Errorf("%s: loss = %v, float64 has %v", st.scheme.Name, res.Loss, loss)
	}
	return nil
}
