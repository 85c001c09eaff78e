package reference

import "math"

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

// ActFocusOptions are the parameters of ActFocus; the paper has alpha 0.1 and beta 0.5.
type ActFocusOptions struct {
	Signal Signal
	Alpha  float64 // 0 to 1
	Beta   float64 // at least 0
	Eps    float64 // at least 0
}

// ActFocus returns the weight of every token, [T] (arXiv:2605.14558):
//
//	w_t = 0                                          masked
//	w_t = alpha                                      reasoning
//	w_t = 1 + beta * sigmoid((s_t - mu) / sigma)     action
//
// with mu the mean of the signal over the n action tokens of the batch, and sigma =
// sqrt(sum (s - mu)^2 / n + eps). If sigma is 0 (eps 0 and equal signals), the sigmoid is 1/2,
// its limit for eps to 0.
func ActFocus(b *Batch, opt ActFocusOptions) []float64 {
	s := ActFocusSignal(b, opt.Signal)
	n, total, _ := MaskedMoments(b.Role, s, 0, RoleAction)
	mu := total / float64(n)
	_, _, squares := MaskedMoments(b.Role, s, mu, RoleAction)
	sigma := math.Sqrt(squares/float64(n) + opt.Eps)
	w := make([]float64, len(b.Role))
	for t, r := range b.Role {
		w[t] = ActFocusWeight(r, s[t], mu, sigma, opt.Alpha, opt.Beta)
	}
	return w
}

// ActFocusSignal returns the signal s at every token, [T].
func ActFocusSignal(b *Batch, signal Signal) []float64 {
	s := make([]float64, len(b.Role))
	for t := range s {
		switch signal {
		case SignalEnergy:
			s[t] = b.RefEnergy[t]
		case SignalRefEntropy:
			s[t] = b.RefEntropy[t]
		case SignalSurprisal:
			s[t] = -b.OldLogprobs[t]
		case SignalLogRatio:
			s[t] = b.OldLogprobs[t] - b.RefLogprobs[t]
		}
	}
	return s
}

// ActFocusWeight returns the weight of one token; see ActFocus.
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

// UniformWeights returns 1 at every response token and 0 elsewhere, [T]: ActFocus with
// alpha 1 and beta 0.
func UniformWeights(b *Batch) []float64 { return b.masked(ones(len(b.Role))) }

func sigmoid(z float64) float64 { return 1 / (1 + math.Exp(-z)) }
