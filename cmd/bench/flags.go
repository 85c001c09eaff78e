package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/cmd/bench/internal/machine"
	"github.com/seed621a2839/reweight/cmd/bench/internal/measure"
	"github.com/seed621a2839/reweight/internal/cli"
	"github.com/seed621a2839/reweight/kernels"
)

// kernelFlag declares -kernel, a list of kernels, by default all.
func kernelFlag(f cli.Flags) func() ([]kernels.Kernel, error) {
	var names []string
	for _, k := range kernels.All() {
		names = append(names, k.Name)
	}
	list := f.String("kernel", "", "`names` of kernels: "+strings.Join(names, ", ")+" (default all)")
	return func() ([]kernels.Kernel, error) {
		if !f.Given("kernel") {
			return kernels.All(), nil
		}
		return pick("-kernel", *list, kernels.All(), names)
	}
}

// isaFlag declares -isa, a list of instruction sets, and of cuda, the GPU.
// The choice is byDefault, which about describes in the help, if the flag is not given.
// cuda is an error where no GPU can be used.
func isaFlag(f cli.Flags, byDefault []kernels.Implementation, about string, g opener) func() (machine.Choice, error) {
	impls := append(kernels.Implementations(), kernels.Implementation{Name: machine.CUDA})
	names := append(machine.ISANames(), machine.CUDA)
	here := strings.Join(machine.ISANames(), ", ")
	text := "`names` of instruction sets: here " + here + "; and " + machine.CUDA + ", the GPU (default " + about + ")"
	list := f.String("isa", "", text)
	return func() (c machine.Choice, err error) {
		if !f.Given("isa") {
			return machine.Choice{CPU: byDefault}, nil
		}
		picked, err := pick("-isa", *list, impls, names)
		for _, impl := range picked {
			if impl.Name != machine.CUDA {
				c.CPU = append(c.CPU, impl)
			} else if c.GPU, err = g(); err != nil {
				return c, fmt.Errorf("-isa has %q, and no GPU can be used: %w", machine.CUDA, err)
			}
		}
		return c, err
	}
}

// Workloads larger than this would not fit into the memory of most machines.
const (
	maxSize    = 1 << 24 // rows, tokens or vocabulary
	maxWorkers = 1024
)

// sizeFlags declares -vocab, -rows and -workers. aboutRows explains -rows.
func sizeFlags(f cli.Flags, aboutRows string) func() (measure.Sizes, error) {
	vocabs := f.String("vocab", "151936", "`sizes` of the vocabulary")
	rows := f.Int("rows", 0, aboutRows)
	workers := f.String("workers", "1", "`numbers` of workers that share the rows")
	return func() (s measure.Sizes, err error) {
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

// checkWorkers returns an error if -workers is given and only the GPU is chosen.
func checkWorkers(f cli.Flags, c machine.Choice) error {
	if len(c.CPU) == 0 && f.Given("workers") {
		return fmt.Errorf("-workers means nothing to -isa %s: they share rows on the CPU", machine.CUDA)
	}
	return nil
}

// pinFlag declares -pin. The function keeps the process on the CPU, which it returns,
// or returns nil if the flag is not given.
func pinFlag(f cli.Flags) func() (*int, error) {
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
func pick[E any](flag, list string, all []E, names []string) (picked []E, err error) {
	places, err := parseList(flag, list, func(name string) (int, error) {
		i := slices.Index(names, name)
		if i < 0 {
			return 0, fmt.Errorf("%s has %q, want some of %v", flag, name, names)
		}
		return i, nil
	})
	for _, i := range places {
		picked = append(picked, all[i])
	}
	return picked, err
}

// numbers returns the numbers of a list. Each must be from 1 to most.
func numbers(flag, list string, most int) ([]int, error) {
	return parseList(flag, list, func(text string) (int, error) {
		v, err := strconv.Atoi(text)
		if err != nil || v < 1 || v > most {
			return 0, fmt.Errorf("%s has %q, want whole numbers of 1 to %d", flag, text, most)
		}
		return v, nil
	})
}

// parseList returns what parse makes of each text of a list. The same number twice is an error.
func parseList(flag, list string, parse func(text string) (int, error)) ([]int, error) {
	var all []int
	for text := range strings.SplitSeq(list, ",") {
		n, err := parse(text)
		if err != nil {
			return nil, err
		}
		if slices.Contains(all, n) {
			return nil, fmt.Errorf("%s has %q twice", flag, text)
		}
		all = append(all, n)
	}
	return all, nil
}
