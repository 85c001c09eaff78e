package reference

import (
	"fmt"
	"math"
)

// A Signal is what ActFocus reads the uncertainty of an action token from.
// Energy is the paper's choice, the others are its ablation (arXiv:2605.14558).
type Signal string

// The four signals, with the value they have at a token.
const (
	SignalEnergy     Signal = "energy"      // -log sum exp of the frozen reference's logits
	SignalRefEntropy Signal = "ref_entropy" // entropy of the frozen reference
	SignalSurprisal  Signal = "surprisal"   // -log pi_old of the sampled token
	SignalLogRatio   Signal = "log_ratio"   // log pi_old - log pi_ref of the sampled token
)

// ActFocusSignal returns the signal at every token. Only the arrays that the
// signal needs are read, each [T]: refEnergy, refEntropy, oldLogprobs, or
// oldLogprobs and refLogprobs.
func ActFocusSignal(signal Signal, refEnergy, refEntropy, oldLogprobs, refLogprobs []float64) ([]float64, error) {
	switch signal {
	case SignalEnergy:
		return append([]float64(nil), refEnergy...), nil
	case SignalRefEntropy:
		return append([]float64(nil), refEntropy...), nil
	case SignalSurprisal:
		s := make([]float64, len(oldLogprobs))
		for t := range s {
			s[t] = -oldLogprobs[t]
		}
		return s, nil
	case SignalLogRatio:
		if err := checkLen("refLogprobs", len(refLogprobs), len(oldLogprobs), "tokens"); err != nil {
			return nil, err
		}
		s := make([]float64, len(oldLogprobs))
		for t := range s {
			s[t] = oldLogprobs[t] - refLogprobs[t]
		}
		return s, nil
	}
	return nil, fmt.Errorf("reference: signal = %q, want %q, %q, %q or %q",
		signal, SignalEnergy, SignalRefEntropy, SignalSurprisal, SignalLogRatio)
}

// ActionMoments returns the number n of action tokens (role 2), the mean mu of
// their signal, and sigma = sqrt(sum (s - mu)^2 / n + eps). Without an action
// token all three are 0.
func ActionMoments(role []Role, signal []float64, eps float64) (n int, mu, sigma float64, err error) {
	if err := first(
		checkRoles(role),
		checkLen("signal", len(signal), len(role), "tokens"),
		checkAtLeast("eps", eps, 0),
	); err != nil {
		return 0, 0, 0, err
	}
	n, total, _, err := MaskedMoments(role, signal, 0, RoleAction)
	if err != nil || n == 0 {
		return 0, 0, 0, err
	}
	mu = total / float64(n)
	_, _, squares, err := MaskedMoments(role, signal, mu, RoleAction)
	return n, mu, math.Sqrt(squares/float64(n) + eps), err
}

// ActFocusWeights returns the weight of every token (ActFocus,
// arXiv:2605.14558):
//
//	w_t = 0                                          masked
//	w_t = alpha                                      reasoning
//	w_t = 1 + beta * sigmoid((s_t - mu) / sigma)     action
//
// role and signal are [T]; mu and sigma are those of ActionMoments, over the
// whole batch. 0 <= alpha <= 1, beta >= 0 and eps >= 0; the paper has alpha 0.1
// and beta 0.5. If sigma is 0 (eps 0 and equal signals), the sigmoid is 1/2,
// its limit for eps to 0.
func ActFocusWeights(role []Role, signal []float64, alpha, beta, eps float64) ([]float64, error) {
	if !(alpha >= 0 && alpha <= 1) {
		return nil, fmt.Errorf("reference: alpha = %v, want 0 to 1", alpha)
	}
	if err := checkAtLeast("beta", beta, 0); err != nil {
		return nil, err
	}
	_, mu, sigma, err := ActionMoments(role, signal, eps)
	if err != nil {
		return nil, err
	}
	w := make([]float64, len(role))
	for t, r := range role {
		w[t] = ActFocusWeight(r, signal[t], mu, sigma, alpha, beta)
	}
	return w, nil
}

// ActFocusWeight returns the weight of one token; see ActFocusWeights.
func ActFocusWeight(role Role, s, mu, sigma, alpha, beta float64) float64 {
	switch role {
	case RoleReasoning:
		return alpha
	case RoleAction:
		z := 0.0
		if sigma != 0 {
			z = (s - mu) / sigma
		}
		return 1 + beta*sigmoid(z)
	}
	return 0
}

// UniformWeights returns 1 at every response token and 0 elsewhere: what
// ActFocusWeights gives for alpha 1 and beta 0.
func UniformWeights(role []Role) []float64 {
	w := make([]float64, len(role))
	for t, r := range role {
		if r != RoleMasked {
			w[t] = 1
		}
	}
	return w
}

func sigmoid(z float64) float64 { return 1 / (1 + math.Exp(-z)) }
