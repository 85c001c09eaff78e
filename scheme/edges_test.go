package scheme

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/reference"
	"pgregory.net/rapid"
)

// TestEqualEntropies: means of equal entropies are equal whatever the length of the
// span, so that EMPG leaves equal advantages at 0.
func TestEqualEntropies(t *testing.T) {
	b := &reweight.Batch{SeqOffsets: []int64{0}}
	for s, n := range []int{1, 3, 7, 1000} {
		for range n {
			b.Role, b.SpanIDs = append(b.Role, reweight.RoleAction), append(b.SpanIDs, int32(s))
			b.Entropy, b.Advantages = append(b.Entropy, 0.1), append(b.Advantages, 0.3)
		}
		b.SeqOffsets = append(b.SeqOffsets, int64(len(b.Role)))
	}
	var ws reweight.Workspace
	must.Do(ws.EMPG(b.Advantages, b, reweight.DefaultEMPG))
	for i, a := range b.Advantages {
		if a != 0 {
			t.Fatalf("advantage %d is %v", i, a)
		}
	}
}

// TestNextSpan: EMPG's next span follows in the same trajectory, whether spans take
// turns or not.
func TestNextSpan(t *testing.T) {
	b := &reweight.Batch{Role: []reweight.Role{1, 1, 1, 1, 0, 1, 1}, SpanIDs: []int32{0, 1, 0, 2, 1, 3, 4},
		SeqOffsets: []int64{0, 0, 5, 5, 6, 7}, Entropy: []float32{0, 1, 0, 2, 9, 4, 3},
		Advantages: make([]float32, 7)}
	var ws reweight.Workspace
	dst := make([]float32, 7)
	must.Do(ws.EMPG(dst, b, reweight.EMPGOptions{KFuture: 1, Zeta: 1}))
	f1, f2 := math.Exp(-0.25), math.Exp(-0.5)
	mean := (f1 + f2) / 5
	for i, want := range []float64{f1 - mean, f2 - mean, f1 - mean, -mean, 0, -mean, -mean} {
		near(t, "advantage", float64(dst[i]), float64(float32(want)))
	}
}

// TestEqualReturns: equal returns leave GiGPO's advantages at exactly 0, also where
// their mean would be rounded and they are divided by their deviation.
func TestEqualReturns(t *testing.T) {
	b := &reweight.Batch{SeqOffsets: []int64{0}}
	for q := range 7 {
		for range 3 {
			b.Role, b.SpanIDs = append(b.Role, reweight.RoleAction), append(b.SpanIDs, int32(len(b.Role)))
			b.Anchors, b.SpanRewards = append(b.Anchors, int32(len(b.Role)%3)), append(b.SpanRewards, 0.1)
		}
		b.GroupIDs, b.Rewards = append(b.GroupIDs, 3), append(b.Rewards, 0.1)
		b.SeqOffsets = append(b.SeqOffsets, int64(3*q+3))
	}
	var ws reweight.Workspace
	opt := reweight.DefaultGiGPO
	opt.DivideByStd = true
	dst := make([]float32, len(b.Role))
	must.Do(ws.GiGPO(dst, b, opt))
	same(t, "advantages", dst, make([]float32, len(dst)))
}

