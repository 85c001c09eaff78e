// Command bench compares every kernel with a float64 reference, and measures what they
// cost on this machine. bench -h says how.
package main

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"

	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/gpu"
	"github.com/seed621a2839/reweight/gpu/cuda"
	"github.com/seed621a2839/reweight/internal/cli"
)

const usage = `Usage:
  bench                         the main job: rollouts, parity, speed and overhead, in about a minute
  bench run [flags]             speed and errors of chosen kernels
  bench overhead [flags]        what ActFocus, AEM and other schemes cost a training step
  bench info                    what this machine has, and which kernels it gets

bench COMMAND -h explains a command and its flags.
Exit status: 0 fine, 1 a check failed, 2 bad use or bad input, 130 interrupted: what was
measured by then is printed.
`

func main() {
	cli.IgnoreBrokenPipe() // run reports the error of a write
	ctx := context.Background()
	if args := os.Args[1:]; len(args) == 0 || args[0] != "info" { // which has nothing partial to print
		ctx = cli.UntilInterrupt(ctx)
	}
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr, openGPU))
}

// openGPU opens the first GPU. The error says why there is none.
func openGPU() (*gpu.Device, error) {
	dev, err := cuda.Open(0)
	if none, ok := errors.AsType[*cuda.UnavailableError](err); ok {
		err = errors.New(none.Reason)
	}
	return dev, err
}

// An opener returns the GPU, or why there is none to use.
type opener = func() (*gpu.Device, error)

// run does what the arguments say and returns the exit status. If ctx ends, it
// prints what it has by then. open opens the GPU, for commands that use one.
func run(ctx context.Context, args []string, stdout, stderr io.Writer, open opener) int {
	out := &cli.FirstError{W: stdout}
	name, err := "bench", error(nil)
	p := cli.NewProgress(stderr)
	g := sync.OnceValues(open)
	command := ""
	if len(args) > 0 {
		command = args[0]
	}
	switch command {
	case "run":
		name, err = "bench run", runCommand(ctx, args[1:], out, p, bench.DefaultSampler, g)
	case "overhead":
		name, err = "bench overhead", overheadCommand(ctx, args[1:], out, p, bench.DefaultSampler, g)
	case "info":
		name, err = "bench info", infoCommand(args[1:], out, g)
	default:
		err = mainCommand(ctx, args, out, defaultJob(p, g))
	}
	return cli.Finish(name, err, out, p, stderr)
}
