//go:build linux && !android && (amd64 || arm64) && !nogpu

package cuda

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"unsafe"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/gpu"
	"github.com/seed621a2839/reweight/gpu/internal/answers"
	"github.com/seed621a2839/reweight/gpu/internal/device"
	"github.com/seed621a2839/reweight/gpu/internal/driver"
)

// Devices describes the devices that the driver sees, those that are too old for Open
// as well. The place in the list is the ordinal. If there is none, or none can be
// used, the error is an *UnavailableError.
func Devices() ([]gpu.Info, error) {
	lib, err := openLibrary()
	if err != nil {
		return nil, err
	}
	n, err := lib.devices()
	if err != nil {
		return nil, err
	}
	infos := make([]gpu.Info, n)
	for i := range infos {
		if _, infos[i], err = lib.device(i); err != nil {
			return nil, err
		}
	}
	return infos, nil
}

// Open opens the device of that number, from 0. The driver compiles kernels for it when
// they are used first, or by Device.Prepare, and keeps what it compiled on disk for the
// next time. Before a kernel is used, it is compared with the CPU on a few rows or tokens, unless the environment
// variable REWEIGHT_GPU is "unchecked": if a bit differs, the call is an error. The error of Open is an
// *UnavailableError if there is no GPU that can be used, an *reweight.InputError about
// "ordinal" if the number is too large, and otherwise wraps a *CallError if the driver
// failed.
func Open(ordinal int) (*gpu.Device, error) {
	modules, err := device.PTX()
	if err != nil {
		return nil, err
	}
	c, err := open(ordinal, modules)
	if err != nil {
		return nil, err
	}
	if os.Getenv(gpuVariable) == "unchecked" {
		return gpu.NewDevice(c, nil), nil
	}
	return gpu.NewDevice(c, answers.New(c).Check), nil
}

// What the options of cuModuleLoadDataEx are called.
const (
	jitErrorLogBuffer = 5
	jitErrorLogSize   = 6
	jitLogBytes       = 8 << 10
)

const (
	maxDynamicShared = 8 // the attribute of a function
	// More dynamic shared memory than this a function must be allowed first.
	plainShared = 48 << 10
)

// What the elements of cuLaunchKernel's extra are called.
const (
	launchParamEnd    = 0
	launchParamBuffer = 1
	launchParamSize   = 2
)

// launchParams is the argument extra of cuLaunchKernel: names and values in turn.
type launchParams struct {
	buffer uintptr // launchParamBuffer
	params unsafe.Pointer
	size   uintptr // launchParamSize
	bytes  *uintptr
	end    uintptr // launchParamEnd
}

// A context is the primary context of a device. It is a driver.Driver.
type context struct {
	lib    *library
	device int32
	handle uintptr // 0: closed
	info   driver.Info
	texts  map[string]string  // of the modules
	loaded map[string]uintptr // those of them that were used

	// A kernel that fails takes the context with it: from then on every call returns
	// this error.
	lost error

	// Memory that calls hand to the driver; on the stack of Go it could move, and
	// Launch must not allocate.
	popped uintptr
	status int32 // of cuStreamIsCapturing
	launch launchParams
	bytes  uintptr
}

var errClosed = errors.New("cuda: the device is closed")

// open opens a device for the modules, whose texts are by name.
func open(ordinal int, modules map[string]string) (*context, error) {
	lib, err := openLibrary()
	if err != nil {
		return nil, err
	}
	n, err := lib.devices()
	if err != nil {
		return nil, err
	}
	if ordinal < 0 || ordinal >= n {
		return nil, &reweight.InputError{Arg: "ordinal", Index: -1,
			Problem: fmt.Sprintf("is %d, want 0 to %d", ordinal, n-1)}
	}
	dev, info, err := lib.device(ordinal)
	if err != nil {
		return nil, err
	}
	if c := info.Capability; c[0] < oldestCapability {
		return nil, unavailable("device %d, %s, has compute capability %d.%d, want %d.0 or newer", ordinal, info.Name,
			c[0], c[1], oldestCapability)
	}
	c := &context{lib: lib, device: dev, info: info, texts: modules, loaded: map[string]uintptr{}}
	if err := lib.call(cuDevicePrimaryCtxRetain, uintptr(unsafe.Pointer(&c.handle)), uintptr(dev)); err != nil {
		return nil, err
	}
	return c, nil
}

