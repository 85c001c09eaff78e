package gpu

import (
	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/problem"
)

// spanKernels are the kernels on spans, scopes and trajectories.
var spanKernels = []kernel{
	{name: "span_means", threads: spanThreads},
	{name: "min_max", threads: spanThreads},
	{name: "exp_scale", threads: 128},
	{name: "check_layout", threads: 256},
	{name: "aem_tops", threads: spanThreads},
	{name: "aem_spans", threads: spanThreads},
	{name: "aem_sort", threads: spanThreads},
	{name: "aem_scopes", threads: 128},
	{name: "aem_factors", threads: 256},
	{name: "grpo_scores", threads: spanThreads},
	{name: "grpo_advantages", threads: 256},
	{name: "gae", threads: spanThreads},
}

// spanThreads are those of a CTA of the kernels that give a warp to each of n things.
const spanThreads = 128

// perWarp returns how many of their CTAs it takes.
func perWarp(n int) int { return perThread(n, spanThreads/32) }

// spanState is what a workspace keeps for them.
type spanState struct {
	problem Ptr // of the call at hand: layout.cuh

	spanMeans spanMeansParams
	minMax    minMaxParams
	expScale  expScaleParams
	aem       aemParams
	grpo      grpoParams
	gae       gaeParams

	one [1]float32 // an array for the CPU's ExpScale, which checks the options
}

func (s *spanState) place(l *layout, size Size) {
	s.problem = l.take(8)
	s.aem.place(l, size)
	s.grpo.scores = l.take(4 * size.Trajectories)
}

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
	if err != nil {
		return err
	}
	if err := checkArrays(n, array{"dst", dst, 4}); err != nil || n == 0 {
		return err
	}
	p := &ws.spans.spanMeans
	*p = spanMeansParams{dst: dst, x: x, ranges: ranges}
	return launch(ws, "span_means", perWarp((n+1)/2), p)
}

// MinMax sets lo[g] and hi[g] to the extremes of group g, elements offsets[g] to
// offsets[g+1] of x, for n groups: both NaN if one is NaN, +Inf and -Inf for an empty
// group. offsets has n+1 elements, is not decreasing, and stays within x, which has
// size elements. The extremes of a group whose offsets are wrong are NaN. lo, hi and x
// do not overlap.
func (ws *Workspace) MinMax(lo, hi, x, offsets Ptr, n, size int) error {
	ranges, err := ws.ranges(x, offsets, n, size)
	if err != nil {
		return err
	}
	if err := checkArrays(n, array{"lo", lo, 4}, array{"hi", hi, 4}); err != nil || n == 0 {
		return err
	}
	p := &ws.spans.minMax
	*p = minMaxParams{lo: lo, hi: hi, x: x, ranges: ranges}
	return launch(ws, "min_max", perWarp(n), p)
}

// ranges checks what cuts n ranges out of the size elements of x.
func (ws *Workspace) ranges(x, offsets Ptr, n, size int) (rangesParams, error) {
	if err := checkLength("n", n); err != nil {
		return rangesParams{}, err
	}
	if err := checkLength("size", size); err != nil {
		return rangesParams{}, err
	}
	if err := checkArrays(size, array{"x", x, 4}); err != nil {
		return rangesParams{}, err
	}
	if err := checkArrays(n, array{"offsets", offsets, 4}); err != nil {
		return rangesParams{}, err
	}
	return rangesParams{offsets, int64(n), int64(size), ws.status}, nil
}

// ExpScale sets dst[i] = exp(-rate (x[i] - lo)) for n elements, at least 1, and divides
// by the mean of these: AEM's map of a scope's span entropies. dst may be x. One
// multiprocessor does it.
func (ws *Workspace) ExpScale(dst, x Ptr, n int, lo float32, rate float64) error {
	if err := checkPtr("dst", dst, 4); err != nil {
		return err
	}
	if err := checkPtr("x", x, 4); err != nil {
		return err
	}
	if n < 1 {
		return badInput("n", problem.CountPositive, n)
	}
	s := &ws.spans
	if err := ws.cpu.ExpScale(s.one[:], s.one[:], lo, rate); err != nil {
		return err
	}
	s.expScale = expScaleParams{dst: dst, x: x, n: int64(n), rate: rate, lo: lo}
	return launch(ws, "exp_scale", 1, &s.expScale)
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
		problem: ws.spans.problem, status: ws.status,
	}
	if err := ws.fill(l.problem, 0xff, 8); err != nil {
		return err
	}
	return launch(ws, "check_layout", perThread(max(b.Tokens, b.Trajectories+1), 256), l)
}

// nothing is a batch without tokens: of a method of the CPU that gets it, all that is
// left is the check of its options.
var nothing = reweight.Batch{SeqOffsets: []int64{0, 0}, GroupIDs: []int32{0}, Rewards: []float32{0}}
