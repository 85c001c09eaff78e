// Package gpuslices runs the kernels of package gpu on slices in this process's memory: it
// copies them to the device, launches, and copies the results back. That is for tests
// and for the bench, which compare a GPU with the CPU. It is no way to make a program
// faster: the copies take far longer than the CPU would.
package gpuslices

import (
	"cmp"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/gpu"
)

// A Runner has the methods of *reweight.Workspace: the same arguments, the same bits
// and the same errors, but for the lengths of slices, which the caller sees to: package
// gpu gets addresses. Slices that share memory on the host share it on the device as
// well. Where an array stands there, its Placement says.
//
// After each call it looks for what a kernel must not do: write outside the arrays, or
// change an input. Either is an error.
//
// It serves one call at a time. In steady state, with slices of the same sizes, it
// allocates nothing.
type Runner struct {
	dev  *gpu.Device
	ws   *gpu.Workspace
	size gpu.Size // of ws

	memory  memory
	results results
}

// results is where the scalar results of a call come to.
type results struct {
	moments   [1]reweight.Moments
	surrogate [1]reweight.SurrogateSums
	actFocus  [1]reweight.ActFocusResult
	loss      [1]reweight.LossResult
}

// NewPlaced returns a runner on the default stream of the device, with arrays at the given
// place.
func NewPlaced(dev *gpu.Device, p Placement) (*Runner, error) {
	ws, err := dev.NewWorkspace(0, gpu.Size{})
	if err != nil {
		return nil, err
	}
	return &Runner{dev: dev, ws: ws, memory: memory{dev: dev, placement: p}}, nil
}

// Close gives back the runner's memory on the device.
func (r *Runner) Close() error {
	return cmp.Or(r.ws.Close(), r.memory.close())
}

// ensure makes the workspace large enough for batches of that size.
func (r *Runner) ensure(size gpu.Size) error {
	need := gpu.Size{Tokens: max(size.Tokens, r.size.Tokens), Trajectories: max(size.Trajectories, r.size.Trajectories),
		Spans: max(size.Spans, r.size.Spans)}
	if need == r.size {
		return nil
	}
	ws, err := r.dev.NewWorkspace(0, need)
	if err != nil {
		return err
	}
	old := r.ws
	r.ws, r.size = ws, need
	return old.Close()
}

// begin forgets the call before and its results.
func (r *Runner) begin() *memory {
	r.results = results{}
	return r.memory.begin()
}

// run makes the workspace large enough, copies the slices to the device, calls the method of package gpu and waits for
// its work. Results are copied back only if nothing is wrong.
func (r *Runner) run(method func() error) error {
	if err := r.ensure(r.memory.size); err != nil {
		return err
	}
	if err := r.memory.upload(); err != nil {
		return err
	}
	if err := method(); err != nil {
		return err
	}
	err := r.ws.Check()
	return cmp.Or(err, r.memory.download(err == nil))
}
