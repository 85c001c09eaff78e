package scheme

import (
	"fmt"
	"reflect"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/reference"
)

// Widen returns a copy of the batch in float64, for package reference: of the arrays that it has.
func Widen(b *reweight.Batch) *reference.Batch {
	wide := &reference.Batch{Role: reference.Roles(b.Role)}
	to := reflect.ValueOf(wide).Elem()
	for _, a := range b.Arrays() {
		field := to.FieldByName(a.Field)
		if !field.IsValid() {
			continue
		}
		switch data := a.Data.(type) {
		case *[]float32:
			field.Set(reflect.ValueOf(reference.Floats(*data)))
		case *[]int32, *[]int64:
			field.Set(reflect.ValueOf(data).Elem())
		}
	}
	return wide
}

// The options of package reference.

func aggregating(a reweight.Aggregation, normLength int) reference.Aggregating {
	return reference.Aggregating{Aggregation: reference.Aggregation(a.String()), NormLength: float64(normLength)}
}

func lossOptions(opt *reweight.LossOptions) reference.LossOptions {
	all := reference.LossOptions{Aggregating: aggregating(opt.Aggregation, opt.NormLength),
		Policy: reference.Policy(opt.Policy.String())}
	to := reflect.ValueOf(&all).Elem()
	for f, v := range reflect.ValueOf(opt.Policy).Fields() {
		switch field := to.FieldByName(f.Name); {
		case !field.IsValid(): // Divergence, which is in the name of the policy
		case v.Kind() == reflect.Uint8:
			field.SetString(fmt.Sprint(v.Interface()))
		default:
			field.Set(v)
		}
	}
	return all
}

func shaping(opt reweight.GTPOOptions) reference.ShapingOptions {
	return reference.ShapingOptions{Base: opt.Base, Bonus: opt.Bonus, Threshold: opt.Threshold,
		EntropyLow: opt.EntropyLow, EntropyHigh: opt.EntropyHigh,
		Normalization: reference.Normalization(opt.Normalization.String()), Scope: reference.Scope(opt.Scope.String())}
}

// rolloutCorrection returns the factors of the correction with those options.
func rolloutCorrection(b *reference.Batch, opt reweight.RolloutCorrectionOptions) []float64 {
	level := reference.CorrectionLevel(opt.Level.String())
	return reference.RolloutCorrection(b, reference.CorrectionOptions{Level: level, Mask: opt.Mask, Low: opt.Low,
		High: opt.High, Normalize: opt.Normalize})
}

// klRewards returns the rewards of tokens with those options.
func klRewards(b *reference.Batch, opt reweight.KLRewardsOptions) []float64 {
	return reference.KLRewards(b, reference.KLForm(opt.KL.String()), opt.KLCoef)
}

// exactLoss returns the loss of the batch with its advantages, and the gradient: that of the
// policy, and of the divergence beside it. weights nil stand for ones.
func exactLoss(b *reference.Batch, weights []float64, opt *reweight.LossOptions) (float64, []float64) {
	l := reference.Loss(b, weights, lossOptions(opt))
	if opt.KLCoef == 0 {
		return l.Loss, l.Gradient
	}
	kl, gradient := reference.KLLoss(b, reference.KLForm(opt.KL.String()), opt.KLCoef,
		aggregating(opt.Aggregation, opt.NormLength))
	for t, g := range gradient {
		l.Gradient[t] += g
	}
	return l.Loss + kl, l.Gradient
}

// whitened returns the advantages that GAE's are used as.
func whitened(b *reference.Batch, opt reweight.GAEOptions) []float64 {
	a, _ := reference.GAE(b, opt.Gamma, opt.Lambda)
	return reference.Multiply(reference.Whiten(b, a), reference.UniformWeights(b))
}

// exact computes a step in float64, as Step.Run does in float32.
func (s Scheme) exact(given *reweight.Batch) (advantages, weights []float64, loss float64, grad []float64) {
	b, opt := Widen(given), &s.Options
	outcome, ofTokens := b.Rewards, s.readsTokenRewards() && len(b.TokenRewards) > 0
	if s.hasKind(Reward) {
		b.Rewards = make([]float64, len(outcome))
		if p := s.entry("overlong"); p != nil {
			b.Rewards = p.reference(b, opt)
		}
		for q, r := range outcome {
			if !ofTokens {
				b.Rewards[q] += r
			}
		}
	}
	if s.readsTokenRewards() && (!ofTokens || s.hasKind(Reward)) {
		var kl reweight.KLRewardsOptions
		if s.entry("kl_rewards") != nil {
			kl = opt.KLRewards
		}
		given := b.TokenRewards
		b.TokenRewards = klRewards(b, kl)
		for t, r := range given {
			b.TokenRewards[t] += r
		}
	}
	uniform := reference.UniformWeights(b)
	switch maker := s.maker(); {
	case maker != nil:
		b.Advantages = maker.reference(b, opt)
	case len(outcome) > 0:
		b.Advantages = reference.GRPO(b, opt.GRPO.DivideByStd)
	default:
		for t, u := range uniform {
			if u == 0 {
				b.Advantages[t] = 0
			}
		}
	}
	b.Rewards, weights = outcome, uniform
	for _, p := range s.entries {
		switch {
		case p.Kind == Factor:
			b.Advantages = reference.Multiply(b.Advantages, p.reference(b, opt))
		case p.Kind == Weight:
			weights = reference.Multiply(weights, p.reference(b, opt))
		case p.Kind == Advantage && !p.makesAdvantages():
			b.Advantages = p.reference(b, opt)
		}
	}
	loss, grad = exactLoss(b, weights, &opt.Loss)
	return b.Advantages, weights, loss, grad
}
