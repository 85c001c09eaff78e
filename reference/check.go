package reference

import (
	"fmt"
	"math"
)

// A Role says what a token is to the loss.
type Role uint8

const (
	RoleMasked    Role = iota // prompt or observation: no part in the loss
	RoleReasoning             // response token outside the action body
	RoleAction                // strictly between <answer> and </answer>
)

// checkLen returns an error unless there is one element per unit: a token, a
// trajectory, a span, a row.
func checkLen(name string, got, want int, unit string) error {
	if got != want {
		return fmt.Errorf("reference: len(%s) = %d, want %d %s", name, got, want, unit)
	}
	return nil
}

func checkRoles(role []Role) error {
	for t, r := range role {
		if r > RoleAction {
			return fmt.Errorf("reference: role[%d] = %d, want 0, 1 or 2", t, r)
		}
	}
	return nil
}

func checkOffsets(offsets []int64, tokens int) error {
	if len(offsets) == 0 {
		return fmt.Errorf("reference: len(offsets) = 0, want at least 1")
	}
	if offsets[0] != 0 {
		return fmt.Errorf("reference: offsets[0] = %d, want 0", offsets[0])
	}
	for s := 1; s < len(offsets); s++ {
		if offsets[s] < offsets[s-1] {
			return fmt.Errorf("reference: offsets[%d] = %d is below offsets[%d] = %d", s, offsets[s], s-1, offsets[s-1])
		}
	}
	if last := offsets[len(offsets)-1]; last != int64(tokens) {
		return fmt.Errorf("reference: offsets[%d] = %d, want %d tokens", len(offsets)-1, last, tokens)
	}
	return nil
}

// checkAtLeast returns an error unless min <= x; NaN and +Inf are errors too.
func checkAtLeast(name string, x, min float64) error {
	if !(x >= min) || math.IsInf(x, 1) {
		return fmt.Errorf("reference: %s = %v, want a finite number, %v or more", name, x, min)
	}
	return nil
}

// first returns the first error that is not nil.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// members lists the indices that share an id, for each id in order of its
// first appearance. Ids need not be dense, sorted or contiguous.
func members(ids []int32) (distinct []int32, lists [][]int) {
	place := map[int32]int{}
	for i, id := range ids {
		if _, seen := place[id]; !seen {
			place[id] = len(distinct)
			distinct = append(distinct, id)
			lists = append(lists, nil)
		}
		lists[place[id]] = append(lists[place[id]], i)
	}
	return distinct, lists
}

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
