package scheme

import (
	"math"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/reference"
	"pgregory.net/rapid"
)

// TestEntriesAgreeWithReference compares every entry with float64 on batches that rapid
// makes: groups that interleave, trajectories without response tokens, spans with masked
// tokens inside, ties.
func TestEntriesAgreeWithReference(t *testing.T) {
	for _, s := range subjects {
		if s.full { // TestLossesAgreeWithReference
			continue
		}
		t.Run(s.name, rapid.MakeCheck(func(t *rapid.T) {
			b := drawOnGrid(t)
			s.drawOptions(t)
			if !s.paired(b) {
				return
			}
			dst := make([]float32, s.size(b))
			if err := s.Compute(new(reweight.Workspace), dst, b, s.opt); err != nil {
				t.Fatal(err)
			}
			for i, w := range s.Exact(b, s.opt) {
				// Where terms of 1 cancel, float32 has no more than 1e-5; a gradient is a product.
				tolerance := 1e-5 * max(math.Abs(w), 1)
				if s.Kind >= Loss {
					tolerance = max(1e-5*math.Abs(w), tiny)
				}
				if !(math.Abs(float64(dst[i])-w) <= tolerance) {
					t.Fatalf("element %d = %v, want %v", i, dst[i], w)
				}
			}
		}))
	}
}

// drawOptions draws numbers of the subject's options. Bounds of ratios, and AEM's of widths, are
// such that none of the batch is at one.
func (s *subject) drawOptions(t *rapid.T) {
	o := &s.opt
	gamma := rapid.SampledFrom([]float64{0, 0.9, 1}).Draw(t, "gamma")
	high := rapid.SampledFrom([]float64{2.0391, math.Inf(1)}).Draw(t, "high")
	o.EMPG.K = rapid.SampledFrom([]float64{0, 1, 2.5}).Draw(t, "k")
	if rapid.Bool().Draw(t, "clamp") {
		o.GTPO.EntropyLow, o.GTPO.EntropyHigh = 0.2, 0.28
		o.GRPOS.EntropyLow, o.GRPOS.EntropyHigh = 0.2, 0.28
	} else {
		o.GTPO.EntropyLow, o.GTPO.EntropyHigh = 0, math.Inf(1)
		o.GRPOS.EntropyLow, o.GRPOS.EntropyHigh = 0, math.Inf(1)
	}
	o.EntropyMask.Rho = rapid.SampledFrom([]float64{0.01, 0.2, 0.37, 0.5, 1}).Draw(t, "rho")
	o.ReinforcePlusPlus.Gamma, o.GiGPO.Gamma, o.GiGPO.Omega, o.GAE.Gamma = max(gamma, 0.1), gamma, 0.5, gamma
	o.TIS.Low, o.TIS.High, o.IcePop.Low, o.IcePop.High = 0.5137, high, 0.5137, high
	o.Reject.Low, o.Reject.High = 0.5137, rapid.SampledFrom([]float64{1.7391, math.Inf(1)}).Draw(t, "bound")
	o.setMissing(0.0217)
	o.Overlong = reweight.OverlongPenaltyOptions{Maximum: 16, Buffer: 7, Penalty: 0.5}
	o.KLRewards = reweight.KLRewardsOptions{KL: reweight.KLForm(rapid.IntRange(0, 6).Draw(t, "form")), KLCoef: 0.01}
	o.ValueLoss.Aggregation, o.ValueLoss.NormLength = reweight.Aggregation(rapid.IntRange(0, 3).Draw(t, "aggregation")),
		rapid.IntRange(0, 5).Draw(t, "norm")
	o.FIPO.HalfLife, o.FIPO.HighOnly, o.RLSD.NegativeOnly = 1+10*gamma, gamma == 0, gamma == 1
	o.AEM.Lambda, o.AEM.Guard = gamma+0.5, 0.08713
	o.ActFocus.Beta = gamma
}

