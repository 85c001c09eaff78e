package reweight

import (
	"fmt"
	"strings"
)

// An ISA names an implementation of the kernels. All of them give the same
// bits; they differ in speed.
type ISA uint8

const (
	Auto     ISA = iota // the best that this machine has
	Portable            // plain Go, on every machine
)

var isaNames = [...]string{Auto: "auto", Portable: "portable"}

// String returns the lower-case name, as the bench prints it.
func (p ISA) String() string {
	if int(p) < len(isaNames) {
		return isaNames[p]
	}
	return fmt.Sprintf("ISA(%d)", uint8(p))
}

// ParseISA returns the ISA of that name; it may be one that this machine lacks.
func ParseISA(name string) (ISA, error) {
	for p, n := range isaNames {
		if n == name {
			return ISA(p), nil
		}
	}
	return Auto, fmt.Errorf("reweight: instruction set %q, want one of %s", name, strings.Join(isaNames[:], ", "))
}

// Available returns what this machine and build can run, the slowest first.
func Available() []ISA { return []ISA{Portable} }

// resolve turns Auto into the best available ISA and rejects a missing one.
func (p ISA) resolve() (ISA, error) {
	if p == Auto || p == Portable {
		return Portable, nil
	}
	return p, fmt.Errorf("reweight: instruction set %v is not available here, want one of %v", p, Available())
}
