package reference

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// drawBatch draws trajectories of spans, between which and inside which there may be masked
// tokens; some trajectories are without response tokens. Its arrays have numbers that are
// not all far apart.
func drawBatch(t *rapid.T) *Batch {
	b := &Batch{SeqOffsets: []int64{0}}
	add := func(role Role, span int32) {
		b.Role = append(b.Role, role)
		b.SpanIDs = append(b.SpanIDs, span)
	}
	for range rapid.IntRange(1, 6).Draw(t, "trajectories") {
		for range rapid.IntRange(0, 3).Draw(t, "spans") {
			for range rapid.IntRange(0, 2).Draw(t, "masked before") {
				add(RoleMasked, -1)
			}
			span := int32(len(b.Anchors))
			b.Anchors = append(b.Anchors, rapid.Int32Range(0, 2).Draw(t, "anchor"))
			add(RoleReasoning, span)
			for range rapid.IntRange(0, 4).Draw(t, "more tokens") {
				add(Role(rapid.IntRange(0, 2).Draw(t, "role")), span)
			}
		}
		b.SeqOffsets = append(b.SeqOffsets, int64(len(b.Role)))
		b.GroupIDs = append(b.GroupIDs, rapid.Int32Range(-1, 1).Draw(t, "group"))
	}
	T := len(b.Role)
	b.Rewards, b.SpanRewards = floats(t, "reward", len(b.GroupIDs), 0, 1),
		floats(t, "span reward", len(b.Anchors), -1, 1)
	b.Entropy, b.Advantages, b.TokenRewards = floats(t, "H", T, 0, 3), floats(t, "A", T, -3, 3),
		floats(t, "r", T, -1, 1)
	b.Logprobs, b.RefLogprobs, b.RolloutLogprobs = floats(t, "new", T, -3, 0), floats(t, "ref", T, -3, 0),
		floats(t, "rollout", T, -3, 0)
	b.Values, b.NewValues, b.Returns = floats(t, "V", T, -1, 1), floats(t, "new V", T, -1, 1), floats(t, "G", T, -1, 1)
	b.SumSqProbs = floats(t, "p2", T, 0, 1)
	width := rapid.SampledFrom([]float64{0.1, 1}).Draw(t, "width") // those that the clip ranges of GSPO let pass, too
	b.OldLogprobs = floats(t, "old", T, -width, width)
	for i, l := range b.Logprobs {
		b.OldLogprobs[i] += l
	}
	return b
}

// floats draws n numbers, not all of them far apart.
func floats(t *rapid.T, what string, n int, low, high float64) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = rapid.Float64Range(low, high).Draw(t, what)
		if rapid.IntRange(0, 3).Draw(t, "round") == 0 {
			x[i] = math.Round(x[i])
		}
	}
	return x
}

// closeTo fails unless got is want to tolerance, relative to want where that is above 1.
func closeTo(t *rapid.T, what string, got, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tolerance*max(1, math.Abs(want))) {
		t.Fatalf("%s = %v, want %v", what, got, want)
	}
}

// drawLoss draws a policy loss, and what it reads.
func drawLoss(t *rapid.T) (b *Batch, weights []float64, opt LossOptions) {
	b = drawBatch(t)
	opt = rapid.SampledFrom(policyDefaults).Draw(t, "policy")
	opt.Aggregation = rapid.SampledFrom(aggregations).Draw(t, "aggregation")
	if opt.Policy == PolicyGSPO || opt.Policy == PolicyGRPOS {
		opt.Sequence = rapid.SampledFrom([]Sequence{SequenceTrajectory, SequenceSpan}).Draw(t, "sequence")
		opt.DualClip = rapid.SampledFrom([]float64{0, 1.5}).Draw(t, "dual clip")
		opt.ClipLow, opt.ClipHigh = 0.2, 0.28
	}
	return b, floats(t, "w", len(b.Role), 0.1, 2), opt
}

// Where A and w are constant over the sequence, GSPO's and GRPO-S's gradients of
// tokens are the derivatives of the loss with the ratio of the whole sequence, in
// every aggregation.
func TestSequenceGradientIsTheDerivative(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, weights, opt := drawLoss(t)
		if opt.Policy != PolicyGSPO && opt.Policy != PolicyGRPOS {
			opt = defaultGSPO
		}
		opt.DualClip = 0
		sequences := b.spans()
		if opt.Sequence == SequenceTrajectory {
			sequences = b.trajectories()
		}
		for _, tokens := range sequences {
			for _, i := range tokens {
				b.Advantages[i], weights[i] = b.Advantages[tokens[0]], weights[tokens[0]]
			}
		}
		gradient := Loss(b, weights, opt).Gradient
		for i, at := range b.Logprobs {
			const h = 1e-6
			b.Logprobs[i] = at + h
			up := Loss(b, weights, opt)
			b.Logprobs[i] = at - h
			down := Loss(b, weights, opt)
			b.Logprobs[i] = at
			if up.ClipFraction != down.ClipFraction {
				continue // a kink between them
			}
			closeTo(t, "gradient", gradient[i], (up.Loss-down.Loss)/(2*h), 1e-7)
		}
	})
}