// TestLossesAgreeWithReference: the losses with weights, other options and a divergence
// from the reference, the numbers too.
func TestLossesAgreeWithReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := drawOnGrid(t)
		x := Widen(b)
		var ws reweight.Workspace
		dst := make([]float32, b.Tokens())
		nearTo := func(what string, got, want float64) { // sums that cancel
			t.Helper()
			if !(math.Abs(got-want) <= 1e-5*max(1, math.Abs(want))) {
				t.Fatalf("%s = %v, want %v", what, got, want)
			}
		}
		form := reweight.KLForm(rapid.IntRange(0, 6).Draw(t, "form"))
		aggregation := reweight.Aggregation(rapid.IntRange(0, 3).Draw(t, "aggregation"))
		norm := rapid.IntRange(0, 5).Draw(t, "norm")
		value := reference.ValueLoss(x, 0.5, aggregating(aggregation, norm))
		v := must.Get(ws.ValueLoss(dst, b,
			reweight.ValueLossOptions{Clip: 0.5, Aggregation: aggregation, NormLength: norm}))
		nearTo("value loss", v.Loss, value.Loss)
		nearTo("value clip fraction", v.ClipFraction, value.ClipFraction)

		all := Options{Loss: *rapid.SampledFrom(losses()).Draw(t, "policy").loss}
		all.Loss.Aggregation, all.Loss.NormLength = aggregation, norm
		if rapid.Bool().Draw(t, "by span") {
			all.setLoss("Sequence", reweight.SequenceSpan)
		}
		if rapid.Bool().Draw(t, "other clip") {
			all.setLoss("ClipLow", 0.2)
			all.setLoss("ClipHigh", 0.28)
			all.setLoss("DualClip", 1.5)
		}
		if rapid.Bool().Draw(t, "many") {
			all.setLoss("CovShare", 0.4)
			all.setLoss("CovLow", -1.0)
		}
		all.setLoss("Beta", 0.3)
		all.setLoss("Seed", uint64(7))
		opt := all.Loss
		weights := weightsFor(b, &opt)
		want, gradient := exactLoss(x, wideOrNil(weights), &opt)
		opt.KL, opt.KLCoef = form, rapid.SampledFrom([]float64{0, 0.01}).Draw(t, "beta")
		kl, klGradient := reference.KLLoss(x, reference.KLForm(form.String()), opt.KLCoef,
			aggregating(aggregation, norm))
		res := must.Get(ws.Loss(dst, weights, b, opt))
		nearTo("loss of "+opt.Policy.String(), res.Loss, want+kl)
		nearTo("KL", res.KLLoss, kl)
		// A gradient is the sum of its parts, each of which has 1e-5 of itself.
		for i, g := range gradient {
			if !(math.Abs(float64(dst[i])-(g+klGradient[i])) <= max(1e-5*(math.Abs(g)+math.Abs(klGradient[i])), tiny)) {
				t.Fatalf("gradient %d of %v = %v, want %v", i, opt.Policy, dst[i], g+klGradient[i])
			}
		}
	})
}

// losses returns the entries that are one.
func losses() (all []*Entry) {
	for _, e := range Entries() {
		if e.Kind == Loss {
			all = append(all, e)
		}
	}
	return all
}

// drawOnGrid draws a batch whose numbers are on a grid: their differences are exact, so that both
// sides agree where a clip begins. On a coarse grid there are ties. Log-ratios are at most 3,
// so that sums do not cancel by more than float32 has.
func drawOnGrid(t *rapid.T) *reweight.Batch {
	b := drawBatch(t)
	for _, a := range b.Arrays() {
		x, ok := a.Data.(*[]float32)
		if !ok {
			continue
		}
		low, high, grid := -3.0, 3.0, rapid.SampledFrom([]float64{4, 256}).Draw(t, "grid")
		if strings.HasSuffix(a.Name, "logprobs") {
			high = 0
		}
		for i, v := range *x {
			(*x)[i] = float32(math.Round(min(max(float64(v), low), high)*grid) / grid)
		}
	}
	if rapid.Bool().Draw(t, "without a teacher") {
		for i := range b.TeacherLogprobs[:b.SeqOffsets[1]] {
			b.TeacherLogprobs[i] = float32(math.NaN())
		}
	}
	return b
}
