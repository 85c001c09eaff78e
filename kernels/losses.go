package kernels

import (
	"math"
	"math/rand/v2"
	"reflect"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/raw"
	"github.com/seed621a2839/reweight/reference"
)

// lossKernels are the kernels of the losses, which no GPU has. Random calls hold those of the
// C library to package reweight.
var lossKernels = []Kernel{
	ofPolicy("surrogate_gspo", "GSPO: the ratio of the sequence", reweight.DefaultGSPO, gspoTerms),
	ofPolicy("surrogate_grpo_s", "GRPO-S: the mean ratio of the sequence", reweight.DefaultGRPOSLoss, grposTerms),
	ofPolicy("surrogate_cispo", "CISPO: the clipped ratio as a factor", reweight.DefaultCISPO, cispoTerms),
	ofPolicy("surrogate_sapo", "SAPO: a sigmoid of the ratio", reweight.DefaultSAPO, sapoTerms),
	ofPolicy("surrogate_dppo_tv", "DPPO-TV: the capped ratio within a trust region", reweight.DefaultDPPOTV, dppoTerms),
	ofPolicy("surrogate_vespo", "VESPO: a soft factor of the trajectory's ratio", reweight.DefaultVESPO, vespoTerms),
	{
		Name: "kl", Doc: "policy gradient with the k3 divergence from the reference", DTypes: float, OnlyGo: true,
		build: klLoss, code: code{method: "Loss", reference: "KLLoss"},
	},
	{
		Name: "value_loss", Doc: "clipped loss of the critic and its gradient", DTypes: float, OnlyGo: true,
		build: valueLoss, code: code{method: "ValueLoss", reference: "ValueLoss"},
	},
	{
		Name: "rollout_correction", Doc: "truncated importance ratios", DTypes: float, OnlyGo: true,
		build: rolloutCorrection, code: code{method: "RolloutCorrection", reference: "RolloutCorrection"},
	},
}

// ofPolicy returns the entry of Surrogate with a policy's options.
func ofPolicy[P reweight.Policy](name, doc string, opt reweight.LossOptions,
	terms func(new, old []float64, p P) term) Kernel {
	return Kernel{
		Name: name, Doc: doc, DTypes: float, OnlyGo: true, build: policyLoss(opt, terms),
		code: code{method: "Surrogate", reference: "Loss"},
	}
}

// responses returns tokens and their roles. Some kernels want finite values: of others the
// tokens are masked, which nobody reads.
func (s Spec) responses(r *rand.Rand, finite bool) (x []float32, role []reweight.Role) {
	x, _ = s.tokens(r)
	role = s.roles(r)
	for t, v := range x {
		if finite && v-v != 0 {
			role[t] = reweight.RoleMasked
		}
	}
	return x, role
}

// responses returns how many tokens are not masked.
func responses(role []reweight.Role) (n int) {
	for _, r := range role {
		if r != reweight.RoleMasked {
			n++
		}
	}
	return n
}

// whole returns the batch of these roles as one trajectory, and the same for package reference.
func (s Spec) whole(role []reweight.Role) (*reweight.Batch, *reference.Batch) {
	offsets := array[int64](s, 2)
	offsets[1] = int64(len(role))
	wide := &reference.Batch{Role: reference.Roles(role), SeqOffsets: offsets}
	return &reweight.Batch{Role: role, SeqOffsets: offsets}, wide
}

// differences returns those of x and y in float32, which the kernels' ratios are of.
func differences(x, y []float32) []float64 {
	d := make([]float64, len(x))
	for t, v := range x {
		d[t] = float64(v - y[t])
	}
	return d
}

// A term is the loss l of token i of a sequence and its derivative.
type term func(i int, advantage float64) (l, derivative float64, clipped bool)

// Each of these returns the terms of a sequence, whose tokens are all responses.

func ppoTerms(new, old []float64, p reweight.PPO) term {
	return func(i int, A float64) (float64, float64, bool) {
		return reference.Surrogate(new[i], old[i], A, p.ClipLow, p.ClipHigh, p.DualClip)
	}
}

