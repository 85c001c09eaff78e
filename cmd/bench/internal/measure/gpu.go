package measure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/cmd/bench/internal/machine"
	"github.com/seed621a2839/reweight/gpu"
	"github.com/seed621a2839/reweight/gpu/gpuslices"
	"github.com/seed621a2839/reweight/kernels"
)

// GPURows is how many rows of logits a workload on a GPU has by default.
const GPURows = 8192

// GPUShapes returns what the plan measures on the GPU, of the kernels that a GPU has. With
// Goals, token_stats and row_gradient are measured at the sizes that the goals of docs/gpu.md are about.
func (p Plan) GPUShapes() (shapes []Shape) {
	if p.GPU == nil {
		return nil
	}
	for _, k := range p.Kernels {
		for _, dtype := range k.DTypes {
			rows, vocabs := []int{cmp.Or(p.Sizes.Rows, GPURows)}, p.Sizes.Vocabs
			switch {
			case k.OnlyGo:
				continue
			case !k.Rows:
				rows, vocabs = []int{cmp.Or(p.Sizes.Rows, TokenCount)}, []int{0}
			case p.Goals && (k.Name == "token_stats" || k.Name == "row_gradient"):
				rows, vocabs = []int{GPURows, 512, 64}, []int{32000, 128256, 151936, 262144}
			}
			for _, n := range rows {
				for _, vocab := range vocabs {
					shapes = append(shapes, Shape{k, dtype, n, vocab, []int{1}})
				}
			}
		}
	}
	return shapes
}

// checkGPU compares the results of the plan's GPU with the reference and with the bits of
// the first implementation, with the arrays at each of the places on the device. It returns one
// parity, or none if there is no GPU or if it lacks the kernel.
func (p Plan) checkGPU(ctx context.Context, k kernels.Kernel, dtype reweight.DType,
	sizes []int) (_ []Parity, err error) {
	if p.GPU == nil || k.OnlyGo {
		return nil, nil
	}
	impls := kernels.Implementations()[:1]
	for _, placement := range [...]gpuslices.Placement{gpuslices.Amid, gpuslices.AtBegin, gpuslices.AtEnd} {
		r, failed := gpuslices.NewPlaced(p.GPU, placement)
		if failed != nil {
			return nil, failed
		}
		defer func() { err = errors.Join(err, r.Close()) }()
		impls = append(impls, kernels.Implementation{Name: machine.CUDA, New: func(int) kernels.Runner { return r }})
	}
	all, err := p.Check(ctx, k, dtype, sizes, impls)
	if err != nil {
		return nil, err
	}
	one := all[1]
	for _, q := range all[2:] {
		one.Errors.MaxULP, one.Errors.MaxAbs = max(one.Errors.MaxULP, q.Errors.MaxULP),
			max(one.Errors.MaxAbs, q.Errors.MaxAbs)
		one.Failure = cmp.Or(one.Failure, q.Failure)
	}
	return []Parity{one}, nil
}

// fewestGPURows is where OnGPU gives up looking for a workload that fits.
const fewestGPURows = 64

// OnGPU measures a kernel on arrays that stay on the GPU. It runs in turn with a plain
// read and a plain copy of the main input on the device, which is the faster one of a
// kernel's and the driver's own, and with the float64
// reference and the portable kernel on the CPU, which have few rows. Gradients of rows
// are in place. Rows that do not fit in the device's memory are halved until they do,
// down to 64; the result says how many there were. Before it measures, it compares the
// bits of all results with those of the CPU; the failure says where they differ.
//
// If ctx ends, the result is that of the rounds so far, or none, and the error is that
// of ctx.
func OnGPU(ctx context.Context, s bench.Sampler, dev *gpu.Device, k kernels.Kernel, dtype reweight.DType,
	rows, vocab int) (results []Result, failure string, err error) {
	r, fit, err := fitting(k, rows, func(rows int) (*resident, error) {
		return newResident(dev, k, dtype, rows, vocab)
	})
	if err != nil {
		return nil, "", err
	}
	results, failure, err = r.measure(ctx, s, fit)
	if fit < rows && len(results) > 0 {
		results[0].RowsWanted = rows
	}
	return results, failure, errors.Join(err, r.Close())
}

// fitting returns a workload of so many rows, or of half of them, or of half of those, as
// the device has memory, and how many they are.
func fitting(k kernels.Kernel, rows int, upload func(rows int) (*resident, error)) (*resident, int, error) {
	for {
		r, err := upload(rows)
		if _, full := errors.AsType[*fullError](err); !full || !k.Rows || rows/2 < fewestGPURows {
			return r, rows, err
		}
		rows /= 2
	}
}

