package randomcalls

import (
	"math"
	"reflect"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/scheme"
)

// losses are the losses of the catalogue.
var losses = func() (all []reweight.LossOptions) {
	for _, e := range scheme.Entries() {
		if e.Kind == scheme.Loss {
			all = append(all, e.Defaults().Loss)
		}
	}
	return all
}()

// policyOptions are of any policy, with or without a divergence.
func (d *Draws) policyOptions() reweight.LossOptions {
	opt := one(d, losses...)
	set := func(name string, x any) { scheme.SetField(&opt, name, reflect.ValueOf(x)) }
	if d.IntN(3) == 0 {
		set(one(d, "ClipLow", "ClipHigh", "TauPos", "TauNeg", "RatioCap", "PowerPos", "DecayPos", "PowerNeg",
			"DecayNeg", "CovCoef"), one(d, 1e-3, 0.5, 1, 3))
	}
	set("Beta", one(d, 0.1, 1, 1e3))
	set("CovShare", one(d, 0.0002, 0.01, 0.3, 1))
	set("CovLow", one[float64](d, 1, -1, 0))
	set("CovHigh", one(d, 5, 5, 2, math.Inf(1)))
	set("Seed", d.Uint64())
	if d.IntN(3) == 0 {
		set("DualClip", one(d, 0, 3, 1.0000001))
	}
	set("Sequence", reweight.Sequence(d.IntN(2)))
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
			opt := reweight.KLRewardsOptions{KL: reweight.KLForm(d.IntN(7)),
				KLCoef: one(d, 0.001, 0.001, 0, -0.5, 1e30)}
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
			opt := reweight.ValueLossOptions{Clip: d.number(0.5), Aggregation: reweight.Aggregation(d.IntN(4)),
				NormLength: one(d, 0, 0, 1, 100)}
			d.spoil(b, one(d, b.NewValues, b.Values, b.Returns), ofRole, ofOffsets, ofOffsets, ofValues)
			grad := one(d, d.output(T), b.NewValues, b.Values, b.Returns)
			res, err := c.(LossCaller).ValueLoss(grad, b, opt)
			return Outcome{err, res, grad}
		}},
	}
}
