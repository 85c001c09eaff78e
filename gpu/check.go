package gpu

import (
	"cmp"

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
	return checkArrays(1, array{arg, p, size})
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
		if n > 0 && a.ptr == 0 {
			return badInput(a.arg, problem.Address)
		}
		if err := checkAligned(a.arg, a.ptr, a.size); err != nil {
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

// checkPositive wants n to be a number of elements that is not 0.
func checkPositive(arg string, n int) error {
	if n < 1 {
		return badInput(arg, problem.CountPositive, n)
	}
	return nil
}

// checkBatch wants at least one trajectory, no more of anything than the workspace was
// made for, and the layout and the arrays with one element per token that the call names.
func (ws *Workspace) checkBatch(b *Batch, arrays ...array) error {
	return cmp.Or(
		checkCount("Tokens", b.Tokens, ws.size.Tokens),
		ws.checkTrajectories(b),
		checkArrays(b.Tokens, array{"Role", b.Role, 1}),
		checkArrays(b.Tokens, arrays...),
	)
}

// checkTrajectories wants offsets of at least one trajectory, and of no more than the
// workspace was made for. What they are is checked on the device.
func (ws *Workspace) checkTrajectories(b *Batch) error {
	return cmp.Or(
		checkPositive("Trajectories", b.Trajectories),
		checkCount("Trajectories", b.Trajectories, ws.size.Trajectories),
		checkPtr("SeqOffsets", b.SeqOffsets, 8),
	)
}
