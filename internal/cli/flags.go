package cli

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/gpu"
	"github.com/seed621a2839/reweight/kernels"
)

// Flags are the flags of a command. Methods that declare a flag return a
// function that reads its value once Parse has returned.
type Flags struct{ *flag.FlagSet }

// NewFlags returns an empty set of flags.
func NewFlags(command string) Flags {
	return Flags{flag.NewFlagSet(command, flag.ContinueOnError)}
}

// Parse parses flags that may stand before, between and after operands, which
// it returns. For -h it prints the usage and the flags, and returns
// flag.ErrHelp.
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

// Named returns an error about an argument (a *reweight.InputError) as the sentence
// that names the argument as the user of a command does: by its flag. names maps the
// library's names to flags. Other errors stay as they are.
func Named(err error, names map[string]string) error {
	var input *reweight.InputError
	if !errors.As(err, &input) {
		return err
	}
	name, ok := names[input.Arg]
	if !ok {
		name = input.Arg
	}
	return errors.New(input.Sentence(name))
}

// Kernels declares -kernel, a list of kernels. The list is nil if the flag is not
// given.
func (f Flags) Kernels() func() ([]kernels.Kernel, error) {
	var names []string
	for _, k := range kernels.All() {
		names = append(names, k.Name)
	}
	list := f.String("kernel", "", "`names` of kernels: "+strings.Join(names, ", ")+" (default all)")
	return func() ([]kernels.Kernel, error) {
		if !f.Given("kernel") {
			return nil, nil
		}
		return pick("-kernel", *list, kernels.All(), names)
	}
}

// A Choice says what to run the kernels on.
type Choice struct {
	CPU []kernels.Implementation // by instruction sets
	GPU *gpu.Device              // or nil
}

// ISAs declares -isa, a list of instruction sets and of cuda, which is the GPU. byDefault
// describes the default in the help. The choice is nil if the flag is not given. cuda
// is an error where no GPU can be used.
func (f Flags) ISAs(byDefault string, g *GPU) func() (*Choice, error) {
	names := ISANames()
	list := f.String("isa", "", "`names` of instruction sets: here "+strings.Join(names, ", ")+"; and "+CUDA+", the GPU (default "+byDefault+")")
	return func() (*Choice, error) {
		if !f.Given("isa") {
			return nil, nil
		}
		impls := append(kernels.Implementations(), kernels.Implementation{Name: CUDA})
		picked, err := pick("-isa", *list, impls, append(names, CUDA))
		if err != nil {
			return nil, err
		}
		var c Choice
		for _, impl := range picked {
			if impl.Name != CUDA {
				c.CPU = append(c.CPU, impl)
			} else if c.GPU, err = g.Device(); err != nil {
				return nil, fmt.Errorf("-isa has %q, and no GPU can be used: %w", CUDA, err)
			}
		}
		return &c, nil
	}
}

// Workloads larger than this would not fit into the memory of most machines.
const (
	maxSize     = 1 << 24 // rows, tokens or vocabulary
	maxElements = 1 << 28 // of rows of logits, in the host's memory
	maxOnGPU    = 1 << 33 // in a GPU's, where the host has few of the rows
	maxWorkers  = 1024
)

// Sizes are the values of -vocab, -rows and -workers. Rows is 0 if it is not
// given: rows of logits are then so many that they take Stream bytes, or by default
// measure.StreamBytes.
type Sizes struct {
	Vocabs, Workers []int
	Rows            int
	Stream          int
}

// Sizes declares -vocab, -rows and -workers. aboutRows explains -rows.
func (f Flags) Sizes(aboutRows string) func() (Sizes, error) {
	vocabs := f.String("vocab", "151936", "`sizes` of the vocabulary")
	rows := f.Int("rows", 0, aboutRows)
	workers := f.String("workers", "1", "`numbers` of workers that share the rows")
	return func() (s Sizes, err error) {
		s.Rows = *rows
		if s.Vocabs, err = numbers("-vocab", *vocabs, maxSize); err != nil {
			return s, err
		}
		if s.Workers, err = numbers("-workers", *workers, maxWorkers); err != nil {
			return s, err
		}
		if f.Given("rows") && (s.Rows < 1 || s.Rows > maxSize) {
			return s, fmt.Errorf("-rows is %d, want 1 to %d", s.Rows, maxSize)
		}
		return s, nil
	}
}

// CheckWorkers returns an error if -workers is given and only the GPU is chosen.
func (f Flags) CheckWorkers(c *Choice) error {
	if c != nil && len(c.CPU) == 0 && f.Given("workers") {
		return fmt.Errorf("-workers means nothing to -isa %s: they share rows on the CPU", CUDA)
	}
	return nil
}

// CheckElements returns an error if rows of logits would have too many elements, for the
// host or else for a GPU alone.
func (s Sizes) CheckElements(host bool) error {
	most := int64(maxOnGPU)
	if host {
		most = maxElements
	}
	for _, v := range s.Vocabs {
		if int64(s.Rows) > most/int64(v) {
			return fmt.Errorf("-rows is %d and -vocab %d, want at most %d elements", s.Rows, v, most)
		}
	}
	return nil
}

// Pin declares -pin. The function keeps the process on the CPU, which it returns,
// or returns nil if the flag is not given.
func (f Flags) Pin() func() (*int, error) {
	cpu := f.Int("pin", 0, "run on this `CPU` alone; the first is 0 (default any; Linux only)")
	return func() (*int, error) {
		if !f.Given("pin") {
			return nil, nil
		}
		if err := bench.Pin(*cpu); err != nil {
			return nil, fmt.Errorf("-pin: %w", err)
		}
		return cpu, nil
	}
}

// pick returns the elements of all whose names are in the list.
func pick[E any](flag, list string, all []E, names []string) ([]E, error) {
	var picked []E
	given := map[int]bool{}
	for name := range strings.SplitSeq(list, ",") {
		i := slices.Index(names, name)
		if i < 0 {
			return nil, fmt.Errorf("%s has %q, want some of %v", flag, name, names)
		}
		if given[i] {
			return nil, fmt.Errorf("%s has %q twice", flag, name)
		}
		given[i] = true
		picked = append(picked, all[i])
	}
	return picked, nil
}

// numbers returns the numbers of a list. Each must be from 1 to most.
func numbers(flag, list string, most int) ([]int, error) {
	var n []int
	for text := range strings.SplitSeq(list, ",") {
		v, err := strconv.Atoi(text)
		if err != nil || v < 1 || v > most {
			return nil, fmt.Errorf("%s has %q, want whole numbers of 1 to %d", flag, text, most)
		}
		if slices.Contains(n, v) {
			return nil, fmt.Errorf("%s has %q twice", flag, text)
		}
		n = append(n, v)
	}
	return n, nil
}
