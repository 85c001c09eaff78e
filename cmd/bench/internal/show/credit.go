package show

import (
	"fmt"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/rollout"
)

// A Credit is what the papers' schemes make of a batch, with their default options: a
// number for each token. A slice is nil if the batch lacks what it is computed from, and
// a note says what that is.
type Credit struct {
	Weights    []float32 // of ActFocus
	Factors    []float32 // of AEM
	Advantages []float32 // of GRPO, or the batch's own if it has no rewards
	Notes      []string  // whole sentences
}

// NewCredit computes what it can from the arrays that the batch has. The signal is that
// of ActFocus. An array that is there and wrong is an error.
func NewCredit(b *reweight.Batch, signal reweight.Signal) (Credit, error) {
	var c Credit
	var ws reweight.Workspace
	T := b.Tokens()
	note := func(format string, args ...any) { c.Notes = append(c.Notes, fmt.Sprintf(format, args...)) }

	if err := rollout.Require(b, signal.Arrays()...); err == nil {
		c.Weights = make([]float32, T)
		opt := reweight.DefaultActFocus
		opt.Signal = signal
		if _, err := ws.ActFocus(c.Weights, b, opt); err != nil {
			return c, err
		}
	} else if signal == reweight.SignalEnergy && len(b.OldLogprobs) > 0 {
		note("ActFocus is left out: %v. With -signal surprisal it takes old_logprobs instead.", err)
	} else {
		note("ActFocus is left out: %v.", err)
	}

	if err := rollout.Require(b, "entropy", "span_ids", "group_ids"); err == nil {
		c.Factors = make([]float32, T)
		if err := ws.AEM(c.Factors, b, reweight.DefaultAEM); err != nil {
			return c, err
		}
	} else if len(b.Entropy) == 0 && len(b.OldLogprobs) > 0 {
		note("AEM is left out: %v. With -surprisal-entropy it takes old_logprobs instead.", err)
	} else {
		note("AEM is left out: %v.", err)
	}

	if err := rollout.Require(b, "rewards", "group_ids"); err == nil {
		c.Advantages = make([]float32, T)
		if err := ws.GRPO(c.Advantages, b, reweight.DefaultGRPO); err != nil {
			return c, err
		}
	} else if len(b.Advantages) > 0 {
		c.Advantages = b.Advantages
		note("The advantages are the file's own, because %v.", err)
	} else {
		note("Advantages are left out: %v.", err)
	}
	return c, nil
}