// TestFarLogRatios: exponents are kept between -20 and 20 at every level, and Reject's
// k1 is the ratio of the engine that sampled to the old policy, not its inverse.
func TestFarLogRatios(t *testing.T) {
	b := &reweight.Batch{Role: []reweight.Role{1, 1, 1}, SeqOffsets: []int64{0, 1, 2, 3},
		OldLogprobs: []float32{-1, -31, -1}, RolloutLogprobs: []float32{-31, -1, -3}}
	dst := make([]float32, 3)
	var ws reweight.Workspace
	for level := reweight.CorrectToken; level <= reweight.CorrectGeometric; level++ {
		for _, high := range []float64{1e30, math.Inf(1)} {
			for _, mask := range []bool{false, true} {
				must.Do(ws.RolloutCorrection(dst, b,
					reweight.RolloutCorrectionOptions{Level: level, Mask: mask, High: high}))
				nearAll(t, level.String(), dst,
					[]number{number(math.Exp(20)), number(math.Exp(-20)), number(math.Exp(2))})
			}
		}
	}
	for _, c := range []struct {
		s         reweight.RejectionStatistic
		low, high float64
		want      []float32
	}{
		{reweight.RejectTokenK1, 0.5, math.Exp(25), []float32{0, 1, 0}},
		{reweight.RejectSeqMeanK1, math.Exp(-25), 2, []float32{1, 0, 1}},
		{reweight.RejectTokenK1, 0.5, math.Inf(1), []float32{0, 1, 0}},
		{reweight.RejectTokenK2, 0, math.Inf(1), []float32{1, 1, 1}},
		{reweight.RejectTokenK2, 0, 201, []float32{1, 1, 1}},
		{reweight.RejectSeqSumK2, 0, 199, []float32{0, 0, 1}},
		{reweight.RejectSeqMaxK3, 0, 5e8, []float32{1, 1, 1}},
		{reweight.RejectTokenK3, 0, 5, []float32{0, 0, 1}},
	} {
		must.Do(ws.Reject(dst, b, reweight.RejectOptions{Statistic: c.s, Low: c.low, High: c.high}))
		same(t, c.s.String(), dst, c.want)
	}
}

// TestEntropyMaskSorted compares the threshold with that of sorted entropies, ties and
// zeros of both signs included, and the mask does not depend on the order of tokens.
func TestEntropyMaskSorted(t *testing.T) {
	var ws reweight.Workspace
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.SliceOfN(rapid.OneOf(rapid.Float32(),
			rapid.SampledFrom([]float32{0, float32(math.Copysign(0, -1)), 1, -1, 1e-45})), 1, 60).Draw(t, "x")
		rho := rapid.Float64Range(1e-3, 1).Draw(t, "rho")
		b := &reweight.Batch{Role: slices.Repeat([]reweight.Role{1}, len(x)), Entropy: x}
		sorted := slices.Sorted(slices.Values(x))
		slices.Reverse(sorted)
		k := min(len(x), max(1, int(math.Floor(rho*float64(len(x))+0.9999))))
		mask := make([]float32, len(x))
		threshold, err := ws.EntropyMask(mask, b, reweight.EntropyMaskOptions{Rho: rho})
		if err != nil || threshold != float64(sorted[k-1]) {
			t.Fatalf("threshold %v, %v, want %v", threshold, err, sorted[k-1])
		}
		for i, v := range x {
			if (mask[i] == 1) != (v >= sorted[k-1]) || mask[i] != 0 && mask[i] != 1 {
				t.Fatalf("mask of %v is %v", v, mask[i])
			}
		}
	})
}

// TestAtBounds: what is at a bound is kept, and means of factors divide down to 1e-8.
func TestAtBounds(t *testing.T) {
	var ws reweight.Workspace
	dst := make([]float32, 2)
	b := oneTrajectory(-1, 0.5, 0) // the mean of its log-ratios is 0.25
	b.OldLogprobs, b.Logprobs = b.Logprobs, b.OldLogprobs
	for delta, want := range map[float64]float32{0.25: 1, math.Nextafter(0.25, 0): 0} {
		must.Do(ws.OffPolicyMask(dst, &b, delta))
		same(t, "off-policy mask", dst, []float32{want, want})
	}

	b.RolloutLogprobs = []float32{-1.5, -1} // log-ratios of 1 and 0
	for _, c := range []struct {
		s         reweight.RejectionStatistic
		low, high float64
		want      []float32
	}{
		{reweight.RejectTokenK2, 0, 0.5, []float32{1, 1}},
		{reweight.RejectTokenK2, 0, math.Nextafter(0.5, 0), []float32{0, 1}},
		{reweight.RejectTokenK2, 0, math.SmallestNonzeroFloat64, []float32{0, 1}},
		{reweight.RejectTokenK1, 1, 1, []float32{0, 1}},
	} {
		must.Do(ws.Reject(dst, &b, reweight.RejectOptions{Statistic: c.s, Low: c.low, High: c.high}))
		same(t, c.s.String(), dst, c.want)
	}

	for level := reweight.CorrectToken; level <= reweight.CorrectGeometric; level++ {
		for z, want := range map[float32]float64{-20: math.Exp(-20), -13.8: 1} { // ratios of 2e-9 and of 1e-6
			b.OldLogprobs, b.RolloutLogprobs = []float32{z, z}, []float32{0, 0}
			b.SeqOffsets = []int64{0, 1, 2}
			must.Do(ws.RolloutCorrection(dst, &b,
				reweight.RolloutCorrectionOptions{Level: level, High: 2, Normalize: true}))
			nearAll(t, level.String(), dst, []number{number(want), number(want)})
		}
	}

	// floor(0.201 * 5 + 0.9999) = 2.
	b = reweight.Batch{Role: []reweight.Role{1, 1, 1, 1, 1}, Entropy: []float32{5, 4, 3, 2, 1}}
	if threshold, err := ws.EntropyMask(make([]float32, 5), &b, reweight.EntropyMaskOptions{Rho: 0.201}); err != nil ||
		threshold != 4 {
		t.Errorf("threshold %v, %v, want 4", threshold, err)
	}
}

