//go:build cgo && linux && (amd64 || arm64)

package main

/*
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
*/
import "C"

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"github.com/seed621a2839/reweight/gpu/internal/device"
	"github.com/seed621a2839/reweight/gpu/internal/driver"
	"github.com/seed621a2839/reweight/gpu/internal/ptx"
)

// Codes that the functions return.
const (
	success        = 0
	invalidValue   = 1
	invalidDevice  = 101
	invalidContext = 201
	invalidPTX     = 218
	invalidHandle  = 400
	notFound       = 500
	launchFailed   = 719
)

// codes have a name and a text each.
var codes = map[C.int][2]*C.char{
	invalidValue:   {C.CString("CUDA_ERROR_INVALID_VALUE"), C.CString("invalid argument")},
	invalidDevice:  {C.CString("CUDA_ERROR_INVALID_DEVICE"), C.CString("invalid device ordinal")},
	invalidContext: {C.CString("CUDA_ERROR_INVALID_CONTEXT"), C.CString("invalid device context")},
	invalidPTX:     {C.CString("CUDA_ERROR_INVALID_PTX"), C.CString("a PTX JIT compilation failed")},
	invalidHandle:  {C.CString("CUDA_ERROR_INVALID_HANDLE"), C.CString("invalid resource handle")},
	notFound:       {C.CString("CUDA_ERROR_NOT_FOUND"), C.CString("named symbol not found")},
	launchFailed:   {C.CString("CUDA_ERROR_LAUNCH_FAILED"), C.CString("unspecified launch failure")},
}

// A function is a kernel of a device.
type function struct {
	device *ptx.Device
	name   string
	shared C.int // dynamic shared memory that it may have
}

const (
	firstContext  = 0xc0de0000 // handles: of the first context, and from there on by one
	firstModule   = 0x10000
	firstFunction = 0x20000
	plainShared   = 48 << 10 // more dynamic shared memory a function must be allowed first
)

// The state, which mu guards. The handle of a module or a function is its place here.
var (
	mu        sync.Mutex
	texts     []string // of the modules
	devices   [2]*ptx.Device
	modules   []module // that were loaded
	functions []*function
	stacks    = map[int][]int{} // of contexts' devices, by thread
)

// A module was loaded on a device. Its text is one of texts.
type module struct {
	device *ptx.Device
	text   string
}

// open opens the devices.
func open() error {
	seed, _ := strconv.ParseUint(getenv("REWEIGHT_PTX_SEED"), 10, 64)
	all, err := device.PTX()
	if err != nil {
		return err
	}
	for _, text := range all {
		texts = append(texts, text)
	}
	for i := range devices {
		if i == 1 {
			plant(all, getenv("REWEIGHT_PTX_PLANT"))
		}
		if devices[i], err = ptx.Open(all, ptx.Options{Seed: seed + uint64(i)}); err != nil {
			return err
		}
	}
	return nil
}

// getenv returns an environment variable as the process has it now. A library of Go has its own copy of the variables
// with which the process began.
func getenv(name string) string {
	of := C.CString(name)
	defer C.free(unsafe.Pointer(of))
	return C.GoString(C.getenv(of))
}

// plant makes instructions of kernels, and of those behind them in their modules, other ones: each is the kernel, the
// instruction and the other, separated by commas. Semicolons are between them.
func plant(modules map[string]string, all string) {
	for one := range strings.SplitSeq(all, ";") {
		p := strings.Split(one, ",")
		for name, text := range modules {
			if before, after, has := strings.Cut(text, ".entry "+p[0]+"("); has && len(p) == 3 {
				modules[name] = before + ".entry " + p[0] + "(" + strings.ReplaceAll(after, p[1], p[2])
			}
		}
	}
}

// told reports an error to whoever reads standard error, and returns the code if there
// is one.
func told(err error, code C.int) C.int {
	if err == nil {
		return success
	}
	fmt.Fprintln(os.Stderr, "false libcuda:", err)
	return code
}

// current returns the device whose context is current on this thread.
func current() (int, bool) {
	stack := stacks[syscall.Gettid()]
	if len(stack) == 0 {
		return 0, false
	}
	return stack[len(stack)-1], true
}

// on calls f with the device whose context is current, and returns what f returns.
func on(f func(d *ptx.Device) C.int) C.int {
	mu.Lock()
	defer mu.Unlock()
	d, ok := current()
	if !ok {
		return invalidContext
	}
	return f(devices[d])
}

