package reweight

import (
	"cmp"
	"math"
	"slices"

	"github.com/seed621a2839/reweight/internal/problem"
)

// countSpans checks the spans of the batch and returns the number of response tokens of
// each. A span without one is an error.
func (ws *Workspace) countSpans(b *Batch) ([]int32, error) {
	T := b.Tokens()
	if err := cmp.Or(checkLen("SpanIDs", len(b.SpanIDs), T, "token"), checkTokenCount(T)); err != nil {
		return nil, err
	}
	if err := b.checkLayout(); err != nil {
		return nil, err
	}
	if err := checkSpans(b.SpanIDs, b.Role, b.SeqOffsets); err != nil {
		return nil, err
	}
	count := take[int32](ws, numberOfSpans(b.SpanIDs))
	clear(count)
	for t, s := range b.SpanIDs {
		if s >= 0 && b.Role[t] != RoleMasked {
			count[s]++
		}
	}
	if s := slices.Index(count, 0); s >= 0 {
		return nil, badInput("SpanIDs", problem.SpanEmpty, s)
	}
	return count, nil
}

// firstSpans returns the first span of each trajectory, and behind the last one the number of
// all spans, which countSpans has checked: they are numbered in the order in which they appear.
func (ws *Workspace) firstSpans(b *Batch) []int32 {
	first := take[int32](ws, b.Trajectories()+1)
	next := int32(0)
	for q := range b.Trajectories() {
		first[q] = next
		for t := b.SeqOffsets[q]; t < b.SeqOffsets[q+1]; t++ {
			next = max(next, b.SpanIDs[t]+1)
		}
	}
	first[b.Trajectories()] = next
	return first
}

// numberOfSpans returns how many spans checked span ids number.
func numberOfSpans(span []int32) int {
	n := 0
	for _, s := range span {
		n = max(n, int(s)+1)
	}
	return n
}

// largestMean bounds what is averaged over spans, so that neither the sum of a group
// of eight nor the difference of two means overflows float32.
const largestMean = 1e30

// meanOfSpans returns the mean of x over the response tokens of each span, of which
// countSpans has the number. arg is the name of x.
func (ws *Workspace) meanOfSpans(arg string, x []float32, b *Batch, count []int32) ([]float32, error) {
	values, start, err := ws.gather(arg, x, b, count, largestMean)
	if err != nil {
		return nil, err
	}
	means := take[float32](ws, len(count))
	return means, ws.SpanMeans(means, values, start)
}

// gather returns x at the response tokens, span by span, and where the values of each span
// begin, and end for the last. countSpans has their number. One that is larger than
// largest, or NaN, is an error. arg is the name of x.
func (ws *Workspace) gather(arg string, x []float32, b *Batch, count []int32,
	largest float64) (values []float32, start []int32, err error) {
	start = take[int32](ws, len(count)+1)
	start[0] = 0
	for s, n := range count {
		start[s+1] = start[s] + n
	}
	values = take[float32](ws, int(start[len(count)]))
	for t, s := range b.SpanIDs {
		if s < 0 || b.Role[t] == RoleMasked {
			continue
		}
		if !(math.Abs(float64(x[t])) <= largest) {
			return nil, nil, badElement(arg, t, problem.SpanMean, x[t], s)
		}
		values[start[s]] = x[t]
		start[s]++
	}
	copy(start[1:], start) // undo the counting up
	start[0] = 0
	return values, start, nil
}
