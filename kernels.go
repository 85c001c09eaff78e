package reweight

import (
	"cmp"
	"math"

	"github.com/seed621a2839/reweight/internal/problem"
)

// The kernels one by one, for callers who compose their own step: each checks
// its arguments and runs the implementation that ws.ISA names, in pieces that keep
// goroutines preemptible. A span or a group is never cut: one of a hundred million
// elements holds a garbage collection up for some 50 ms.

// kernelScratch holds the sums that the assembly writes. They are here because a
// local variable would be allocated in each call.
type kernelScratch struct {
	moments   momentSums
	surrogate surrogateSums
	exps      laneSum
	block     tokenBlock
}

// Moments are the sums of MaskedMoments over n tokens.
type Moments struct {
	N            int
	Sum, Squares float64 // of x - shift and (x - shift)^2
}

// MaskedMoments sums x - shift and its square over the tokens whose role is in
// roles. x and role have the same length, and
// shift is finite; anything else is an error. The values of other tokens do not
// matter.
func (ws *Workspace) MaskedMoments(x []float32, role []Role, roles RoleSet, shift float64) (Moments, error) {
	isa, err := ws.ISA.resolve()
	if err = cmp.Or(err, checkLen("x", len(x), len(role), "token"), checkRoles("role", role),
		checkFinite64("shift", shift)); err != nil {
		return Moments{}, err
	}
	return ws.moments(isa, x, role, roles, shift), nil
}

func (ws *Workspace) moments(isa ISA, x []float32, role []Role, roles RoleSet, shift float64) Moments {
	ws.kernels.moments = momentSums{}
	for i := 0; i < len(x); i += pieceSize {
		end := min(i+pieceSize, len(x))
		isa.maskedMoments(x[i:end], role[i:end], roles, shift, &ws.kernels.moments)
	}
	return Moments{int(ws.kernels.moments.count), tree(&ws.kernels.moments.sum), tree(&ws.kernels.moments.squares)}
}

// spread returns the number of tokens of the roles, the mean of x over them, and
// the sum of squares about that mean, NaN if an x is not finite.
func (ws *Workspace) spread(isa ISA, x []float32, role []Role, roles RoleSet) (n int, mean, squares float64) {
	m := ws.moments(isa, x, role, roles, 0)
	if m.N == 0 {
		return 0, 0, 0
	}
	mean = m.Sum / float64(m.N)
	d := ws.moments(isa, x, role, roles, mean)
	// The mean is rounded: what the sum about it is off from 0 is taken out.
	return m.N, mean, max(0, d.Squares-float64(d.Sum*d.Sum)/float64(d.N))
}

// ActFocusWeights sets dst[t] by the role of token t: opt.Alpha for reasoning,
// 1 + opt.Beta * sigmoid((signal[t] - mean) / sigma) for action and 0 for
// masked tokens (arXiv 2605.14558). ActFocus does this with the mean and sigma
// of the batch. dst, signal and role have the same length; dst may be signal.
// sigma is at least 0; 0 makes every sigmoid 1/2. A wrong length, mean, sigma
// or option is an error, and dst is not written.
func (ws *Workspace) ActFocusWeights(dst, signal []float32, role []Role, mean, sigma float64,
	opt ActFocusOptions) error {
	isa, err := ws.ISA.resolve()
	if err = cmp.Or(
		err,
		checkLens(len(role), "token", array{"dst", dst}, array{"signal", signal}),
		checkRoles("role", role),
		opt.check(),
		checkFinite32("mean", mean),
		checkNotNegative("sigma", sigma),
	); err != nil {
		return err
	}
	q := actFocusConsts{muHi: float32(mean), alpha: float32(opt.Alpha), beta: float32(opt.Beta)}
	q.muLo = float32(mean - float64(q.muHi))
	if sigma > 0 {
		q.k = float32(max(-math.MaxFloat32, -log2E/sigma))
	}
	for i := 0; i < len(dst); i += pieceSize {
		end := min(i+pieceSize, len(dst))
		isa.actFocusWeights(dst[i:end], signal[i:end], role[i:end], &q)
	}
	return nil
}

// SpanMeans sets dst[s] to the mean of x over span s, elements offsets[s] to
// offsets[s+1], NaN for an empty one. offsets has one element more than dst, is
// not decreasing, and stays within x; otherwise that is an error, and dst is
// not written. dst does not overlap x.
func (ws *Workspace) SpanMeans(dst, x []float32, offsets []int32) error {
	defer ws.release(ws.taken)
	isa, err := ws.ISA.resolve()
	if err = cmp.Or(err, checkRanges("dst", len(dst), len(x), offsets)); err != nil {
		return err
	}
	sums := take[float64](ws, len(dst))
	for s := 0; s < len(dst); {
		end := pieceOfRanges(offsets, s)
		isa.spanSums(sums[s:end], x, offsets[s:end+1])
		s = end
	}
	for s := range dst {
		dst[s] = float32(sums[s] / float64(offsets[s+1]-offsets[s]))
	}
	return nil
}

