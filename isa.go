package reweight

import (
	"fmt"
	"os"
	"slices"

	"github.com/seed621a2839/reweight/internal/problem"
)

// An ISA names the instruction set that the kernels are written in. All of them
// give the same bits, where every NaN counts as the same; they differ in speed.
type ISA uint8

const (
	Auto     ISA = iota // the best that this machine has
	Portable            // plain Go, on every machine
	AVX2                // amd64 with AVX2, FMA3, F16C and POPCNT
	AVX512              // amd64 with AVX-512 F, VL, DQ and BW
	NEON                // arm64, every one
)

var isaNames = [...]string{"auto", "portable", "avx2", "avx512", "neon"}

// String returns the lower-case name, as flags and reports have it.
func (isa ISA) String() string {
	if int(isa) < len(isaNames) {
		return isaNames[isa]
	}
	return fmt.Sprintf("ISA(%d)", uint8(isa))
}

// ParseISA returns the available [ISA] of that name. Any other name is an
// [*InputError] that lists those that are available.
func ParseISA(name string) (ISA, error) {
	return parseISA("name", name, available)
}

func parseISA(arg, name string, from []ISA) (ISA, error) {
	for _, isa := range from {
		if isa.String() == name {
			return isa, nil
		}
	}
	return Auto, badInput(arg, problem.UnknownName, name, from)
}

// What this machine and build can run, the slowest first, as far as the
// environment variable REWEIGHT_ISA allows; and what is wrong with that.
var available, envErr = narrow(detect(), os.Getenv("REWEIGHT_ISA"))

// narrow cuts what is available after the ISA of that name.
func narrow(all []ISA, name string) ([]ISA, error) {
	if name == "" {
		return all, nil
	}
	isa, err := parseISA("REWEIGHT_ISA", name, all)
	if err != nil {
		return all, err
	}
	return all[:slices.Index(all, isa)+1], nil
}

// AvailableISAs returns what this machine and build can run, the slowest first.
// The environment variable REWEIGHT_ISA, read at start, cuts the list after the
// one that it names; "auto" is no such name. If it names none of them, every call of a kernel that
// leaves the choice to [Auto] is an error that lists them.
func AvailableISAs() []ISA { return slices.Clone(available) }

// BestISA returns what [Auto] stands for, or an error if REWEIGHT_ISA names
// nothing that is available.
func BestISA() (ISA, error) { return Auto.resolve() }

// resolve turns Auto into the best available ISA and rejects a missing one, and one that is wrong on this CPU.
func (isa ISA) resolve() (ISA, error) {
	err := error(nil)
	if isa == Auto {
		isa, err = available[len(available)-1], envErr
	} else if !slices.Contains(available, isa) {
		return isa, badInput("ISA", problem.ISALeft, isa, available)
	}
	if isa != Portable && err == nil {
		err = isa.trust()
	}
	return isa, err
}
