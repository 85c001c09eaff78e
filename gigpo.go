package reweight

import (
	"cmp"
	"math"
	"slices"
)

// GiGPOOptions are the options of GiGPO. Gamma and Omega that are both 0 are an error: nobody
// has set them. One of them may be 0.
type GiGPOOptions struct {
	Gamma       float64 // discount of span rewards, in [0, 1]; 0: a span counts its own reward alone
	Omega       float64 // weight of the step advantages, finite; 0 leaves them out
	DivideByStd bool    // plus 1e-6, of the group; false: by 1
	PerStep     bool    // the group's mean and std are over spans, as the public code has them; false: over trajectories
}

// DefaultGiGPO holds the paper's constants.
var DefaultGiGPO = GiGPOOptions{Gamma: 0.95, Omega: 1}

// gigpoEps is added to the standard deviations.
const gigpoEps = 1e-6

// A gigpoStep is a span: its group and anchor, its discounted return, and then its
// advantage.
type gigpoStep struct {
	group, anchor int32
	value         float64
}

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
		checkLens(len(count), "span", length{"Anchors", len(b.Anchors)}, length{"SpanRewards", len(b.SpanRewards)}),
		checkRewards("SpanRewards", b.SpanRewards),
	); err != nil {
		return err
	}
	turns := ws.turnsOf(b)
	var times []int32
	if opt.PerStep {
		times = turns
	}
	groups, rewards, err := ws.groupRewards(b, times)
	if err != nil {
		return err
	}
	steps := ws.discounted(b, turns, opt.Gamma)
	ws.compareSteps(steps, opt.DivideByStd)
	for q, r := range b.Rewards {
		episode := rewards[groups.of(b.GroupIDs[q])].relative(r, opt.DivideByStd, gigpoEps)
		for t := b.SeqOffsets[q]; t < b.SeqOffsets[q+1]; t++ {
			a := 0.0
			if b.Role[t] != RoleMasked {
				a = episode + float64(opt.Omega*steps[b.SpanIDs[t]].value)
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

// turnsOf returns the number of spans of each trajectory.
func (ws *Workspace) turnsOf(b *Batch) []int32 {
	turns := take[int32](ws, b.Trajectories())
	next := int32(0) // spans are numbered in the order in which they appear
	for q := range turns {
		first := next
		for t := b.SeqOffsets[q]; t < b.SeqOffsets[q+1]; t++ {
			next = max(next, b.SpanIDs[t]+1)
		}
		turns[q] = next - first
	}
	return turns
}

// discounted returns the spans with their discounted returns.
func (ws *Workspace) discounted(b *Batch, turns []int32, gamma float64) []gigpoStep {
	steps := take[gigpoStep](ws, len(b.SpanRewards))
	s := len(steps)
	for q := len(turns) - 1; q >= 0; q-- {
		value := 0.0
		for range turns[q] {
			s--
			value = float64(b.SpanRewards[s]) + float64(gamma*value)
			steps[s] = gigpoStep{b.GroupIDs[q], b.Anchors[s], value}
		}
	}
	return steps
}

// compareSteps turns the returns into advantages within spans of the same group and anchor.
func (ws *Workspace) compareSteps(steps []gigpoStep, divide bool) {
	order := take[int32](ws, len(steps)) // of the spans by group and anchor
	for s := range order {
		order[s] = int32(s)
	}
	slices.SortFunc(order, func(a, b int32) int {
		return cmp.Or(cmp.Compare(steps[a].group, steps[b].group), cmp.Compare(steps[a].anchor, steps[b].anchor), cmp.Compare(a, b))
	})
	for from := 0; from < len(steps); {
		first, to := steps[order[from]], from+1
		for to < len(steps) && steps[order[to]].group == first.group && steps[order[to]].anchor == first.anchor {
			to++
		}
		// Less the first return, equal ones are 0 and their mean is exact.
		n, sum, squares := float64(to-from), 0.0, 0.0
		for _, s := range order[from:to] {
			steps[s].value -= first.value
			sum += steps[s].value
		}
		mean := sum / n
		for _, s := range order[from:to] {
			d := steps[s].value - mean
			squares += float64(d * d)
			steps[s].value = d
		}
		if divide && n > 1 {
			f := math.Sqrt(squares/(n-1)) + gigpoEps
			for _, s := range order[from:to] {
				steps[s].value /= f
			}
		}
		from = to
	}
}
