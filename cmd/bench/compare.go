package main

import (
	"context"
	"errors"
	"io"

	"github.com/seed621a2839/reweight/internal/cli"
	"github.com/seed621a2839/reweight/internal/gate"
)

const compareUsage = `Usage: bench compare OLD NEW [flags] [-- ARGS]

Is a benchmark of NEW slower than in OLD? Both are directories with working copies
of a Go module, or both are test binaries that go test -c has made of a package.
Binaries run in the current directory.

The two run against each other, pair by pair of fresh processes, and the verdicts
are those of bench gate, by the same rule and flags: see bench gate -h. What would fail by its time in a working copy is
measured once more in builds with functions in random orders; a binary cannot be
built again. ARGS go to the test binaries.

Exit status: 0 pass, 1 regression, 2 error, 3 inconclusive, 130 interrupted.

`

func compareCommand(ctx context.Context, args []string, out, stderr io.Writer, p *cli.Progress) error {
	opt := gate.Options{Progress: p, Log: stderr, Alpha: gate.Alpha, Flags: args}
	flags := cli.NewFlags("bench compare")
	comparison := comparisonFlags(flags, &opt)
	args, opt.Args = splitArgs(args)
	operands, err := flags.Parse(compareUsage, args, out)
	if err != nil {
		return err
	}
	switch len(operands) {
	case 0, 1:
		return errors.New("want OLD and NEW: two directories of a Go module, or two test binaries")
	case 2:
		opt.Old, opt.New = operands[0], operands[1]
	default:
		return cli.Unexpected(operands[2])
	}
	if err := comparison(); err != nil {
		return err
	}
	return gate.Run(ctx, opt, out)
}
