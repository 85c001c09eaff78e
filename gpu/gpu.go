// Package gpu runs the kernels of package reweight on a GPU. It takes and fills memory
// of the device, wherever that comes from: PyTorch, cgo, or Device.Alloc. What it
// computes has the bits of package reweight on any CPU, where every NaN counts as the
// same.
//
// Package gpu/cuda opens a device. A Workspace queues kernels on one stream of it:
//
//	dev, err := cuda.Open(0)
//	ws, err := dev.NewWorkspace(stream, gpu.Size{})
//	err = ws.TokenStats(dst, logits, ids, reweight.DefaultTokenStats)
//	...                // more work on the stream
//	err = ws.Check()   // waits for it
//
// The methods of a Workspace have the names, the options and the meaning of those of
// reweight.Workspace, whose documentation says what they compute. TokenStats gives the
// LSE, and Batch.RefEnergy is -LSE: Multiply by an array of -1 turns one into the other.
// Methods check what the host can see and return an *reweight.InputError before anything
// is queued. They never wait for the device and allocate nothing, so their work can be
// captured in a CUDA graph. Replays of the graph use the workspace: one at a time.
//
// What only the device can see, an id outside the vocabulary for example, Check
// returns. The outputs that such an input reaches are NaN.
//
// An array is the address of its first element in device memory, aligned to the size
// of an element, or 0 if it has none; its length follows from the call. Elements have
// the types of reweight.Batch: float32, int32, int64 for offsets, and one byte for a
// role. Scalar results go to device memory too, laid out as the Go struct that the
// documentation names: 8 bytes a field.
package gpu

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/gpu/internal/driver"
	"github.com/seed621a2839/reweight/internal/problem"
	"github.com/seed621a2839/reweight/internal/raw"
)

// A Ptr is an address in device memory. 0 is no memory.
type Ptr = driver.Ptr

// A Stream is a queue of work on the device: a CUstream, which is what CUDA's runtime
// calls cudaStream_t. 0 is the default stream.
type Stream = driver.Stream

// Info describes a device.
type Info = driver.Info

// A Device is a GPU. Its methods, and those of its workspaces, may be called by one
// goroutine at a time.
type Device struct {
	drv       driver.Driver
	first     func(kernel string) error
	functions map[string]functions // of the kernels that were used
}

// NewDevice returns the device behind a driver. Before a kernel is used, first says whether it may be, unless it is
// nil. Users call cuda.Open.
func NewDevice(drv driver.Driver, first func(kernel string) error) *Device {
	return &Device{drv: drv, first: first, functions: map[string]functions{}}
}

// Info describes the device.
func (d *Device) Info() Info { return d.drv.Info() }

// Checked tells whether a kernel is compared with the CPU before it is used.
func (d *Device) Checked() bool { return d.first != nil }

// Alloc returns device memory, aligned to 256 bytes. Free gives it back.
func (d *Device) Alloc(bytes int) (Ptr, error) { return d.drv.Alloc(bytes) }

// Free gives back memory of Alloc.
func (d *Device) Free(p Ptr) error { return d.drv.Free(p) }

// Synchronize waits until all that was queued on the stream is done.
func (d *Device) Synchronize(s Stream) error { return d.drv.Synchronize(s) }

// Close gives back what the device holds; its workspaces are of no use afterwards.
func (d *Device) Close() error { return d.drv.Close() }

// notCaptured wants that the stream is not captured in a CUDA graph.
func (d *Device) notCaptured(s Stream, p *problem.Problem) error {
	captured, err := d.drv.Captured(s)
	if err != nil {
		return fmt.Errorf("gpu: %w", err)
	}
	if captured {
		return badInput("stream", p)
	}
	return nil
}

// Upload copies src to device memory after what was queued on the stream, and waits.
func Upload[E any](d *Device, dst Ptr, src []E, s Stream) error {
	return d.drv.Upload(dst, raw.Bytes(src), s)
}

// Download copies device memory to dst after what was queued on the stream, and waits.
func Download[E any](d *Device, dst []E, src Ptr, s Stream) error {
	return d.drv.Download(raw.Bytes(dst), src, s)
}

// A function is a kernel on a device, for one size of its CTAs. most is how many of them the
// device can run at a time: every kernel loops over its work, so more would only wait.
type function struct {
	driver.Function
	threads, shared, most int
}

// functions are those of a kernel: with CTAs of its threads, and with teams, of which a kernel
// without teams can run none.
type functions struct{ alone, team function }

// Size says how large the batches of a workspace may be, in numbers up to 2^31 - 1.
// Surrogate and Loss need Tokens; GRPO, GAE and the aggregations by trajectory of Loss
// need Trajectories too, and AEM all three. The other methods need none of it.
type Size struct {
	Tokens, Trajectories, Spans int
}

// A Workspace queues kernels on one stream and holds the scratch memory that they need
// on the device. It must not be copied. Calls that use the same workspace run one
// after another on the device, which is what a stream does.
type Workspace struct {
	dev    *Device
	stream Stream
	size   Size
	memory Ptr // status and scratch
	status Ptr
	cpu    reweight.Workspace // checks options: it is asked to do nothing with them
	one    [1]float32         // an array for its ExpScale
	found  [1]problem.Report  // what Check has read of status; here, because a local variable would be allocated

	params  params
	scratch scratch
}

