package reweight

import (
	"cmp"

	"github.com/seed621a2839/reweight/internal/problem"
)

// OverlongPenaltyOptions are the options of OverlongPenalty. The zero value is an error, as
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
	if err := cmp.Or(checkLen("penalties", len(penalties), b.Trajectories(), "trajectory"), b.checkLayout()); err != nil {
		return err
	}
	if opt.Buffer < 1 {
		return badInput("Buffer", problem.CountPositive, opt.Buffer)
	}
	if opt.Maximum < opt.Buffer {
		return badInput("Maximum", problem.AtLeast, opt.Maximum, opt.Buffer, "Buffer")
	}
	if err := checkNotNegative("Penalty", opt.Penalty); err != nil {
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

// A rewardRange is the number of a group's rewards and their extremes.
type rewardRange struct {
	n      int
	lo, hi float32
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
	groups, err := ws.groupsOf(b)
	if err != nil {
		return err
	}
	perGroup := take[rewardRange](ws, len(groups))
	clear(perGroup)
	for q, r := range b.Rewards {
		g := &perGroup[groups.of(b.GroupIDs[q])]
		if g.n == 0 {
			g.lo, g.hi = r, r
		}
		g.n++
		g.lo, g.hi = min(g.lo, r), max(g.hi, r)
	}
	for q, id := range b.GroupIDs {
		keep := float32(0)
		if g := perGroup[groups.of(id)]; g.n == 1 || g.hi > g.lo {
			keep = 1
		}
		b.fill(weights, q, keep, 0)
	}
	return nil
}
