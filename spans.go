package reweight

import (
	"cmp"
	"math"
	"slices"

	"github.com/seed621a2839/reweight/internal/problem"
)

// A Scope says which spans are compared with each other.
type Scope uint8

const (
	ScopeGroup      Scope = iota // all spans of all trajectories of a group
	ScopeTrajectory              // all spans of a trajectory
	ScopeBatch                   // all spans
)

var scopeNames = [...]string{"group", "trajectory", "batch"}

// String and MarshalText return the scope's name, as flags and reports have it, and UnmarshalText takes it.
func (s Scope) String() string                   { return nameOf(s, scopeNames[:]) }
func (s Scope) MarshalText() ([]byte, error)     { return []byte(s.String()), nil }
func (s *Scope) UnmarshalText(name []byte) error { return parseName(s, "Scope", name, scopeNames[:]) }

// groupIndex holds the distinct group ids of a batch in ascending order. A
// group's number is its place there.
type groupIndex []int32

// groupsOf returns the groups of the batch's trajectories.
func (ws *Workspace) groupsOf(b *Batch) (groupIndex, error) {
	if err := checkLen("GroupIDs", len(b.GroupIDs), b.Trajectories(), "trajectory"); err != nil {
		return nil, err
	}
	groups := take[int32](ws, len(b.GroupIDs))
	copy(groups, b.GroupIDs)
	slices.Sort(groups)
	return slices.Compact(groups), nil
}

// of returns the number of the group of that id.
func (g groupIndex) of(id int32) int {
	i, _ := slices.BinarySearch(g, id)
	return i
}

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
func (ws *Workspace) gather(arg string, x []float32, b *Batch, count []int32, largest float64) (values []float32, start []int32, err error) {
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

// sortSpans sorts the spans by their scope, a counting sort. It returns the place of each
// span among all, and where the places of each scope begin, and end for the last.
func (ws *Workspace) sortSpans(b *Batch, spans int, scope Scope) (place, offsets []int32, err error) {
	scopes := 1
	var groups groupIndex
	switch scope {
	case ScopeGroup:
		if groups, err = ws.groupsOf(b); err != nil {
			return nil, nil, err
		}
		scopes = len(groups)
	case ScopeTrajectory:
		scopes = b.Trajectories()
	}
	scopeOf := take[int32](ws, spans)
	place, offsets = take[int32](ws, spans), take[int32](ws, scopes+1)
	clear(offsets)
	for q := range b.Trajectories() {
		g := 0
		switch scope {
		case ScopeGroup:
			g = groups.of(b.GroupIDs[q])
		case ScopeTrajectory:
			g = q
		}
		for t := b.SeqOffsets[q]; t < b.SeqOffsets[q+1]; t++ {
			if s := b.SpanIDs[t]; s >= 0 {
				scopeOf[s] = int32(g)
			}
		}
	}
	for _, g := range scopeOf {
		offsets[g+1]++
	}
	for g := range scopes {
		offsets[g+1] += offsets[g]
	}
	for s, g := range scopeOf {
		place[s] = offsets[g]
		offsets[g]++
	}
	copy(offsets[1:], offsets) // undo the counting up
	offsets[0] = 0
	return place, offsets, nil
}
