package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/seed621a2839/reweight/cmd/benchgate/internal/history"
	"github.com/seed621a2839/reweight/internal/atomicfile"
	"github.com/seed621a2839/reweight/internal/cli"
)

const trendUsage = `Usage: benchgate trend FILE [-html PAGE]

Since which commit is a benchmark slower? FILE is what benchgate -history has written: for each
benchmark, the time of a call at some commits, over its time at a reference commit.

It draws each benchmark's history, finds the steps in it, and names the commits between which
they are. In a history of 30 commits a step is seen when five follow it, and in one of less than
16 never. Those without a step come last. cmd/benchgate/METHOD.md says how, and how often that is wrong.

Exit status: 0 whatever is found, 2 error.

`

func trendCommand(args []string, out io.Writer) error {
	flags := cli.NewFlags("benchgate trend")
	page := flags.String("html", "", "write a page with the histories to this `file`")
	operands, err := flags.Parse(trendUsage, args, out)
	if err != nil {
		return err
	}
	if len(operands) == 0 {
		return errors.New("want FILE, which benchgate -history has written")
	}
	if len(operands) > 1 {
		return cli.Unexpected(operands[1])
	}
	if err := flags.NotEmpty("html"); err != nil {
		return err
	}
	all, notes, err := history.Read(operands[0])
	if err != nil {
		return err
	}
	if *page != "" {
		if err := atomicfile.Write(*page, func(w io.Writer) error {
			return history.WriteHTML(w, all, notes)
		}); err != nil {
			return fmt.Errorf("-html: %w", err)
		}
	}
	return history.WriteText(out, all, notes, cli.Columns(out))
}
