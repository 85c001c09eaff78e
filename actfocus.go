package reweight

import (
	"fmt"
	"math"
)

// A Signal is what ActFocus spreads weight over action tokens by, in nats. The
// paper finds the energy best and compares it with the others.
type Signal uint8

const (
	SignalEnergy     Signal = iota // -logsumexp of the reference's logits (Batch.RefEnergy)
	SignalRefEntropy               // entropy of the reference (Batch.RefEntropy)
	SignalSurprisal                // -log pi_old (Batch.OldLogprobs)
	SignalLogRatio                 // log pi_old - log pi_ref (Batch.OldLogprobs, Batch.RefLogprobs)
)

// ActFocusOptions are the options of ActFocus.
type ActFocusOptions struct {
	Alpha  float64 // weight of reasoning tokens, in [0, 1]
	Beta   float64 // strength of the action tokens' signal, at least 0
	Eps    float64 // inside the root of sigma, at least 0
	Signal Signal
}

// DefaultActFocus holds the paper's constants.
var DefaultActFocus = ActFocusOptions{Alpha: 0.1, Beta: 0.5, Eps: 1e-8, Signal: SignalEnergy}

// ActFocusResult says what the weights were made of.
type ActFocusResult struct {
	Actions     int     // n, action tokens
	Mean, Sigma float64 // of the signal over action tokens, nats; 0 if there are none
}

// ActFocus sets weights[t] by the role of token t of the batch (arXiv
// 2605.14558): Alpha for reasoning tokens, 0 for masked ones, and for action
// tokens
//
//	w_t = 1 + Beta * sigmoid((E_t - mu) / sigma)
//	mu = sum E / n    sigma = sqrt(sum (E - mu)^2 / n + Eps)
//
// with the sums over the n action tokens of the batch. weights and the arrays
// that the signal needs have one element per token; weights may be the array
// of the signal. Alpha 1 and Beta 0 give weights of exactly 1. A wrong length
// or option, or a NaN or infinite signal at an action token, is an error, and
// weights is not written.
func (ws *Workspace) ActFocus(weights []float32, b *Batch, opt ActFocusOptions) (ActFocusResult, error) {
	var res ActFocusResult
	path, err := ws.Path.resolve()
	if err != nil {
		return res, err
	}
	T := b.Tokens()
	if err := need("weights", len(weights), T); err != nil {
		return res, err
	}
	if err := checkRoles(b.Role); err != nil {
		return res, err
	}
	if err := opt.check(); err != nil {
		return res, err
	}
	signal, name, err := ws.signalOf(b, opt.Signal)
	if err != nil {
		return res, err
	}
	const actions = 1 << RoleAction
	if m := ws.moments(path, signal, b.Role, actions, 0); m.N > 0 {
		n := float64(m.N)
		d := ws.moments(path, signal, b.Role, actions, m.Sum/n)
		if d.Squares-d.Squares != 0 {
			return res, notFinite(name, signal, b.Role)
		}
		res = ActFocusResult{Actions: m.N, Mean: m.Sum / n, Sigma: math.Sqrt(d.variance(n) + opt.Eps)}
	}
	return res, ws.ActFocusWeights(weights, signal, b.Role, res.Mean, res.Sigma, opt)
}

// variance returns the sum of squares about the mean, over n, for moments with
// the mean as their shift: the mean's own rounding error is taken out.
func (m Moments) variance(n float64) float64 {
	return max(0, (m.Squares-float64(m.Sum*m.Sum)/float64(m.N))/n)
}

// check says which option is out of range.
func (opt *ActFocusOptions) check() error {
	switch {
	case !(opt.Alpha >= 0 && opt.Alpha <= 1):
		return fmt.Errorf("reweight: Alpha = %v, want 0 to 1", opt.Alpha)
	case !(opt.Beta >= 0 && opt.Beta <= math.MaxFloat32):
		return fmt.Errorf("reweight: Beta = %v, want a finite number of at least 0", opt.Beta)
	case !(opt.Eps >= 0 && opt.Eps <= math.MaxFloat32):
		return fmt.Errorf("reweight: Eps = %v, want a finite number of at least 0", opt.Eps)
	case opt.Signal > SignalLogRatio:
		return fmt.Errorf("reweight: Signal = %d, want %d to %d", opt.Signal, SignalEnergy, SignalLogRatio)
	}
	return nil
}

// signalOf returns the batch's array of that signal, computed if need be.
func (ws *Workspace) signalOf(b *Batch, s Signal) (signal []float32, name string, err error) {
	T := b.Tokens()
	switch s {
	case SignalEnergy:
		return b.RefEnergy, "RefEnergy", need("RefEnergy", len(b.RefEnergy), T)
	case SignalRefEntropy:
		return b.RefEntropy, "RefEntropy", need("RefEntropy", len(b.RefEntropy), T)
	}
	if err := need("OldLogprobs", len(b.OldLogprobs), T); err != nil {
		return nil, "", err
	}
	if s == SignalSurprisal {
		ws.signal = grow(ws.signal, T)
		for t, l := range b.OldLogprobs {
			ws.signal[t] = -l
		}
		return ws.signal, "OldLogprobs", nil
	}
	if err := need("RefLogprobs", len(b.RefLogprobs), T); err != nil {
		return nil, "", err
	}
	ws.signal = grow(ws.signal, T)
	for t, l := range b.OldLogprobs {
		ws.signal[t] = l - b.RefLogprobs[t]
	}
	return ws.signal, "OldLogprobs - RefLogprobs", nil
}

// notFinite finds the action token that spoilt the moments.
func notFinite(name string, signal []float32, role []uint8) error {
	for t, e := range signal {
		if role[t] == RoleAction && !finite(e) {
			return fmt.Errorf("reweight: %s[%d] = %v at an action token, want a finite number", name, t, e)
		}
	}
	return fmt.Errorf("reweight: the moments of %s over action tokens overflow", name)
}
