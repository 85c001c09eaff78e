package reference

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// drawn is a batch as rapid draws it: trajectories of spans, between which and inside
// which there may be masked tokens; some trajectories without response tokens.
type drawn struct {
	role     []Role
	spanIDs  []int32
	offsets  []int64
	groupIDs []int32
	anchors  []int32
}

func drawBatch(t *rapid.T) drawn {
	b := drawn{offsets: []int64{0}}
	add := func(role Role, span int32) {
		b.role = append(b.role, role)
		b.spanIDs = append(b.spanIDs, span)
	}
	for range rapid.IntRange(1, 6).Draw(t, "trajectories") {
		for range rapid.IntRange(0, 3).Draw(t, "spans") {
			for range rapid.IntRange(0, 2).Draw(t, "masked before") {
				add(RoleMasked, -1)
			}
			span := int32(len(b.anchors))
			b.anchors = append(b.anchors, rapid.Int32Range(0, 2).Draw(t, "anchor"))
			add(RoleReasoning, span)
			for range rapid.IntRange(0, 4).Draw(t, "more tokens") {
				add(Role(rapid.IntRange(0, 2).Draw(t, "role")), span)
			}
		}
		b.offsets = append(b.offsets, int64(len(b.role)))
		b.groupIDs = append(b.groupIDs, rapid.Int32Range(-1, 1).Draw(t, "group"))
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
		scaled, scales, _, err := EMPG(b.role, b.spanIDs, b.offsets, floats(t, "H", len(b.role), 0, 3), floats(t, "A", len(b.role), -3, 3), opt)
		if err != nil {
			t.Fatal(err)
		}
		total, scale := 0.0, 0.0
		for s, tokens := range spanTokens(b.role, b.spanIDs) {
			total += mean(pick(scaled, tokens))
			scale += scales[s] / float64(len(scales))
		}
		closeTo(t, "sum of the spans' means", total, 0, 1e-12)
		if len(scales) > 0 {
			closeTo(t, "mean scale", scale, 1, 1e-6)
		}
	})
}