// measure measures the workload.
func (r *resident) measure(ctx context.Context, s bench.Sampler,
	rows int) (results []Result, failure string, err error) {
	if failure, err = r.Check(); err != nil {
		return nil, "", err
	}
	few := r.few
	if r.kernel.Rows {
		if few, err = r.kernel.New(kernels.Spec{Rows: min(rows, 2), Vocab: r.vocab, DType: r.dtype}); err != nil {
			return nil, "", err
		}
	}
	serial := kernels.Implementations()[0].New(1)
	const ours, drivers, kernel = first, first + 1, first + 2
	device := [...]func() error{read: r.read, again: r.read, ours: r.copy, drivers: r.driversCopy, kernel: r.queue}
	fns := []func() error{reference: func() error { few.Reference(); return nil },
		portable: func() error { return few.Run(serial) }, kernel: nil}
	calls := make([]float64, len(device))
	for i, f := range device {
		if calls[i] = 1; f == nil {
			continue
		}
		n, err := callsOfBlock(r.dev, f, s.Block)
		if err != nil {
			return nil, "", err
		}
		calls[i], fns[i] = float64(n), queued(r.dev, f, n)
	}
	objects, bytes, err := bench.FirstAllocs(fns[kernel])
	if err != nil {
		return nil, "", err
	}
	samples, err := s.Sample(ctx, fns...)
	if err != nil && (ctx.Err() == nil || samples.Rounds() == 0) {
		return nil, "", err
	}
	for i, n := range calls {
		perCall(samples[i], n)
	}
	copied := ours
	if samples.Median(drivers).Median < samples.Median(ours).Median {
		copied = drivers
	}
	input, moved := float64(r.input), float64(r.moved)
	share := samples.Ratio(copied, kernel).Times(moved / (2 * input))
	q := Result{
		Kernel: r.kernel.Name, DType: r.dtype.String(), ISA: machine.CUDA, Rows: rows, Vocab: r.vocab, Workers: 1,
		CopyGBPerS: 2 * input / samples.Median(copied).Median, CopyShare: &share,
		AllocsPerOp: objects / uint64(calls[kernel]), BytesPerOp: bytes / uint64(calls[kernel]),
	}
	elements := float64(rows) * float64(max(1, r.vocab))
	q.measured(samples, kernel, 1, elements/float64(few.Elements), elements, moved, input)
	return []Result{q}, failure, err
}

// mostQueued is how many launches are queued before the device is waited for. The
// driver holds about a thousand; then a launch waits until there is room.
const mostQueued = 1000

// callsOfBlock returns how many calls of f keep the device busy for a block.
func callsOfBlock(dev *gpu.Device, f func() error, block time.Duration) (int, error) {
	for n := 1; ; {
		fn := queued(dev, f, n)
		if err := fn(); err != nil { // warms up
			return 0, err
		}
		begin := time.Now()
		if err := fn(); err != nil {
			return 0, err
		}
		t := time.Since(begin)
		if t >= block || n >= mostQueued {
			return n, nil
		}
		n = min(mostQueued, max(n+1, int(1.1*float64(n)*float64(block)/float64(max(1, t)))))
	}
}

// queued returns a function that queues n calls of f and then waits for the device.
func queued(dev *gpu.Device, f func() error, n int) func() error {
	return func() error {
		for range n {
			if err := f(); err != nil {
				return err
			}
		}
		return dev.Synchronize(0)
	}
}

// perCall divides the times of a function by the calls that it makes.
func perCall(times []float64, calls float64) {
	for round := range times {
		times[round] /= calls
	}
}

// deviceMemory is memory of a GPU that is given back together.
type deviceMemory struct {
	dev   *gpu.Device
	taken []gpu.Ptr
	bytes int
}

// take allocates so many bytes.
func (m *deviceMemory) take(bytes int) (gpu.Ptr, error) {
	p, err := m.dev.Alloc(bytes)
	if err != nil {
		return 0, &fullError{bytes, err}
	}
	m.taken = append(m.taken, p)
	m.bytes += bytes
	return p, nil
}

func (m *deviceMemory) free() (err error) {
	for _, p := range m.taken {
		err = errors.Join(err, m.dev.Free(p))
	}
	return err
}

// A fullError is about memory that the device does not have.
type fullError struct {
	bytes int
	err   error
}

func (e *fullError) Error() string {
	return fmt.Sprintf("%d bytes of the GPU's memory: %v", e.bytes, e.err)
}
func (e *fullError) Unwrap() error { return e.err }
