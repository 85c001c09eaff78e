package main

import (
	"cmp"
	"io"

	"github.com/seed621a2839/reweight/cmd/bench/internal/machine"
	"github.com/seed621a2839/reweight/internal/cli"
)

const infoUsage = `Usage: bench info

Says what this machine has, which instruction set the kernels use on it and why, and
which GPU they can use and whether its kernels are right, or why none. The first time
on a machine its driver compiles them, which takes a while. Exit status 1: the GPU is wrong.
The environment variable REWEIGHT_ISA names the
best instruction set that may be used. CUDA_VISIBLE_DEVICES chooses among several
GPUs: the first that it leaves is used. REWEIGHT_LIBCUDA names the library of the
GPU's driver where it has another place than usual. With REWEIGHT_GPU=off no GPU is used.
`

func infoCommand(args []string, out io.Writer, gpu opener) error {
	if err := cli.NewFlags("bench info").ParseAlone(infoUsage, args, out); err != nil {
		return err
	}
	m, err := machine.This()
	if err != nil {
		return err
	}
	device, err := gpu()
	m.SetGPU(device, err)
	rows, wrong := m.Rows(), error(nil)
	if device != nil {
		check := "not checked: REWEIGHT_GPU is unchecked"
		if device.Checked() {
			check = "right: on hard rows and tokens every kernel has the bits of the CPU"
			if wrong = device.Prepare(nil, nil); wrong != nil {
				check = "WRONG: " + wrong.Error()
			}
		}
		rows = append(rows, []string{"", check})
	}
	return cmp.Or(cli.WriteTable(out, 2, nil, rows), wrong)
}
