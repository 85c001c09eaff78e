package reweight

import (
	"math"
	"reflect"
	"slices"

	"github.com/seed621a2839/reweight/internal/problem"
)

// A Policy is a policy loss with its constants: the loss l of a token that [Workspace.Loss]
// aggregates, and its derivative l' by the token's log-probability. It is one of [PPO], [GSPO],
// [GRPOS], [GMPO], [CISPO], [PG], [DPPO], [VESPO], [SAPO], [DRO], [ClipCov] and [KLCov], whose
// comments have the formulas, with these names:
//
//	A      the advantage
//	d      log pi - log pi_old, kept between -20 and 20
//	rho    e^d
//	clip   kept between 1 - ClipLow and 1 + ClipHigh
//
// Where l' has rho in it, l' is 0 where d is not log pi - log pi_old. A factor of A other than
// these ratios is a constant to the derivative, so that a clipped token still has one, and the
// value of a loss with log pi in it means nothing by itself.
//
// GMPO, DRO, ClipCov and KLCov have no weights of tokens: a factor of A or a weight of a token
// would mean something else in them than in the others, so that weights are an error.
type Policy interface {
	// String returns the name of the loss, as reports have it: "gspo".
	String() string
	// Traits returns what is true of the loss besides its formula.
	Traits() PolicyTraits

	// check says which constant is out of range, or that nobody has set them.
	check() error
	// terms adds the loss of each response token to the sums of the workspace, and sets the
	// gradient. The tokens are one sequence to a loss that has a factor of the sequence.
	// They are not a pointer because what an interface is given is allocated.
	terms(ws *Workspace, isa ISA, x lossTokens, scale float64)
}

// PolicyTraits say what is true of a policy loss besides its formula.
type PolicyTraits struct {
	Clips         bool // ClipLow and ClipHigh are constants of it
	Valueless     bool // log pi is in its value, which means nothing by itself: its gradient does
	BySequence    bool // the factor of a token is that of its sequence, so that it reads SeqOffsets
	BySpan        bool // the sequence is the span, so that it reads SpanIDs
	PerTrajectory bool // it is one loss for each trajectory, and their mean whatever Aggregation says
	Chooses       bool // it chooses among the tokens of the call
	Unweighted    bool // it has no factors of A and no weights of tokens
	AnyValues     bool // it takes values of response tokens that are not finite as they are
}

// A sequencePolicy has factors of a sequence.
type sequencePolicy interface {
	sum(ws *Workspace, isa ISA, x lossTokens) sequenceSum
	factors(of sequenceSum) sequenceFactors
}

// A chooser chooses among the tokens of the call before their terms are computed. choose
// returns what the terms read of each.
type chooser interface {
	choose(ws *Workspace, isa ISA, x lossTokens) []float32
}

// checkPolicy wants one of the types of this package, with constants that are in range. A pointer
// to one of them and a type in which one is embedded have the methods of a Policy too.
func checkPolicy(p Policy) error {
	switch {
	case p == nil:
		return badInput("Policy", problem.NoPolicy, "nil", "DefaultLoss")
	case reflect.TypeOf(p).PkgPath() != reflect.TypeFor[PPO]().PkgPath():
		return badInput("Policy", problem.NoPolicy, reflect.TypeOf(p), "DefaultLoss")
	}
	return p.check()
}

// lossTokens are the arrays that the terms of a loss are computed from, and the
// gradient. weights may be nil, for ones.
type lossTokens struct {
	grad, logprobs, old, advantages, weights []float32
	role                                     []Role
	chosen                                   []float32 // of a policy that chooses tokens: what choose has made
}

// slice returns tokens from to to.
func (x *lossTokens) slice(from, to int) lossTokens {
	y := lossTokens{x.grad[from:to], x.logprobs[from:to], x.old[from:to], x.advantages[from:to], nil, x.role[from:to],
		nil}
	if x.weights != nil {
		y.weights = x.weights[from:to]
	}
	if x.chosen != nil {
		y.chosen = x.chosen[from:to]
	}
	return y
}

// segment computes the terms of the tokens x, which are those of the batch from token
// from on, whole trajectories of it, and returns their sums. spans are those of the batch
// where the sequence is a span.
func (ws *Workspace) segment(
	isa ISA, x *lossTokens, b *Batch, from int, spans []sequenceSum, scale float64, p Policy, traits PolicyTraits,
) SurrogateSums {
	ws.kernels.surrogate = surrogateSums{}
	n := len(x.role)
	switch {
	case traits.BySpan:
		bySpan := p.(sequencePolicy)
		for at := 0; at < n; {
			end, span := runOf(b.SpanIDs[from:], x.role, at)
			var f sequenceFactors
			if span >= 0 {
				f = bySpan.factors(spans[span])
			}
			run := x.slice(at, end)
			ws.sequenceTerms(isa, &run, scale, f)
			at = end
		}
	case traits.BySequence:
		s, _ := slices.BinarySearch(b.SeqOffsets, int64(from))
		for at := 0; at < n; s++ {
			end := int(b.SeqOffsets[s+1]) - from
			p.terms(ws, isa, x.slice(at, end), scale)
			at = end
		}
	default:
		p.terms(ws, isa, *x, scale)
	}
	return ws.kernels.surrogate.result()
}

// runOf returns the end of the tokens, from the first on, whose response tokens are all
// of one span, and that span; -1 if there are no response tokens.
func runOf(spans []int32, role []Role, first int) (end int, span int32) {
	span = -1
	for t := first; t < len(role); t++ {
		switch {
		case role[t] == RoleMasked || spans[t] == span:
		case span >= 0:
			return t, span
		default:
			span = spans[t]
		}
	}
	return len(role), span
}

