package ptx

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unsafe"

	"github.com/seed621a2839/reweight/gpu/internal/driver"
)

// Options choose how a device runs.
type Options struct {
	// Seed chooses the order in which lanes, warps and CTAs run, and how many CTAs fit on a
	// multiprocessor, 1 to 12 if its shared memory is enough: on real GPUs this differs too.
	Seed uint64
	// Steps is how many instructions the lanes of a launch may run together. More is
	// taken for a loop without end. 0 means 2^34, which take minutes.
	Steps int64
}

const (
	multiprocessors = 2 // few, so that a kernel's loop over rows takes several turns
	defaultSteps    = 1 << 34
	mostFit         = 12

	// maxShared is the most shared memory that a CTA of sm_80 may have, and all of them on a
	// multiprocessor together.
	maxShared = 163 << 10

	memorySize = 1 << 30
)

// A Device runs the kernels of some modules. It implements driver.Driver.
//
// Launch runs the kernel at once. An error of a kernel comes from the next call of any
// other method, and of every one after that, as on a real GPU.
type Device struct {
	options   Options
	kernels   map[string]*kernel
	functions []function
	memory    memory
	failed    error // of a kernel
	closed    bool
	steps     int64 // instructions run, of all lanes
	mostSteps int64 // when this launch is over

	seed    uint64
	shared  sharedMemory
	params  []byte
	current *lane // that runs, or failed

	allWarps, warps []*warp // of the largest CTA that can be, and of the one that runs

	clock             uint64 // barriers so far
	ctaStart, ctaTime uint64 // the clock when the CTA began, and at its last barrier

	// Orders, kept from one time to the next.
	order     []int32
	turns     []*warp
	laneOrder [warpSize]uint8
}

// A function is a kernel with what Function was asked for.
type function struct {
	kernel          *kernel
	threads, shared int
}

// Open makes a device that has the kernels of the modules, given as PTX by their names.
func Open(modules map[string]string, options Options) (*Device, error) {
	options.Steps = cmp.Or(options.Steps, defaultSteps)
	d := &Device{options: options, kernels: map[string]*kernel{}}
	d.seed = cmp.Or((options.Seed+1)*0x9e3779b97f4a7c15, 1)
	for t := range maxThreads {
		if t%warpSize == 0 {
			d.allWarps = append(d.allWarps, &warp{})
		}
		w := d.allWarps[t/warpSize]
		w.lanes = append(w.lanes, &lane{dev: d, thread: t, warp: w})
	}
	for _, name := range slices.Sorted(maps.Keys(modules)) {
		m, err := moduleOf(name, modules[name])
		if err != nil {
			return nil, err
		}
		for _, k := range m.kernels {
			if other, ok := d.kernels[k.name]; ok {
				return nil, fmt.Errorf("ptx: the kernel %s is in %s and in %s", k.name, other.module.name, name)
			}
			d.kernels[k.name] = k
		}
	}
	return d, nil
}

// Steps returns how many instructions the lanes have run together.
func (d *Device) Steps() int64 { return d.steps }

// Info describes the device.
func (d *Device) Info() driver.Info {
	return driver.Info{Name: "PTX interpreter", Multiprocessors: multiprocessors, Capability: [2]int{8, 0},
		Memory: memorySize, Driver: [2]int{11, 0}}
}

var errClosed = errors.New("ptx: the device is closed")

// ready returns the error that stands in the way of anything.
func (d *Device) ready() error {
	if d.closed {
		return errClosed
	}
	return d.failed
}

// Function finds a kernel.
func (d *Device) Function(name string, threads, shared int) (driver.Function, int, error) {
	if err := d.ready(); err != nil {
		return 0, 0, err
	}
	k, ok := d.kernels[name]
	if !ok {
		return 0, 0, fmt.Errorf("ptx: there is no kernel %s", name)
	}
	if err := k.check(threads, shared); err != nil {
		return 0, 0, err
	}
	f := function{k, threads, shared}
	at := slices.Index(d.functions, f)
	if at < 0 {
		at = len(d.functions)
		d.functions = append(d.functions, f)
	}
	fit := 1 + int(d.options.Seed%mostFit)
	if size := k.static.size + shared; size > 0 {
		fit = min(fit, maxShared/size)
	}
	return driver.Function(at + 1), fit, nil
}

// check says whether a CTA of so many threads with so much dynamic shared memory can be.
func (k *kernel) check(threads, shared int) error {
	switch {
	case threads <= 0 || threads%warpSize != 0:
		return fmt.Errorf("ptx: kernel %s: %d threads, want a multiple of %d", k.name, threads, warpSize)
	case threads > k.maxThreads:
		return fmt.Errorf("ptx: kernel %s: %d threads, %d is the most", k.name, threads, k.maxThreads)
	case shared < 0 || k.static.size+shared > maxShared:
		return fmt.Errorf("ptx: kernel %s: %d bytes of static and %d of dynamic shared memory, %d is the most", k.name, k.static.size, shared, maxShared)
	}
	return nil
}

