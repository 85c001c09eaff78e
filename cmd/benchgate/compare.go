package main

import (
	"context"
	"errors"
	"io"

	"github.com/seed621a2839/reweight/cmd/benchgate/internal/gate"
	"github.com/seed621a2839/reweight/internal/cli"
)

const compareUsage = `Usage: benchgate compare OLD NEW [flags] [packages] [-- ARGS]

Is a benchmark of NEW slower than in OLD? Both are directories with working copies
of a Go module, or both are test binaries that go test -c has made of a package.
Binaries run in the current directory, and packages mean nothing to them.

The two run against each other, pair by pair of fresh processes, and the verdicts
are those of benchgate, by the same rule and flags: see benchgate -h. What would fail by
its time in a working copy is measured once more in builds with functions in random
orders; a binary cannot be built again. ARGS go to the test binaries.

Exit status: 0 pass, 1 regression, 2 error, 3 inconclusive, 130 interrupted.

`

func compareCommand(ctx context.Context, args []string, out io.Writer, opt gate.Options) error {
	flags := cli.NewFlags("benchgate compare")
	comparison := comparisonFlags(flags, &opt)
	args, opt.Args = splitArgs(args)
	operands, err := flags.Parse(compareUsage, args, out)
	if err != nil {
		return err
	}
	if len(operands) < 2 {
		return errors.New("want OLD and NEW: two directories of a Go module, or two test binaries")
	}
	opt.Old, opt.New = operands[0], operands[1]
	if err := comparison(operands[2:]); err != nil {
		return err
	}
	return gate.Run(ctx, opt, out)
}
