package reweight

import (
	"cmp"
	"math"

	"github.com/seed621a2839/reweight/internal/problem"
)

// AEMOptions are the options of [Workspace.AEM]. Lambda and Guard that are both 0 are an error: nobody
// has set them. One of them may be 0.
type AEMOptions struct {
	Lambda float64 // strength, 0 to 80; 0 makes every factor 1
	Guard  float64 // a scope whose span entropies differ by less, in nats, is left alone; at least 0
	Scope  Scope
}

// DefaultAEM holds the paper's constants.
var DefaultAEM = AEMOptions{Lambda: 1, Guard: 0.1, Scope: ScopeGroup}

// check says which option is out of range.
func (opt *AEMOptions) check() error {
	if err := checkRange("Lambda", opt.Lambda, 0, 80); err != nil {
		return err
	}
	if !(opt.Guard >= 0) {
		return badInput("Guard", problem.NotNegative, opt.Guard)
	}
	return cmp.Or(checkName("Scope", opt.Scope, scopeNames[:]),
		checkEither("Lambda", opt.Lambda, "Guard", opt.Guard, "DefaultAEM"))
}

// AEM sets factors[t] to the number that the advantage of token t is to be
// multiplied by (arXiv 2605.00425). With Hbar_s the mean entropy of the
// response tokens of span s, and minimum, maximum and mean over the spans of
// s's scope:
//
//	Htil_s = (Hbar_s - min) / (max - min)
//	factor = exp(-Lambda Htil_s) / mean exp(-Lambda Htil)
//
// The factor is 1 for tokens outside spans and masked ones, and in scopes where
// max - min is below Guard (or so small that Lambda over it is infinite). The
// mean over the spans of a scope is 1, and every factor is positive: no
// advantage changes its sign.
//
// factors, Role, SpanIDs and Entropy have one element per token, at most 2^31 - 1;
// SeqOffsets must be set, and GroupIDs have one element per trajectory for
// ScopeGroup, which alone reads them. factors may be Entropy. A span needs at least
// one response token. Wrong shapes, spans or options, or an entropy in a span that
// is not finite or above 1e30, is an error, and factors is not written.
func (ws *Workspace) AEM(factors []float32, b *Batch, opt AEMOptions) error {
	defer ws.release(ws.taken)
	isa, err := ws.ISA.resolve()
	T := b.Tokens()
	if err = cmp.Or(err, opt.check(), checkLen("factors", len(factors), T, "token"),
		checkLen("Entropy", len(b.Entropy), T, "token")); err != nil {
		return err
	}
	count, err := ws.countSpans(b)
	if err != nil {
		return err
	}
	scopes, err := ws.compared(b, opt.Scope)
	if err != nil {
		return err
	}
	perSpan, err := ws.meanOfSpans("Entropy", b.Entropy, b, count)
	if err != nil {
		return err
	}
	first, scratch := ws.firstSpans(b), take[float32](ws, len(count))
	least, most, all := take[float32](ws, 1), take[float32](ws, 1), take[int32](ws, 2)
	for trajectories := range scopes.each {
		together := scratch[:0] // the means of the scope, then its factors
		for _, q := range trajectories {
			together = append(together, perSpan[first[q]:first[q+1]]...)
		}
		all[0], all[1] = 0, int32(len(together))
		isa.minMax(least, most, together, all)
		width := float64(most[0]) - float64(least[0])
		if width < opt.Guard || opt.Lambda >= width*math.MaxFloat32 {
			for i := range together {
				together[i] = 1
			}
		} else if err := ws.ExpScale(together, together, least[0], opt.Lambda/width); err != nil {
			return err
		}
		for _, q := range trajectories {
			together = together[copy(perSpan[first[q]:first[q+1]], together):]
		}
	}
	for t, s := range b.SpanIDs {
		factors[t] = 1
		if s >= 0 && b.Role[t] != RoleMasked {
			factors[t] = perSpan[s]
		}
	}
	return nil
}
