package reweight

import (
	"math"

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

// String returns the scope's name, as flags and reports have it.
func (s Scope) String() string { return nameOf(s, scopeNames[:]) }

// MarshalText returns the scope's name.
func (s Scope) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText sets the scope to the one of that name.
func (s *Scope) UnmarshalText(name []byte) error { return parseName(s, "Scope", name, scopeNames[:]) }

// spanScratch holds the spans of a batch: how many response tokens each has, and
// in which order they stand when they are sorted by scope.
type spanScratch struct {
	count   []int32   // [spans] response tokens
	start   []int32   // [spans+1] where each span's values begin
	values  []float32 // of response tokens, span by span
	means   []float32 // [spans] of the values
	scope   []int32   // [spans] scope of each span
	place   []int32   // [spans] place of each span among all, sorted by scope
	offsets []int32   // [scopes+1] where each scope's places begin
}

// countSpans checks the spans of the batch and counts the response tokens of
// each. A span without one is an error.
func (ws *Workspace) countSpans(b *Batch) error {
	T := b.Tokens()
	if err := checkLen("SpanIDs", len(b.SpanIDs), T, "token"); err != nil {
		return err
	}
	if err := checkTokenCount(T); err != nil {
		return err
	}
	if err := b.checkLayout(); err != nil {
		return err
	}
	if err := checkSpans(b.SpanIDs, b.Role, b.SeqOffsets); err != nil {
		return err
	}
	spans := numberOfSpans(b.SpanIDs)
	sc := &ws.spans
	sc.count = grow(sc.count, spans)
	sc.start = grow(sc.start, spans+1)
	clear(sc.count)
	for t, s := range b.SpanIDs {
		if s >= 0 && b.Role[t] != RoleMasked {
			sc.count[s]++
		}
	}
	sc.start[0] = 0
	for s, n := range sc.count {
		if n == 0 {
			return badInput("SpanIDs", problem.SpanEmpty, s)
		}
		sc.start[s+1] = sc.start[s] + n
	}
	return nil
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

// meanOfSpans sets means[s] to the mean of x over the response tokens of span s,
// which countSpans has counted. arg is the name of x.
func (ws *Workspace) meanOfSpans(arg string, x []float32, b *Batch) error {
	sc := &ws.spans
	if err := sc.gather(arg, x, b, largestMean); err != nil {
		return err
	}
	sc.means = grow(sc.means, len(sc.count))
	return ws.SpanMeans(sc.means, sc.values, sc.start)
}

// gather sets values to x at the response tokens, span by span. One that is larger than
// largest, or NaN, is an error. arg is the name of x.
func (sc *spanScratch) gather(arg string, x []float32, b *Batch, largest float64) error {
	spans := len(sc.count)
	sc.values = grow(sc.values, int(sc.start[spans]))
	for t, s := range b.SpanIDs {
		if s < 0 || b.Role[t] == RoleMasked {
			continue
		}
		if !(math.Abs(float64(x[t])) <= largest) {
			return badElement(arg, t, problem.SpanMean, x[t], s)
		}
		sc.values[sc.start[s]] = x[t]
		sc.start[s]++
	}
	copy(sc.start[1:], sc.start[:spans]) // undo the counting up
	sc.start[0] = 0
	return nil
}

// sortSpans sorts the spans that countSpans has counted by their scope, a
// counting sort.
func (ws *Workspace) sortSpans(b *Batch, scope Scope) error {
	sc := &ws.spans
	scopes := 1
	var groups groupIndex
	switch scope {
	case ScopeGroup:
		var err error
		if groups, err = ws.groupsOf(b); err != nil {
			return err
		}
		scopes = len(groups)
	case ScopeTrajectory:
		scopes = b.Trajectories()
	}
	sc.scope = grow(sc.scope, len(sc.count))
	sc.place = grow(sc.place, len(sc.count))
	sc.offsets = grow(sc.offsets, scopes+1)
	clear(sc.offsets)
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
				sc.scope[s] = int32(g)
			}
		}
	}
	for _, g := range sc.scope {
		sc.offsets[g+1]++
	}
	for g := range scopes {
		sc.offsets[g+1] += sc.offsets[g]
	}
	for s, g := range sc.scope {
		sc.place[s] = sc.offsets[g]
		sc.offsets[g]++
	}
	copy(sc.offsets[1:], sc.offsets) // undo the counting up
	sc.offsets[0] = 0
	return nil
}

// checkTokenCount wants no more tokens than spans can count.
func checkTokenCount(tokens int) error {
	if tokens > math.MaxInt32 {
		return badInput("SpanIDs", problem.SpanTokens, tokens, math.MaxInt32)
	}
	return nil
}

// checkSpans wants spans numbered 0, 1, 2, ... in the order in which they
// first appear, each within one trajectory, and every response token in one.
func checkSpans(span []int32, role []Role, off []int64) error {
	next, first := int32(0), int32(0) // spans seen so far; those seen before this trajectory
	s := 0
	for t, id := range span {
		for int64(t) >= off[s+1] {
			s, first = s+1, next
		}
		switch {
		case id < -1 || id > next:
			return badElement("SpanIDs", t, problem.SpanOrder, id, next)
		case id >= 0 && id < first:
			return badElement("SpanIDs", t, problem.SpanTrajectory, id, s)
		case id == -1 && role[t] != RoleMasked:
			return badElement("SpanIDs", t, problem.SpanMissing, uint8(role[t]))
		case id == next:
			next++
		}
	}
	return nil
}
