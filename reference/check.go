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

// checkAbove0 returns an error unless x is above 0; NaN and +Inf are errors too.
func checkAbove0(name string, x float64) error {
	if !(x > 0) || math.IsInf(x, 1) {
		return fmt.Errorf("reference: %s = %v, want a finite number above 0", name, x)
	}
	return nil
}

// checkNumber returns an error if x is NaN or infinite.
func checkNumber(name string, x float64) error {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return fmt.Errorf("reference: %s = %v, want a finite number", name, x)
	}
	return nil
}

// checkFinite returns an error about the first element of x that is NaN or infinite.
func checkFinite(name string, x []float64) error {
	for i, v := range x {
		if err := checkNumber(fmt.Sprintf("%s[%d]", name, i), v); err != nil {
			return err
		}
	}
	return nil
}

// checkResponse returns an error unless x has one element per token, finite at
// response tokens.
func checkResponse(name string, x []float64, role []Role) error {
	if err := checkLen(name, len(x), len(role), "tokens"); err != nil {
		return err
	}
	return checkFinite(name, masked(x, role))
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
func members[K comparable](ids []K) (distinct []K, lists [][]int) {
	place := map[K]int{}
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

// responseTokens lists the response tokens of each trajectory.
func responseTokens(role []Role, offsets []int64) [][]int {
	tokens := make([][]int, len(offsets)-1)
	for s := range tokens {
		for t := offsets[s]; t < offsets[s+1]; t++ {
			if role[t] != RoleMasked {
				tokens[s] = append(tokens[s], int(t))
			}
		}
	}
	return tokens
}

// pick returns the elements of x at places.
func pick(x []float64, places []int) []float64 {
	picked := make([]float64, len(places))
	for i, p := range places {
		picked[i] = x[p]
	}
	return picked
}

// masked returns x with 0 at masked tokens.
func masked(x []float64, role []Role) []float64 {
	m := make([]float64, len(x))
	for t, r := range role {
		if r != RoleMasked {
			m[t] = x[t]
		}
	}
	return m
}

// ones returns n ones.
func ones(n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = 1
	}
	return x
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