// derivative fails unless f's second result is the derivative of its first at x.
// Within 1e-4 of a kink the two one-sided differences disagree, and nothing is said.
func derivative(t *rapid.T, what string, x float64, f func(x float64) (l, g float64)) {
	t.Helper()
	h := 1e-5
	at, g := f(x)
	up, _ := f(x + h)
	down, _ := f(x - h)
	left, right := (at-down)/h, (up-at)/h
	if math.Abs(left-right) > 1e-2*max(1, math.Abs(g)) {
		return
	}
	closeTo(t, what, g, (up-down)/(2*h), 1e-4)
}

func TestTokenDerivatives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x, y := rapid.Float64Range(-3, 3).Draw(t, "x"), rapid.Float64Range(-3, 3).Draw(t, "y")
		A := rapid.Float64Range(-2, 2).Draw(t, "A")
		derivative(t, "SAPO", x, func(x float64) (l, g float64) { return SAPO(x, y, A, 1, 1.05) })
		derivative(t, "PPO", x, func(x float64) (l, g float64) {
			l, g, _ = Surrogate(x, y, A, 0.2, 0.28, 3)
			return l, g
		})
		derivative(t, "PG", x, func(x float64) (l, g float64) { return PG(x, A) })
		derivative(t, "value loss", x, func(x float64) (l, g float64) {
			l, g, _ = ValueTerm(x, y, A, 0.5)
			return l, g
		})
		for _, form := range []KLForm{KLK1, KLAbs, KLK2, KLK3} {
			derivative(t, string(form), x, func(x float64) (k, g float64) { return KL(form, x, y) })
			if form == KLK2 {
				continue
			}
			k, _ := KL(form, x, y)
			if plus, g := KL(form+"+", x, y); plus != k || g != x-y {
				t.Fatalf("%s+ = %v, %v, want %v and %v", form, plus, g, k, x-y)
			}
		}
		// The factor of the others is a constant to the gradient: l is linear in x.
		for _, c := range []struct {
			name string
			f    func() (l, g float64, clipped bool)
		}{
			{"CISPO", func() (l, g float64, clipped bool) { return CISPO(x, y, A, 1, 4) }},
			{"DPPO-TV", func() (l, g float64, clipped bool) { return DPPOTV(x, y, A, .2, .2, 20) }},
		} {
			l, g, clipped := c.f()
			closeTo(t, c.name, l, g*x, 1e-15)
			if rho := math.Exp(x - y); !clipped && rho < 20 {
				closeTo(t, c.name+": factor", g, -A*rho, 1e-13)
			}
		}
	})
}

// TestOnlyResponseTokensAreRead: what masked tokens have changes no answer.
func TestOnlyResponseTokensAreRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, weights, opt := drawLoss(t)
		every := func() (answers [][]float64) {
			loss, value := Loss(b, weights, opt), ValueLoss(b, 0.5, Aggregating{Aggregation: SeqMeanTokenMean})
			kl, klGradient := KLLoss(b, KLK3, 0.1, opt.Aggregating)
			mask, threshold := EntropyMask(b, 0.2)
			a, _ := GAE(b, 1, 0.9)
			return [][]float64{
				ActFocus(b, ActFocusOptions{Signal: SignalLogRatio, Alpha: 0.1, Beta: 0.5}), AEM(b, 1, 0.1, ScopeGroup), EMPG(b, EMPGOptions{K: 1, KFuture: 1, Zeta: 0.05}),
				GTPO(b, defaultGTPO), GRPOS(b, defaultGRPOS), mask, {threshold}, ReinforcePlusPlus(b, 0.9), b.masked(a), OTB(b, OTBOptions{ZeroTail: true}), OTB(b, OTBOptions{Turns: true}),
				RolloutCorrection(b, CorrectionOptions{Level: CorrectSequence, High: 2}), Reject(b, RejectSeqMeanK3, 0, 0.1), OffPolicyMask(b, 0.1),
				KLRewards(b, KLK1, 0.1), klGradient, {kl}, value.Gradient, {value.Loss, value.ClipFraction}, loss.Gradient, {loss.Loss, loss.ClipFraction, loss.MeanLogRatio},
			}
		}
		want := every()
		for _, x := range []*[]float64{&b.TokenRewards, &b.Advantages, &b.Returns, &b.Entropy, &b.Logprobs,
			&b.OldLogprobs, &b.RefLogprobs, &b.RolloutLogprobs, &b.Values, &b.NewValues, &b.SumSqProbs, &weights} {
			for j, r := range b.Role {
				if r == RoleMasked {
					(*x)[j] = rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), 1e300}).Draw(t, "masked")
				}
			}
		}
		for i, got := range every() {
			for j, g := range got {
				if g != want[i][j] {
					t.Fatalf("answer %d of scheme %d = %v, want %v", j, i, g, want[i][j])
				}
			}
		}
	})
}

func TestLossIsHomogeneousInTheAdvantage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, weights, opt := drawLoss(t)
		factors := floats(t, "factor", len(b.Role), 0, 3)
		loss, advantages := Loss(b, weights, opt), b.Advantages
		b.Advantages = Multiply(advantages, factors)
		for i, g := range Loss(b, weights, opt).Gradient {
			closeTo(t, "gradient", g, factors[i]*loss.Gradient[i], 1e-12)
			b.Advantages[i] = 3 * advantages[i]
		}
		closeTo(t, "loss", Loss(b, weights, opt).Loss, 3*loss.Loss, 1e-12)
	})
}
