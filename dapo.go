package reweight

import (
	"cmp"
	"slices"

	"github.com/seed621a2839/reweight/internal/problem"
)

// OverlongPenaltyOptions are the options of [Workspace.OverlongPenalty]. The zero value is an error, as
// its Buffer is.
type OverlongPenaltyOptions struct {
	Maximum int     // response tokens from which the penalty is full, at least Buffer
	Buffer  int     // tokens before it over which the penalty grows, above 0
	Penalty float64 // at Maximum, at least 0; 0: there is none
}

// DefaultOverlongPenalty holds DAPO's constants.
var DefaultOverlongPenalty = OverlongPenaltyOptions{Maximum: 20480, Buffer: 4096, Penalty: 1}

// OverlongPenalty sets penalties[q], which is to be added to the reward of trajectory q
// with n_q response tokens (DAPO, arXiv 2503.14476):
//
//	p_q = max(-Penalty, min(0, -Penalty (n_q - (Maximum - Buffer)) / Buffer))
//
// It is 0 up to Maximum - Buffer tokens and -Penalty from Maximum on. Observations
// between the turns do not count: they are not the policy's.
//
// penalties has one element per trajectory, and may be Rewards, which is not read. A
// wrong shape or option is an error, and penalties is not written.
func (ws *Workspace) OverlongPenalty(penalties []float32, b *Batch, opt OverlongPenaltyOptions) error {
	if err := cmp.Or(checkLen("penalties", len(penalties), b.Trajectories(), "trajectory"),
		b.checkLayout()); err != nil {
		return err
	}
	if opt.Buffer < 1 {
		return badInput("Buffer", problem.CountPositive, opt.Buffer)
	}
	err := cmp.Or(checkAtLeast("Maximum", opt.Maximum, opt.Buffer, "Buffer"), checkNotNegative("Penalty", opt.Penalty))
	if err != nil {
		return err
	}
	for q := range penalties {
		p := 0.0
		if over := b.responses(q) - (opt.Maximum - opt.Buffer); over > 0 {
			p -= min(opt.Penalty, opt.Penalty*float64(over)/float64(opt.Buffer))
		}
		penalties[q] = float32(p)
	}
	return nil
}

// GroupFilter sets weights to 1 at the response tokens of groups whose Rewards differ,
// or which have one member, to 0 elsewhere (DAPO's dynamic sampling, arXiv 2503.14476):
// trajectories whose advantages are all 0 leave numerator and denominator of the loss.
// Rewards are compared exactly. Every trajectory of a group counts, also one without
// response tokens.
//
// weights has one element per token, Rewards and GroupIDs one per trajectory; weights
// may be any array of b that is one float32 per token: none is read. A wrong shape or a
// reward that is not finite is an error, and weights is not written.
func (ws *Workspace) GroupFilter(weights []float32, b *Batch) error {
	defer ws.release(ws.taken)
	if err := cmp.Or(b.checkOutput("weights", weights), b.checkRewards()); err != nil {
		return err
	}
	groups, err := ws.compared(b, ScopeGroup)
	if err != nil {
		return err
	}
	for group := range groups.each {
		keep, differs := float32(0), func(q int) bool { return b.Rewards[q] != b.Rewards[group[0]] }
		if len(group) == 1 || slices.ContainsFunc(group, differs) {
			keep = 1
		}
		for _, q := range group {
			b.fill(weights, q, keep, 0)
		}
	}
	return nil
}
