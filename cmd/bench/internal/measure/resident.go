package measure

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/gpu"
	"github.com/seed621a2839/reweight/internal/raw"
	"github.com/seed621a2839/reweight/kernels"
)

// distinctLogits is how many logits of a workload on a GPU differ. The rows after those
// repeat them, so that the host needs little memory; no kernel notices.
const distinctLogits = 1 << 21

// A resident is a workload whose arrays stay on the GPU. It is the kernels.Runner of its case: the
// first call with a slice of the host uploads it, and later calls find it there. A call waits
// and copies the results back only if it is asked to. Gradients of rows are in place: a second run
// takes what the first has left for logits.
type resident struct {
	deviceMemory
	ws     *gpu.Workspace
	kernel kernels.Kernel
	dtype  reweight.DType
	vocab  int

	few    *kernels.Case // on the host
	times  int           // how many copies of its rows, and of what goes with them, the device has, behind one another
	waits  bool          // whether a call waits and copies its results back
	arrays map[unsafe.Pointer]array
	err    error // the first in a call

	// Scalar results come to these.
	moments [1]reweight.Moments
	sums    [1]reweight.SurrogateSums

	moved         int64   // bytes that a run must read and write
	input         int     // bytes of the main input
	main, scratch gpu.Ptr // the main input, and as much memory that it is copied to
}

// An array is memory of the device that stands for memory of the host.
type array struct {
	ptr    gpu.Ptr
	host   []byte
	output bool
}

// newResident uploads a workload of random input on so many rows, or tokens.
func newResident(dev *gpu.Device, k kernels.Kernel, dtype reweight.DType, rows, vocab int) (*resident, error) {
	distinct := rows
	if k.Rows {
		distinct = divisor(rows, max(1, distinctLogits/max(1, vocab)))
	}
	return newCopies(dev, k, dtype, distinct, rows/max(1, distinct), vocab)
}

