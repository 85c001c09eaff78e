// Package cli has what the programs share: flags, exit statuses, progress and tables.
package cli

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/seed621a2839/reweight/internal/printable"
)

// ExitStatus prints the error of a command, if it has one, as one line, and
// returns the exit status that stands for it.
func ExitStatus(command string, err error, stderr io.Writer) int {
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return 0
	}
	fmt.Fprintf(stderr, "%s: %s\n", command, printable.Line(err.Error()))
	var failed *FailedCheck
	var inconclusive *Inconclusive
	switch {
	case errors.As(err, &failed):
		return 1
	case errors.As(err, &inconclusive):
		return 3
	case errors.Is(err, ErrInterrupted):
		return 130
	}
	return 2
}

// Finish ends a command: it prints the error of the command, or of its output, as one
// line, and returns the exit status that stands for it.
func Finish(command string, err error, out *FirstError, p *Progress, stderr io.Writer) int {
	p.Clear()
	if IsBrokenPipe(out.Err) { // who read has had enough, as head has
		return BrokenPipeStatus
	}
	if out.Err != nil {
		err = fmt.Errorf("writing the output: %w", out.Err)
	}
	return ExitStatus(command, err, stderr)
}

// BrokenPipeStatus is the exit status of a command whose output nobody reads any more: that
// of programs which the signal ends. Nothing is printed then.
const BrokenPipeStatus = 128 + 13

// A FailedCheck is the error of a command that found a wrong result.
type FailedCheck struct{ What string }

func (e *FailedCheck) Error() string { return "a check failed: " + e.What }

// Failed returns one error for several failures: the first of them, and how many
// more there are.
func Failed(failures []string) error { return &FailedCheck{FirstOf(failures)} }

// An Inconclusive is the error of a command that could not decide its question.
type Inconclusive struct{ What string }

func (e *Inconclusive) Error() string { return "inconclusive: " + e.What }

// FirstOf returns the first of several texts, and how many more there are.
func FirstOf(all []string) string {
	if more := len(all) - 1; more > 0 {
		return fmt.Sprintf("%s (and %d more)", all[0], more)
	}
	return all[0]
}

// ErrInterrupted is the error of a command that was interrupted. It has printed the
// results that it had.
var ErrInterrupted = errors.New("interrupted: the results are partial")

// WhyEnded returns the error of a command that printed the results it had when err
// or the end of ctx stopped it.
func WhyEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ErrInterrupted
	}
	return err
}

// Also joins two errors, of which either may be nil, in one line.
func Also(a, b error) error {
	if a == nil || b == nil {
		return cmp.Or(a, b)
	}
	return fmt.Errorf("%w; %w", a, b)
}

// A FirstError is a writer that remembers its first error and writes nothing
// after it.
type FirstError struct {
	W   io.Writer
	Err error
}

func (f *FirstError) Write(b []byte) (int, error) {
	if f.Err != nil {
		return 0, f.Err
	}
	n, err := f.W.Write(b)
	f.Err = err
	return n, err
}
