package reweight

import (
	"cmp"
	"math"

	"github.com/seed621a2839/reweight/internal/problem"
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

var signalNames = [...]string{"energy", "ref_entropy", "surprisal", "log_ratio"}

// String and MarshalText return the signal's name, as flags and reports have it, and UnmarshalText takes it.
func (s Signal) String() string               { return nameOf(s, signalNames[:]) }
func (s Signal) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
func (s *Signal) UnmarshalText(name []byte) error {
	return parseName(s, "Signal", name, signalNames[:])
}

// Arrays returns the names of the arrays that the signal is made of, as Batch.Arrays has
// them.
func (s Signal) Arrays() []string {
	var names []string
	of := s.arrays(new(Batch))
	for _, a := range new(Batch).Arrays() {
		if a.Field == of[0].arg || a.Field == of[1].arg {
			names = append(names, a.Name)
		}
	}
	return names
}

// ActFocusOptions are the options of [Workspace.ActFocus]. Alpha and Beta that are both 0 are an error:
// nobody has set them. One of them may be 0, and so may Eps.
type ActFocusOptions struct {
	Alpha  float64 // weight of reasoning tokens, in [0, 1]
	Beta   float64 // strength of the action tokens' signal, at least 0; 0 gives each of them the weight 1
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
// of the signal. Alpha 1 and Beta 0 give weights of exactly 1. With Beta 0 the arrays of
// the signal may be missing, and then count as zeros. A wrong length
// or option, or a NaN or infinite signal at an action token, is an error, and
// weights is not written.
func (ws *Workspace) ActFocus(weights []float32, b *Batch, opt ActFocusOptions) (ActFocusResult, error) {
	defer ws.release(ws.taken)
	var res ActFocusResult
	isa, err := ws.ISA.resolve()
	T := b.Tokens()
	if err = cmp.Or(err, checkLen("weights", len(weights), T, "token"), checkRoles("Role", b.Role),
		opt.check()); err != nil {
		return res, err
	}
	signal := weights // of zeros, which Beta 0 weighs as any other
	if opt.Beta == 0 && opt.Signal.missing(b) {
		clear(weights)
	} else if signal, err = ws.signalOf(b, opt.Signal); err != nil {
		return res, err
	}
	if n, mean, squares := ws.spread(isa, signal, b.Role, Roles(RoleAction)); n > 0 {
		if squares != squares {
			return res, b.signalNotFinite(opt.Signal, signal)
		}
		res = ActFocusResult{Actions: n, Mean: mean, Sigma: math.Sqrt(squares/float64(n) + opt.Eps)}
	}
	return res, ws.ActFocusWeights(weights, signal, b.Role, res.Mean, res.Sigma, opt)
}

// check says which option is out of range.
func (opt *ActFocusOptions) check() error {
	return cmp.Or(
		checkRange("Alpha", opt.Alpha, 0, 1),
		checkNotNegative("Beta", opt.Beta),
		checkNotNegative("Eps", opt.Eps),
		checkName("Signal", opt.Signal, signalNames[:]),
		checkEither("Alpha", opt.Alpha, "Beta", opt.Beta, "DefaultActFocus"),
	)
}

// arrays returns the arrays of the batch that a signal is made of, one or two.
func (s Signal) arrays(b *Batch) [2]array {
	switch s {
	case SignalEnergy:
		return [2]array{{"RefEnergy", b.RefEnergy}}
	case SignalRefEntropy:
		return [2]array{{"RefEntropy", b.RefEntropy}}
	case SignalSurprisal:
		return [2]array{{"OldLogprobs", b.OldLogprobs}}
	}
	return [2]array{{"OldLogprobs", b.OldLogprobs}, {"RefLogprobs", b.RefLogprobs}}
}

// missing reports whether the batch lacks an array of the signal.
func (s Signal) missing(b *Batch) bool {
	for _, a := range s.arrays(b) {
		if a.arg != "" && len(a.x) == 0 {
			return true
		}
	}
	return false
}

// signalOf returns the signal of each token: an array of the batch, or one that
// is computed into scratch memory.
func (ws *Workspace) signalOf(b *Batch, s Signal) ([]float32, error) {
	T, of := b.Tokens(), s.arrays(b)
	for _, a := range of {
		if a.arg != "" {
			if err := checkLen(a.arg, len(a.x), T, "token"); err != nil {
				return nil, err
			}
		}
	}
	if s != SignalSurprisal && s != SignalLogRatio {
		return of[0].x, nil
	}
	signal := take[float32](ws, T)
	for t, l := range b.OldLogprobs {
		signal[t] = -l
		if s == SignalLogRatio {
			signal[t] = l - b.RefLogprobs[t]
		}
	}
	return signal, nil
}

// signalNotFinite names the array and the action token that make the signal not
// finite; there is one.
func (b *Batch) signalNotFinite(s Signal, signal []float32) error {
	of := s.arrays(b)
	for _, a := range of {
		if a.arg == "" {
			continue
		}
		if t := firstNotFinite(a.x, b.Role, Roles(RoleAction)); t >= 0 {
			return badElement(a.arg, t, problem.AtAction, a.x[t])
		}
	}
	// Both log-probabilities are finite, and their difference is not.
	t := firstNotFinite(signal, b.Role, Roles(RoleAction))
	return badElement(of[0].arg, t, problem.Difference, of[0].x[t])
}
