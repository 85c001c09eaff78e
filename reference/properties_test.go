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
	b.Rewards, b.SpanRewards = floats(t, "reward", len(b.GroupIDs), 0, 1), floats(t, "span reward", len(b.Anchors), -1, 1)
	b.Entropy, b.Advantages, b.TokenRewards = floats(t, "H", T, 0, 3), floats(t, "A", T, -3, 3), floats(t, "r", T, -1, 1)
	b.Logprobs, b.RefLogprobs, b.RolloutLogprobs = floats(t, "new", T, -3, 0), floats(t, "ref", T, -3, 0), floats(t, "rollout", T, -3, 0)
	b.Values, b.NewValues, b.Returns = floats(t, "V", T, -1, 1), floats(t, "new V", T, -1, 1), floats(t, "G", T, -1, 1)
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

func TestEMPGHasMeanZeroOverSpans(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := drawBatch(t)
		opt := EMPGOptions{K: rapid.Float64Range(0, 3).Draw(t, "k"), KFuture: 1, Zeta: 0.05}
		a, total := EMPG(b, opt), 0.0
		for _, tokens := range b.spans() {
			total += mean(pick(a, tokens))
		}
		closeTo(t, "sum of the spans' means", total, 0, 1e-12)
		if scales := EMPGScales(SpanEntropies(b), opt.K); len(scales) > 0 {
			closeTo(t, "mean scale", mean(scales), 1, 1e-6)
		}
	})
}

func TestGTPOHasMeanZero(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := drawBatch(t)
		plain := defaultGTPO
		plain.Normalization = NormalizeNone
		shaped, advantages, tokens := GTPO(b, plain), GTPO(b, defaultGTPO), b.trajectories()
		for _, group := range b.groups() {
			var success, failure []float64
			for _, i := range group {
				for _, j := range tokens[i] {
					if b.Rewards[i] > 0.5 {
						success = append(success, advantages[j])
					} else {
						failure = append(failure, advantages[j])
						if !(shaped[j] < -1) {
							t.Fatalf("u of a failure = %v, want below -1", shaped[j])
						}
					}
				}
			}
			closeTo(t, "sum of successes", sum(success), 0, 1e-9)
			closeTo(t, "sum of failures", sum(failure), 0, 1e-9)
		}
	})
}

func TestEntropyMaskKeeps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := drawBatch(t)
		rho := rapid.Float64Range(1e-3, 1).Draw(t, "rho")
		mask, threshold := EntropyMask(b, rho)
		all, _ := EntropyMask(b, 1)
		n, above, kept := 0, 0, 0
		for i, uniform := range UniformWeights(b) {
			if all[i] != uniform {
				t.Fatalf("mask[%d] = %v at rho 1, want %v", i, all[i], uniform)
			}
			if uniform == 0 {
				continue
			}
			n++
			kept += int(mask[i])
			if b.Entropy[i] > threshold {
				above++
			}
		}
		if K := min(n, max(1, int(math.Floor(rho*float64(n)+0.9999)))); kept < K || n > 0 && above >= K {
			t.Fatalf("%d of %d kept, %d above the threshold, want %d without ties", kept, n, above, K)
		}
	})
}

func TestRLOOSumsToZero(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfN(rapid.Int32Range(0, 3), 1, 12).Draw(t, "groups")
		b := outcomes(floats(t, "r", len(ids), -2, 2), ids)
		a := RLOO(b)
		for _, group := range b.groups() {
			closeTo(t, "sum in a group", sum(pick(a, group)), 0, 1e-12)
			total := sum(pick(b.Rewards, group))
			for _, s := range group {
				if n := float64(len(group)); n > 1 {
					closeTo(t, "reward less the mean of the others", a[s], b.Rewards[s]-(total-b.Rewards[s])/(n-1), 1e-12)
				}
			}
		}
	})
}

func TestGiGPOStepsHaveMeanZero(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := drawBatch(t)
		opt := GiGPOOptions{Gamma: 0.95, Omega: 1, DivideByStd: rapid.Bool().Draw(t, "divide"), PerStep: rapid.Bool().Draw(t, "per step")}
		episode, step := GiGPOEpisode(b, opt), GiGPOStep(b, opt)
		sums, episodes, spans := map[[2]int32]float64{}, map[int32]float64{}, map[int32]int{}
		for s, q := range b.trajectoryOfSpans() {
			sums[[2]int32{b.GroupIDs[q], b.Anchors[s]}] += step[s]
			episodes[b.GroupIDs[q]] += episode[q]
			spans[b.GroupIDs[q]]++
		}
		for _, total := range sums {
			closeTo(t, "sum of the steps of a state", total, 0, 1e-9)
		}
		for group, total := range episodes {
			if opt.PerStep && spans[group] > 1 {
				closeTo(t, "sum of the episodes over spans", total, 0, 1e-9)
			}
		}
	})
}

func TestNormalisedCorrectionHasMeanOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := drawBatch(t)
		opt := CorrectionOptions{
			Level: rapid.SampledFrom([]CorrectionLevel{CorrectToken, CorrectSequence, CorrectGeometric}).Draw(t, "level"),
			Mask:  rapid.Bool().Draw(t, "mask"), Low: 0.2, High: 3, Normalize: true,
		}
		factors := RolloutCorrection(b, opt)
		total, n := 0.0, 0.0
		for _, tokens := range b.trajectories() {
			for i, at := range tokens {
				if opt.Level == CorrectToken || i == 0 {
					total += factors[at]
					n++
				}
			}
		}
		if n > 0 && total > 0 {
			closeTo(t, "mean factor", total/n, 1, 1e-12)
		}
	})
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

// Sequences of one token have the ratio of the token, so GSPO and GRPO-S are PPO.
func TestSequencesOfOneTokenArePPO(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		old, advantage := rapid.Float64Range(-3, 0).Draw(t, "old"), rapid.Float64Range(-2, 2).Draw(t, "A")
		logprob := old + rapid.Float64Range(-3, 3).Draw(t, "raw")
		want, wantDerivative, wantClipped := Surrogate(logprob, old, advantage, 0.2, 0.28, 3)
		b := &Batch{Role: []Role{2}, SeqOffsets: []int64{0, 1}, Logprobs: []float64{logprob}, OldLogprobs: []float64{old}, Advantages: []float64{advantage}}
		for _, policy := range []Policy{PolicyPPO, PolicyGSPO, PolicyGRPOS} {
			opt := defaultPPO
			opt.Policy, opt.Sequence = policy, SequenceTrajectory
			loss := Loss(b, nil, opt)
			closeTo(t, "loss", loss.Loss, want, 1e-15)
			closeTo(t, "gradient", loss.Gradient[0], wantDerivative, 1e-15)
			if (loss.ClipFraction == 1) != wantClipped {
				t.Fatalf("clip fraction %v, want %v", loss.ClipFraction, wantClipped)
			}
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

// On policy every ratio is 1, and all losses have the gradient of the plain policy
// gradient.
func TestOnPolicyGradientsAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, weights, opt := drawLoss(t)
		b.OldLogprobs = b.Logprobs
		plain := defaultPG
		plain.Aggregation = opt.Aggregation
		want := Loss(b, weights, plain).Gradient
		for i, g := range Loss(b, weights, opt).Gradient {
			closeTo(t, string(opt.Policy), g, want[i], 1e-14)
		}
	})
}

// TestOnlyResponseTokensAreRead: what masked tokens have changes no answer.
func TestOnlyResponseTokensAreRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, weights, opt := drawLoss(t)
		if len(b.Anchors) < 2 {
			return // whitening wants two response tokens
		}
		every := func() (answers [][]float64) {
			loss, value := Loss(b, weights, opt), ValueLoss(b, 0.5, Aggregating{Aggregation: SeqMeanTokenMean})
			kl, klGradient := KLLoss(b, KLK3, 0.1, opt.Aggregating)
			mask, threshold := EntropyMask(b, 0.2)
			a, _ := GAE(b, 1, 0.9)
			return [][]float64{
				ActFocus(b, ActFocusOptions{Signal: SignalLogRatio, Alpha: 0.1, Beta: 0.5}), AEM(b, 1, 0.1, ScopeGroup), EMPG(b, EMPGOptions{K: 1, KFuture: 1, Zeta: 0.05}),
				GTPO(b, defaultGTPO), GRPOS(b, defaultGRPOS), mask, {threshold}, ReinforcePlusPlus(b, 0.9), b.masked(a),
				RolloutCorrection(b, CorrectionOptions{Level: CorrectSequence, High: 2}), Reject(b, RejectSeqMeanK3, 0, 0.1), OffPolicyMask(b, 0.1),
				KLRewards(b, KLK1, 0.1), klGradient, {kl}, value.Gradient, {value.Loss, value.ClipFraction}, loss.Gradient, {loss.Loss, loss.ClipFraction, loss.MeanLogRatio},
			}
		}
		want := every()
		for _, x := range []*[]float64{&b.TokenRewards, &b.Advantages, &b.Returns, &b.Entropy, &b.Logprobs, &b.OldLogprobs, &b.RefLogprobs, &b.RolloutLogprobs, &b.Values, &b.NewValues, &weights} {
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
