package main

import (
	"io"

	"github.com/seed621a2839/reweight/cmd/bench/internal/machine"
	"github.com/seed621a2839/reweight/internal/cli"
)

const infoUsage = `Usage: bench info

Says what this machine has, which instruction set the kernels use on it and why, and
which GPU they can use, or why none. The environment variable REWEIGHT_ISA names the
best instruction set that may be used. CUDA_VISIBLE_DEVICES chooses among several
GPUs: the first that it leaves is used. REWEIGHT_LIBCUDA names the library of the
GPU's driver where it has another place than usual.
`

func infoCommand(args []string, out io.Writer, gpu opener) error {
	if err := cli.NewFlags("bench info").ParseAlone(infoUsage, args, out); err != nil {
		return err
	}
	m, err := machine.This()
	if err != nil {
		return err
	}
	m.SetGPU(gpu())
	return cli.WriteTable(out, 2, nil, m.Rows())
}