// MinMax sets lo[g] and hi[g] to the extremes of group g, elements offsets[g]
// to offsets[g+1] of x: both NaN if one is NaN, +Inf and -Inf for an empty
// group. offsets has one element more than lo and hi, is not decreasing, and
// stays within x; otherwise that is an error, and nothing is written. lo, hi and
// x do not overlap.
func (ws *Workspace) MinMax(lo, hi, x []float32, offsets []int32) error {
	isa, err := ws.ISA.resolve()
	if err = cmp.Or(err, checkLen("hi", len(hi), len(lo), "group"),
		checkRanges("lo", len(lo), len(x), offsets)); err != nil {
		return err
	}
	for g := 0; g < len(lo); {
		end := pieceOfRanges(offsets, g)
		isa.minMax(lo[g:end], hi[g:end], x, offsets[g:end+1])
		g = end
	}
	return nil
}

// ExpScale sets dst[i] = exp(-rate (x[i] - lo)) and divides by the mean of
// these: AEM's map of a scope's span entropies (arXiv 2605.00425), with lo the
// smallest and rate = lambda / (max - min). The exponent is kept between -86 and
// 83. dst and x have the same length, at least 1; dst may be x. A wrong length, a
// rate that is negative or not finite, or a lo that is not finite is an error, and
// dst is not written.
func (ws *Workspace) ExpScale(dst, x []float32, lo float32, rate float64) error {
	isa, err := ws.ISA.resolve()
	if err != nil {
		return err
	}
	if len(x) == 0 {
		return badInput("x", problem.Empty)
	}
	if err := cmp.Or(checkLen("dst", len(dst), len(x), "element of x"), checkNotNegative("rate", rate)); err != nil {
		return err
	}
	if !finite(lo) {
		return badInput("lo", problem.Finite, lo)
	}
	k := float32(max(-math.MaxFloat32, -rate*log2E))
	ws.kernels.exps = laneSum{}
	for i := 0; i < len(x); i += pieceSize {
		end := min(i+pieceSize, len(x))
		isa.expScale(dst[i:end], x[i:end], lo, k, &ws.kernels.exps)
	}
	f := float32(float64(len(x)) / ws.kernels.exps.sum())
	for i := 0; i < len(x); i += pieceSize {
		isa.scale(dst[i:min(i+pieceSize, len(x))], f)
	}
	return nil
}

// Multiply sets dst[i] = a[i] * b[i]: AEM's factors onto advantages. The
// lengths are equal, or that is an error; dst may be a or b.
func (ws *Workspace) Multiply(dst, a, b []float32) error {
	isa, err := ws.ISA.resolve()
	if err = cmp.Or(err, checkLens(len(dst), "element of dst", array{"a", a}, array{"b", b})); err != nil {
		return err
	}
	for i := 0; i < len(dst); i += pieceSize {
		end := min(i+pieceSize, len(dst))
		isa.multiply(dst[i:end], a[i:end], b[i:end])
	}
	return nil
}

// SurrogateSums are what Surrogate sums over response tokens.
type SurrogateSums struct {
	Tokens   int
	Clipped  int     // those whose clipped term is the larger
	Loss     float64 // of weight times clipped surrogate
	LogRatio float64 // of the clamped log-ratio, nats
}

// Surrogate computes the weighted loss of each response token as opt.Policy defines it, its
// sums, and grad[t] = scale * dl_t/dlogprobs[t] * weight; the aggregation and the KL of opt are not used. All tokens
// are one trajectory to the policies that take the ratio of a sequence, and the batch to
// those that choose tokens, and there are no spans: [SequenceSpan] is an error for GSPO and
// GRPO-S. weights nil stands for ones. All
// arrays have one element per token; grad may be any of the float inputs. A wrong
// length or option is an error, and so is, with another policy than PPO, a value of a
// response token that is not finite; grad is not written then.
func (ws *Workspace) Surrogate(grad, logprobs, old, advantages, weights []float32, role []Role, scale float64,
	opt LossOptions) (SurrogateSums, error) {
	defer ws.release(ws.taken)
	isa, err := ws.ISA.resolve()
	read := [...]array{{"logprobs", logprobs}, {"old", old}, {"advantages", advantages}, {"weights", weights}}
	if err = cmp.Or(
		err,
		checkLen("grad", len(grad), len(role), "token"),
		checkLens(len(role), "token", read[:3]...),
		checkOptional("weights", weights, len(role), "token"),
		checkRoles("role", role),
		opt.check(weights),
		checkFinite32("scale", scale),
	); err != nil {
		return SurrogateSums{}, err
	}
	traits := opt.Policy.Traits()
	if traits.BySpan {
		return SurrogateSums{}, badInput("Sequence", problem.Spanless, SequenceSpan, SequenceTrajectory)
	}
	if !traits.AnyValues {
		if err := ws.checkFinite(isa, role, read[:]...); err != nil {
			return SurrogateSums{}, err
		}
	}
	x := lossTokens{grad, logprobs, old, advantages, weights, role, nil}
	if traits.Chooses {
		x.chosen = opt.Policy.(chooser).choose(ws, isa, x)
	}
	ws.kernels.surrogate = surrogateSums{}
	opt.Policy.terms(ws, isa, x, scale)
	return ws.kernels.surrogate.result(), nil
}

// pieceOfRanges returns the end of the ranges, from the first on, that have at most
// pieceSize elements together and are at most as many; it is one range at least.
func pieceOfRanges(offsets []int32, first int) int {
	last, limit := min(len(offsets)-1, first+pieceSize), int(offsets[first])+pieceSize
	end := first + 1
	for end < last && int(offsets[end+1]) <= limit {
		end++
	}
	return end
}
