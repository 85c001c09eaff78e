package reweight

import (
	"cmp"
	"math"
	"strings"
)

// A KLForm is an estimate k of the divergence from the reference, of one token, with its
// derivative k' by log pi. With x = log pi - log pi_ref and y = clamp(-x, -20, 20), where
// Loss takes x as a float32 difference:
//
//	KLK3        k = min(10, e^y - y - 1)    k' = 1 - e^y, but 0 where y or k was cut
//	KLK2        k = x^2/2    k' = x
//	KLK1        k = x        k' = 1
//	KLAbs       k = |x|      k' = the sign of x, 0 at 0
//	KLK3Plus, KLK1Plus, KLAbsPlus    k of KLK3, KLK1, KLAbs    k' = x
//
// Where k' is x, the mean over samples of the policy is the gradient of the divergence;
// with the others it is not.
type KLForm uint8

const (
	KLK3      KLForm = iota // verl: low_var_kl
	KLK2                    // verl: mse
	KLK1                    // verl: kl
	KLAbs                   // verl: abs
	KLK3Plus                // verl: low_var_kl+
	KLK1Plus                // verl: kl+
	KLAbsPlus               // verl: abs+
)

var klNames = [...]string{"k3", "k2", "k1", "abs", "k3+", "k1+", "abs+"}

// String and MarshalText return the form's name, as flags and reports have it.
func (k KLForm) String() string               { return nameOf(k, klNames[:]) }
func (k KLForm) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// verlKL has the names of verl besides these. Its + after k2 changes nothing.
var verlKL = map[string]KLForm{
	"kl": KLK1, "mse": KLK2, "low_var_kl": KLK3,
	"kl+": KLK1Plus, "mse+": KLK2, "k2+": KLK2, "low_var_kl+": KLK3Plus,
}

// UnmarshalText sets the form to the one of that name, or to that of verl's name for it.
func (k *KLForm) UnmarshalText(name []byte) error {
	if form, ok := verlKL[strings.ReplaceAll(string(name), "-", "_")]; ok {
		*k = form
		return nil
	}
	return parseName(k, "KL", name, klNames[:])
}

// KLRewardsOptions are the options of [Workspace.KLRewards]. The zero value leaves the outcome alone.
type KLRewardsOptions struct {
	KL     KLForm  // of log pi_old against log pi_ref; its derivative does not matter
	KLCoef float64 // finite; 0 leaves the outcome alone, and reads no log-probability
}

// DefaultKLRewards is k1, times 0.001.
var DefaultKLRewards = KLRewardsOptions{KL: KLK1, KLCoef: 0.001}

// KLRewards sets rewards[t] of each response token to what GAE and REINFORCE++ take
// (verl, apply_kl_penalty):
//
//	r_t = [t is the last response token of q] r_q - KLCoef k_t
//
// with the reward r_q of its trajectory and the divergence k_t of OldLogprobs from
// RefLogprobs, x = OldLogprobs - RefLogprobs. Masked tokens get 0. rewards has one
// element per token, Rewards one per trajectory and, unless KLCoef is 0, OldLogprobs and
// RefLogprobs have one per token; rewards may be one of those two, or any array of b
// that is one per token and that KLRewards does not read. A wrong shape or option, a
// reward that is not finite, or a log-probability of a response token that is not, is an
// error, and rewards is not written.
func (ws *Workspace) KLRewards(rewards []float32, b *Batch, opt KLRewardsOptions) error {
	isa, err := ws.ISA.resolve()
	T := b.Tokens()
	if err = cmp.Or(err, b.checkOutput("rewards", rewards), b.checkRewards(), checkKL(opt.KL, opt.KLCoef)); err != nil {
		return err
	}
	if opt.KLCoef != 0 {
		old, ref := array{"OldLogprobs", b.OldLogprobs}, array{"RefLogprobs", b.RefLogprobs}
		if err := checkLens(T, "token", old, ref); err != nil {
			return err
		}
		if err := ws.checkFinite(isa, b.Role, old, ref); err != nil {
			return err
		}
	}
	for q, outcome := range b.Rewards {
		last := float64(outcome) // of the response token that comes last
		for t := b.SeqOffsets[q+1] - 1; t >= b.SeqOffsets[q]; t-- {
			r := 0.0
			if b.Role[t] != RoleMasked {
				r, last = last, 0
				if opt.KLCoef != 0 {
					r -= float64(opt.KLCoef * opt.KL.value(float64(b.OldLogprobs[t])-float64(b.RefLogprobs[t])))
				}
			}
			rewards[t] = float32(r)
		}
	}
	return nil
}

// value returns the divergence's estimate of a token.
func (k KLForm) value(x float64) float64 {
	switch k {
	case KLK1, KLK1Plus:
		return x
	case KLAbs, KLAbsPlus:
		return math.Abs(x)
	case KLK2:
		return float64(x*x) / 2
	}
	return min(10, k3(max(-20, min(20, -x))))
}

// addKL adds the gradient of the divergence from the reference to grad, and returns what
// it adds to the loss.
func (ws *Workspace) addKL(isa ISA, grad, logprobs, ref []float32, b *Batch, opt *LossOptions) (loss float64) {
	b.shares(opt.Aggregation, opt.NormLength, func(from, to int, share float64) {
		share *= opt.KLCoef
		sum := ws.divergence(isa, grad[from:to], logprobs[from:to], ref[from:to], b.Role[from:to], opt.KL,
			float32(share))
		loss += float64(sum * share)
	})
	return loss
}

// keep returns x, or a copy of it if it is grad, which is about to be overwritten.
func (ws *Workspace) keep(x, grad []float32) []float32 {
	if len(x) == 0 || &x[0] != &grad[0] {
		return x
	}
	kept := take[float32](ws, len(x))
	copy(kept, x)
	return kept
}
