package cli

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
)

// Flags are the flags of a command. Methods that declare a flag return a
// function that reads its value once Parse has returned.
type Flags struct{ *flag.FlagSet }

// NewFlags returns an empty set of flags. That of a program, which has no command, has -version.
func NewFlags(command string) Flags {
	f := Flags{flag.NewFlagSet(command, flag.ContinueOnError)}
	if !strings.Contains(command, " ") {
		f.Bool("version", false, "print the version, and do nothing else")
	}
	return f
}

// Parse parses flags that may stand before, between and after operands, which
// it returns. For -h it prints the usage and the flags, for -version the version, and
// returns flag.ErrHelp.
func (f Flags) Parse(usage string, args []string, out io.Writer) (operands []string, err error) {
	f.SetOutput(io.Discard)
	f.Usage = func() {}
	for {
		if err := f.FlagSet.Parse(args); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				fmt.Fprint(out, usage)
				f.SetOutput(out)
				f.PrintDefaults()
				return nil, err
			}
			return nil, fmt.Errorf("%w (%s -h explains the flags)", err, f.Name())
		}
		if v := f.Lookup("version"); v != nil && v.Value.String() == "true" {
			fmt.Fprintln(out, versionLine(f.Name(), buildInfo()))
			return nil, flag.ErrHelp
		}
		rest := f.Args()
		if len(rest) == 0 {
			return operands, nil
		}
		if n := len(args) - len(rest); n > 0 && args[n-1] == "--" {
			return append(operands, rest...), nil
		}
		operands, args = append(operands, rest[0]), rest[1:]
	}
}

// ParseAlone is Parse for a command without operands.
func (f Flags) ParseAlone(usage string, args []string, out io.Writer) error {
	operands, err := f.Parse(usage, args, out)
	if err == nil && len(operands) > 0 {
		err = Unexpected(operands[0])
	}
	return err
}

// Unexpected is the error about an operand that the command does not take.
func Unexpected(operand string) error { return fmt.Errorf("unexpected argument %q", operand) }

// Given reports whether that flag is among the arguments.
func (f Flags) Given(name string) bool {
	given := false
	f.Visit(func(g *flag.Flag) { given = given || g.Name == name })
	return given
}

// NotEmpty returns an error if one of these flags was given an empty value.
func (f Flags) NotEmpty(names ...string) error {
	for _, name := range names {
		if f.Given(name) && f.Lookup(name).Value.String() == "" {
			return fmt.Errorf("-%s is empty, want a name", name)
		}
	}
	return nil
}
