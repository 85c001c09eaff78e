package show

import (
	"fmt"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/rollout"
	"github.com/seed621a2839/reweight/scheme"
)

// A Credit is a number for each token by each scheme: those that the batch has from a
// trainer, or else what the papers' schemes make of it, with their default options. A
// slice is nil if a trainer used none, or if the batch lacks what it is computed from, of
// which a note says what that is.
type Credit struct {
	Weights    []float32 // of ActFocus
	Factors    []float32 // of AEM
	Advantages []float32 // of GRPO, or the batch's own if it has no rewards
	Notes      []string  // whole sentences
}

// NewCredit computes what it can from the arrays that the batch has, unless the batch has
// the weights or factors of a trainer. The signal is that of ActFocus. An array that is
// there and wrong is an error.
func NewCredit(b *reweight.Batch, signal reweight.Signal) (Credit, error) {
	if len(b.ActFocusWeights)+len(b.AEMFactors) > 0 {
		return Credit{Weights: b.ActFocusWeights, Factors: b.AEMFactors, Advantages: b.Advantages}, nil
	}
	var c Credit
	var ws reweight.Workspace
	note := func(format string, args ...any) { c.Notes = append(c.Notes, fmt.Sprintf(format, args...)) }
	compute := func(name string) (dst []float32, missing, err error) {
		e, err := scheme.Find(name)
		if err != nil {
			return nil, nil, err
		}
		opt := e.Defaults()
		opt.ActFocus.Signal = signal
		if lacks := e.Lacks(b, opt); lacks != nil {
			return nil, rollout.Require(b, lacks[0]), nil
		}
		dst = make([]float32, b.Tokens())
		return dst, nil, e.Compute(&ws, dst, b, opt)
	}

	var missing, err error
	if c.Weights, missing, err = compute("actfocus"); err != nil {
		return c, err
	}
	if missing != nil && signal == reweight.SignalEnergy && len(b.OldLogprobs) > 0 {
		note("ActFocus is left out: %v. With -signal surprisal it takes old_logprobs instead.", missing)
	} else if missing != nil {
		note("ActFocus is left out: %v.", missing)
	}

	if c.Factors, missing, err = compute("aem"); err != nil {
		return c, err
	}
	if missing != nil && len(b.Entropy) == 0 && len(b.OldLogprobs) > 0 {
		note("AEM is left out: %v. With -surprisal-entropy it takes old_logprobs instead.", missing)
	} else if missing != nil {
		note("AEM is left out: %v.", missing)
	}

	if c.Advantages, missing, err = compute("group_norm"); err != nil {
		return c, err
	}
	if missing != nil && len(b.Advantages) > 0 {
		c.Advantages = b.Advantages
		note("The advantages are the file's own, because %v.", missing)
	} else if missing != nil {
		note("Advantages are left out: %v.", missing)
	}
	return c, nil
}