// describe gives a text of a code.
func describe(code C.int, which int, out **C.char) C.int {
	*out = codes[code][which]
	if *out == nil {
		return invalidValue
	}
	return success
}

//export cuGetErrorName
func cuGetErrorName(code C.int, out **C.char) C.int { return describe(code, 0, out) }

//export cuGetErrorString
func cuGetErrorString(code C.int, out **C.char) C.int { return describe(code, 1, out) }

//export cuDriverGetVersion
func cuDriverGetVersion(version *C.int) C.int {
	*version = 11000
	return success
}

//export cuInit
func cuInit(flags C.uint) C.int {
	mu.Lock()
	defer mu.Unlock()
	if flags != 0 {
		return invalidValue
	}
	if texts != nil {
		return success
	}
	return told(open(), launchFailed)
}

//export cuDeviceGet
func cuDeviceGet(out *C.int, ordinal C.int) C.int {
	if ordinal < 0 || int(ordinal) >= len(devices) {
		return invalidDevice
	}
	*out = ordinal
	return success
}

//export cuDeviceGetName
func cuDeviceGetName(name *C.char, size, device C.int) C.int {
	text := unsafe.Slice((*byte)(unsafe.Pointer(name)), size)
	copy(text[:size-1], "interpreter\x00")
	return success
}

//export cuDeviceGetAttribute
func cuDeviceGetAttribute(value *C.int, attribute, device C.int) C.int {
	info := devices[device].Info()
	switch attribute {
	case 16:
		*value = C.int(info.Multiprocessors)
	case 75:
		*value = C.int(info.Capability[0])
	case 76:
		*value = C.int(info.Capability[1])
	default:
		return invalidValue
	}
	return success
}

//export cuDevicePrimaryCtxRetain
func cuDevicePrimaryCtxRetain(context *C.uintptr_t, device C.int) C.int {
	*context = firstContext + C.uintptr_t(device)
	return success
}

//export cuCtxPushCurrent_v2
func cuCtxPushCurrent_v2(context C.uintptr_t) C.int {
	mu.Lock()
	defer mu.Unlock()
	d := int(context) - firstContext
	if d < 0 || d >= len(devices) {
		return invalidContext
	}
	thread := syscall.Gettid()
	stacks[thread] = append(stacks[thread], d)
	return success
}

//export cuCtxPopCurrent_v2
func cuCtxPopCurrent_v2(context *C.uintptr_t) C.int {
	mu.Lock()
	defer mu.Unlock()
	d, ok := current()
	if !ok {
		return invalidContext
	}
	*context = firstContext + C.uintptr_t(d)
	thread := syscall.Gettid()
	stacks[thread] = stacks[thread][:len(stacks[thread])-1]
	return success
}

//export cuCtxSynchronize
func cuCtxSynchronize() C.int {
	return on(func(d *ptx.Device) C.int { return told(d.Synchronize(0), launchFailed) })
}

//export cuModuleLoadDataEx
func cuModuleLoadDataEx(out *C.uintptr_t, image *C.char, options C.uint, names *C.int, values *unsafe.Pointer) C.int {
	return on(func(d *ptx.Device) C.int {
		text := C.GoString(image)
		if !slices.Contains(texts, text) {
			return invalidPTX
		}
		modules = append(modules, module{d, text})
		*out = firstModule + C.uintptr_t(len(modules)-1)
		return success
	})
}

//export cuModuleGetFunction
func cuModuleGetFunction(out *C.uintptr_t, handle C.uintptr_t, symbol *C.char) C.int {
	return on(func(d *ptx.Device) C.int {
		i, name := int(handle)-firstModule, C.GoString(symbol)
		switch {
		case i < 0 || i >= len(modules):
			return invalidHandle
		case modules[i].device != d:
			return invalidContext
		case !strings.Contains(modules[i].text, ".entry "+name+"("):
			return notFound
		}
		functions = append(functions, &function{device: d, name: name, shared: plainShared})
		*out = firstFunction + C.uintptr_t(len(functions)-1)
		return success
	})
}

// use calls f with a function of the device whose context is current.
func use(handle C.uintptr_t, f func(f *function) C.int) C.int {
	return on(func(d *ptx.Device) C.int {
		i := int(handle) - firstFunction
		switch {
		case i < 0 || i >= len(functions):
			return invalidHandle
		case functions[i].device != d:
			return invalidContext
		}
		return f(functions[i])
	})
}