// newCopies uploads a workload of some copies of so many rows, or tokens. Of memory that
// the device does not have, the error wraps a *fullError.
func newCopies(dev *gpu.Device, k kernels.Kernel, dtype reweight.DType, rows, times, vocab int) (*resident, error) {
	few, err := k.New(kernels.Spec{Rows: rows, Vocab: vocab, DType: dtype})
	if err != nil {
		return nil, err
	}
	r := &resident{
		deviceMemory: deviceMemory{dev: dev}, kernel: k, dtype: dtype, vocab: vocab, few: few, times: times,
		arrays: map[unsafe.Pointer]array{}, moved: int64(times) * few.Bytes, input: times * len(few.Input),
	}
	size := gpu.Size{}
	if !k.Rows {
		size = gpu.Size{Tokens: rows}
	}
	if r.ws, err = dev.NewWorkspace(0, size); err != nil {
		return nil, &fullError{size.Bytes(), err}
	}
	r.main = in(r, few.Input)
	if err = r.err; err == nil {
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
func (r *resident) Close() error { return errors.Join(r.ws.Close(), r.free()) }

// queue queues the kernel.
func (r *resident) queue() error { return r.few.Run(r) }

// read queues a plain read of the main input, copy a plain copy of it, and driversCopy the
// driver's: of all but less than 16 bytes.
func (r *resident) read() error        { return r.ws.ReadMemory(r.main, r.input&^15) }
func (r *resident) copy() error        { return r.ws.CopyMemory(r.scratch, r.main, r.input&^15) }
func (r *resident) driversCopy() error { return r.dev.Copy(r.scratch, r.main, r.input&^15, 0) }

// Check runs the kernel once, and compares its bits with those of the CPU. The failure
// says where they differ.
func (r *resident) Check() (failure string, err error) {
	all := kernels.Implementations()
	cpu := all[len(all)-1]
	if err := r.few.Run(cpu.New(0)); err != nil {
		return "", err
	}
	want := r.few.Bits(nil)
	r.few.Overwrite()
	r.waits = true
	defer func() { r.waits = false }()
	if err := r.queue(); err != nil {
		return "", err
	}
	what := fmt.Sprintf("%s %v on cuda, %d elements", r.kernel.Name, r.dtype, r.times*r.few.Elements)
	if !slices.Equal(r.few.Bits(nil), want) {
		return what + ": not the bits of " + cpu.Name, nil
	}
	if err := r.sameCopies(); err != nil {
		return what + ": " + err.Error(), nil
	}
	return "", nil
}

// comparedBytes bounds what is copied back of a large output to compare its copies.
const comparedBytes = 256 << 20

// sameCopies returns an error if a copy of an output differs from the first: the first
// and the last are compared, and as many between them as comparedBytes allow. The
// outputs must have been copied back.
func (r *resident) sameCopies() error {
	for _, a := range r.arrays {
		if !a.output || r.times < 2 {
			continue
		}
		other := make([]byte, len(a.host))
		step := max(1, (r.times*len(a.host)+comparedBytes-1)/comparedBytes)
		for i := r.times - 1; i > 0; i -= step {
			if err := gpu.Download(r.dev, other, a.ptr+gpu.Ptr(i*len(a.host)), 0); err != nil {
				return err
			}
			if !bytes.Equal(other, a.host) {
				return fmt.Errorf("copy %d of %d of the same rows has other bits than the first", i+1, r.times)
			}
		}
	}
	return nil
}

// in returns where a slice is that the call reads, and out one that it writes; 0 for no slice.
func in[E any](r *resident, x []E) gpu.Ptr  { return r.find(raw.Bytes(x), false) }
func out[E any](r *resident, x []E) gpu.Ptr { return r.find(raw.Bytes(x), true) }

func (r *resident) find(host []byte, output bool) gpu.Ptr {
	if len(host) == 0 {
		return 0
	}
	key := unsafe.Pointer(unsafe.SliceData(host))
	a, ok := r.arrays[key]
	if !ok && r.err == nil {
		a = array{host: host, output: output}
		if a.ptr, r.err = r.upload(host); r.err == nil {
			r.arrays[key] = a
		}
	}
	return a.ptr
}

// upload takes memory for the copies of an array and fills it.
func (r *resident) upload(host []byte) (gpu.Ptr, error) {
	ptr, err := r.take(r.times * len(host))
	for i := 0; i < r.times && err == nil; i++ {
		err = gpu.Upload(r.dev, ptr+gpu.Ptr(i*len(host)), host, 0)
	}
	return ptr, err
}

// finish ends a call: err is that of the method of package gpu.
func (r *resident) finish(err error) error {
	if r.err != nil {
		return r.err
	}
	if err != nil || !r.waits {
		return err
	}
	if err := r.ws.Check(); err != nil {
		return err
	}
	for _, a := range r.arrays {
		if !a.output {
			continue
		}
		if err := gpu.Download(r.dev, a.host, a.ptr, 0); err != nil {
			return err
		}
	}
	return nil
}

// The calls of a kernels.Runner, each with the arrays of the device in place of the
// host's slices. They have the workloads of the catalogue, whose arguments are right.

// rows returns where rows of logits are.
func (r *resident) rows(l reweight.Logits) gpu.Rows {
	return gpu.Rows{Ptr: r.find(raw.Logits(l), false), DType: l.DType(), Rows: l.Rows() * r.times, Vocab: l.Vocab}
}

func (r *resident) TokenStats(dst reweight.Stats, logits reweight.Logits, ids []int32,
	opt reweight.TokenStatsOptions) error {
	stats := gpu.Stats{LSE: out(r, dst.LSE), Entropy: out(r, dst.Entropy), Logprob: out(r, dst.Logprob),
		LogSumSqProbs: out(r, dst.LogSumSqProbs)}
	return r.finish(r.ws.TokenStats(stats, r.rows(logits), gpu.IDs{Ptr: in(r, ids)}, opt))
}

func (r *resident) RowGradient(dst, logits reweight.Logits, ids []int32, of reweight.RowGradientInput,
	opt reweight.RowGradientOptions) error {
	x := r.rows(logits)
	host := raw.Logits(dst)
	r.arrays[unsafe.Pointer(unsafe.SliceData(host))] = array{ptr: x.Ptr, host: host, output: true} // in place
	arrays := gpu.RowGradientInput{Logprobs: in(r, of.Logprobs), Entropy: in(r, of.Entropy), Grad: in(r, of.Grad),
		GradEntropy: in(r, of.GradEntropy), LSE: in(r, of.LSE)}
	return r.finish(r.ws.RowGradient(x, x, gpu.IDs{Ptr: in(r, ids)}, arrays, opt))
}

func (r *resident) MaskedMoments(x []float32, role []reweight.Role, roles reweight.RoleSet,
	shift float64) (reweight.Moments, error) {
	err := r.finish(r.ws.MaskedMoments(out(r, r.moments[:]), in(r, x), in(r, role), len(x), roles, shift))
	return r.moments[0], err
}

func (r *resident) ActFocusWeights(dst, signal []float32, role []reweight.Role, mean, sigma float64,
	opt reweight.ActFocusOptions) error {
	return r.finish(r.ws.ActFocusWeights(out(r, dst), in(r, signal), in(r, role), len(dst), mean, sigma, opt))
}

func (r *resident) SpanMeans(dst, x []float32, offsets []int32) error {
	return r.finish(r.ws.SpanMeans(out(r, dst), in(r, x), in(r, offsets), len(dst), len(x)))
}

func (r *resident) MinMax(lo, hi, x []float32, offsets []int32) error {
	return r.finish(r.ws.MinMax(out(r, lo), out(r, hi), in(r, x), in(r, offsets), len(lo), len(x)))
}

func (r *resident) ExpScale(dst, x []float32, lo float32, rate float64) error {
	return r.finish(r.ws.ExpScale(out(r, dst), in(r, x), len(x), lo, rate))
}

func (r *resident) Multiply(dst, a, b []float32) error {
	return r.finish(r.ws.Multiply(out(r, dst), in(r, a), in(r, b), len(dst)))
}

func (r *resident) Surrogate(grad, logprobs, old, advantages, weights []float32, role []reweight.Role, scale float64,
	opt reweight.LossOptions) (reweight.SurrogateSums, error) {
	err := r.finish(r.ws.Surrogate(out(r, grad), out(r, r.sums[:]), in(r, logprobs), in(r, old), in(r, advantages),
		in(r, weights), in(r, role), len(logprobs), scale, opt))
	return r.sums[0], err
}