// TestSchemesPieces: a batch of more than one piece of work gives what its
// trajectories give one by one, and no token is left out between pieces.
func TestSchemesPieces(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	const n = 200_000
	b := &reweight.Batch{Role: make([]reweight.Role, n), OldLogprobs: make([]float32, n),
		RolloutLogprobs: make([]float32, n), SeqOffsets: []int64{0, 7, 150_000, n}}
	for i := range n {
		b.Role[i] = reweight.Role(r.IntN(3))
		b.OldLogprobs[i], b.RolloutLogprobs[i] = float32(r.NormFloat64()), float32(r.NormFloat64())
	}
	far := 7 + 1<<16 // where the second trajectory's second piece begins
	b.Role[far-1], b.Role[far], b.OldLogprobs[far-1], b.OldLogprobs[far] = 1, 2, 2e5, 3e5
	var ws reweight.Workspace
	got, alone := make([]float32, n), make([]float32, n)
	for level := reweight.CorrectToken; level <= reweight.CorrectGeometric; level++ {
		opt := reweight.RolloutCorrectionOptions{Level: level, High: 1e30}
		must.Do(ws.RolloutCorrection(got, b, opt))
		for q := range b.Trajectories() {
			from, to := b.SeqOffsets[q], b.SeqOffsets[q+1]
			c := &reweight.Batch{Role: b.Role[from:to], OldLogprobs: b.OldLogprobs[from:to],
				RolloutLogprobs: b.RolloutLogprobs[from:to], SeqOffsets: []int64{0, to - from}}
			must.Do(ws.RolloutCorrection(alone[from:to], c, opt))
		}
		same(t, level.String(), got, alone)
	}
	sum, tokens := 0.0, 0.0
	for i := 7; i < 150_000; i++ {
		if b.Role[i] != reweight.RoleMasked {
			sum += float64(b.OldLogprobs[i]) - float64(b.RolloutLogprobs[i])
			tokens++
		}
	}
	near(t, "geometric mean", float64(got[far]), math.Exp(sum/tokens)) // the level of the last round
}