func TestGTPOHasMeanZero(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := drawBatch(t)
		rewards, entropy := floats(t, "r", len(b.groupIDs), 0, 1), floats(t, "H", len(b.role), 0, 3)
		opt := DefaultGTPO
		shaped, advantages, err := GTPO(b.role, b.offsets, b.groupIDs, rewards, entropy, opt)
		if err != nil {
			t.Fatal(err)
		}
		opt.Normalization = NormalizeNone
		plain, same, err := GTPO(b.role, b.offsets, b.groupIDs, rewards, entropy, opt)
		if err != nil {
			t.Fatal(err)
		}
		tokens := responseTokens(b.role, b.offsets)
		_, groups := members(b.groupIDs)
		for _, group := range groups {
			var success, failure []float64
			for _, i := range group {
				for _, j := range tokens[i] {
					closeTo(t, "u without normalization", same[j], shaped[j], 0)
					closeTo(t, "u", plain[j], shaped[j], 0)
					if rewards[i] > 0.5 {
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
		entropy := floats(t, "H", len(b.role), 0, 3)
		rho := rapid.Float64Range(1e-3, 1).Draw(t, "rho")
		mask, threshold, err := EntropyMask(b.role, entropy, rho)
		if err != nil {
			t.Fatal(err)
		}
		all, _, err := EntropyMask(b.role, entropy, 1)
		if err != nil {
			t.Fatal(err)
		}
		n, above, kept := 0, 0, 0
		for i, r := range b.role {
			if want := map[bool]float64{true: 1}[r != RoleMasked]; all[i] != want {
				t.Fatalf("mask[%d] = %v at rho 1, want %v", i, all[i], want)
			}
			if r == RoleMasked {
				continue
			}
			n++
			kept += int(mask[i])
			if entropy[i] > threshold {
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
		rewards := floats(t, "r", len(ids), -2, 2)
		a, err := RLOO(rewards, ids)
		if err != nil {
			t.Fatal(err)
		}
		_, groups := members(ids)
		for _, group := range groups {
			closeTo(t, "sum in a group", sum(pick(a, group)), 0, 1e-12)
			total := sum(pick(rewards, group))
			for _, s := range group {
				if n := float64(len(group)); n > 1 {
					closeTo(t, "reward less the mean of the others", a[s], rewards[s]-(total-rewards[s])/(n-1), 1e-12)
				}
			}
		}
	})
}

func TestGiGPOStepsHaveMeanZero(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := drawBatch(t)
		opt := DefaultGiGPO
		opt.DivideByStd = rapid.Bool().Draw(t, "divide")
		opt.PerStep = rapid.Bool().Draw(t, "per step")
		got, err := GiGPO(b.role, b.spanIDs, b.offsets, b.groupIDs, floats(t, "r", len(b.groupIDs), 0, 1), b.anchors, floats(t, "span r", len(b.anchors), -1, 1), opt)
		if err != nil {
			t.Fatal(err)
		}
		trajectory, err := spanTrajectories(b.spanIDs, b.offsets)
		if err != nil {
			t.Fatal(err)
		}
		sums := map[[2]int32]float64{}
		episodes := map[int32]float64{}
		for s, q := range trajectory {
			sums[[2]int32{b.groupIDs[q], b.anchors[s]}] += got.Step[s]
			episodes[b.groupIDs[q]] += got.Episode[q]
		}
		for state, total := range sums {
			closeTo(t, "sum of the steps of a state", total, 0, 1e-9)
			if n := 0; opt.PerStep {
				for _, q := range trajectory {
					if b.groupIDs[q] == state[0] {
						n++
					}
				}
				if n > 1 {
					closeTo(t, "sum of the episodes over spans", episodes[state[0]], 0, 1e-9)
				}
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
		old, rollout := floats(t, "old", len(b.role), -3, 0), floats(t, "rollout", len(b.role), -3, 0)
		factors, err := RolloutCorrection(b.role, b.offsets, old, rollout, opt)
		if err != nil {
			t.Fatal(err)
		}
		total, n := 0.0, 0.0
		for _, tokens := range responseTokens(b.role, b.offsets) {
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

// policyDefaults are all policy losses with the options of their papers.
var policyDefaults = []PolicyOptions{DefaultGSPO, DefaultLUSPO, DefaultGRPOSLoss, DefaultCISPO, DefaultSAPO, DefaultPG, DefaultDPPOTV, DefaultVESPO}

// lossInput draws a policy loss and what it reads; old stays as near to new as those
// are whom the clip ranges of GSPO let pass.
func lossInput(t *rapid.T) (b drawn, logprobs, old, advantages, weights []float64, opt PolicyOptions) {
	b = drawBatch(t)
	T := len(b.role)
	opt = rapid.SampledFrom(policyDefaults).Draw(t, "policy")
	opt.Aggregation = rapid.SampledFrom(aggregations).Draw(t, "aggregation")
	if opt.Policy == PolicyGSPO || opt.Policy == PolicyGRPOS {
		opt.Sequence = rapid.SampledFrom([]Sequence{SequenceTrajectory, SequenceSpan}).Draw(t, "sequence")
		opt.DualClip = rapid.SampledFrom([]float64{0, 1.5}).Draw(t, "dual clip")
		opt.ClipLow, opt.ClipHigh = 0.2, 0.28
	}
	logprobs = floats(t, "new", T, -3, 0)
	width := rapid.SampledFrom([]float64{0.1, 1}).Draw(t, "width")
	old = floats(t, "old", T, -width, width)
	for i := range old {
		old[i] += logprobs[i]
	}
	return b, logprobs, old, floats(t, "A", T, -2, 2), floats(t, "w", T, 0.1, 2), opt
}

func TestPolicyLossIsHomogeneousInTheAdvantage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, logprobs, old, advantages, weights, opt := lossInput(t)
		factors := floats(t, "factor", len(b.role), 0, 3)
		scaled := make([]float64, len(advantages))
		for i := range scaled {
			scaled[i] = factors[i] * advantages[i]
		}
		loss, err := PolicyLoss(b.role, b.offsets, b.spanIDs, logprobs, old, advantages, weights, opt)
		if err != nil {
			t.Fatal(err)
		}
		got, err := PolicyLoss(b.role, b.offsets, b.spanIDs, logprobs, old, scaled, weights, opt)
		if err != nil {
			t.Fatal(err)
		}
		for i, f := range factors {
			closeTo(t, "gradient", got.Gradient[i], f*loss.Gradient[i], 1e-12)
			scaled[i] = 3 * advantages[i]
		}
		got, err = PolicyLoss(b.role, b.offsets, b.spanIDs, logprobs, old, scaled, weights, opt)
		if err != nil {
			t.Fatal(err)
		}
		closeTo(t, "loss", got.Loss, 3*loss.Loss, 1e-12)
	})
}

// Where A and w are constant over the sequence, GSPO's and GRPO-S's gradients of
// tokens are the derivatives of the loss with the ratio of the whole sequence, in
// every aggregation.
func TestSequenceGradientIsTheDerivative(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, logprobs, old, advantages, weights, opt := lossInput(t)
		if opt.Policy != PolicyGSPO && opt.Policy != PolicyGRPOS {
			opt = DefaultGSPO
		}
		opt.DualClip = 0
		for _, tokens := range spanTokens(b.role, b.spanIDs) {
			for _, i := range tokens {
				advantages[i], weights[i] = advantages[tokens[0]], weights[tokens[0]]
			}
		}
		if opt.Sequence == SequenceTrajectory {
			for _, tokens := range responseTokens(b.role, b.offsets) {
				for _, i := range tokens {
					advantages[i], weights[i] = advantages[tokens[0]], weights[tokens[0]]
				}
			}
		}
		value := func() LossResult {
			loss, err := PolicyLoss(b.role, b.offsets, b.spanIDs, logprobs, old, advantages, weights, opt)
			if err != nil {
				t.Fatal(err)
			}
			return loss
		}
		gradient := value().Gradient
		for i := range logprobs {
			at, h := logprobs[i], 1e-6
			logprobs[i] = at + h
			up := value()
			logprobs[i] = at - h
			down := value()
			logprobs[i] = at
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
		for _, policy := range []Policy{PolicyGSPO, PolicyGRPOS} {
			opt := PolicyOptions{LossOptions: DefaultLoss, Policy: policy, Sequence: SequenceTrajectory}
			loss, err := PolicyLoss([]Role{2}, []int64{0, 1}, nil, []float64{logprob}, []float64{old}, []float64{advantage}, []float64{1}, opt)
			if err != nil {
				t.Fatal(err)
			}
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
			derivative(t, string(form), x, func(x float64) (k, g float64) {
				k, g, err := KL(form, x, y)
				if err != nil {
					t.Fatal(err)
				}
				return k, g
			})
			if form == KLK2 {
				continue
			}
			k, _, _ := KL(form, x, y)
			plus, g, err := KL(form+"+", x, y)
			if err != nil || plus != k || g != x-y {
				t.Fatalf("%s+ = %v, %v (%v), want %v and %v", form, plus, g, err, k, x-y)
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
		b, logprobs, _, advantages, weights, opt := lossInput(t)
		loss, err := PolicyLoss(b.role, b.offsets, b.spanIDs, logprobs, logprobs, advantages, weights, opt)
		if err != nil {
			t.Fatal(err)
		}
		plain := DefaultPG
		plain.Aggregation = opt.Aggregation
		want, err := PolicyLoss(b.role, b.offsets, nil, logprobs, logprobs, advantages, weights, plain)
		if err != nil {
			t.Fatal(err)
		}
		for i := range want.Gradient {
			closeTo(t, string(opt.Policy), loss.Gradient[i], want.Gradient[i], 1e-14)
		}
	})
}

// every calls every scheme with one batch whose arrays of tokens are x[0] to x[6], and
// returns all answers. It stops at the first error.
func every(b drawn, x [7][]float64, rewards, spanRewards []float64, opt PolicyOptions) (answers [][]float64, err error) {
	entropy, advantages, logprobs, old, ref, rollout, other := x[0], x[1], x[2], x[3], x[4], x[5], x[6]
	for _, scheme := range []func() ([]float64, error){
		func() ([]float64, error) {
			a, _, _, err := EMPG(b.role, b.spanIDs, b.offsets, entropy, advantages, DefaultEMPG)
			return a, err
		},
		func() ([]float64, error) {
			_, a, err := GTPO(b.role, b.offsets, b.groupIDs, rewards, entropy, DefaultGTPO)
			return a, err
		},
		func() ([]float64, error) {
			_, a, err := GRPOS(b.role, b.offsets, b.groupIDs, rewards, entropy, DefaultGRPOS)
			return a, err
		},
		func() ([]float64, error) { a, _, err := EntropyMask(b.role, entropy, 0.2); return a, err },
		func() ([]float64, error) {
			l, err := PolicyLoss(b.role, b.offsets, b.spanIDs, logprobs, old, advantages, other, opt)
			return append(l.Gradient, l.Loss, l.ClipFraction, l.MeanLogRatio), err
		},
		func() ([]float64, error) {
			a, _, err := ReinforcePlusPlus(b.role, b.offsets, other, 0.9)
			return a, err
		},
		func() ([]float64, error) {
			return RolloutCorrection(b.role, b.offsets, old, rollout, DefaultCorrection)
		},
		func() ([]float64, error) { return Reject(b.role, b.offsets, old, rollout, RejectSeqMeanK3, 0, 0.1) },
		func() ([]float64, error) { return OffPolicyMask(b.role, b.offsets, logprobs, old, advantages, 0.1) },
		func() ([]float64, error) {
			l, g, err := KLLoss(b.role, b.offsets, logprobs, ref, KLK3, 0.1, TokenMean, 0)
			return append(g, l), err
		},
		func() ([]float64, error) { return KLRewards(b.role, b.offsets, rewards, old, ref, KLK1, 0.1) },
		func() ([]float64, error) {
			l, err := ValueLoss(b.role, b.offsets, logprobs, old, other, 0.5, SeqMeanTokenMean, 0)
			return append(l.Gradient, l.Loss, l.ClipFraction), err
		},
		func() ([]float64, error) {
			g, err := GiGPO(b.role, b.spanIDs, b.offsets, b.groupIDs, rewards, b.anchors, spanRewards, DefaultGiGPO)
			return g.Advantages, err
		},
	} {
		a, err := scheme()
		if err != nil {
			return nil, err
		}
		answers = append(answers, a)
	}
	return answers, nil
}

func TestOnlyResponseTokensAreRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := drawBatch(t)
		if n := len(b.anchors); n < 2 {
			return // whitening wants two response tokens
		}
		var x, spoiled [7][]float64
		for i := range x {
			x[i] = floats(t, "x", len(b.role), 0, 2)
			spoiled[i] = append([]float64(nil), x[i]...)
			for j, r := range b.role {
				if r == RoleMasked {
					spoiled[i][j] = rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), 1e300}).Draw(t, "masked")
				}
			}
		}
		rewards, spanRewards := floats(t, "r", len(b.groupIDs), 0, 1), floats(t, "span r", len(b.anchors), 0, 1)
		opt := rapid.SampledFrom(policyDefaults).Draw(t, "policy")
		want, err := every(b, x, rewards, spanRewards, opt)
		if err != nil {
			t.Fatal(err)
		}
		got, err := every(b, spoiled, rewards, spanRewards, opt)
		if err != nil {
			t.Fatal(err)
		}
		for i := range want {
			for j := range want[i] {
				if got[i][j] != want[i][j] {
					t.Fatalf("answer %d of scheme %d = %v, want %v", j, i, got[i][j], want[i][j])
				}
			}
		}
		// At a response token each of them is an error that names the place.
		i := rapid.IntRange(0, len(x)-1).Draw(t, "array")
		j := rapid.SampledFrom(response(b.role)).Draw(t, "place")
		x[i][j] = rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), math.Inf(-1)}).Draw(t, "bad")
		if _, err := every(b, x, rewards, spanRewards, opt); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("[%d] = %v", j, x[i][j])) {
			t.Fatalf("array %d: error %v, want one about element %d", i, err, j)
		}
	})
}

func response(role []Role) []int {
	var tokens []int
	for t, r := range role {
		if r != RoleMasked {
			tokens = append(tokens, t)
		}
	}
	return tokens
}