// module returns the module with a kernel, and loads it if it was not used before.
func (c *context) module(kernel string) (module uintptr, err error) {
	name := ""
	for n, text := range c.texts {
		if strings.Contains(text, ".entry "+kernel+"(") {
			name = n
		}
	}
	if name == "" {
		return 0, fmt.Errorf("cuda: no module has a kernel %s", kernel)
	}
	if module, ok := c.loaded[name]; ok {
		return module, nil
	}
	image := append([]byte(c.texts[name]), 0)
	log := make([]byte, jitLogBytes)
	options := [...]int32{jitErrorLogBuffer, jitErrorLogSize}
	values := struct {
		log   unsafe.Pointer
		bytes uintptr
	}{unsafe.Pointer(unsafe.SliceData(log)), uintptr(len(log)) - 1} // a zero stays at the end
	err = c.call(cuModuleLoadDataEx, uintptr(unsafe.Pointer(&module)), uintptr(unsafe.Pointer(unsafe.SliceData(image))),
		uintptr(len(options)), uintptr(unsafe.Pointer(&options)), uintptr(unsafe.Pointer(&values)))
	if err != nil {
		err = fmt.Errorf("cuda: module %s: %w", name, err)
		if said := text(&log[0]); said != "" {
			err = fmt.Errorf("%w: %s", err, said)
		}
		return 0, err
	}
	c.loaded[name] = module
	return module, nil
}

