package reweight

import (
	"fmt"
	"os"
	"slices"
)

// An ISA names an implementation of the kernels. All of them give the same
// bits; they differ in speed.
type ISA uint8

const (
	Auto     ISA = iota // the best that this machine has
	Portable            // plain Go, on every machine
	AVX2                // amd64 with AVX2, FMA3, F16C and POPCNT
	AVX512              // amd64 with AVX-512 F, VL, DQ and BW
	NEON                // arm64, every one
)

var isaNames = [...]string{"auto", "portable", "avx2", "avx512", "neon"}

// String returns the lower-case name, as the bench prints it.
func (p ISA) String() string {
	if int(p) < len(isaNames) {
		return isaNames[p]
	}
	return fmt.Sprintf("ISA(%d)", uint8(p))
}

// MarshalText returns the name.
func (p ISA) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// ParseISA returns the available ISA of that name, or an error that lists those
// that are.
func ParseISA(name string) (ISA, error) {
	return parseISA(name, available)
}

func parseISA(name string, from []ISA) (ISA, error) {
	for _, p := range from {
		if p.String() == name {
			return p, nil
		}
	}
	return Auto, fmt.Errorf("reweight: no instruction set %q here, want one of %v", name, from)
}

// What this machine and build can run, the slowest first, as far as the
// environment variable REWEIGHT_ISA allows; and what is wrong with that.
var available, envErr = narrow(detect(), os.Getenv("REWEIGHT_ISA"))

// narrow cuts what is available after the ISA of that name.
func narrow(all []ISA, name string) ([]ISA, error) {
	if name == "" {
		return all, nil
	}
	p, err := parseISA(name, all)
	if err != nil {
		return all, fmt.Errorf("%w (REWEIGHT_ISA)", err)
	}
	return all[:slices.Index(all, p)+1], nil
}

// Available returns what this machine and build can run, the slowest first. The
// environment variable REWEIGHT_ISA, read at start, cuts the list after the one
// it names; if it names none of them, every call of a kernel that leaves the
// choice to Auto is an error that lists them.
func Available() []ISA { return slices.Clone(available) }

// Best returns what Auto stands for, or an error if REWEIGHT_ISA names nothing
// that is available.
func Best() (ISA, error) { return Auto.resolve() }

// resolve turns Auto into the best available ISA and rejects a missing one.
func (p ISA) resolve() (ISA, error) {
	if p == Auto {
		return available[len(available)-1], envErr
	}
	if !slices.Contains(available, p) {
		return p, fmt.Errorf("reweight: instruction set %v is not available here, want one of %v", p, available)
	}
	return p, nil
}
