package main

import (
	"io"

	"github.com/seed621a2839/reweight/cmd/bench/internal/cli"
)

const infoUsage = `Usage: bench info

What this machine has, and which instruction set the kernels use on it and why.
REWEIGHT_ISA in the environment names the best that may be used.
`

func infoCommand(args []string, out io.Writer) error {
	if err := cli.NewFlags("bench info").ParseAlone(infoUsage, args, out); err != nil {
		return err
	}
	m, err := cli.ThisMachine()
	if err != nil {
		return err
	}
	return cli.WriteTable(out, 2, nil, m.Rows())
}