// result returns the sums.
func (s *surrogateSums) result() SurrogateSums {
	return SurrogateSums{int(s.tokens), int(s.clipped), s.loss.sum(), s.logRatio.sum()}
}

// A sequenceSum is what the factor of a sequence is computed from, summed over its n response
// tokens.
type sequenceSum struct {
	sum float64
	n   int
}

// sumSpans checks the spans of the batch and returns the sums of each.
func (ws *Workspace) sumSpans(isa ISA, b *Batch, p sequencePolicy) ([]sequenceSum, error) {
	count, err := ws.countSpans(b)
	if err != nil {
		return nil, err
	}
	spans := take[sequenceSum](ws, len(count))
	clear(spans)
	for at := 0; at < b.Tokens(); {
		end, span := runOf(b.SpanIDs, b.Role, at)
		if span >= 0 {
			run := p.sum(ws, isa, lossTokens{logprobs: b.Logprobs[at:end], old: b.OldLogprobs[at:end],
				role: b.Role[at:end]})
			spans[span].sum += run.sum
			spans[span].n += run.n
		}
		at = end
	}
	return spans, nil
}

// sequenceFactors are the factors of the tokens of a sequence. Element 1 of a pair is for
// negative advantages, element 0 for the others.
type sequenceFactors struct {
	value, linear, slope [2]float32 // l = -A (value + linear*logprob), of which one is 0; dl = -A slope
	clips                [2]int64   // 1 if such tokens count as clipped, or 0
	tokenRatio           bool       // slope is also times the token's own ratio
}

// clip sets the factors of a sequence of ratio s, as PPO clips the ratio of a token.
func (f *sequenceFactors) clip(s, slope float64, bounds PPO) {
	high, low := s, s // the ratio where A >= 0, and where A < 0
	f.slope = [2]float32{float32(slope), float32(slope)}
	if most := 1 + bounds.ClipHigh; s > most {
		high, f.slope[0], f.clips[0] = most, 0, 1
	}
	if least := 1 - bounds.ClipLow; s < least {
		low, f.slope[1], f.clips[1] = least, 0, 1
	}
	if bounds.DualClip != 0 && low > bounds.DualClip {
		low, f.slope[1] = bounds.DualClip, 0
	}
	f.value = [2]float32{float32(high), float32(low)}
}

// sequenceTerms adds the terms of a sequence with these factors.
func (ws *Workspace) sequenceTerms(isa ISA, x *lossTokens, scale float64, f sequenceFactors) {
	ws.blocks(x, scale, func(block *tokenBlock, y lossTokens) int64 {
		if f.tokenRatio {
			block.setRatios(isa, y.logprobs, y.old, y.role)
		} else {
			block.setLogRatios(y.logprobs, y.old, y.role)
		}
		return block.sequence(&y, &f)
	})
}

// blocks adds the weighted loss of each response token to the sums and sets grad to its
// derivative by the new log-probability, times scale; 0 for masked tokens, whose other inputs
// do not matter. set sets the log-ratio, the loss and the slope of each token of a block,
// anything where it is masked, and returns how many response tokens are clipped. The tokens
// begin groups of the sums, and what comes next begins one.
func (ws *Workspace) blocks(x *lossTokens, scale float64, set func(block *tokenBlock, y lossTokens) (clipped int64)) {
	sums, block, scale32 := &ws.kernels.surrogate, &ws.kernels.block, float32(scale)
	for from := 0; from < len(x.role); from += tokenBlockSize {
		y := x.slice(from, min(from+tokenBlockSize, len(x.role)))
		sums.clipped += set(block, y)
		n := len(y.role)
		loss, slope, grad := block.loss[:n], block.slope[:n], y.grad[:n]
		for i, r := range y.role {
			w := float32(1)
			if y.weights != nil {
				w = y.weights[i]
			}
			loss[i] = masked(r, w*loss[i])
			grad[i] = masked(r, float32(w*slope[i])*scale32)
		}
		sums.loss.addAll(loss)
		sums.logRatio.addAll(block.logRatio[:n])
	}
	sums.loss.flush()
	sums.logRatio.flush()
	sums.tokens += int64(responses(x.role))
}

// negative returns 1 if the sign of x is negative, and 0 if not.
func negative(x float32) uint32 { return math.Float32bits(x) >> 31 }

// outside reports whether a log-ratio is clamped.
func outside(d float32) bool { return d < -20 || d > 20 }

// sequence sets the terms where the factor of a token is that of its sequence, for each sign
// of the advantage.
func (block *tokenBlock) sequence(x *lossTokens, f *sequenceFactors) (clipped int64) {
	n := len(x.role)
	logprobs, old, adv := x.logprobs[:n], x.old[:n], x.advantages[:n]
	ratio, loss, slope := block.ratio[:n], block.loss[:n], block.slope[:n]
	if f.clips != [2]int64{} {
		for i, r := range x.role {
			a := masked(r, adv[i])
			clipped += oneIf(a > 0)&f.clips[0] | oneIf(a < 0)&f.clips[1]
		}
	}
	for i, a := range adv {
		j := negative(a)
		loss[i] = -a * (f.value[j] + float32(f.linear[j]*logprobs[i]))
		g := f.slope[j]
		if f.tokenRatio {
			g *= ratio[i]
			if outside(logprobs[i] - old[i]) {
				g = 0
			}
		}
		slope[i] = -a * g
	}
	return clipped
}