// find returns the function for CTAs of so many threads with so much dynamic shared
// memory, and how many of them fit on a multiprocessor.
func (f *function) find(threads, shared C.int) (driver.Function, C.int, error) {
	if shared > f.shared {
		return 0, 0, fmt.Errorf("%s: %d bytes of shared memory, may have %d", f.name, shared, f.shared)
	}
	found, fit, err := f.device.Function(f.name, int(threads), int(shared))
	return found, C.int(fit), err
}

//export cuFuncSetAttribute
func cuFuncSetAttribute(handle C.uintptr_t, attribute, value C.int) C.int {
	return use(handle, func(f *function) C.int {
		if attribute != 8 { // dynamic shared memory
			return invalidValue
		}
		f.shared = value
		return success
	})
}

//export cuOccupancyMaxActiveBlocksPerMultiprocessor
func cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks *C.int, handle C.uintptr_t, threads C.int,
	shared C.size_t) C.int {
	return use(handle, func(f *function) C.int {
		_, fit, err := f.find(threads, C.int(shared))
		*blocks = fit
		return told(err, invalidValue)
	})
}

//export cuLaunchKernel
func cuLaunchKernel(handle C.uintptr_t, gridX, gridY, gridZ, x, y, z, shared C.uint, stream C.uintptr_t,
	params, extra *unsafe.Pointer) C.int {
	return use(handle, func(f *function) C.int {
		if gridY != 1 || gridZ != 1 || y != 1 || z != 1 || params != nil || extra == nil {
			return invalidValue
		}
		// Names and values in turn: 1 is the struct of parameters, 2 its size, 0 the end.
		e := (*[5]unsafe.Pointer)(unsafe.Pointer(extra))
		if uintptr(e[0]) != 1 || uintptr(e[2]) != 2 || e[4] != nil {
			return invalidValue
		}
		kernel, _, err := f.find(C.int(x), C.int(shared))
		if err == nil {
			err = f.device.Launch(kernel, int(gridX), int(x), int(shared), e[1], uintptr(*(*C.size_t)(e[3])),
				driver.Stream(stream))
		}
		return told(err, invalidValue)
	})
}

//export cuMemAlloc_v2
func cuMemAlloc_v2(out *C.uint64_t, bytes C.size_t) C.int {
	return on(func(d *ptx.Device) C.int {
		p, err := d.Alloc(int(bytes))
		*out = C.uint64_t(p)
		return told(err, invalidValue)
	})
}

//export cuMemFree_v2
func cuMemFree_v2(p C.uint64_t) C.int {
	return on(func(d *ptx.Device) C.int { return told(d.Free(driver.Ptr(p)), invalidValue) })
}

//export cuMemcpyHtoDAsync_v2
func cuMemcpyHtoDAsync_v2(dst C.uint64_t, src unsafe.Pointer, bytes C.size_t, stream C.uintptr_t) C.int {
	return on(func(d *ptx.Device) C.int {
		return told(d.Upload(driver.Ptr(dst), unsafe.Slice((*byte)(src), bytes), driver.Stream(stream)), invalidValue)
	})
}

//export cuMemcpyDtoHAsync_v2
func cuMemcpyDtoHAsync_v2(dst unsafe.Pointer, src C.uint64_t, bytes C.size_t, stream C.uintptr_t) C.int {
	return on(func(d *ptx.Device) C.int {
		return told(d.Download(unsafe.Slice((*byte)(dst), bytes), driver.Ptr(src), driver.Stream(stream)), invalidValue)
	})
}

//export cuMemcpyDtoDAsync_v2
func cuMemcpyDtoDAsync_v2(dst, src C.uint64_t, bytes C.size_t, stream C.uintptr_t) C.int {
	return on(func(d *ptx.Device) C.int {
		return told(d.Copy(driver.Ptr(dst), driver.Ptr(src), int(bytes), driver.Stream(stream)), invalidValue)
	})
}

//export cuMemsetD8Async
func cuMemsetD8Async(dst C.uint64_t, value C.uchar, bytes C.size_t, stream C.uintptr_t) C.int {
	return on(func(d *ptx.Device) C.int {
		return told(d.Fill(driver.Ptr(dst), byte(value), int(bytes), driver.Stream(stream)), invalidValue)
	})
}

//export cuStreamIsCapturing
func cuStreamIsCapturing(stream C.uintptr_t, status *C.int) C.int {
	return on(func(d *ptx.Device) C.int {
		*status = 0
		return success
	})
}

//export cuStreamSynchronize
func cuStreamSynchronize(stream C.uintptr_t) C.int {
	return on(func(d *ptx.Device) C.int { return told(d.Synchronize(driver.Stream(stream)), launchFailed) })
}
