// Package lengths checks how long the slices of a call are. What runs the kernels by
// addresses, on a GPU or in a C library, cannot see that: its runner, which takes the
// slices that *reweight.Workspace takes, asks here first, and returns the same errors.
package lengths

import (
	"fmt"

	"github.com/seed621a2839/reweight"
)

// bad is an error about an argument as a whole.
func bad(arg, problem string, values ...any) error {
	return &reweight.InputError{Arg: arg, Index: -1, Problem: fmt.Sprintf(problem, values...)}
}

// one wants one element per unit: a token, a trajectory, a row.
func one(arg string, got, want int, unit string) error {
	if got != want {
		return bad(arg, "has %d elements, want %d, one per %s", got, want, unit)
	}
	return nil
}

// A length is how many elements an argument has.
type length struct {
	arg string
	n   int
}

// each wants one element per unit in each of the arguments.
func each(want int, unit string, lengths ...length) error {
	for _, l := range lengths {
		if err := one(l.arg, l.n, want, unit); err != nil {
			return err
		}
	}
	return nil
}

// weightsOf wants one weight per token, or nil, which stands for ones.
func weightsOf(weights []float32, tokens int) error {
	if weights == nil {
		return nil
	}
	return one("weights", len(weights), tokens, "token")
}

// ranges wants offsets of n ranges.
func ranges(name string, n int, offsets []int32) error {
	if len(offsets) != n+1 {
		return bad("offsets", "has %d elements, want %d, one more than %s", len(offsets), n+1, name)
	}
	return nil
}

// trajectories wants offsets of at least one trajectory.
func trajectories(b *reweight.Batch) error {
	if n := len(b.SeqOffsets); n < 2 {
		return bad("SeqOffsets", "has %d elements, want at least 2, for one trajectory", n)
	}
	return nil
}

// rows wants so many rows of logits in one format.
func rows(arg string, l reweight.Logits, n int) error {
	set := 0
	for _, there := range [...]bool{l.F32 != nil, l.BF16 != nil, l.F16 != nil} {
		if there {
			set++
		}
	}
	size := len(l.F32) + len(l.BF16) + len(l.F16)
	switch {
	case l.Vocab < 1:
		return bad(arg, "has rows of %d logits, want at least 1", l.Vocab)
	case set > 1:
		return bad(arg, "has %d formats set, want one", set)
	case size%l.Vocab != 0:
		return bad(arg, "has %d logits, want a multiple of its vocabulary of %d", size, l.Vocab)
	case size/l.Vocab != n:
		return bad(arg, "has %d rows of %d logits, want %d rows", size/l.Vocab, l.Vocab, n)
	}
	return nil
}
