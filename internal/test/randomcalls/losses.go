package randomcalls

import (
	"math"

	"github.com/seed621a2839/reweight"
)

// policies are the options of each policy loss.
var policies = []reweight.LossOptions{
	reweight.DefaultLoss, reweight.DefaultGSPO, reweight.DefaultLUSPO, reweight.DefaultGRPOSLoss, reweight.DefaultCISPO, reweight.DefaultSAPO,
	reweight.DefaultPG, reweight.DefaultDPPOTV, reweight.DefaultVESPO,
	reweight.DefaultDPPOKL, reweight.DefaultDRO, reweight.DefaultGMPO, reweight.DefaultClipCov, reweight.DefaultKLCov,
}

// policyOptions are of any policy, with or without a divergence.
func (d *Draws) policyOptions() reweight.LossOptions {
	opt := one(d, policies...)
	if d.IntN(3) == 0 {
		x := one(d, &opt.ClipLow, &opt.ClipHigh, &opt.DualClip, &opt.TauPos, &opt.TauNeg, &opt.RatioCap,
			&opt.PowerPos, &opt.DecayPos, &opt.PowerNeg, &opt.DecayNeg, &opt.CovCoef)
		*x = one(d, 1e-3, 0.5, 1, 3)
	}
	switch opt.Policy {
	case reweight.PolicyDRO:
		opt.Beta = one(d, 0.1, 1, 1e3)
	case reweight.PolicyClipCov, reweight.PolicyKLCov:
		opt.CovShare = one(d, opt.CovShare, 0.01, 0.3, 1)
		opt.CovLow, opt.CovHigh = one(d, opt.CovLow, -1, 0), one(d, 5, 5, 2, math.Inf(1))
		opt.Seed = d.Uint64()
	}
	if opt.Policy <= reweight.PolicyGRPOS && d.IntN(3) == 0 {
		opt.DualClip = one(d, 0, 3, 1.0000001)
	}
	if opt.DualClip <= 1 {
		opt.DualClip = 0
	}
	opt.Sequence = reweight.Sequence(d.IntN(2))
	opt.Aggregation = reweight.Aggregation(d.IntN(4))
	opt.NormLength = one(d, 0, 0, 1, 100)
	if d.IntN(2) == 0 {
		opt.KL, opt.KLCoef = reweight.KLForm(d.IntN(7)), one(d, 0.001, 0.001, -0.5, 1, 1e30)
	}
	return opt
}

// A LossCaller has the losses that no GPU has: the C library and *reweight.Workspace.
type LossCaller interface {
	Caller

	KLRewards(rewards []float32, b *reweight.Batch, opt reweight.KLRewardsOptions) error
	ValueLoss(grad []float32, b *reweight.Batch, opt reweight.ValueLossOptions) (reweight.ValueLossResult, error)
}

// Losses returns the trials of a LossCaller's own methods.
func Losses() []Trial {
	return []Trial{
		{"KLRewards", func(d *Draws, c Caller) Outcome {
			b := d.batch()
			opt := reweight.KLRewardsOptions{KL: reweight.KLForm(d.IntN(7)), KLCoef: one(d, 0.001, 0.001, 0, -0.5, 1e30)}
			if b.RefLogprobs == nil {
				opt.KLCoef = 0
			}
			d.spoil(b, one(d, b.OldLogprobs, b.RefLogprobs), ofRole, ofOffsets, ofOffsets, ofRewards, ofValues)
			rewards := one(d, d.output(len(b.Role)), b.OldLogprobs, b.Entropy)
			if b.RefLogprobs != nil && d.IntN(4) == 0 {
				rewards = b.RefLogprobs
			}
			return Outcome{c.(LossCaller).KLRewards(rewards, b, opt), rewards}
		}},
		{"ValueLoss", func(d *Draws, c Caller) Outcome {
			b := d.batch()
			if d.IntN(4) > 0 {
				b = d.batch(d.wholeGroups())
			}
			T := len(b.Role)
			b.NewValues, b.Returns = d.floats(T), d.output(T)
			for t := range T {
				if v := b.NewValues[t]; b.Role[t] != reweight.RoleMasked && (v-v != 0 || d.IntN(2) == 0) {
					b.NewValues[t] = b.Values[t] + one[float32](d, 0, 0.5, -0.5, 0.49, 0.6)
				}
				b.Returns[t] = b.NewValues[t] - one[float32](d, 0, 0.25, 1, -1, 3)
				if b.Role[t] != reweight.RoleMasked && b.Returns[t]-b.Returns[t] != 0 {
					b.Returns[t] = 1
				}
			}
			opt := reweight.ValueLossOptions{Clip: d.number(0.5), Aggregation: reweight.Aggregation(d.IntN(4)), NormLength: one(d, 0, 0, 1, 100)}
			d.spoil(b, one(d, b.NewValues, b.Values, b.Returns), ofRole, ofOffsets, ofOffsets, ofValues)
			grad := one(d, d.output(T), b.NewValues, b.Values, b.Returns)
			res, err := c.(LossCaller).ValueLoss(grad, b, opt)
			return Outcome{err, res, grad}
		}},
	}
}
