// Command reweight compares schemes of token-level credit on rollouts, shows, converts and
// scores them. reweight -h says how.
package main

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/seed621a2839/reweight/internal/atomicfile"
	"github.com/seed621a2839/reweight/internal/cli"
	"github.com/seed621a2839/reweight/internal/compare"
)

func main() {
	cli.IgnoreBrokenPipe() // run reports the error of a write
	endAtInterrupt()
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// endAtInterrupt ends the program at the first interrupt, whatever it does or waits for.
func endAtInterrupt() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		atomicfile.Abandon()
		cli.NewProgress(os.Stderr).Clear()
		fmt.Fprintln(os.Stderr, "reweight: interrupted: no file is half written")
		os.Exit(130)
	}()
}

// run does what the arguments say and returns the exit status.
func run(args []string, stdout, stderr io.Writer) int {
	out := &cli.FirstError{W: stdout}
	p := cli.NewProgress(stderr)
	name, err, command := "reweight", error(nil), ""
	if len(args) > 0 {
		command = args[0]
	}
	switch command {
	case "show":
		name, err = "reweight show", showCommand(args[1:], out)
	case "convert":
		name, err = "reweight convert", convertCommand(args[1:], out, p)
	case "score":
		name, err = scoreCommand(args[1:], out, stderr, p)
	default:
		err = compareCommand(args, out, p, compare.Schemes)
	}
	return cli.Finish(name, err, out, p, stderr)
}