func gspoTerms(new, old []float64, p reweight.GSPO) term {
	s, slope := reference.GSPORatio(new, old)
	return func(_ int, A float64) (float64, float64, bool) {
		return reference.ClippedRatio(s, slope, A, p.ClipLow, p.ClipHigh, p.DualClip)
	}
}

func grposTerms(new, old []float64, p reweight.GRPOS) term {
	s := reference.GRPOSRatio(new, old)
	return func(i int, A float64) (float64, float64, bool) {
		_, slope := reference.Ratio(new[i], old[i])
		return reference.ClippedRatio(s, slope, A, p.ClipLow, p.ClipHigh, p.DualClip)
	}
}

func cispoTerms(new, old []float64, p reweight.CISPO) term {
	return func(i int, A float64) (float64, float64, bool) {
		return reference.CISPO(new[i], old[i], A, p.ClipLow, p.ClipHigh)
	}
}

func sapoTerms(new, old []float64, p reweight.SAPO) term {
	return func(i int, A float64) (float64, float64, bool) {
		l, derivative := reference.SAPO(new[i], old[i], A, p.TauPos, p.TauNeg)
		return l, derivative, false
	}
}

func dppoTerms(new, old []float64, p reweight.DPPO) term {
	return func(i int, A float64) (float64, float64, bool) {
		return reference.DPPOTV(new[i], old[i], A, p.ClipLow, p.ClipHigh, p.RatioCap)
	}
}

func vespoTerms(new, old []float64, p reweight.VESPO) term {
	pos := reference.VESPOFactor(new, old, p.PowerPos, p.DecayPos)
	neg := reference.VESPOFactor(new, old, p.PowerNeg, p.DecayNeg)
	return func(i int, A float64) (float64, float64, bool) {
		phi := pos
		if A < 0 {
			phi = neg
		}
		return -phi * A * new[i], -phi * A, false
	}
}

// constant returns the constant of a policy of that name, 0 if it has none.
func constant(p reweight.Policy, name string) float64 {
	if x := reflect.ValueOf(p).FieldByName(name); x.IsValid() {
		return x.Float()
	}
	return 0
}

