package randomcalls

import (
	"fmt"
	"math"
	"slices"

	"github.com/seed621a2839/reweight"
)

// batch draws a batch with every array, of which the first trajectories have the given
// lengths. Masked tokens have any values.
func (d *Draws) batch(lengths ...int) *reweight.Batch {
	b := &reweight.Batch{SeqOffsets: []int64{0}}
	end := int64(0)
	for _, n := range lengths {
		end += int64(n)
		b.SeqOffsets = append(b.SeqOffsets, end)
	}
	longest := one(d, 3, 40, 40, 40, 300, 300, 1500, 6000)
	for range 1 + d.IntN(one(d, 1, 8, 40, 300)) {
		last := b.SeqOffsets[len(b.SeqOffsets)-1]
		if last > 6000 || len(lengths) > 0 && d.IntN(2) == 0 {
			break
		}
		b.SeqOffsets = append(b.SeqOffsets, last+int64(d.IntN(longest+1)))
	}
	S := b.Trajectories()
	T := int(b.SeqOffsets[S])
	b.SeqOffsets = append(array[int64](d, S+1)[:0], b.SeqOffsets...)
	b.GroupIDs, b.Rewards = array[int32](d, S), array[float32](d, S)
	groups := 1 + d.IntN(S)
	for s := range S {
		b.GroupIDs[s] = int32(d.IntN(groups)*7 - 20)
		b.Rewards[s] = one(d, 0, 1, float32(d.NormFloat64()))
	}
	b.Role, b.SpanIDs = array[reweight.Role](d, T), array[int32](d, T)
	masked := d.Float64()
	next := int32(0)
	newSpan := one(d, 0.02, 0.3)
	for s := range S {
		first := next
		lastNew := b.SeqOffsets[s+1] // from here on, no span begins
		if n := lastNew - b.SeqOffsets[s]; n > 0 && d.IntN(2) == 0 {
			lastNew -= d.Int64N(n)
		}
		for t := b.SeqOffsets[s]; t < b.SeqOffsets[s+1]; t++ {
			b.SpanIDs[t] = -1
			if d.Float64() >= masked {
				b.Role[t] = reweight.Role(1 + d.IntN(2))
				if first == next || t < lastNew && d.Float64() < newSpan {
					b.SpanIDs[t] = next
					next++
					continue
				}
				b.SpanIDs[t] = next - 1
			}
			if first < next && (t >= lastNew || d.IntN(8) == 0) { // another of this trajectory, also of a masked token
				b.SpanIDs[t] = first + int32(d.IntN(int(next-first)))
			}
		}
	}
	scale, spread := one[float32](d, 1, 1, 1, 1e-9, 1e20), one[float32](d, 1, 1, 1, 0)
	for _, x := range []*[]float32{&b.RefEnergy, &b.Entropy, &b.RefLogprobs, &b.RefEntropy, &b.Advantages, &b.Values,
		&b.TokenRewards} {
		*x = d.output(T)
		for t := range *x {
			if (*x)[t] = scale * (1.3 + spread*normal(d.Rand)); b.Role[t] == reweight.RoleMasked {
				(*x)[t] = edge(d.Rand)
			}
		}
	}
	b.Logprobs, b.OldLogprobs = d.logprobs(T)
	b.RolloutLogprobs = d.output(T)
	for t := range T {
		b.RolloutLogprobs[t] = edge(d.Rand)
		if b.Role[t] != reweight.RoleMasked {
			if v := b.Logprobs[t]; !(math.Abs(float64(v)) < 1e6) {
				b.Logprobs[t] = -1
			}
			if v := b.OldLogprobs[t]; !(math.Abs(float64(v)) < 1e6) {
				b.OldLogprobs[t] = -2
			}
			b.RolloutLogprobs[t] = b.OldLogprobs[t] + one[float32](d, 0, 0.1, -0.1, 1.5, -1.5, 0.6931472, 30, -30)
		}
	}
	if d.IntN(3) == 0 {
		b.RefLogprobs = nil
	}
	return b
}

// What spoil can make wrong, of what a call reads.
const (
	ofRole = iota
	ofOffsets
	ofValues
	ofSpans
	ofRewards
)

