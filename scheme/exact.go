package scheme

import (
	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/reference"
)

// exact is a batch in float64.
type exact struct {
	*reweight.Batch
	role []reference.Role

	rewards, entropy, energy, refEntropy, advantages, logprobs, old, ref, rollout []float64
	tokenRewards, values, newValues, returns, spanRewards                         []float64
}

func newExact(b *reweight.Batch) *exact {
	f := reference.Floats
	return &exact{
		b, reference.Roles(b.Role), f(b.Rewards), f(b.Entropy), f(b.RefEnergy), f(b.RefEntropy), f(b.Advantages), f(b.Logprobs), f(b.OldLogprobs), f(b.RefLogprobs),
		f(b.RolloutLogprobs), f(b.TokenRewards), f(b.Values), f(b.NewValues), f(b.Returns), f(b.SpanRewards),
	}
}

// spread gives response tokens the value of their trajectory.
func (x *exact) spread(of []float64, err error) ([]float64, error) {
	if err != nil {
		return nil, err
	}
	return reference.TokenAdvantages(x.role, x.SeqOffsets, of)
}

// masked sets the values of masked tokens to 0.
func (x *exact) masked(values []float64) []float64 {
	for t := range values {
		if x.role[t] == reference.RoleMasked {
			values[t] = 0
		}
	}
	return values
}

// loss returns the loss of the batch with its advantages, and the gradient: that of the
// policy, and of the divergence beside it.
func (x *exact) loss(weights []float64, opt *reweight.LossOptions) (float64, []float64, error) {
	aggregation, norm := reference.Aggregation(opt.Aggregation.String()), float64(opt.NormLength)
	clips := reference.LossOptions{ClipLow: opt.ClipLow, ClipHigh: opt.ClipHigh, DualClip: opt.DualClip, Aggregation: aggregation, NormLength: norm}
	var l reference.LossResult
	var err error
	if opt.Policy == reweight.PolicyPPO {
		l, err = reference.Loss(x.role, x.SeqOffsets, x.logprobs, x.old, x.advantages, weights, clips)
	} else {
		l, err = reference.PolicyLoss(x.role, x.SeqOffsets, x.SpanIDs, x.logprobs, x.old, x.advantages, weights, reference.PolicyOptions{
			LossOptions: clips, Policy: reference.Policy(opt.Policy.String()), Sequence: reference.Sequence(opt.Sequence.String()),
			TauPos: opt.TauPos, TauNeg: opt.TauNeg, RatioCap: opt.RatioCap,
			PowerPos: opt.PowerPos, DecayPos: opt.DecayPos, PowerNeg: opt.PowerNeg, DecayNeg: opt.DecayNeg,
		})
	}
	if err != nil || opt.KLCoef == 0 {
		return l.Loss, l.Gradient, err
	}
	kl, gradient, err := reference.KLLoss(x.role, x.SeqOffsets, x.logprobs, x.ref, reference.KLForm(opt.KL.String()), opt.KLCoef, aggregation, norm)
	for t, g := range gradient {
		l.Gradient[t] += g
	}
	return l.Loss + kl, l.Gradient, err
}

// An exactStep is what a step makes, in float64.
type exactStep struct {
	advantages, weights, grad []float64
	loss                      float64
}

// exact computes a step in float64, as Step.Run does in float32.
func (s Scheme) exact(b *reweight.Batch) (e exactStep, err error) {
	x, opt := newExact(b), &s.Options
	outcome, ofTokens := x.rewards, s.readsTokenRewards() && len(b.TokenRewards) > 0
	if s.hasKind(Reward) {
		x.rewards = make([]float64, len(outcome))
		if p := s.entry("overlong"); p != nil {
			if x.rewards, err = p.reference(x, opt); err != nil {
				return e, err
			}
		}
		for q, r := range outcome {
			if !ofTokens {
				x.rewards[q] += r
			}
		}
	}
	if s.readsTokenRewards() && (!ofTokens || s.hasKind(Reward)) {
		var kl reweight.KLRewardsOptions
		if s.entry("kl_rewards") != nil {
			kl = opt.KLRewards
		}
		given := x.tokenRewards
		if x.tokenRewards, err = x.klRewards(kl); err != nil {
			return e, err
		}
		for t, r := range given {
			x.tokenRewards[t] += r
		}
	}
	switch maker := s.maker(); {
	case maker != nil:
		e.advantages, err = maker.reference(x, opt)
	case len(outcome) > 0:
		e.advantages, err = x.grpo(opt.GRPO.DivideByStd)
	default:
		e.advantages = x.masked(x.advantages)
	}
	if err != nil {
		return e, err
	}
	x.rewards, e.weights = outcome, reference.UniformWeights(x.role)
	for _, p := range s.entries {
		x.advantages = e.advantages
		if p.Kind != Factor && p.Kind != Weight && (p.Kind != Advantage || p.makesAdvantages()) {
			continue
		}
		made, err := p.reference(x, opt)
		if err != nil {
			return e, err
		}
		dst := e.weights
		switch p.Kind {
		case Advantage:
			e.advantages = made
			continue
		case Factor:
			dst = e.advantages
		}
		for t, m := range made {
			dst[t] *= m
		}
	}
	x.advantages = e.advantages
	e.loss, e.grad, err = x.loss(e.weights, &opt.Loss)
	return e, err
}

func (x *exact) grpo(divide bool) ([]float64, error) {
	return x.spread(reference.GRPO(x.rewards, x.GroupIDs, divide))
}

func (x *exact) klRewards(opt reweight.KLRewardsOptions) ([]float64, error) {
	return reference.KLRewards(x.role, x.SeqOffsets, x.rewards, x.old, x.ref, reference.KLForm(opt.KL.String()), opt.KLCoef)
}

func (x *exact) shaping(opt reweight.ShapingOptions) reference.ShapingOptions {
	return reference.ShapingOptions{Base: opt.Base, Bonus: opt.Bonus, Threshold: opt.Threshold, EntropyLow: opt.EntropyLow, EntropyHigh: opt.EntropyHigh,
		Normalization: reference.Normalization(opt.Normalization.String()), Scope: reference.Scope(opt.Scope.String())}
}

func (x *exact) correction(opt reweight.CorrectionOptions) ([]float64, error) {
	return reference.RolloutCorrection(x.role, x.SeqOffsets, x.old, x.rollout, reference.CorrectionOptions{
		Level: reference.CorrectionLevel(opt.Level.String()), Mask: opt.Mask, Low: opt.Low, High: opt.High, Normalize: opt.Normalize})
}