// policyLoss returns the build function of Surrogate with a policy's options. PPO takes any
// log-probabilities, the others those of probabilities.
func policyLoss[P reweight.Policy](opt reweight.LossOptions,
	terms func(new, old []float64, p P) term) func(s Spec) (*Case, error) {
	policy := opt.Policy.(P)
	ppo := opt.Policy.Traits().AnyValues
	_, gspo := opt.Policy.(reweight.GSPO)
	_, vespo := opt.Policy.(reweight.VESPO)
	_, sapo := opt.Policy.(reweight.SAPO)
	low, high := constant(policy, "ClipLow"), constant(policy, "ClipHigh")
	return func(s Spec) (*Case, error) {
		r := s.rand()
		logprobs, role := s.responses(r, !ppo)
		n := s.Rows
		old, adv, w := array[float32](s, n), array[float32](s, n), array[float32](s, n)
		spread := 0.3
		if vespo { // so that the ratio of the trajectory is not far from 1
			spread /= math.Sqrt(float64(n))
		}
		for t := range old {
			if !ppo {
				logprobs[t] = -float32(math.Abs(float64(logprobs[t])))
			}
			d := spread * r.NormFloat64()
			if !vespo && r.IntN(40) == 0 {
				d *= 100 // beyond the clamp
			}
			ratio := math.Exp(d)
			limits := []float64{ratio - (1 - low), ratio - (1 + high)}
			if ppo {
				limits = append(limits, ratio-constant(policy, "DualClip"))
			} else {
				p := math.Exp(float64(logprobs[t]))
				moved := p - p*math.Exp(-d)
				limits = append(limits, ratio-constant(policy, "RatioCap"), moved-high, moved+low)
			}
			for _, b := range limits { // float32 may fall on the other side of a clip
				if math.Abs(b) < 1e-2 && !gspo && !vespo || s.Family == Offset {
					d = 0
				}
			}
			old[t] = logprobs[t] - float32(d)
			adv[t] = float32(r.NormFloat64())
			w[t] = r.Float32() + 0.1
		}
		grad, totals := array[float32](s, n), make([]float64, 4)
		out := f32("gradient", grad)
		// A log-ratio is at most 20 nats: its rounding costs 20*2^-24 and that of log2(e)
		// costs 20*1.34e-8. Then comes 2^y. SAPO multiplies the error of a ratio by the ratio,
		// which is at most 70 where its gradient is not below the absolute tolerance, and by
		// its temperature.
		out.abs, out.rel = 1e-30, 4e-6
		if sapo {
			out.rel = 4e-5
		}
		total := sums("tokens, clipped, loss and log-ratio", totals)
		total.abs = (20+9)*0x1p-24 + 20*1.34e-8 + 1.57e-7 // also 9 roundings of products and in a group
		return &Case{
			Elements: n, Bytes: int64(n) * 21, Input: raw.Bytes(logprobs), outputs: []output{out, total},
			Run: func(impl Runner) error {
				q, err := impl.Surrogate(grad, logprobs, old, adv, w, role, 0.5, opt)
				totals[0], totals[1], totals[2], totals[3] = float64(q.Tokens), float64(q.Clipped), q.Loss, q.LogRatio
				return err
			},
			Reference: func() {
				g, sum, magnitudes := out.want, total.want, total.terms
				clear(g)
				clear(sum)
				clear(magnitudes)
				var at []int // the response tokens
				var x, y []float64
				for t, v := range logprobs {
					if role[t] != reweight.RoleMasked {
						at = append(at, t)
						// The kernel's ratio is that of the difference in float32.
						x, y = append(x, float64(v)), append(y, float64(v)-float64(v-old[t]))
					}
				}
				if len(at) == 0 {
					return
				}
				of := terms(x, y, policy)
				for i, t := range at {
					l, derivative, clipped := of(i, float64(adv[t]))
					sum[0]++
					if clipped {
						sum[1]++
					}
					d := max(-20, min(20, x[i]-y[i]))
					sum[2] += float64(w[t]) * l
					sum[3] += d
					magnitudes[2] += math.Abs(float64(w[t]) * l)
					magnitudes[3] += math.Abs(d)
					g[t] = 0.5 * float64(w[t]) * derivative
				}
				magnitudes[0], magnitudes[1] = sum[0], sum[0]
			},
		}, nil
	}
}

// oneByOne leaves the terms of the tokens as they are.
var oneByOne = reference.Aggregating{Aggregation: reference.SeqMeanTokenSumNorm, NormLength: 1}

// klLoss is the loss of the policy gradient, whose terms are 0 because the advantages
// are, with the divergence from the reference.
func klLoss(s Spec) (*Case, error) {
	r := s.rand()
	logprobs, role := s.responses(r, true)
	n := s.Rows
	ref, adv := array[float32](s, n), array[float32](s, n)
	for t := range ref {
		x := 0.5 * r.NormFloat64()
		if r.IntN(40) == 0 {
			x *= 50 // beyond the clamp
		}
		if math.Abs(math.Exp(-x)+x-11) < 0.1 || s.Family == Offset { // float32 may fall on the other side of 10
			x = 0
		}
		ref[t] = logprobs[t] - float32(x)
	}
	b, wide := s.whole(role)
	b.Logprobs, b.OldLogprobs, b.RefLogprobs, b.Advantages = logprobs, ref, ref, adv
	wide.Logprobs, wide.RefLogprobs = differences(logprobs, ref), make([]float64, n)
	opt := reweight.DefaultPG
	opt.Aggregation, opt.NormLength = reweight.SeqMeanTokenSumNorm, 1
	opt.KLCoef = 0.5
	grad, totals := array[float32](s, n), make([]float64, 4)
	out := f32("gradient", grad)
	// Where |x| is above 1/2, e^y has a relative error of 3 (2^-24 + 1.34e-8) + 1.57e-7 at
	// most before the estimate is cut at 10, and its distance from 1 is at least 0.39 of it;
	// below, where y < -1/2, more. Elsewhere the polynomial has 5e-8 and a few roundings.
	out.abs, out.rel = 1e-30, 4e-6
	total := sums("tokens, loss, divergence in it and mean divergence", totals)
	// The estimate is at least 0.09 of e^y there, or of |y|.
	total.abs = 1e-5
	return &Case{
		Elements: n, Bytes: int64(n) * 17, Input: raw.Bytes(logprobs), outputs: []output{out, total},
		Run: func(impl Runner) error {
			q, err := impl.(*reweight.Workspace).Loss(grad, nil, b, opt)
			totals[0], totals[1], totals[2], totals[3] = float64(q.Tokens), q.Loss, q.KLLoss, q.KL
			return err
		},
		Reference: func() {
			l, gradient := reference.KLLoss(wide, reference.KLK3, opt.KLCoef, oneByOne)
			copy(out.want, gradient)
			tokens := float64(responses(role))
			copy(total.want, []float64{tokens, l, l, l / opt.KLCoef / max(1, tokens)})
			copy(total.terms, total.want)
		},
	}, nil
}

