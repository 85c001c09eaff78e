package reference

import "math"

// A KLForm is an estimate of the KL divergence from the reference at one token
// (http://joschu.net/blog/kl-approx.html), and what its derivative is taken to be.
type KLForm string

// The forms. A form with + has the derivative of k2.
const (
	KLK1      KLForm = "k1"  // verl: kl
	KLAbs     KLForm = "abs" // verl: abs
	KLK2      KLForm = "k2"  // verl: mse
	KLK3      KLForm = "k3"  // verl: low_var_kl
	KLK1Plus  KLForm = "k1+"
	KLAbsPlus KLForm = "abs+"
	KLK3Plus  KLForm = "k3+"
)

// KL returns the estimate at one token, and its derivative with respect to the new
// log-probability. With x = new - ref:
//
//	k1   x, 1      abs  |x|, sign x (0 at 0)      k2  x^2/2, x
//	k3   K3, 1 - e^-x; the derivative is 0 where K3 is cut: |x| > 20, or a value of 10
func KL(form KLForm, logprob, refLogprob float64) (k, derivative float64) {
	x := logprob - refLogprob
	switch form {
	case KLK1, KLK1Plus:
		k, derivative = x, 1
	case KLAbs, KLAbsPlus:
		k = math.Abs(x)
		if x != 0 {
			derivative = math.Copysign(1, x)
		}
	case KLK2:
		k, derivative = x*x/2, x
	case KLK3, KLK3Plus:
		k = K3(logprob, refLogprob)
		if math.Abs(x) <= logRatioLimit && k < 10 {
			derivative = -math.Expm1(-x)
		}
	}
	switch form {
	case KLK1Plus, KLAbsPlus, KLK3Plus:
		derivative = x
	}
	return k, derivative
}

// K3 returns the k3 estimate of KL(new || ref) at one token:
//
//	x = clamp(ref - new, -20, 20)     k = clamp(e^x - x - 1, -10, 10)
//
// (verl: kl_penalty, "low_var_kl"; http://joschu.net/blog/kl-approx.html.)
func K3(logprob, refLogprob float64) float64 {
	x := clamp(refLogprob-logprob, -logRatioLimit, logRatioLimit)
	return clamp(expm1MinusX(x), -10, 10)
}

// expm1MinusX returns e^x - 1 - x. Near 0 the differences cancel, also Expm1(x) - x,
// so there it is summed as x^2/2! + x^3/3! + ...
func expm1MinusX(x float64) float64 {
	if math.Abs(x) > 0.5 {
		return math.Expm1(x) - x
	}
	sum, term := 0.0, x
	for k := 2.0; k <= 20; k++ {
		term *= x / k
		sum += term
	}
	return sum
}

// KLLoss returns coef times the aggregated KL of the response tokens, and its
// gradient with respect to Logprobs, [T]: what is added to the loss of a policy and to
// its gradient. The weights of tokens are 1. verl has k3 and coef 0.001.
func KLLoss(b *Batch, form KLForm, coef float64, opt Aggregating) (loss float64, gradient []float64) {
	b.perToken(b.Logprobs, b.RefLogprobs)
	sum := opt.sum(b, nil, func(t int) (float64, float64, bool) {
		k, derivative := KL(form, b.Logprobs[t], b.RefLogprobs[t])
		return coef * k, coef * derivative, false
	})
	return sum.Loss, sum.Gradient
}

// KLRewards returns the reward of every response token, [T]: the trajectory's
// outcome at its last response token, less coef times the KL of the old policy from
// the reference. verl has k1 and coef 0.001. With coef 0 the log-probabilities are not
// read.
func KLRewards(b *Batch, form KLForm, coef float64) []float64 {
	b.perTrajectory(b.Rewards)
	rewards := make([]float64, len(b.Role))
	for s, tokens := range b.trajectories() {
		if n := len(tokens); n > 0 {
			rewards[tokens[n-1]] = b.Rewards[s]
		}
	}
	if coef == 0 {
		return rewards
	}
	for t, r := range b.Role {
		if r != RoleMasked {
			k, _ := KL(form, b.OldLogprobs[t], b.RefLogprobs[t])
			rewards[t] -= coef * k
		}
	}
	return rewards
}