// TestOptions: an option out of range is named, and nothing is written.
func TestOptions(t *testing.T) {
	b := random(rand.New(rand.NewPCG(9, 10)), 7, 3)
	var ws reweight.Workspace
	nan, inf := math.NaN(), math.Inf(1)
	const mark = 12345
	dst := slices.Repeat([]float32{mark}, b.Tokens())
	for _, c := range []struct {
		names, option string // of subjects
		value         float64
		want          string
	}{
		{"empg", "K", -1, "-1, want 0 to 80"},
		{"empg", "K", nan, "NaN, want"},
		{"empg", "KFuture", 81, "81, want 0 to 80"},
		{"empg", "Zeta", -1, "-1, want"},
		{"gtpo|grpo_s", "Base", nan, "NaN, want"},
		{"gtpo|grpo_s", "Bonus", -1, "-1, want"},
		{"gtpo|grpo_s", "Threshold", inf, "+Inf, want a finite number"},
		{"gtpo|grpo_s", "EntropyLow", -1, "-1, want"},
		{"gtpo|grpo_s", "EntropyHigh", -1, "-1, want at least the 0 of EntropyLow"},
		{"gtpo|grpo_s", "EntropyHigh", nan, "NaN"},
		{"gtpo|grpo_s", "Normalization", 3, "3, want 0 to 2"},
		{"gtpo|grpo_s", "Scope", float64(reweight.ScopeTrajectory), "trajectory, want group or batch"},
		{"gtpo|grpo_s", "Scope", 3, "3, want 0 to 2"},
		{"entropy_mask", "Rho", 0, "0, want above 0 and at most 1"},
		{"entropy_mask", "Rho", 1.5, "1.5, want above 0 and at most 1"},
		{"entropy_mask", "Rho", nan, "NaN"},
		{"gigpo", "Gamma", 2, "2, want 0 to 1"},
		{"gigpo", "Omega", -inf, "-Inf, want"},
		{"reinforce++", "Gamma", -1, "-1, want 0 to 1"},
		{"overlong", "Buffer", 0, "0, want at least 1"},
		{"overlong", "Maximum", 9, "9, want at least the 4096 of Buffer"},
		{"overlong", "Penalty", nan, "NaN, want"},
		{"tis", "Level", 3, "3, want 0 to 2"},
		{"tis", "Low", -1, "-1, want"},
		{"tis", "Low", inf, "+Inf, want"},
		{"tis", "High", nan, "NaN, want at least the 0 of Low"},
		{"icepop", "High", 0.25, "0.25, want at least the 0.5 of Low"},
		{"reject", "Statistic", 11, "11, want 0 to 10"},
		{"reject", "Low", 0, "0, want above 0"},
		{"reject seq_mean_k1", "High", 0.5, "0.5, want at least the 0.9 of Low"},
		{"reject", "Low", inf, "+Inf, want"},
		{"reject seq_max_k3", "High", nan, "NaN, want at least 0"},
		{"reject token_k2", "High", -1, "-1, want at least 0"},
		{"fipo", "HalfLife", -1, "-1, want a finite number above 0"},
		{"fipo", "HalfLife", inf, "+Inf, want"},
		{"fipo", "Filter", nan, "NaN, want"},
		{"fipo", "Clip", -1, "-1, want"},
		{"fipo", "Safety", -1, "-1, want"},
		{"rlsd", "Lambda", 2, "2, want 0 to 1"},
		{"rlsd", "Clip", nan, "NaN, want 0 to 1"},
		{"pass_at_k|gdpo", "Eps", -1, "-1, want"},
		{"kl_rewards", "KL", 7, "7, want"},
		{"kl_rewards", "KLCoef", inf, "+Inf, want"},
		{"value_loss", "Clip", -1, "-1, want"},
		{"value_loss|pg", "Aggregation", 4, "4, want"},
		{"value_loss|pg", "NormLength", -1, "-1, want"},
		{"pg", "KL", 7, ""},
		{"pg", "KLCoef", nan, "NaN, want"},
		{"uniform", "KLCoef", 1e39, "1e+39, want"},
		{"gspo", "Sequence", 2, ""},
		{"gspo", "ClipLow", 1.5, "1.5, want"},
		{"clip_cov", "ClipLow", 2, "2, want"},
		{"cispo", "ClipLow", -1, "-1, want"},
		{"grpo_s_ratio|dppo_tv|dppo_kl", "ClipLow", nan, "NaN, want"},
		{"gspo|gmpo", "ClipHigh", -1, "-1, want"},
		{"cispo", "ClipHigh", inf, "+Inf, want"},
		{"dppo_tv", "ClipHigh", -0.5, "-0.5, want"},
		{"gspo", "DualClip", 1, "1, want"},
		{"grpo_s_ratio", "DualClip", nan, "NaN, want"},
		{"sapo", "TauPos", 0, "0, want"},
		{"sapo", "TauNeg", -1, "-1, want"},
		{"sapo", "TauNeg", inf, "+Inf, want"},
		{"dppo_tv|dppo_kl", "RatioCap", 0, "0, want"},
		{"dppo_tv", "RatioCap", nan, "NaN, want"},
		{"vespo", "PowerPos", -1, "-1, want"},
		{"vespo", "DecayPos", nan, "NaN, want"},
		{"vespo", "PowerNeg", inf, "+Inf, want"},
		{"vespo", "DecayNeg", -0.1, "-0.1, want"},
		{"dro", "Beta", 0, "0, want"},
		{"dro", "Beta", inf, "+Inf, want"},
		{"clip_cov", "CovShare", 1.5, "1.5, want"},
		{"clip_cov", "CovLow", nan, "NaN, want"},
		{"clip_cov", "CovHigh", 0.5, "0.5, want"},
		{"kl_cov", "CovShare", nan, "NaN, want"},
		{"kl_cov", "CovCoef", -1, "-1, want"},
	} {
		for name := range strings.SplitSeq(c.names, "|") {
			s := subjects[slices.IndexFunc(subjects, func(s subject) bool { return s.name == name })]
			for name, v := range Fields(reflect.ValueOf(s.options(&s.opt)).Elem().Interface()) {
				if name == c.option {
					SetField(s.options(&s.opt), name, reflect.ValueOf(c.value).Convert(v.Type()))
				}
			}
			for _, s.surrogate = range []bool{false, s.Kind == Loss} {
				if _, err := s.compute(&ws, dst[:s.size(b)], s.only(b)); !strings.HasPrefix(fmt.Sprint(err),
					"reweight: "+c.option+" is "+c.want) {
					t.Errorf("%s: error %q, want that %s is %s", name, err, c.option, c.want)
				}
			}
		}
	}
	wantError(t, "delta", ws.OffPolicyMask(dst, b, nan), "delta")
	wantError(t, "returns", ws.ReinforcePlusPlus(dst, dst[:1], b, reweight.DefaultReinforcePlusPlus), "returns")
	for want, weights := range map[string][]float64{
		"RewardWeights has 3 elements, want 2, one per part":             {1, 2, 3},
		"RewardWeights has 0 elements, want 2, one per part":             {},
		"RewardWeights[1] is 1e+39, want a number that float32 can hold": {1, 1e39},
	} {
		if err := ws.GDPO(dst, b, reweight.GDPOOptions{RewardWeights: weights}); err == nil ||
			err.Error() != "reweight: "+want {
			t.Errorf("error %q, want %s", err, want)
		}
	}
	if slices.ContainsFunc(dst, func(x float32) bool { return x != mark }) {
		t.Fatal("an output was written")
	}
}