// spoil makes one of these wrong, if something is to be.
func (d *Draws) spoil(b *reweight.Batch, values []float32, what ...int) {
	T := len(b.Role)
	if T == 0 || !d.err() {
		return
	}
	t := d.IntN(T)
	for range 100 { // an action, if one is found: not all calls read the others
		if b.Role[t] == reweight.RoleAction {
			break
		}
		t = d.IntN(T)
	}
	switch one(d, what...) {
	case ofRole:
		b.Role[t] = reweight.Role(3 + d.IntN(253))
	case ofOffsets:
		i := one(d, 0, d.IntN(len(b.SeqOffsets)), len(b.SeqOffsets)-1)
		o := &b.SeqOffsets[i]
		*o = one(d, *o+int64(d.IntN(9)-4), *o+128*int64(d.IntN(9)-4), -1, -1000, -1<<40, int64(T+1), int64(T+10000),
			1<<40, math.MinInt64, math.MaxInt64)
		if next := b.SeqOffsets[min(i+1, len(b.SeqOffsets)-1)]; i == 0 && *o > next {
			*o = next // else the next one is wrong as well
		}
	case ofValues:
		if values != nil {
			values[t] = one(d, float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), 2e30)
		}
	case ofSpans:
		b.SpanIDs[t] = one(d, -2, -1, 0, 5, b.SpanIDs[t]+1, b.SpanIDs[t]+2, 1<<30)
	case ofRewards:
		b.Rewards[d.IntN(len(b.Rewards))] = one(d, float32(math.NaN()), float32(math.Inf(-1)))
	}
}

// A Limited is a Caller whose workspace may have places for so many spans only.
type Limited interface {
	AEMWithin(spans int, factors []float32, b *reweight.Batch, opt reweight.AEMOptions) error
}

// aemWithin calls AEM with a workspace that has places for so many spans, which the CPU
// needs none of.
func aemWithin(d *Draws, c Caller, b *reweight.Batch, opt reweight.AEMOptions, most int) Outcome {
	factors := d.output(len(b.Role))
	if l, ok := c.(Limited); ok {
		return Outcome{l.AEMWithin(most, factors, b, opt), factors}
	}
	got := slices.Clone(factors)
	spans := int(slices.Max(append(b.SpanIDs, -1))) + 1
	err := c.AEM(got, b, opt)
	if err == nil && spans > most {
		err = &reweight.InputError{Arg: "SpanIDs", Index: -1,
			Problem: fmt.Sprintf("has %d spans, want at most %d, for which the workspace was made", spans, most)}
	} else if err == nil {
		factors = got
	}
	return Outcome{err, factors}
}

