package reference

import (
	"fmt"
	"math"
)

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
//
// Another form is an error.
func KL(form KLForm, logprob, refLogprob float64) (k, derivative float64, err error) {
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
	default:
		return 0, 0, fmt.Errorf("reference: form = %q, want %q, %q, %q, %q, %q, %q or %q", form, KLK1, KLAbs, KLK2, KLK3, KLK1Plus, KLAbsPlus, KLK3Plus)
	}
	switch form {
	case KLK1Plus, KLAbsPlus, KLK3Plus:
		derivative = x
	}
	return k, derivative, nil
}

func checkKL(form KLForm) error {
	_, _, err := KL(form, 0, 0)
	return err
}

// KLLoss returns coef times the aggregated KL of the response tokens, and its
// gradient with respect to the new log-probabilities, [T]: what is added to the loss
// of a policy and to its gradient. The weights of tokens are 1. role, logprobs and
// refLogprobs are [T], offsets [S+1]. verl has k3 and coef 0.001. normLength is
// LossOptions.NormLength.
func KLLoss(role []Role, offsets []int64, logprobs, refLogprobs []float64, form KLForm, coef float64, aggregation Aggregation, normLength float64) (loss float64, gradient []float64, err error) {
	if err := first(
		checkRoles(role),
		checkOffsets(offsets, len(role)),
		checkResponse("logprobs", logprobs, role),
		checkResponse("refLogprobs", refLogprobs, role),
		checkNumber("coef", coef),
		checkAggregation(aggregation, normLength),
		checkKL(form),
	); err != nil {
		return 0, nil, err
	}
	scale := tokenScales(role, offsets, ones(len(role)), LossOptions{Aggregation: aggregation, NormLength: normLength})
	gradient = make([]float64, len(role))
	for t, r := range role {
		if r != RoleMasked {
			k, derivative, _ := KL(form, logprobs[t], refLogprobs[t])
			loss += coef * scale[t] * k
			gradient[t] = coef * scale[t] * derivative
		}
	}
	return loss, gradient, nil
}

// KLRewards returns the reward of every response token, [T]: the trajectory's
// outcome at its last response token, less coef times the KL of the old policy from
// the reference. role, oldLogprobs and refLogprobs are [T], offsets [S+1], rewards
// [S]. verl has k1 and coef 0.001. With coef 0 the log-probabilities are not read.
func KLRewards(role []Role, offsets []int64, rewards, oldLogprobs, refLogprobs []float64, form KLForm, coef float64) ([]float64, error) {
	if err := first(
		checkRoles(role),
		checkOffsets(offsets, len(role)),
		checkLen("rewards", len(rewards), len(offsets)-1, "trajectories"),
		checkFinite("rewards", rewards),
		checkNumber("coef", coef),
		checkKL(form),
	); err != nil {
		return nil, err
	}
	tokenRewards := make([]float64, len(role))
	for s, tokens := range responseTokens(role, offsets) {
		if n := len(tokens); n > 0 {
			tokenRewards[tokens[n-1]] = rewards[s]
		}
	}
	if coef == 0 {
		return tokenRewards, nil
	}
	if err := first(
		checkResponse("oldLogprobs", oldLogprobs, role),
		checkResponse("refLogprobs", refLogprobs, role),
	); err != nil {
		return nil, err
	}
	for t, r := range role {
		if r != RoleMasked {
			k, _, _ := KL(form, oldLogprobs[t], refLogprobs[t])
			tokenRewards[t] -= coef * k
		}
	}
	return tokenRewards, nil
}