// TestPartsThatCancel: weights of opposite signs on equal parts leave exactly 0.
func TestPartsThatCancel(t *testing.T) {
	b := &reweight.Batch{Role: []reweight.Role{1, 2, 0, 1, 1, 1, 2, 1}, SeqOffsets: []int64{0, 3, 3, 4, 5, 7, 8},
		GroupIDs: []int32{1, 0, 1, 0, 1, 5}, RewardParts: []float32{1, 1, 0, 0, 0.5, 0.5, 3, 3, -1, -1, 2, 2}}
	dst := make([]float32, 8)
	opt := reweight.DefaultGDPO
	opt.RewardWeights = []float64{1, -1}
	must.Do(new(reweight.Workspace).GDPO(dst, b, opt))
	same(t, "advantages", dst, make([]float32, 8))
}

// TestWeightsOfNothing: weights of 0, and a sum of weights that float32 cannot divide by, give a
// loss and gradients of 0, whatever the advantages are.
func TestWeightsOfNothing(t *testing.T) {
	opt := reweight.LossOptions{Policy: reweight.PPO{ClipLow: 0.2, ClipHigh: 0.28}}
	for weight, a := range map[float32]float32{0: 3e38, 1e-40: 1} {
		b := reweight.Batch{Role: []reweight.Role{1, 2}, Logprobs: []float32{-1, -1}, OldLogprobs: []float32{-6, -6},
			Advantages: []float32{-a, a}}
		grad := []float32{7, 7}
		res := must.Get(new(reweight.Workspace).Loss(grad, []float32{weight, weight}, &b, opt))
		if res.Loss != 0 || grad[0] != 0 || grad[1] != 0 {
			t.Errorf("weights of %v: %+v, gradient %v", weight, res, grad)
		}
	}
}

