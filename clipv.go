package reweight

import (
	"cmp"
	"math"
)

// ClipVOptions are the options of [Workspace.ClipV]. The zero value is an error: nobody has set it.
type ClipVOptions struct {
	Mu       float64 // standard deviations from which on a token may be left out, above 0
	MaxShare float64 // share of the response tokens that are left out at most, in (0, 1]
}

// DefaultClipV holds the constants of Trinity-RFT.
var DefaultClipV = ClipVOptions{Mu: 8.5, MaxShare: 1e-4}

// ClipV sets weights[t] to 0 at the response tokens with A_t < 0 at which a step would lower the
// entropy of the policy most, by what it does to the whole vocabulary, and to 1 at the rest
// (arXiv 2602.03392; Trinity-RFT, ClipVAdvantageFn):
//
//	D_t = EntropyDrop[t] - p_t (Entropy[t] + log p_t)    log p_t = OldLogprobs[t]
//	w_t = 0 where A_t < 0 and D_t > Mu std, else 1
//
// with the standard deviation (n) of D over the n response tokens of the batch. Of these tokens at
// most max(1, floor(MaxShare n)) have 0: those of the largest D, of equal ones the first. A
// standard deviation below 1e-12 leaves out nothing. Masked tokens get 0. Trinity-RFT leaves out
// tokens with A_t = 0 beyond the bound, too.
//
// EntropyDrop[t] is the mean of p (Entropy[t] + log p) over what the old policy could have sampled
// in the place of token t: the sum of p^2 (Entropy[t] + log p) over the vocabulary.
//
// weights, Role, OldLogprobs, Entropy, EntropyDrop and Advantages have one element per token;
// weights may be any of those four float arrays. A wrong shape or option, or a value of a response
// token that is not finite, is an error, and weights is not written.
func (ws *Workspace) ClipV(weights []float32, b *Batch, opt ClipVOptions) error {
	defer ws.release(ws.taken)
	isa, err := ws.ISA.resolve()
	T := b.Tokens()
	if err = cmp.Or(
		err,
		checkLen("weights", len(weights), T, "token"),
		checkRoles("Role", b.Role),
		checkPositive("Mu", opt.Mu, math.MaxFloat64),
		checkShare("MaxShare", opt.MaxShare),
	); err != nil {
		return err
	}
	if err := ws.checkResponses(isa, b.Role, array{"Advantages", b.Advantages}, array{"OldLogprobs", b.OldLogprobs},
		array{"Entropy", b.Entropy}, array{"EntropyDrop", b.EntropyDrop}); err != nil {
		return err
	}
	drop := take[float64](ws, T)
	for t, r := range b.Role {
		if r != RoleMasked {
			l := float64(b.OldLogprobs[t])
			drop[t] = float64(b.EntropyDrop[t]) - float64(exp64(l)*(float64(b.Entropy[t])+l))
		}
	}
	n := responses(b.Role)
	_, squares := spread64(drop, b.Role, n)
	std := math.Sqrt(squares / float64(max(n, 1)))
	most := ws.newChoices(b.Role, opt.MaxShare)
	for t, r := range b.Role {
		if r != RoleMasked && std >= 1e-12 && b.Advantages[t] < 0 && drop[t] > float64(opt.Mu*std) {
			most.add(^orderedBits64(drop[t]), t)
		}
		weights[t] = 1
		if r == RoleMasked {
			weights[t] = 0
		}
	}
	for _, c := range first(most.best, most.k) {
		weights[c.token] = 0
	}
	return nil
}