// Launch runs a kernel.
func (d *Device) Launch(f driver.Function, grid, threads, shared int, params unsafe.Pointer, size uintptr,
	_ driver.Stream) error {
	if err := d.ready(); err != nil {
		return err
	}
	if f < 1 || int(f) > len(d.functions) {
		return fmt.Errorf("ptx: %d is no function", f)
	}
	fn := &d.functions[f-1]
	k := fn.kernel
	if err := k.check(threads, shared); err != nil {
		return err
	}
	switch {
	case grid <= 0:
		return fmt.Errorf("ptx: kernel %s: a grid of %d CTAs", k.name, grid)
	case threads > fn.threads || shared > fn.shared:
		return fmt.Errorf("ptx: kernel %s: %d threads and %d bytes of shared memory, but the function was asked for with %d and %d",
			k.name, threads, shared, fn.threads, fn.shared)
	case int(size) != k.paramSize:
		return fmt.Errorf("ptx: kernel %s: %d bytes of parameters, want %d", k.name, size, k.paramSize)
	}
	d.params = append(d.params[:0], unsafe.Slice((*byte)(params), int(size))...)
	d.failed = d.launch(k, grid, threads, shared)
	return nil
}

// launch runs a kernel, and makes an error of a fault.
func (d *Device) launch(k *kernel, grid, threads, shared int) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case fault:
			err = d.describe(k, p)
		default:
			panic(p)
		}
	}()
	d.mostSteps = d.steps + d.options.Steps
	d.start(k, grid, threads, shared)
	d.runGrid(k, grid, threads)
	return nil
}

// rangeOf returns the place of n bytes at p, which lie in one allocation.
func (d *Device) rangeOf(p driver.Ptr, n int) (data, written []byte, err error) {
	if err := d.ready(); err != nil {
		return nil, nil, err
	}
	if n == 0 {
		return nil, nil, nil
	}
	r := d.memory.find(uint64(p), uint64(n))
	if n < 0 || r == nil {
		return nil, nil, fmt.Errorf("ptx: %d bytes at %#x lie outside every allocation", n, uint64(p))
	}
	at := int(uint64(p) - r.base)
	return r.data[at : at+n], r.written[at : at+n], nil
}

// Fill gives the bytes at p a value.
func (d *Device) Fill(p driver.Ptr, value byte, bytes int, _ driver.Stream) error {
	data, written, err := d.rangeOf(p, bytes)
	for i := range data {
		data[i] = value
	}
	setWritten(written)
	return err
}

// Copy copies memory, all of which must have been written.
func (d *Device) Copy(dst, src driver.Ptr, bytes int, s driver.Stream) error {
	data, _, err := d.rangeOf(dst, bytes)
	if err != nil {
		return err
	}
	if err := d.Download(data, src, s); err != nil {
		return err
	}
	return d.Upload(dst, data, s)
}

// Captured says that nothing is captured.
func (d *Device) Captured(driver.Stream) (bool, error) { return false, d.ready() }

// Alloc returns memory that nobody has written.
func (d *Device) Alloc(bytes int) (driver.Ptr, error) {
	if err := d.ready(); err != nil {
		return 0, err
	}
	if bytes <= 0 || bytes > memorySize {
		return 0, fmt.Errorf("ptx: an allocation of %d bytes", bytes)
	}
	return driver.Ptr(d.memory.add(bytes).base), nil
}

// Free gives memory of Alloc back. Its addresses are not used again.
func (d *Device) Free(p driver.Ptr) error {
	if err := d.ready(); err != nil {
		return err
	}
	if !d.memory.remove(uint64(p)) {
		return fmt.Errorf("ptx: %#x is not the address of an allocation", uint64(p))
	}
	return nil
}

// Upload copies to the device's memory.
func (d *Device) Upload(dst driver.Ptr, src []byte, _ driver.Stream) error {
	data, written, err := d.rangeOf(dst, len(src))
	if err != nil {
		return err
	}
	copy(data, src)
	setWritten(written)
	return nil
}

// Download copies from the device's memory. All of it must have been written.
func (d *Device) Download(dst []byte, src driver.Ptr, _ driver.Stream) error {
	data, written, err := d.rangeOf(src, len(dst))
	if err != nil {
		return err
	}
	if i := bytes.IndexByte(written, 0); i >= 0 {
		return fmt.Errorf("ptx: byte %d of %d from %#x on is downloaded, but nothing has written it", i, len(dst),
			uint64(src))
	}
	copy(dst, data)
	return nil
}

// Synchronize returns the error of a kernel, if one had one.
func (d *Device) Synchronize(driver.Stream) error { return d.ready() }

// Close fails if memory of Alloc has not been freed. After an error of a kernel nothing
// can be freed, and Close says nothing.
func (d *Device) Close() error {
	if d.closed {
		return errClosed
	}
	d.closed = true
	left := slices.DeleteFunc(slices.Compact(d.memory.pages), func(r *region) bool { return r == nil })
	if len(left) == 0 || d.failed != nil {
		return nil
	}
	var b strings.Builder
	for _, r := range left {
		fmt.Fprintf(&b, "\n\t%d bytes at %#x", len(r.data), r.base)
	}
	return fmt.Errorf("ptx: %d allocations were not freed:%s", len(left), b.String())
}
