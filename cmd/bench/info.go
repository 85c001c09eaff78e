package main

import (
	"io"

	"github.com/seed621a2839/reweight/cmd/bench/internal/cli"
)

const infoUsage = `Usage: bench info

Says what this machine has, and which instruction set the kernels use on it and why.
The environment variable REWEIGHT_ISA names the best one that may be used.
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