func valueLoss(s Spec) (*Case, error) {
	r := s.rand()
	values, role := s.responses(r, true)
	n := s.Rows
	old, returns := array[float32](s, n), array[float32](s, n)
	opt := reweight.DefaultValueLoss
	opt.Aggregation, opt.NormLength = reweight.SeqMeanTokenSumNorm, 1
	for t, v := range values {
		old[t], returns[t] = v-float32(0.6*r.NormFloat64()), v-float32(r.NormFloat64())
		d := float64(v) - float64(returns[t])
		c := max(float64(old[t])-opt.Clip, min(float64(old[t])+opt.Clip, float64(v))) - float64(returns[t])
		if math.Abs(d*d-c*c) < 1e-3 || s.Family == Offset { // float32 may find the other one larger
			old[t] = v
		}
	}
	b, wide := s.whole(role)
	b.NewValues, b.Values, b.Returns = values, old, returns
	wide.NewValues, wide.Values, wide.Returns = reference.Floats(values), reference.Floats(old),
		reference.Floats(returns)
	grad, totals := array[float32](s, n), make([]float64, 3)
	out := f32("gradient", grad)
	out.rel = 2 * unit32 // one difference
	total := sums("tokens, share of the clipped, and loss", totals)
	// The clipped value is rounded to float32 at up to 32, and the difference from the
	// return is squared. Then come 9 roundings of products and in a group.
	total.abs = 2e-5
	return &Case{
		Elements: n, Bytes: int64(n) * 17, Input: raw.Bytes(values), outputs: []output{out, total},
		Run: func(impl Runner) error {
			q, err := impl.(*reweight.Workspace).ValueLoss(grad, b, opt)
			totals[0], totals[1], totals[2] = float64(q.Tokens), q.ClipFraction, q.Loss
			return err
		},
		Reference: func() {
			q := reference.ValueLoss(wide, opt.Clip, oneByOne)
			copy(out.want, q.Gradient)
			copy(total.want, []float64{float64(responses(role)), q.ClipFraction, q.Loss})
			copy(total.terms, total.want)
		},
	}, nil
}

func rolloutCorrection(s Spec) (*Case, error) {
	r := s.rand()
	old, role := s.responses(r, true)
	n := s.Rows
	rollout := array[float32](s, n)
	for t := range rollout {
		z := 0.5 * r.NormFloat64()
		if r.IntN(40) == 0 {
			z *= 50 // beyond the clamp
		}
		rollout[t] = old[t] - float32(z)
	}
	b, wide := s.whole(role)
	b.OldLogprobs, b.RolloutLogprobs = old, rollout
	wide.OldLogprobs, wide.RolloutLogprobs = differences(old, rollout), make([]float64, n)
	opt := reweight.DefaultRolloutCorrection
	factors := array[float32](s, n)
	out := f32("factor", factors)
	out.rel = 20*(0x1p-24+1.34e-8) + 1.57e-7 + 0x1p-24 // as in policyLoss
	return &Case{
		Elements: n, Bytes: int64(n) * 13, Input: raw.Bytes(old), outputs: []output{out},
		Run: func(impl Runner) error { return impl.(*reweight.Workspace).RolloutCorrection(factors, b, opt) },
		Reference: func() {
			truth := reference.CorrectionOptions{Level: reference.CorrectToken, Low: opt.Low, High: opt.High}
			copy(out.want, reference.RolloutCorrection(wide, truth))
		},
	}, nil
}
