package reweight

import (
	"cmp"
	"math"
)

// TurnReturnsOptions are the options of [Workspace.TurnReturns]. The zero value is an error: nobody has set it.
type TurnReturnsOptions struct {
	Gamma       float64 // discount of later turns, above 0 and at most 1
	DivideByStd bool    // plus 1e-6, of the returns of all turns of the group: this makes the gradient biased
}

// DefaultTurnReturns discounts nothing, and divides by nothing.
var DefaultTurnReturns = TurnReturnsOptions{Gamma: 1}

// turnsEps is added to the standard deviations.
const turnsEps = 1e-6

// TurnReturns sets advantages to what each turn and the turns after it earn, less what the other
// trajectories of the group earn from there on. A turn is a span, K of them are in a trajectory:
//
//	G_k = SpanRewards[k] + Gamma G_k+1    G_K = SpanRewards[K] + Rewards[q]
//	b_k = mean over the others p of the group of G_min(k, K_p) of p
//	A_t = G_k(t) - b_k(t)
//
// So a trajectory that has ended before turn k counts in b_k by its last turn, and one without
// turns by its reward. As b_k does not depend on this trajectory, and always has the same number of
// terms, the policy gradient is unbiased, also where the policy decides when an episode ends. A
// group of one has b_k = 0. With DivideByStd, A is divided by the standard deviation (n-1) of G
// over all turns of the group, if it has more than one. Masked tokens get 0.
//
// Rewards is added to the last turn: it must not contain the rewards of turns again.
//
// advantages, Role and SpanIDs have one element per token, at most 2^31 - 1; Rewards and GroupIDs
// one per trajectory; SpanRewards one per span; SeqOffsets must be set. advantages may be any array
// of b that is one float32 per token: none is read. A span needs at least one response token. Wrong
// shapes, spans or options, or a reward that is not finite, is an error, and advantages is not
// written.
func (ws *Workspace) TurnReturns(advantages []float32, b *Batch, opt TurnReturnsOptions) error {
	defer ws.release(ws.taken)
	if err := cmp.Or(
		checkShare("Gamma", opt.Gamma),
		checkLen("advantages", len(advantages), b.Tokens(), "token"),
	); err != nil {
		return err
	}
	turns, err := ws.turnsOf(b)
	if err != nil {
		return err
	}
	for q, r := range b.Rewards {
		next, gamma := float64(r), 1.0 // of the reward, which comes with the last turn
		for s := turns.first[q+1] - 1; s >= turns.first[q]; s-- {
			next = float64(b.SpanRewards[s]) + float64(gamma*next)
			turns.x[s], gamma = next, opt.Gamma
		}
	}
	relative := take[float64](ws, len(turns.x))
	for group := range turns.groups.each {
		turns.lessOthers(relative, group, b)
		if opt.DivideByStd {
			if std := turns.std(group); std > 0 {
				for _, q := range group {
					for s := turns.first[q]; s < turns.first[q+1]; s++ {
						relative[s] /= std + turnsEps
					}
				}
			}
		}
	}
	b.fillTurns(advantages, relative)
	return nil
}

// MTGRPOOptions are the options of [Workspace.MTGRPO]. The zero value is an error: nobody has set it.
type MTGRPOOptions struct {
	Lambda      float64 // of the outcome in turns before the last, above 0
	DivideByStd bool    // plus 1e-6, of what is compared; false: by 1
}

// DefaultMTGRPO divides, and gives the outcome half of its weight in turns before the last.
var DefaultMTGRPO = MTGRPOOptions{Lambda: 0.5, DivideByStd: true}

