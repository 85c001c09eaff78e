package runner

import (
	"fmt"

	"github.com/seed621a2839/reweight"
)

// Package gpu has addresses where package reweight has slices. What the lengths of
// slices can have wrong is checked here, with the texts of package reweight.

// badInput is an error about an argument as a whole.
func badInput(arg, problem string, values ...any) *reweight.InputError {
	return &reweight.InputError{Arg: arg, Index: -1, Problem: fmt.Sprintf(problem, values...)}
}

// checkLen wants one element per unit: a token, a trajectory, a row.
func checkLen(arg string, got, want int, unit string) error {
	if got != want {
		return badInput(arg, "has %d elements, want %d, one per %s", got, want, unit)
	}
	return nil
}

// A length is how many elements an argument has.
type length struct {
	arg string
	n   int
}

// checkLens wants one element per unit in each of the arguments.
func checkLens(want int, unit string, lengths ...length) error {
	for _, l := range lengths {
		if err := checkLen(l.arg, l.n, want, unit); err != nil {
			return err
		}
	}
	return nil
}

// checkWeights wants one weight per token, or nil, which stands for ones.
func checkWeights(weights []float32, tokens int) error {
	if weights == nil {
		return nil
	}
	return checkLen("weights", len(weights), tokens, "token")
}

// checkRanges wants offsets of n ranges.
func checkRanges(name string, n int, offsets []int32) error {
	if len(offsets) != n+1 {
		return badInput("offsets", "has %d elements, want %d, one more than %s", len(offsets), n+1, name)
	}
	return nil
}

// checkTrajectories wants offsets of at least one trajectory.
func checkTrajectories(b *reweight.Batch) error {
	if n := len(b.SeqOffsets); n < 2 {
		return badInput("SeqOffsets", "has %d elements, want at least 2, for one trajectory", n)
	}
	return nil
}

// checkLogits wants so many rows of logits in one format.
func checkLogits(arg string, l reweight.Logits, rows int) error {
	set := 0
	for _, there := range [...]bool{l.F32 != nil, l.BF16 != nil, l.F16 != nil} {
		if there {
			set++
		}
	}
	size := len(l.F32) + len(l.BF16) + len(l.F16)
	switch {
	case l.Vocab < 1:
		return badInput(arg, "has rows of %d logits, want at least 1", l.Vocab)
	case set > 1:
		return badInput(arg, "has %d formats set, want one", set)
	case size%l.Vocab != 0:
		return badInput(arg, "has %d logits, want a multiple of its vocabulary of %d", size, l.Vocab)
	case size/l.Vocab != rows:
		return badInput(arg, "has %d rows of %d logits, want %d rows", size/l.Vocab, l.Vocab, rows)
	}
	return nil
}
