package reference

import (
	"fmt"
	"slices"
)

// A Role says what a token is to the loss.
type Role uint8

const (
	RoleMasked    Role = iota // prompt or observation: no part in the loss
	RoleReasoning             // response token outside the action body
	RoleAction                // strictly between <answer> and </answer>
)

// A Batch is T tokens of S trajectories, one after another, without padding, with the
// names of package reweight. Tokens with a role other than 0 are the response tokens.
// Trajectories with the same group id are compared with one another; ids may be any.
// Spans, the turns of a trajectory, are numbered from 0 in the order in which they begin.
type Batch struct {
	Role       []Role  // [T]
	SeqOffsets []int64 // [S+1], trajectory s is tokens SeqOffsets[s] to SeqOffsets[s+1]
	GroupIDs   []int32 // [S]
	SpanIDs    []int32 // [T], -1 outside
	Anchors    []int32 // [spans], the state in which a span begins

	Rewards     []float64 // [S], outcomes
	RewardParts []float64 // [S, K], their parts, one trajectory after another
	SpanRewards []float64 // [spans]

	// [T] each.
	TokenRewards, Advantages, Returns                   []float64
	Entropy, RefEnergy, RefEntropy                      []float64
	Logprobs, OldLogprobs, RefLogprobs, RolloutLogprobs []float64
	TeacherLogprobs                                     []float64 // NaN throughout a trajectory without a teacher
	Values, NewValues                                   []float64 // of the old critic and of the new one
	SumSqProbs                                          []float64 // of the old policy, over the vocabulary
	EntropyDrop                                         []float64 // the sum of p^2 (Entropy + log p) of the same
}

// perToken panics unless each of the arrays has one element per token.
func (b *Batch) perToken(arrays ...[]float64) {
	for _, x := range arrays {
		fit(len(x), len(b.Role), "token")
	}
}

// perTrajectory panics unless each of the arrays has one element per trajectory.
func (b *Batch) perTrajectory(arrays ...[]float64) {
	for _, x := range arrays {
		fit(len(x), len(b.SeqOffsets)-1, "trajectory")
	}
}

func fit(got, want int, unit string) {
	if got != want {
		panic(fmt.Sprintf("reference: an array has %d elements, want %d, one per %s", got, want, unit))
	}
}

// trajectories returns the response tokens of each trajectory.
func (b *Batch) trajectories() [][]int {
	fit(int(b.SeqOffsets[len(b.SeqOffsets)-1]), len(b.Role), "token")
	tokens := make([][]int, len(b.SeqOffsets)-1)
	for s := range tokens {
		for t := b.SeqOffsets[s]; t < b.SeqOffsets[s+1]; t++ {
			if b.Role[t] != RoleMasked {
				tokens[s] = append(tokens[s], int(t))
			}
		}
	}
	return tokens
}

// spans returns the response tokens of each span.
func (b *Batch) spans() [][]int {
	fit(len(b.SpanIDs), len(b.Role), "token")
	var tokens [][]int
	for t, s := range b.SpanIDs {
		for int(s) >= len(tokens) {
			tokens = append(tokens, nil)
		}
		if s >= 0 && b.Role[t] != RoleMasked {
			tokens[s] = append(tokens[s], t)
		}
	}
	return tokens
}

// trajectoryOfSpans returns the trajectory of each span.
func (b *Batch) trajectoryOfSpans() []int {
	of := make([]int, len(b.spans()))
	for q := range len(b.SeqOffsets) - 1 {
		for t := b.SeqOffsets[q]; t < b.SeqOffsets[q+1]; t++ {
			if s := b.SpanIDs[t]; s >= 0 {
				of[s] = q
			}
		}
	}
	return of
}

// groups returns the trajectories of each group.
func (b *Batch) groups() [][]int {
	fit(len(b.GroupIDs), len(b.SeqOffsets)-1, "trajectory")
	return members(b.GroupIDs)
}

// members returns the indices that share an id, for each id in order of its first
// appearance.
func members[K comparable](ids []K) (lists [][]int) {
	place := map[K]int{}
	for i, id := range ids {
		if _, seen := place[id]; !seen {
			place[id] = len(lists)
			lists = append(lists, nil)
		}
		lists[place[id]] = append(lists[place[id]], i)
	}
	return lists
}

// spread gives every response token the value of its trajectory, and masked tokens 0.
// (verl: the end of compute_grpo_outcome_advantage.)
func (b *Batch) spread(of []float64) []float64 {
	x := make([]float64, len(b.Role))
	for s, tokens := range b.trajectories() {
		for _, t := range tokens {
			x[t] = of[s]
		}
	}
	return x
}

// masked returns x with 0 at masked tokens.
func (b *Batch) masked(x []float64) []float64 {
	b.perToken(x)
	m := make([]float64, len(x))
	for t, r := range b.Role {
		if r != RoleMasked {
			m[t] = x[t]
		}
	}
	return m
}

// pick returns the elements of x at places.
func pick(x []float64, places []int) []float64 {
	picked := make([]float64, len(places))
	for i, p := range places {
		picked[i] = x[p]
	}
	return picked
}

// differences returns x - y at places.
func differences(x, y []float64, places []int) []float64 {
	d := make([]float64, len(places))
	for i, p := range places {
		d[i] = x[p] - y[p]
	}
	return d
}

// ones returns n ones.
func ones(n int) []float64 { return slices.Repeat([]float64{1}, n) }

// sum returns the sum of x. Long ones are summed in halves: the rounding error
// of adding one after another would grow with their length.
func sum(x []float64) float64 {
	if n := len(x); n > 256 {
		return sum(x[:n/2]) + sum(x[n/2:])
	}
	s := 0.0
	for _, v := range x {
		s += v
	}
	return s
}

// mean returns the arithmetic mean, NaN for an empty x.
func mean(x []float64) float64 { return sum(x) / float64(len(x)) }

// variance returns sum (x - mean)^2 / (n - 1).
func variance(x []float64) float64 {
	m := mean(x)
	sum := 0.0
	for _, v := range x {
		sum += (v - m) * (v - m)
	}
	return sum / float64(len(x)-1)
}

// clamp returns x between lo and hi; NaN stays NaN.
func clamp(x, lo, hi float64) float64 { return min(max(x, lo), hi) }