// TestNarrowScope: entropies a subnormal apart leave AEM alone.
func TestNarrowScope(t *testing.T) {
	b := reweight.Batch{Role: []reweight.Role{1, 1}, SpanIDs: []int32{0, 1}, SeqOffsets: []int64{0, 2},
		GroupIDs: []int32{0}, Entropy: []float32{0, 1e-39}}
	f := make([]float32, 2)
	var ws reweight.Workspace
	if err := ws.AEM(f, &b, reweight.AEMOptions{Lambda: 1}); err != nil || f[0] != 1 || f[1] != 1 {
		t.Errorf("factors %v, %v", f, err)
	}
}

// TestLargeWeights: weights whose products overflow float32 give the loss and
// the gradient that float64 has.
func TestLargeWeights(t *testing.T) {
	b := reweight.Batch{Role: []reweight.Role{1, 2, 0, 1}, SeqOffsets: []int64{0, 2, 4},
		Logprobs: []float32{-1, -1, 0, -2}, OldLogprobs: []float32{-1, -1.5, 0, -2},
		Advantages: []float32{-2, -3, 5, 1}}
	weights := []float32{3e38, 1e38, 3e38, 1e-30} // the last counts in means by trajectory
	grad := make([]float32, 4)
	var ws reweight.Workspace
	opt := reweight.DefaultLoss
	for _, opt.Aggregation = range []reweight.Aggregation{reweight.TokenMean, reweight.SeqMeanTokenSum,
		reweight.SeqMeanTokenMean, reweight.SeqMeanTokenSumNorm} {
		loss, gradient := exactLoss(Widen(&b), reference.Floats(weights), &opt)
		got := must.Get(ws.Loss(grad, weights, &b, opt))
		near(t, opt.Aggregation.String()+": loss", got.Loss, loss)
		near(t, opt.Aggregation.String()+": sum of weights", got.WeightSum, 4e38)
		for i := range grad {
			w := gradient[i]
			if math.Abs(w) > math.MaxFloat32 { // a sum of such weights is beyond float32, and so is its gradient
				w = math.Inf(int(math.Copysign(1, w)))
			}
			if math.Abs(w) < 1e-30 { // nothing beside the others: float32 may have 0
				if math.Abs(float64(grad[i])) > 1e-30 {
					t.Errorf("%v: gradient = %v, want %v", opt.Aggregation, grad[i], w)
				}
				continue
			}
			near(t, opt.Aggregation.String()+": gradient", float64(grad[i]), w)
		}
	}
	if n := testing.AllocsPerRun(10, func() { ws.Loss(grad, weights, &b, opt) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestUniformIsExact: ActFocus with alpha 1 and beta 0 gives the uniform loss, same bits.
func TestUniformIsExact(t *testing.T) {
	b := random(rand.New(rand.NewPCG(3, 4)), 99, 4)
	var ws reweight.Workspace
	w, with, without := make([]float32, b.Tokens()), make([]float32, b.Tokens()), make([]float32, b.Tokens())
	must.Get(ws.ActFocus(w, b, reweight.ActFocusOptions{Alpha: 1, Beta: 0}))
	opt := reweight.DefaultLoss
	for opt.Aggregation = reweight.TokenMean; opt.Aggregation <= reweight.SeqMeanTokenSumNorm; opt.Aggregation++ {
		one := must.Get(ws.Loss(with, w, b, opt))
		other, err := ws.Loss(without, nil, b, opt)
		if err != nil || one != other {
			t.Errorf("%v: %+v with weights, %+v without, %v", opt.Aggregation, one, other, err)
		}
		same(t, opt.Aggregation.String(), with, without)
	}
}
