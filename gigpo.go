package reweight

import (
	"cmp"
	"math"
)

// GiGPOOptions are the options of [Workspace.GiGPO]. Gamma and Omega that are both 0 are an error: nobody
// has set them. One of them may be 0.
type GiGPOOptions struct {
	Gamma       float64 // discount of span rewards, in [0, 1]; 0: a span counts its own reward alone
	Omega       float64 // weight of the step advantages, finite; 0 leaves them out
	DivideByStd bool    // plus 1e-6, of the group; false: by 1
	PerStep     bool    // the group's mean and std are over spans, as in the public code; false: over trajectories
}

// DefaultGiGPO holds the paper's constants.
var DefaultGiGPO = GiGPOOptions{Gamma: 0.95, Omega: 1}

// gigpoEps is added to the standard deviations.
const gigpoEps = 1e-6

// GiGPO sets advantages from groups of trajectories, and from groups of spans that
// started in the same state (arXiv 2505.10978):
//
//	E_q = (Rewards[q] - mean) / F        over the trajectories of q's group
//	G_s = SpanRewards[s] + Gamma G_next(s)
//	B_s = (G_s - mean) / F               over the spans of s's group with the anchor of s
//	A_t = E_q(t) + Omega B_s(t)
//
// where next(s) is the next span of the same trajectory. F is 1, or with DivideByStd
// the standard deviation (n-1) plus 1e-6. A group of one trajectory has mean 0 and
// std 1; a span that shares its anchor with no other has B 0, and so have spans whose
// returns are equal. With PerStep, mean and std of E are over the spans of the group,
// each with its trajectory's reward, so that long trajectories count more; then it is a
// group of one span that has mean 0 and std 1. Trajectories without response tokens count
// in their group, unless PerStep. Masked tokens get 0.
//
// advantages, Role and SpanIDs have one element per token, at most 2^31 - 1; Rewards
// and GroupIDs one per trajectory; Anchors and SpanRewards one per span; SeqOffsets must
// be set. advantages may be any array of b that is one float32 per token: none is read.
// A span needs at least one response token. Wrong shapes, spans or options, or a reward
// that is not finite, is an error, and advantages is not written.
func (ws *Workspace) GiGPO(advantages []float32, b *Batch, opt GiGPOOptions) error {
	defer ws.release(ws.taken)
	if err := cmp.Or(opt.check(), checkLen("advantages", len(advantages), b.Tokens(), "token")); err != nil {
		return err
	}
	count, err := ws.countSpans(b)
	if err != nil {
		return err
	}
	if err := cmp.Or(
		checkLen("Anchors", len(b.Anchors), len(count), "span"),
		checkLen("SpanRewards", len(b.SpanRewards), len(count), "span"),
		checkRewards("SpanRewards", b.SpanRewards),
	); err != nil {
		return err
	}
	first := ws.firstSpans(b)
	var perStep []int32
	if opt.PerStep {
		perStep = first
	}
	episode := take[float64](ws, b.Trajectories())
	if err := ws.eachReward(b, perStep, func(q int, g groupReward) {
		episode[q] = g.relative(b.Rewards[q], opt.DivideByStd, gigpoEps)
	}); err != nil {
		return err
	}
	steps, states := take[float64](ws, len(count)), take[int64](ws, len(count)) // returns of spans; group and anchor
	for q, group := range b.GroupIDs {
		next := 0.0
		for s := first[q+1] - 1; s >= first[q]; s-- {
			next = float64(b.SpanRewards[s]) + float64(opt.Gamma*next)
			steps[s], states[s] = next, int64(group)<<32|int64(uint32(b.Anchors[s]))
		}
	}
	for spans := range ws.grouped(states).each {
		compareSteps(steps, spans, opt.DivideByStd)
	}
	for q, e := range episode {
		for t := b.SeqOffsets[q]; t < b.SeqOffsets[q+1]; t++ {
			a := 0.0
			if b.Role[t] != RoleMasked {
				a = e + float64(opt.Omega*steps[b.SpanIDs[t]])
			}
			advantages[t] = float32(a)
		}
	}
	return nil
}

// check says which option is out of range.
func (opt *GiGPOOptions) check() error {
	return cmp.Or(
		checkRange("Gamma", opt.Gamma, 0, 1),
		checkFinite32("Omega", opt.Omega),
		checkEither("Gamma", opt.Gamma, "Omega", opt.Omega, "DefaultGiGPO"),
	)
}

// compareSteps turns the returns of spans of the same group and anchor into advantages.
func compareSteps(steps []float64, spans []int, divide bool) {
	// Less the first return, equal ones are 0 and their mean is exact.
	n, first, sum, squares := float64(len(spans)), steps[spans[0]], 0.0, 0.0
	for _, s := range spans {
		steps[s] -= first
		sum += steps[s]
	}
	mean := sum / n
	for _, s := range spans {
		steps[s] -= mean
		squares += float64(steps[s] * steps[s])
	}
	if divide && n > 1 {
		f := math.Sqrt(squares/(n-1)) + gigpoEps
		for _, s := range spans {
			steps[s] /= f
		}
	}
}
