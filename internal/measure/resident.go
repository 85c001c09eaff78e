package measure

import (
	"errors"
	"fmt"
	"slices"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/gpu"
	"github.com/seed621a2839/reweight/kernels"
)

// distinctLogits is how many logits of a workload on a GPU differ. The rows after those
// repeat them, so that the host needs little memory; no kernel notices.
const distinctLogits = 1 << 21

// A Resident is a workload whose arrays stay on the GPU.
type Resident struct {
	deviceMemory
	kernel kernels.Kernel
	dtype  reweight.DType
	vocab  int

	few    *kernels.Case // on the host; the device has copies of its rows
	runner *onDevice

	moved         int64   // bytes that a run must read and write
	input         int     // bytes of the main input
	main, scratch gpu.Ptr // the main input, and as much memory that it is copied to
}

// NewResident uploads a workload of random input. Gradients of rows are in place: a second
// run takes what the first has left for logits.
func NewResident(dev *gpu.Device, k kernels.Kernel, dtype reweight.DType, rows, vocab int) (*Resident, error) {
	distinct := rows
	if k.Rows {
		distinct = divisor(rows, max(1, distinctLogits/max(1, vocab)))
	}
	return newResident(dev, k, dtype, distinct, rows/max(1, distinct), vocab)
}

// newResident uploads a workload of some copies of so many rows, or tokens. Of memory that
// the device does not have, the error wraps a *fullError.
func newResident(dev *gpu.Device, k kernels.Kernel, dtype reweight.DType, rows, times, vocab int) (*Resident, error) {
	few, err := k.New(kernels.Spec{Rows: rows, Vocab: vocab, DType: dtype})
	if err != nil {
		return nil, err
	}
	r := &Resident{deviceMemory: deviceMemory{dev: dev}, kernel: k, dtype: dtype, vocab: vocab, few: few, moved: int64(times) * few.Bytes, input: times * len(few.Input)}
	size := gpu.Size{}
	if !k.Rows {
		size = gpu.Size{Tokens: rows}
	}
	if r.runner, err = newOnDevice(dev, size, times, r.take); err != nil {
		return nil, &fullError{size.Bytes(), err}
	}
	r.runner.inPlace = true
	r.main = in(r.runner, few.Input)
	if err = r.runner.err; err == nil {
		r.scratch, err = r.take(r.input)
	}
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// divisor returns the largest divisor of n that is at most most.
func divisor(n, most int) int {
	for d := min(n, most); d > 1; d-- {
		if n%d == 0 {
			return d
		}
	}
	return 1
}

// Close gives back the memory.
func (r *Resident) Close() error { return errors.Join(r.runner.ws.Close(), r.free()) }

// queue queues the kernel.
func (r *Resident) queue() error { return r.few.Run(r.runner) }

// Check runs the kernel once, and compares its bits with those of the CPU. The failure
// says where they differ.
func (r *Resident) Check() (failure string, err error) {
	all := kernels.Implementations()
	cpu := all[len(all)-1]
	if err := r.few.Run(cpu.New(0)); err != nil {
		return "", err
	}
	want := r.few.Bits(nil)
	r.few.Spoil()
	r.runner.waits = true
	defer func() { r.runner.waits = false }()
	if err := r.queue(); err != nil {
		return "", err
	}
	what := fmt.Sprintf("%s %v on cuda, %d elements", r.kernel.Name, r.dtype, r.runner.times*r.few.Elements)
	if !slices.Equal(r.few.Bits(nil), want) {
		return what + ": not the bits of " + cpu.Name, nil
	}
	if err := r.runner.sameCopies(); err != nil {
		return what + ": " + err.Error(), nil
	}
	return "", nil
}

// read queues a plain read of the main input, copy a plain copy of it, and driversCopy the
// driver's: of all but less than 16 bytes.
func (r *Resident) read() error        { return r.runner.ws.ReadMemory(r.main, r.input&^15) }
func (r *Resident) copy() error        { return r.runner.ws.CopyMemory(r.scratch, r.main, r.input&^15) }
func (r *Resident) driversCopy() error { return r.dev.Copy(r.scratch, r.main, r.input&^15, 0) }
