// Command bench does the arithmetic of ActFocus and AEM on rollouts, compares every
// kernel with a float64 reference, and measures what all of it costs on this
// machine. bench -h says how.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/gpu"
	"github.com/seed621a2839/reweight/gpu/cuda"
	"github.com/seed621a2839/reweight/internal/atomicfile"
	"github.com/seed621a2839/reweight/internal/cli"
	"github.com/seed621a2839/reweight/internal/compare"
)

// commands are the commands, in the order of the help: what each is called with, and what
// it does.
var commands = [...]struct{ name, operands, does string }{
	{"reweight", "FILE...", "the losses of rollouts under ActFocus, AEM and other schemes, or their scores"},
	{"score", "...", "many files as one batch, in pieces that machines can share"},
	{"show", "[flags] FILE...", "rollouts for a person: turns, tokens and their weights, as text or as a page"},
	{"convert", "IN... OUT", "rollouts in the files of trainers and servers as one file of ours"},
	{"run", "[flags]", "speed and errors of chosen kernels; writes reports"},
	{"overhead", "[flags]", "what ActFocus, AEM and other schemes cost a training step"},
	{"gate", "[flags]", "is a benchmark of a Go module slower than in another git revision?"},
	{"compare", "OLD NEW [flags]", "is a benchmark of a Go module slower than in another working copy?"},
	{"floors", "FILE [flags]", "is an instruction set far slower than it may be on the kernels?"},
	{"info", "", "what this machine has, and which kernels it gets"},
}

// usage returns the help.
func usage() string {
	text := `Usage:
  bench [-v]                    the main job: rollouts, parity, speed and overhead, in about a minute
`
	for _, c := range commands {
		text += fmt.Sprintf("  %-29s %s\n", strings.TrimSpace("bench "+c.name+" "+c.operands), c.does)
	}
	return text + `
bench COMMAND -h explains a command and its flags.
Exit status: 0 fine, 1 a check failed, 2 bad use or bad input, 3 inconclusive
(gate, compare and floors only), 130 interrupted: what was measured by then is printed.
`
}

// commandNames returns the names of all commands for an error.
func commandNames() string {
	var names []string
	for _, c := range commands {
		names = append(names, c.name)
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

func main() {
	cli.IgnoreBrokenPipe() // run reports the error of a write
	ctx := context.Background()
	if measures(os.Args[1:]) {
		ctx = untilInterrupt(ctx)
	} else {
		endAtInterrupt("bench " + os.Args[1])
	}
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr, openGPU))
}

// openGPU opens the first GPU. The error says why there is none.
func openGPU() (*gpu.Device, error) {
	dev, err := cuda.Open(0)
	var none *cuda.UnavailableError
	if errors.As(err, &none) {
		err = errors.New(none.Reason)
	}
	return dev, err
}

// untilInterrupt returns a context that an interrupt ends. A second after it,
// another interrupt ends the program as it does by default; until then, it does
// nothing, because people press the keys twice.
func untilInterrupt(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		cancel()
		time.Sleep(time.Second)
		signal.Stop(signals)
	}()
	return ctx
}

// endAtInterrupt ends the program at the first interrupt, whatever it does or waits for.
func endAtInterrupt(command string) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		atomicfile.Abandon()
		cli.NewProgress(os.Stderr).Clear()
		os.Exit(cli.ExitStatus(command, errEnded, os.Stderr))
	}()
}

// errEnded is the error of a command that endAtInterrupt has ended.
var errEnded error = ended{}

type ended struct{}

func (ended) Error() string        { return "interrupted: no file is half written" }
func (ended) Is(target error) bool { return target == cli.ErrInterrupted }

// measures reports whether the command prints what it has when it is interrupted. The
// others end at once.
func measures(args []string) bool {
	return len(args) == 0 || !slices.Contains([]string{"reweight", "score", "show", "convert", "info"}, args[0])
}

// run does what the arguments say and returns the exit status. If ctx ends, it
// prints what it has by then. open opens the GPU, for commands that use one.
func run(ctx context.Context, args []string, stdout, stderr io.Writer, open func() (*gpu.Device, error)) int {
	out := &cli.FirstError{W: stdout}
	name, err := "bench", error(nil)
	p := cli.NewProgress(stderr)
	g := &cli.GPU{Open: open}
	command := ""
	if len(args) > 0 {
		command = args[0]
	}
	switch command {
	case "reweight":
		name, err = "bench reweight", reweightCommand(args[1:], out, p, compare.Schemes)
	case "score":
		name, err = scoreCommand(args[1:], out, stderr)
	case "show":
		name, err = "bench show", showCommand(args[1:], out)
	case "convert":
		name, err = "bench convert", convertCommand(args[1:], out, p)
	case "run":
		name, err = "bench run", runCommand(ctx, args[1:], out, p, bench.DefaultSampler, g)
	case "overhead":
		name, err = "bench overhead", overheadCommand(ctx, args[1:], out, p, bench.DefaultSampler, g)
	case "info":
		name, err = "bench info", infoCommand(args[1:], out, g)
	case "gate":
		name, err = "bench gate", gateCommand(ctx, args[1:], out, stderr, p)
	case "compare":
		name, err = "bench compare", compareCommand(ctx, args[1:], out, stderr, p)
	case "floors":
		name, err = "bench floors", floorsCommand(ctx, args[1:], out, p, bench.DefaultSampler, g)
	default:
		err = mainCommand(ctx, args, out, defaultJob(p, g))
	}
	p.Clear()
	if cli.IsBrokenPipe(out.Err) { // who read has had enough, as head has
		return cli.BrokenPipeStatus
	}
	if out.Err != nil {
		err = fmt.Errorf("writing the output: %w", out.Err)
	}
	return cli.ExitStatus(name, err, stderr)
}