// MTGRPO sets advantages to what each turn has earned relative to the same turn of the group, and what the
// trajectory has earned in the end relative to the group (after arXiv 2505.11821). A turn is a span, K of them are
// in a trajectory:
//
//	B_k = (SpanRewards[k] - mean) / F                    over the turns k of q's group
//	E_q = (Rewards[q] + SpanRewards[K] - mean) / F       over the trajectories of q's group
//	A_t = B_k(t) + Lambda E_q(t) where k < K, E_q(t) where k = K
//
// F is 1, or with DivideByStd the standard deviation (n-1) plus 1e-6. What is alone has B or E 0, and so have equal
// rewards. A trajectory without turns has E of its reward. Masked tokens get 0.
//
// Where the policy decides when an episode ends, the gradient is biased: a trajectory that goes on has the mean of
// the turn's rewards subtracted, and one that ends has not, as if going on cost that much. There is no such bias in the
// returns of turns.
//
// advantages, Role and SpanIDs have one element per token, at most 2^31 - 1; Rewards and GroupIDs
// one per trajectory; SpanRewards one per span; SeqOffsets must be set. advantages may be any array
// of b that is one float32 per token: none is read. A span needs at least one response token. Wrong
// shapes, spans or options, or a reward that is not finite, is an error, and advantages is not
// written.
func (ws *Workspace) MTGRPO(advantages []float32, b *Batch, opt MTGRPOOptions) error {
	defer ws.release(ws.taken)
	if err := cmp.Or(
		checkPositive("Lambda", opt.Lambda, math.MaxFloat64),
		checkLen("advantages", len(advantages), b.Tokens(), "token"),
	); err != nil {
		return err
	}
	turns, err := ws.turnsOf(b)
	if err != nil {
		return err
	}
	spans, n := len(turns.x), len(turns.x)+len(b.Rewards)
	values, keys := take[float64](ws, n), take[int64](ws, n) // of the turns, and of the outcomes behind them
	for q, group := range b.GroupIDs {
		end := float64(b.Rewards[q])
		for k := range turns.number(q) {
			s := turns.first[q] + k
			values[s], keys[s] = float64(b.SpanRewards[s]), int64(group)<<32|int64(k)
			if k == turns.number(q)-1 {
				end += values[s]
			}
		}
		values[spans+q], keys[spans+q] = end, int64(group)<<32|math.MaxUint32
	}
	for together := range ws.grouped(keys).each {
		compareSteps(values, together, opt.DivideByStd)
	}
	for q := range b.Rewards {
		for s := turns.first[q]; s < turns.first[q+1]; s++ {
			if turns.x[s] = values[spans+q]; s < turns.first[q+1]-1 {
				turns.x[s] = values[s] + float64(opt.Lambda*values[spans+q])
			}
		}
	}
	b.fillTurns(advantages, turns.x)
	return nil
}

// turns are the spans of a batch as the turns of its trajectories.
type turns struct {
	first  []int32   // of each trajectory, and behind the last one the number of all
	x      []float64 // a number of each turn
	groups grouping  // of trajectories
}

// turnsOf checks the rewards and the turns of a batch, and returns the turns.
func (ws *Workspace) turnsOf(b *Batch) (t turns, err error) {
	count, err := ws.countSpans(b)
	if err != nil {
		return t, err
	}
	if err := cmp.Or(
		checkLen("SpanRewards", len(b.SpanRewards), len(count), "span"),
		checkRewards("SpanRewards", b.SpanRewards),
		b.checkRewards(),
	); err != nil {
		return t, err
	}
	t.groups, err = ws.compared(b, ScopeGroup)
	t.first, t.x = ws.firstSpans(b), take[float64](ws, len(count))
	return t, err
}

// number returns how many turns trajectory q has.
func (t *turns) number(q int) int32 { return t.first[q+1] - t.first[q] }

// at returns x of turn k of trajectory q, or of its last turn if it has ended before; without turns
// the trajectory's reward.
func (t *turns) at(q int, k int32, b *Batch) float64 {
	n := t.number(q)
	if n == 0 {
		return float64(b.Rewards[q])
	}
	return t.x[t.first[q]+min(k, n-1)]
}

// lessOthers sets relative to x of each turn of the group less the mean of the other trajectories
// there.
func (t *turns) lessOthers(relative []float64, group []int, b *Batch) {
	longest := int32(0)
	for _, q := range group {
		longest = max(longest, t.number(q))
	}
	others := float64(len(group) - 1)
	for k := range longest {
		// Less the number of the first trajectory, equal ones are 0 and their sum is exact.
		base, sum := t.at(group[0], k, b), 0.0
		for _, q := range group {
			sum += t.at(q, k, b) - base
		}
		for _, q := range group {
			switch s := t.first[q] + k; {
			case k >= t.number(q):
			case others == 0:
				relative[s] = t.x[s]
			default:
				d := t.x[s] - base
				relative[s] = d - (sum-d)/others
			}
		}
	}
}

// std returns the standard deviation (n-1) of x over all turns of the group, 0 if these are fewer
// than two.
func (t *turns) std(group []int) float64 {
	n, sum, squares := 0.0, 0.0, 0.0
	for _, q := range group {
		for s := t.first[q]; s < t.first[q+1]; s++ {
			n++
			sum += t.x[s]
		}
	}
	if n < 2 {
		return 0
	}
	mean := sum / n
	for _, q := range group {
		for s := t.first[q]; s < t.first[q+1]; s++ {
			d := t.x[s] - mean
			squares += float64(d * d)
		}
	}
	return math.Sqrt(squares / (n - 1))
}

// fillTurns sets dst to the number of its turn at each response token, and to 0 at the others.
func (b *Batch) fillTurns(dst []float32, x []float64) {
	for t, r := range b.Role {
		dst[t] = 0
		if r != RoleMasked {
			dst[t] = float32(x[b.SpanIDs[t]])
		}
	}
}
