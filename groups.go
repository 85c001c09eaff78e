package reweight

import (
	"cmp"
	"math"
	"slices"
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

// A grouping is the numbers from 0 on that have the keys, sorted by these, and of equal keys by
// themselves.
type grouping struct {
	keys  []int64
	order []int
}

// grouped returns the grouping of the keys.
func (ws *Workspace) grouped(keys []int64) grouping {
	order := take[int](ws, len(keys))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Or(cmp.Compare(keys[a], keys[b]), a-b) })
	return grouping{keys, order}
}

// each calls yield with the numbers of each key.
func (g grouping) each(yield func(group []int) bool) {
	for rest := g.order; len(rest) > 0; {
		n := 1
		for n < len(rest) && g.keys[rest[n]] == g.keys[rest[0]] {
			n++
		}
		if !yield(rest[:n]) {
			return
		}
		rest = rest[n:]
	}
}

// compared returns the trajectories of the batch, grouped as the scope says.
func (ws *Workspace) compared(b *Batch, scope Scope) (grouping, error) {
	if scope == ScopeGroup {
		if err := checkLen("GroupIDs", len(b.GroupIDs), b.Trajectories(), "trajectory"); err != nil {
			return grouping{}, err
		}
	}
	keys := take[int64](ws, b.Trajectories())
	for q := range keys {
		switch scope {
		case ScopeGroup:
			keys[q] = int64(b.GroupIDs[q])
		case ScopeTrajectory:
			keys[q] = int64(q)
		case ScopeBatch:
			keys[q] = 0
		}
	}
	return ws.grouped(keys), nil
}

// groupReward is the rewards of a group: their number, mean and sum of squared
// deviations.
type groupReward struct{ n, mean, squares float64 }

// eachReward checks the rewards and the groups of the batch, and calls f with each trajectory
// and the rewards of its group. That of a trajectory counts once or, unless first is nil, once
// for each of its spans, of which firstSpans has the first.
func (ws *Workspace) eachReward(b *Batch, first []int32, f func(q int, g groupReward)) error {
	if err := b.checkRewards(); err != nil {
		return err
	}
	groups, err := ws.compared(b, ScopeGroup)
	if err != nil {
		return err
	}
	for group := range groups.each {
		g := b.sumRewards(group, first)
		for _, q := range group {
			f(q, g)
		}
	}
	return nil
}

// sumRewards sums the rewards of a group of trajectories, in their order; see eachReward.
func (b *Batch) sumRewards(group []int, first []int32) (g groupReward) {
	n := 1.0
	for _, q := range group {
		if first != nil {
			n = float64(first[q+1] - first[q])
		}
		g.n += n
		g.mean += float64(n * float64(b.Rewards[q]))
	}
	g.mean /= g.n
	for _, q := range group {
		if first != nil {
			n = float64(first[q+1] - first[q])
		}
		d := float64(b.Rewards[q]) - g.mean
		g.squares += float64(n * float64(d*d))
	}
	return g
}

// relative returns (r - mean) / (std + eps), or r - mean if it is not to be divided,
// with n-1 in the variance. A group of one has mean 0 and std 1.
func (g groupReward) relative(r float32, divide bool, eps float64) float64 {
	mean, std := g.mean, math.Sqrt(g.squares/(g.n-1))
	if g.n == 1 {
		mean, std = 0, 1
	}
	a := float64(r) - mean
	if divide && a != 0 {
		a /= std + eps
	}
	return a
}