// do calls f on a thread on which the context is current, and then makes the one current
// again that was so before. It returns f's error, or else what went wrong around f.
func (c *context) do(f func() error) error {
	if c.handle == 0 {
		return errClosed
	}
	if c.lost != nil {
		return c.lost
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := c.raw(cuCtxPushCurrent, c.handle); err != nil {
		return err
	}
	return cmp.Or(f(), c.raw(cuCtxPopCurrent, uintptr(unsafe.Pointer(&c.popped))))
}

// call calls an entry with any pointers.
//
//go:uintptrescapes
func (c *context) call(e entry, args ...uintptr) error { return c.raw(e, args...) }

// raw calls an entry without allocating. What the arguments point to must be on the
// heap. An error that loses the context is remembered.
func (c *context) raw(e entry, args ...uintptr) error {
	code := c.lib.raw(e, args...)
	if code == success {
		return nil
	}
	err := c.lib.callError(e, code)
	if !loses(code) {
		return err
	}
	if c.lost == nil {
		c.lost = fmt.Errorf("%w; this process cannot use %s any more and must be restarted", err, c.info.Name)
	}
	return c.lost
}

// loses tells whether the error of that code leaves the context of no use.
func loses(code int) bool {
	switch code {
	case 4, // DEINITIALIZED
		46,  // DEVICE_UNAVAILABLE
		201, // INVALID_CONTEXT
		214, // ECC_UNCORRECTABLE
		220, // NVLINK_UNCORRECTABLE
		226, // CONTAINED
		700, // ILLEGAL_ADDRESS
		702, // LAUNCH_TIMEOUT
		709, // CONTEXT_IS_DESTROYED
		710, // ASSERT
		714, // HARDWARE_STACK_ERROR
		715, // ILLEGAL_INSTRUCTION
		716, // MISALIGNED_ADDRESS
		717, // INVALID_ADDRESS_SPACE
		718, // INVALID_PC
		719, // LAUNCH_FAILED
		721, // TENSOR_MEMORY_LEAK
		999: // UNKNOWN
		return true
	}
	return false
}

// Info describes the device.
func (c *context) Info() driver.Info { return c.info }

// Function finds a kernel in its module. The occupancy counts registers, threads and
// shared memory.
func (c *context) Function(name string, threads, shared int) (f driver.Function, fit int, err error) {
	var blocks int32
	err = c.do(func() error {
		module, err := c.module(name)
		if err != nil {
			return err
		}
		symbol := append([]byte(name), 0)
		if err := c.call(cuModuleGetFunction, uintptr(unsafe.Pointer(&f)), module,
			uintptr(unsafe.Pointer(unsafe.SliceData(symbol)))); err != nil {
			return err
		}
		if shared > plainShared {
			if err := c.call(cuFuncSetAttribute, uintptr(f), maxDynamicShared, uintptr(shared)); err != nil {
				return err
			}
		}
		return c.call(cuOccupancyMaxActiveBlocksPerMultiprocessor, uintptr(unsafe.Pointer(&blocks)), uintptr(f),
			uintptr(threads), uintptr(shared))
	})
	return f, int(blocks), err
}

// Launch queues a kernel. The driver compares size with what the kernel takes and
// copies the parameter before it returns.
func (c *context) Launch(f driver.Function, grid, threads, shared int, params unsafe.Pointer, size uintptr,
	s driver.Stream) error {
	return c.do(func() error {
		c.bytes = size
		c.launch = launchParams{launchParamBuffer, params, launchParamSize, &c.bytes, launchParamEnd}
		err := c.raw(cuLaunchKernel, uintptr(f), uintptr(grid), 1, 1, uintptr(threads), 1, 1, uintptr(shared),
			uintptr(s), 0, uintptr(unsafe.Pointer(&c.launch)))
		c.launch = launchParams{} // the caller's struct is not kept alive
		return err
	})
}

// Fill queues that bytes get a value.
func (c *context) Fill(p driver.Ptr, value byte, bytes int, s driver.Stream) error {
	return c.do(func() error {
		if bytes == 0 {
			return nil
		}
		return c.raw(cuMemsetD8Async, uintptr(p), uintptr(value), uintptr(bytes), uintptr(s))
	})
}

// Copy queues a copy.
func (c *context) Copy(dst, src driver.Ptr, bytes int, s driver.Stream) error {
	return c.do(func() error {
		if bytes == 0 {
			return nil
		}
		return c.raw(cuMemcpyDtoDAsync, uintptr(dst), uintptr(src), uintptr(bytes), uintptr(s))
	})
}

// Captured asks whether the stream is captured. The default stream cannot be, but the
// driver refuses work on it while another stream is.
func (c *context) Captured(s driver.Stream) (bool, error) {
	err := c.do(func() error {
		err := c.raw(cuStreamIsCapturing, uintptr(s), uintptr(unsafe.Pointer(&c.status)))
		if failed, is := err.(*CallError); is && failed.Code == captureImplicit {
			c.status, err = 1, nil
		}
		return err
	})
	return c.status != 0, err
}

// Alloc returns memory. The driver aligns it to 256 bytes at least.
func (c *context) Alloc(bytes int) (driver.Ptr, error) {
	if bytes < 1 {
		return 0, fmt.Errorf("cuda: %d bytes of memory are asked for", bytes)
	}
	var p driver.Ptr
	err := c.do(func() error { return c.call(cuMemAlloc, uintptr(unsafe.Pointer(&p)), uintptr(bytes)) })
	if err != nil && p != 0 {
		c.Free(p)
		p = 0
	}
	return p, err
}

// Free gives memory of Alloc back. The driver waits for all work on it.
func (c *context) Free(p driver.Ptr) error {
	return c.do(func() error { return c.call(cuMemFree, uintptr(p)) })
}

// Upload queues a copy to the device on the stream and waits for the stream.
func (c *context) Upload(dst driver.Ptr, src []byte, s driver.Stream) error {
	return c.do(func() error {
		defer runtime.KeepAlive(src) // the device reads it until the stream is done
		if len(src) > 0 {
			err := c.call(cuMemcpyHtoDAsync, uintptr(dst), uintptr(unsafe.Pointer(unsafe.SliceData(src))),
				uintptr(len(src)), uintptr(s))
			if err != nil {
				return err
			}
		}
		return c.raw(cuStreamSynchronize, uintptr(s))
	})
}

// Download queues a copy from the device on the stream and waits for the stream.
func (c *context) Download(dst []byte, src driver.Ptr, s driver.Stream) error {
	return c.do(func() error {
		defer runtime.KeepAlive(dst)
		if len(dst) > 0 {
			err := c.call(cuMemcpyDtoHAsync, uintptr(unsafe.Pointer(unsafe.SliceData(dst))), uintptr(src),
				uintptr(len(dst)), uintptr(s))
			if err != nil {
				return err
			}
		}
		return c.raw(cuStreamSynchronize, uintptr(s))
	})
}

// Synchronize waits for the stream.
func (c *context) Synchronize(s driver.Stream) error {
	return c.do(func() error { return c.raw(cuStreamSynchronize, uintptr(s)) })
}

// Close unloads the modules and releases the primary context, whatever fails of it, and
// returns the first error. Modules that it cannot unload end with the context, when
// nobody else uses it. A second Close does nothing.
func (c *context) Close() error {
	if c.handle == 0 {
		return nil
	}
	err := c.do(func() (err error) {
		for _, module := range c.loaded {
			err = cmp.Or(err, c.call(cuModuleUnload, module))
		}
		return err
	})
	c.handle = 0
	return cmp.Or(err, c.call(cuDevicePrimaryCtxRelease, uintptr(c.device)))
}