// trialsOnBatches are those of what whole batches go through.
var trialsOnBatches = []Trial{
	{"ActFocus", func(d *Draws, c Caller) Outcome {
		b := d.batch()
		opt := reweight.ActFocusOptions{Alpha: d.number(0.1), Beta: d.number(0.5), Eps: d.number(1e-8),
			Signal: reweight.Signal(d.IntN(4))}
		if b.RefLogprobs == nil {
			opt.Signal = reweight.SignalEnergy
		}
		signal := []*[]float32{&b.RefEnergy, &b.RefEntropy, &b.OldLogprobs, &b.OldLogprobs}[opt.Signal]
		if opt.Signal == reweight.SignalLogRatio && d.IntN(2) == 0 {
			signal = &b.RefLogprobs
		}
		if t := slices.Index(b.Role, reweight.RoleAction); opt.Signal == reweight.SignalLogRatio && t >= 0 && d.err() {
			b.OldLogprobs[t], b.RefLogprobs[t] = 3e38, -3e38 // their difference is infinite
		}
		d.spoil(b, *signal, ofRole, ofValues)
		weights := one(d, d.output(len(b.Role)), *signal)
		res, err := c.ActFocus(weights, b, opt)
		return Outcome{err, res, weights}
	}},
	{"AEM", func(d *Draws, c Caller) Outcome {
		b := d.batch()
		opt := reweight.AEMOptions{Lambda: d.number(1), Guard: one(d, 0, 0.1, 0.1, 3), Scope: reweight.Scope(d.IntN(3))}
		if d.IntN(8) == 0 { // scopes that are left alone
			for t := range b.Entropy {
				b.Entropy[t] = 1
			}
		}
		if d.IntN(4) == 0 { // entropies as far apart as the guard is, or nearly
			opt.Guard = one[float64](d, 1, 2, 3)
			for t := range b.Entropy {
				b.Entropy[t] = one[float32](d, 1, 3, 4, 1.9999999, 1)
			}
		}
		spans := 1
		for _, s := range b.SpanIDs {
			spans = max(spans, int(s)+1)
		}
		if d.device && d.IntN(6) == 0 {
			spans -= d.IntN(3) // too few places, or as many as there must be
			return aemWithin(d, c, b, opt, max(spans, 0))
		}
		d.spoil(b, b.Entropy, ofRole, ofOffsets, ofOffsets, ofValues, ofSpans, ofSpans)
		factors := one(d, d.output(len(b.Role)), b.Entropy)
		err := c.AEM(factors, b, opt)
		return Outcome{err, factors}
	}},
	{"Loss", func(d *Draws, c Caller) Outcome {
		b := d.batch()
		if d.IntN(4) > 0 {
			n := d.wholeGroups()
			if b = d.batch(n); n > 0 { // a group of one token is not to be empty
				b.Role[n-1], b.Logprobs[n-1], b.OldLogprobs[n-1], b.Advantages[n-1] = reweight.RoleAction, -1, -2, 1
			}
		}
		T := len(b.Role)
		weights := d.weights(T)
		for t := range weights {
			if w := &weights[t]; b.Role[t] != reweight.RoleMasked && *w-*w != 0 {
				*w = one[float32](d, 1, 0, 3e38)
			}
		}
		opt := d.lossOptions()
		if opt.Policy.Traits().Unweighted && !d.err() {
			weights = nil
		}
		values := weights
		if !opt.Policy.Traits().AnyValues {
			values = one(d, weights, b.Logprobs, b.OldLogprobs, b.Advantages, b.RefLogprobs)
		}
		if b.RefLogprobs == nil {
			opt.KLCoef = 0
		}
		d.spoil(b, values, ofRole, ofOffsets, ofOffsets, ofOffsets, ofValues, ofSpans)
		grad := one(d, d.output(T), b.Logprobs, b.OldLogprobs, b.Advantages)
		if weights != nil && d.IntN(4) == 0 {
			grad = weights
		}
		if b.RefLogprobs != nil && !d.device && d.IntN(4) == 0 {
			grad = b.RefLogprobs
		}
		res, err := c.Loss(grad, weights, b, opt)
		return Outcome{err, res, grad}
	}},
	{"GRPO", func(d *Draws, c Caller) Outcome {
		b := d.batch()
		d.spoil(b, nil, ofRole, ofOffsets, ofOffsets, ofRewards)
		advantages := one(d, d.output(len(b.Role)), b.Advantages)
		err := c.GRPO(advantages, b, reweight.GRPOOptions{Eps: d.number(1e-6), DivideByStd: d.IntN(2) == 0})
		return Outcome{err, advantages}
	}},
	{"GAE", func(d *Draws, c Caller) Outcome {
		b := d.batch()
		rewards := d.floats(len(b.Role))
		d.spoil(b, nil, ofRole, ofOffsets, ofOffsets)
		advantages := one(d, d.output(len(b.Role)), rewards)
		returns := one(d, d.output(len(b.Role)), nil)
		err := c.GAE(advantages, returns, rewards, b, reweight.GAEOptions{Gamma: d.number(1), Lambda: d.number(0.95)})
		return Outcome{err, advantages, returns}
	}},
	{"Whiten", func(d *Draws, c Caller) Outcome {
		b := d.batch()
		x := b.Entropy
		d.spoil(b, x, ofRole, ofValues)
		dst := one(d, d.output(len(x)), x)
		return Outcome{c.Whiten(dst, x, b.Role), dst}
	}},
}
