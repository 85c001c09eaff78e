package reweight

import (
	"slices"
	"strconv"
	"strings"

	"github.com/seed621a2839/reweight/internal/problem"
)

// An InputError says which argument of a call is wrong, where, and how. Every
// error of this package about an argument is an *InputError, and is returned
// before anything is written.
type InputError struct {
	// Arg is the argument by the name that this package gives it: a parameter
	// ("weights"), a field of a Batch ("RefEnergy"), of an options struct ("Alpha")
	// or of another parameter ("dst.LSE"), or the environment variable
	// "REWEIGHT_ISA". Where lengths disagree it is one of those that do: the
	// package cannot know which of them was meant.
	Arg string
	// Index is the element that is wrong, or -1 if it is the whole argument.
	Index int
	// Problem says what is wrong with it. It is the rest of a sentence whose
	// subject is the argument: "is 7, want 0, 1 or 2".
	Problem string
}

// Error returns the sentence with the name that this package gives the argument.
func (e *InputError) Error() string { return "reweight: " + e.Sentence(e.Arg) }

// Sentence returns the same with a name that the reader knows the argument by:
// the name of a flag, or of an array in a file.
func (e *InputError) Sentence(name string) string {
	if e.Index >= 0 {
		name += "[" + strconv.Itoa(e.Index) + "]"
	}
	return name + " " + e.Problem
}

// badInput is an error about an argument as a whole. Every problem is in the table of
// package problem, which C, CUDA and Python have too.
func badInput(arg string, p *problem.Problem, values ...any) *InputError {
	return badElement(arg, -1, p, values...)
}

// badElement is an error about one element of an argument.
func badElement(arg string, index int, p *problem.Problem, values ...any) *InputError {
	// A clone, so that no array escapes to the heap with its name.
	return &InputError{Arg: strings.Clone(arg), Index: index, Problem: p.Says(values...)}
}

// nameOf returns the name of a value, or its number if it has none.
func nameOf[E ~uint8](value E, names []string) string {
	if int(value) < len(names) {
		return names[value]
	}
	return strconv.Itoa(int(value))
}

// parseName sets value to the one that has the name. verl has hyphens in names where
// others have underscores; both are taken.
func parseName[E ~uint8](value *E, arg string, name []byte, names []string) error {
	i := slices.Index(names, strings.ReplaceAll(string(name), "-", "_"))
	if i < 0 {
		return badInput(arg, problem.UnknownName, name, names)
	}
	*value = E(i)
	return nil
}
