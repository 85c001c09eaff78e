package gpu

import (
	"cmp"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/shape"
)

// perWarp returns how many CTAs it takes to give a warp to each of n things.
func perWarp(n int) int { return perThread(n, shape.SpanThreads/32) }

// A rangesParams is Ranges of spans.cu.
type rangesParams struct {
	offsets     Ptr
	count, size int64
	status      Ptr
}

// spanMeansParams are those of span_means.
type spanMeansParams struct {
	dst, x Ptr
	ranges rangesParams
}

// minMaxParams are those of min_max.
type minMaxParams struct {
	lo, hi, x Ptr
	ranges    rangesParams
}

// expScaleParams are those of exp_scale.
type expScaleParams struct {
	dst, x Ptr
	n      int64
	rate   float64
	lo     float32
	_      uint32
}

// SpanMeans sets dst[s] to the mean of x over span s, elements offsets[s] to
// offsets[s+1], for n spans, NaN for an empty one. offsets has n+1 elements, is not
// decreasing, and stays within x, which has size elements. The mean of a span whose
// offsets are wrong is NaN. dst does not overlap x.
func (ws *Workspace) SpanMeans(dst, x, offsets Ptr, n, size int) error {
	ranges, err := ws.ranges(x, offsets, n, size)
	if err = cmp.Or(err, checkArrays(n, array{"dst", dst, 4})); err != nil || n == 0 {
		return err
	}
	ws.params.spanMeans = spanMeansParams{dst: dst, x: x, ranges: ranges}
	return launch(ws, &ws.params.spanMeans, step{"span_means", perWarp((n + 1) / 2)})
}

// MinMax sets lo[g] and hi[g] to the extremes of group g, elements offsets[g] to
// offsets[g+1] of x, for n groups: both NaN if one is NaN, +Inf and -Inf for an empty
// group. offsets has n+1 elements, is not decreasing, and stays within x, which has
// size elements. The extremes of a group whose offsets are wrong are NaN. lo, hi and x
// do not overlap.
func (ws *Workspace) MinMax(lo, hi, x, offsets Ptr, n, size int) error {
	ranges, err := ws.ranges(x, offsets, n, size)
	if err = cmp.Or(err, checkArrays(n, array{"lo", lo, 4}, array{"hi", hi, 4})); err != nil || n == 0 {
		return err
	}
	ws.params.minMax = minMaxParams{lo: lo, hi: hi, x: x, ranges: ranges}
	return launch(ws, &ws.params.minMax, step{"min_max", perWarp(n)})
}

// ranges checks what cuts n ranges out of the size elements of x.
func (ws *Workspace) ranges(x, offsets Ptr, n, size int) (rangesParams, error) {
	return rangesParams{offsets, int64(n), int64(size), ws.status}, cmp.Or(
		checkLength("n", n),
		checkLength("size", size),
		checkArrays(size, array{"x", x, 4}),
		checkArrays(n, array{"offsets", offsets, 4}),
	)
}

// ExpScale sets dst[i] = exp(-rate (x[i] - lo)) for n elements, at least 1, and divides
// by the mean of these: AEM's map of a scope's span entropies. dst may be x. One
// multiprocessor does it.
func (ws *Workspace) ExpScale(dst, x Ptr, n int, lo float32, rate float64) error {
	err := cmp.Or(
		checkPtr("dst", dst, 4),
		checkPtr("x", x, 4),
		checkPositive("n", n),
		ws.cpu.ExpScale(ws.one[:], ws.one[:], lo, rate),
	)
	if err != nil {
		return err
	}
	ws.params.expScale = expScaleParams{dst: dst, x: x, n: int64(n), rate: rate, lo: lo}
	return launch(ws, &ws.params.expScale, step{"exp_scale", 1})
}

// A layoutParams is Layout of layout.cuh.
type layoutParams struct {
	role, offsets        Ptr
	tokens, trajectories int64
	problem, status      Ptr
}

// startBatch queues the check of the batch's layout, on which the kernels that follow
// rely, and sets l for them. The host has checked the other arguments.
func (ws *Workspace) startBatch(l *layoutParams, b *Batch) error {
	*l = layoutParams{
		role: b.Role, offsets: b.SeqOffsets,
		tokens: int64(b.Tokens), trajectories: int64(b.Trajectories),
		problem: ws.scratch.problem, status: ws.status,
	}
	if err := ws.fill(l.problem, 0xff, 8); err != nil {
		return err
	}
	return launch(ws, l, step{"check_layout", perThread(max(b.Tokens, b.Trajectories+1), 256)})
}

// nothing is a batch without tokens: of a method of the CPU that gets it, all that is
// left is the check of its options.
var nothing = reweight.Batch{SeqOffsets: []int64{0, 0}, GroupIDs: []int32{0}, Rewards: []float32{0}}
