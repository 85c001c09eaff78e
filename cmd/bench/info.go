package main

import (
	"flag"
	"io"
)

const infoUsage = `Usage: bench info

What this machine has, and which implementation of the kernels it gets and why.
REWEIGHT_ISA in the environment names the best that may be used.
`

func infoCommand(args []string, out io.Writer) error {
	operands, err := parse(flag.NewFlagSet("bench info", flag.ContinueOnError), infoUsage, args, out)
	if err != nil {
		return err
	}
	if err := noOperands(operands); err != nil {
		return err
	}
	m, err := thisMachine()
	if err != nil {
		return err
	}
	return table(out, 2, nil, m.Rows(why(m)))
}
