package gpu

import (
	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/problem"
)

// What the host can see of arguments is checked here.

// badInput is an error about an argument as a whole.
func badInput(arg string, p *problem.Problem, values ...any) *reweight.InputError {
	return &reweight.InputError{Arg: arg, Index: -1, Problem: p.Says(values...)}
}

// checkPtr wants the address of an array with elements of that size.
func checkPtr(arg string, p Ptr, size int) error {
	if p == 0 {
		return badInput(arg, problem.Address)
	}
	return checkAligned(arg, p, size)
}

// checkAligned wants no address, or that of an array with elements of that size.
func checkAligned(arg string, p Ptr, size int) error {
	if p%Ptr(size) != 0 {
		return badInput(arg, problem.Aligned, uint64(p), size)
	}
	return nil
}

// checkCount wants n elements, and no more than the workspace was made for.
func checkCount(arg string, n, most int) error {
	if n < 0 || n > most {
		return badInput(arg, problem.AtMost, n, most)
	}
	return nil
}

// An array is an argument that is one.
type array struct {
	arg  string
	ptr  Ptr
	size int // bytes of an element
}

// checkArrays wants arrays of n elements: addresses, unless n is 0.
func checkArrays(n int, arrays ...array) error {
	for _, a := range arrays {
		var err error
		if n > 0 {
			err = checkPtr(a.arg, a.ptr, a.size)
		} else {
			err = checkAligned(a.arg, a.ptr, a.size)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkLength wants n to be a number of elements.
func checkLength(arg string, n int) error {
	if n < 0 {
		return badInput(arg, problem.CountNotNegative, n)
	}
	return nil
}

// checkBatch wants at least one trajectory, no more of anything than the workspace was
// made for, and the layout and the arrays with one element per token that the call names.
func (ws *Workspace) checkBatch(b *Batch, arrays ...array) error {
	if err := checkCount("Tokens", b.Tokens, ws.size.Tokens); err != nil {
		return err
	}
	if err := ws.checkTrajectories(b); err != nil {
		return err
	}
	if err := checkArrays(b.Tokens, array{"Role", b.Role, 1}); err != nil {
		return err
	}
	return checkArrays(b.Tokens, arrays...)
}

// checkTrajectories wants offsets of at least one trajectory, and of no more than the
// workspace was made for. What they are is checked on the device.
func (ws *Workspace) checkTrajectories(b *Batch) error {
	if b.Trajectories < 1 {
		return badInput("Trajectories", problem.CountPositive, b.Trajectories)
	}
	if err := checkCount("Trajectories", b.Trajectories, ws.size.Trajectories); err != nil {
		return err
	}
	return checkPtr("SeqOffsets", b.SeqOffsets, 8)
}
