package reweight

import (
	"cmp"
	"math"
)

// ClipBOptions are the options of [Workspace.ClipB]. The zero value is an error: nobody has set it.
type ClipBOptions struct {
	Mu float64 // standard deviations below the mean from which on tokens are left out, above 0
}

// DefaultClipB holds the constant of Trinity-RFT.
var DefaultClipB = ClipBOptions{Mu: 2.5}

// ClipB sets weights[t] to 0 at the response tokens with A_t < 0 at which a step would change the
// entropy of the policy by far more than at others, and to 1 at the rest (arXiv 2602.03392;
// Trinity-RFT, ClipBAdvantageFn):
//
//	S_t = p_t (Entropy[t] + log p_t)    log p_t = OldLogprobs[t]
//	w_t = 0 where A_t < 0 and S_t - mean < -Mu std, else 1
//
// with the mean and the standard deviation (n) of S over the n response tokens of the batch. S is
// below 0 at tokens that are less likely than the entropy lets expect: to make them less likely
// still sharpens the policy. A standard deviation below 1e-12 leaves out nothing. Masked tokens
// get 0.
//
// weights, Role, OldLogprobs, Entropy and Advantages have one element per token; weights may be
// any of those three float arrays. A wrong shape or option, or a value of a response token that is
// not finite, is an error, and weights is not written.
func (ws *Workspace) ClipB(weights []float32, b *Batch, opt ClipBOptions) error {
	defer ws.release(ws.taken)
	isa, err := ws.ISA.resolve()
	T := b.Tokens()
	if err = cmp.Or(
		err,
		checkLen("weights", len(weights), T, "token"),
		checkRoles("Role", b.Role),
		checkPositive("Mu", opt.Mu, math.MaxFloat64),
	); err != nil {
		return err
	}
	if err := ws.checkResponses(isa, b.Role, array{"Advantages", b.Advantages},
		array{"OldLogprobs", b.OldLogprobs}, array{"Entropy", b.Entropy}); err != nil {
		return err
	}
	signal := take[float64](ws, T)
	for t, r := range b.Role {
		if r != RoleMasked {
			l := float64(b.OldLogprobs[t])
			signal[t] = exp64(l) * (float64(b.Entropy[t]) + l)
		}
	}
	n := responses(b.Role)
	mean, squares := spread64(signal, b.Role, n)
	std := math.Sqrt(squares / float64(max(n, 1)))
	for t, r := range b.Role {
		w := float32(1)
		if r == RoleMasked || std >= 1e-12 && b.Advantages[t] < 0 && signal[t]-mean < -float64(opt.Mu*std) {
			w = 0
		}
		weights[t] = w
	}
	return nil
}
