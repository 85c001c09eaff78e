// Package driver says what package gpu needs of the thing that runs its kernels: a
// real GPU behind the driver's library (gpu/cuda), or in tests an interpreter of PTX
// (gpu/internal/ptx).
package driver

import "unsafe"

// A Ptr is an address in the device's memory. 0 is no memory.
type Ptr uint64

// A Stream is a queue of work on the device: a CUstream, which is what CUDA's runtime
// calls cudaStream_t. 0 is the default stream of the context.
type Stream uintptr

// A Function is a kernel that Driver.Function has found.
type Function uintptr

// Info describes a device.
type Info struct {
	Name            string // "NVIDIA H100 80GB HBM3"
	Multiprocessors int
	Capability      [2]int // compute capability: 9, 0
	Memory          int64  // bytes in all
	Driver          [2]int // the newest version of CUDA that the driver knows: 12, 4
}

// A Driver runs kernels on one device. Launch, Fill and Copy queue work and return at
// once; the other methods that take a stream or copy memory wait for it. No method is
// called by two goroutines at a time.
type Driver interface {
	// Info describes the device. It asks nothing of the driver.
	Info() Info

	// Function finds the kernel of that name, for launches with up to shared bytes of
	// dynamic shared memory, and tells how many CTAs of so many threads fit on a
	// multiprocessor with them.
	// A driver that has to compile it does so when it is asked first.
	Function(name string, threads, shared int) (f Function, fit int, err error)

	// Captured tells whether what is queued on the stream goes into a CUDA graph.
	Captured(s Stream) (bool, error)

	// Launch queues a kernel of one parameter, the struct of that size at params. It
	// has read params when it returns. It allocates nothing and does not wait.
	Launch(f Function, grid, threads, shared int, params unsafe.Pointer, size uintptr, s Stream) error

	// Fill queues that the bytes at p get a value. It allocates nothing and does not
	// wait.
	Fill(p Ptr, value byte, bytes int, s Stream) error

	// Copy queues that bytes of the device's memory are copied.
	Copy(dst, src Ptr, bytes int, s Stream) error

	// Alloc returns memory of its own, aligned to 256 bytes, and Free gives it back.
	Alloc(bytes int) (Ptr, error)
	Free(p Ptr) error

	// Upload copies from this process's memory to the device's, Download back. They
	// are ordered after what was queued on the stream, and return when it is done.
	Upload(dst Ptr, src []byte, s Stream) error
	Download(dst []byte, src Ptr, s Stream) error

	// Synchronize waits until all that was queued on the stream is done. An error of
	// a kernel that ran there shows here.
	Synchronize(s Stream) error

	// Close gives back what the driver holds. Memory of Alloc that is not freed yet is
	// lost.
	Close() error
}

// A Guarded driver can surround memory with addresses that nothing is mapped to, so
// that a kernel that reads or writes past its arrays fails. It is for checks.
type Guarded interface {
	Driver

	// AllocGuarded returns memory of at least so many bytes, from lo up to but not
	// including hi, and what gives it back. Below lo and from hi on nothing is mapped.
	AllocGuarded(bytes int) (lo, hi Ptr, free func() error, err error)
}