// params are the parameters of the kernels. An address on the stack would be allocated in
// each call.
type params struct {
	stats    tokenStatsParams
	gradient rowGradientParams
	memory   memoryParams

	multiply multiplyParams
	moments  momentsParams
	spread   spreadParams
	weights  weightsParams
	whiten   whitenParams
	whitenBy whitenSpreadParams
	total    surrogateTotalParams
	loss     lossParams

	spanMeans spanMeansParams
	minMax    minMaxParams
	expScale  expScaleParams
	aem       aemParams
	grpo      grpoParams
	gae       gaeParams
}

// scratch says where scratch memory is, besides that of aem and grpo, which is in their
// parameters.
type scratch struct {
	curve                  Ptr // of actfocus.cu
	scale                  Ptr // of whiten.cu
	groupSums, groupCounts Ptr // of surrogate.cuh: about a byte a token
	lossState              Ptr // with that of the loss's segments behind it
	problem                Ptr // of the call at hand: layout.cuh
}

// NewWorkspace returns a workspace for batches of at most that size. It allocates
// size.Bytes() of device memory, which Close gives back.
func (d *Device) NewWorkspace(s Stream, size Size) (*Workspace, error) {
	if err := size.check(); err != nil {
		return nil, err
	}
	if err := d.notCaptured(s, problem.CapturedMemory); err != nil {
		return nil, err
	}
	ws := &Workspace{dev: d, stream: s, size: size, cpu: reweight.Workspace{ISA: reweight.Portable}}
	bytes := size.Bytes()
	memory, err := d.drv.Alloc(bytes)
	if err != nil {
		return nil, fmt.Errorf("gpu: %d bytes of scratch: %w", bytes, err)
	}
	ws.memory = memory
	if err := d.drv.Fill(memory, 0, bytes, s); err != nil {
		return nil, fmt.Errorf("gpu: %w", cleanUp(err, d.drv.Free(memory)))
	}
	ws.place(&layout{next: memory})
	return ws, nil
}

// cleanUp returns err; a failure to clean up after it is added.
func cleanUp(err, failure error) error {
	if failure != nil {
		return fmt.Errorf("%w (and then: %w)", err, failure)
	}
	return err
}

// errClosed is the error of a workspace without memory.
var errClosed = errors.New("gpu: the workspace is closed, or was not made by NewWorkspace")

// Close gives back the workspace's memory, after what it has queued is done. From then
// on its other methods return errors, and a second Close does nothing.
func (ws *Workspace) Close() error {
	if ws.memory == 0 {
		return nil
	}
	memory := ws.memory
	ws.memory = 0
	if err := ws.dev.drv.Synchronize(ws.stream); err != nil {
		return cleanUp(err, ws.dev.drv.Free(memory))
	}
	return ws.dev.drv.Free(memory)
}

func (size Size) check() error {
	for _, n := range [...]struct {
		arg string
		n   int
	}{{"size.Tokens", size.Tokens}, {"size.Trajectories", size.Trajectories}, {"size.Spans", size.Spans}} {
		if n.n < 0 || n.n > 1<<31-1 {
			return badInput(n.arg, problem.CountRange, n.n, 1<<31-1)
		}
	}
	return nil
}

// Bytes returns how much device memory a workspace for batches of that size takes. It
// means nothing for a size that NewWorkspace refuses.
func (size Size) Bytes() int {
	var l layout
	ws := Workspace{size: size}
	ws.place(&l)
	return int(l.next)
}

// place says where in the workspace's memory everything is. All of it is 0 at first.
func (ws *Workspace) place(l *layout) {
	ws.status = l.take(sizeOf[problem.Report]())
	trajectories := max(ws.size.Trajectories, 1)
	groups := slots(ws.size.Tokens, trajectories)
	ws.scratch = scratch{
		curve:       l.take(16),
		scale:       l.take(16),
		groupSums:   l.take(2 * 16 * 4 * groups),
		groupCounts: l.take(4 * groups),
		lossState:   l.take(lossBytes(trajectories)),
		problem:     l.take(8),
	}
	ws.params.aem.place(l, ws.size)
	ws.params.grpo.scores = l.take(4 * ws.size.Trajectories)
}

// A layout hands out memory in pieces.
type layout struct{ next Ptr }

// take returns a piece that is aligned to 256 bytes.
func (l *layout) take(bytes int) Ptr {
	p := l.next
	l.next += Ptr(bytes+255) &^ 255
	return p
}

// fill queues that scratch memory gets the value in every byte.
func (ws *Workspace) fill(p Ptr, value byte, bytes int) error {
	if ws.memory == 0 {
		return errClosed
	}
	return ws.dev.drv.Fill(p, value, bytes, ws.stream)
}

// A step is a launch of a kernel, with at most as many CTAs as are of use to it.
type step struct {
	kernel string
	ctas   int
}

// launch queues kernels that take the same parameters, which are among ws.params.
func launch[P any](ws *Workspace, params *P, steps ...step) error {
	if ws.memory == 0 {
		return errClosed
	}
	for _, s := range steps {
		both, ok := ws.dev.functions[s.kernel]
		if !ok {
			if err := ws.dev.notCaptured(ws.stream, problem.CapturedCompiler); err != nil {
				return err
			}
			var err error
			if both, err = ws.dev.find(s.kernel); err != nil {
				return err
			}
		}
		f, ctas := both.alone, max(1, s.ctas)
		if ctas <= both.team.most {
			f = both.team
		}
		err := ws.dev.drv.Launch(f.Function, min(ctas, f.most), f.threads, f.shared, unsafe.Pointer(params),
			unsafe.Sizeof(*params), ws.stream)
		if err != nil {
			return err
		}
	}
	return nil
}

// perThread returns how many CTAs give each of n elements a thread.
func perThread(n, threads int) int { return (n + threads - 1) / threads }
