// Command bench does the arithmetic of ActFocus and AEM on rollouts, holds every
// kernel against a float64 reference, and measures what it all costs on the
// machine at hand. bench -h says how.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/seed621a2839/reweight/bench"
)

const usage = `Usage:
  bench                         the main job: rollouts, parity, speed and overhead, in under a minute
  bench reweight [flags] FILE   the losses of a file of rollouts under ActFocus and AEM
  bench run [flags]             speed and errors of chosen kernels; writes reports
  bench overhead [flags]        what ActFocus and AEM cost a training step
  bench gate [flags]            is a kernel slower than in another git revision, or than it may be?
  bench info                    what this machine has, and which kernels it gets

bench COMMAND -h explains a command and its flags.
Exit status: 0 fine, 1 a check failed, 2 bad use or bad input, 3 inconclusive (the
gate only), 130 interrupted: what was measured by then is printed.
`

func main() {
	signal.Ignore(syscall.SIGPIPE) // writing to a closed pipe is an error that run reports
	ctx := context.Background()
	if measures(os.Args[1:]) {
		ctx = untilInterrupt(ctx)
	}
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// untilInterrupt returns a context that an interrupt ends. Another interrupt
// does what it does by default, but for the first second: people press twice.
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

// measures says whether the command prints what it has when it is interrupted;
// the others end at once, as by default.
func measures(args []string) bool {
	return len(args) == 0 || args[0] != "reweight" && args[0] != "info"
}

// run does what the arguments say and returns the exit status. Where ctx ends,
// it prints what it has.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	out := &firstError{w: stdout}
	name, err := "bench", error(nil)
	p := newProgress(stderr)
	command := ""
	if len(args) > 0 {
		command = args[0]
	}
	switch command {
	case "reweight":
		name, err = "bench reweight", reweightCommand(args[1:], out, compute)
	case "run":
		name, err = "bench run", runCommand(ctx, args[1:], out, p, bench.DefaultSampler)
	case "overhead":
		name, err = "bench overhead", overheadCommand(ctx, args[1:], out, p, bench.DefaultSampler)
	case "info":
		name, err = "bench info", infoCommand(args[1:], out)
	case "gate":
		name, err = "bench gate", gateCommand(ctx, args[1:], out, p, bench.DefaultSampler)
	case workerCommand:
		name, err = "bench "+workerCommand, gateWorker(args[1:], os.Stdin, out)
	default:
		err = mainCommand(ctx, args, out, defaultJob(p))
	}
	p.clear()
	if out.err != nil {
		err = fmt.Errorf("writing the output: %w", out.err)
	}
	return exitStatus(name, err, stderr)
}

// exitStatus returns the status for an error, which it prints.
func exitStatus(name string, err error, stderr io.Writer) int {
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return 0
	}
	fmt.Fprintf(stderr, "%s: %s\n", name, oneLine(err))
	var failed *failedCheck
	var inconclusive *inconclusiveError
	switch {
	case errors.As(err, &failed):
		return 1
	case errors.As(err, &inconclusive):
		return 3
	case errors.Is(err, errInterrupted):
		return 130
	}
	return 2
}

// A failedCheck is a result that is wrong, as opposed to a use that is.
type failedCheck struct{ what string }

func (e *failedCheck) Error() string { return "a check failed: " + e.what }

// errInterrupted is that of a command that has printed what it had.
var errInterrupted = errors.New("interrupted: the results are partial")

// oneLine keeps line breaks and codes for terminals, of arguments, file names
// and what files hold, out of messages.
func oneLine(err error) string {
	var b strings.Builder
	for _, r := range err.Error() {
		if strconv.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRune(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}

// firstError keeps the first error of a writer, which is then not written to
// again.
type firstError struct {
	w   io.Writer
	err error
}

func (f *firstError) Write(b []byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	n, err := f.w.Write(b)
	f.err = err
	return n, err
}

// parse parses flags that may stand before, between and after operands, which
// it returns. For -h it prints the usage and the flags.
func parse(flags *flag.FlagSet, usage string, args []string, out io.Writer) (operands []string, err error) {
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	for {
		if err := flags.Parse(args); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				fmt.Fprint(out, usage)
				flags.SetOutput(out)
				flags.PrintDefaults()
			}
			return nil, err
		}
		rest := flags.Args()
		if len(rest) == 0 {
			return operands, nil
		}
		if n := len(args) - len(rest); n > 0 && args[n-1] == "--" {
			return append(operands, rest...), nil
		}
		operands, args = append(operands, rest[0]), rest[1:]
	}
}

// noOperands is an error if there are any.
func noOperands(operands []string) error {
	if len(operands) > 0 {
		return fmt.Errorf("unexpected argument %q", operands[0])
	}
	return nil
}
