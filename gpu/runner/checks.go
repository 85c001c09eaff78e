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
