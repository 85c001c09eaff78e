// Command reweight compares schemes of token-level credit on rollouts, shows, converts and
// scores them. reweight -h says how.
package main

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
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
	case "help":
		err = compareCommand([]string{"-h"}, out, p, compare.Schemes)
	case "version":
		err = compareCommand([]string{"-version"}, out, p, compare.Schemes)
	default:
		if err = misspelt(command); err != nil {
			break
		}
		err = compareCommand(args, out, p, compare.Schemes)
	}
	return cli.Finish(name, err, out, p, stderr)
}

// misspelt returns an error if the argument is no file and no flag, and one letter more, less or changed, or two that
// changed places, make a command of it.
func misspelt(argument string) error {
	if _, err := os.Stat(argument); err == nil || strings.HasPrefix(argument, "-") {
		return nil
	}
	for _, command := range []string{"show", "convert", "score", "help", "version"} {
		if oneLetterFrom(argument, command) || oneLetterFrom(command, argument) {
			return fmt.Errorf("%q is neither a file nor a command: did you mean reweight %s?", argument, command)
		}
	}
	return nil
}

// oneLetterFrom reports whether the first word becomes the second by one letter that is left out or changed, or by
// two neighbours that change places.
func oneLetterFrom(a, b string) bool {
	for i := range len(a) {
		if a[:i]+a[i+1:] == b || len(a) == len(b) && a[:i] == b[:i] && a[i+1:] == b[i+1:] ||
			i+1 < len(a) && a[:i]+a[i+1:i+2]+a[i:i+1]+a[i+2:] == b {
			return true
		}
	}
	return false
}
