//go:build linux && !android && (amd64 || arm64) && !nogpu

package cuda

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"github.com/ebitengine/purego"
	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/gpu/internal/driver"
)

// An entry is a function of the driver's library: its place in symbols.
type entry int

// symbols has the names that the library exports the entries under.
var symbols []string

// exported returns the entry of that name, a new one.
func exported(name string) entry {
	symbols = append(symbols, name)
	return entry(len(symbols) - 1)
}

// The entries. Where there are versions of one, it is that of CUDA 11.0; later drivers keep
// it.
var (
	cuGetErrorName     = exported("cuGetErrorName")
	cuGetErrorString   = exported("cuGetErrorString")
	cuDriverGetVersion = exported("cuDriverGetVersion")
	cuInit             = exported("cuInit")

	cuDeviceGetCount          = exported("cuDeviceGetCount")
	cuDeviceGet               = exported("cuDeviceGet")
	cuDeviceGetName           = exported("cuDeviceGetName")
	cuDeviceTotalMem          = exported("cuDeviceTotalMem_v2")
	cuDeviceGetAttribute      = exported("cuDeviceGetAttribute")
	cuDevicePrimaryCtxRetain  = exported("cuDevicePrimaryCtxRetain")
	cuDevicePrimaryCtxRelease = exported("cuDevicePrimaryCtxRelease_v2")
	cuCtxPushCurrent          = exported("cuCtxPushCurrent_v2")
	cuCtxPopCurrent           = exported("cuCtxPopCurrent_v2")

	cuModuleLoadDataEx                          = exported("cuModuleLoadDataEx")
	cuModuleUnload                              = exported("cuModuleUnload")
	cuModuleGetFunction                         = exported("cuModuleGetFunction")
	cuFuncSetAttribute                          = exported("cuFuncSetAttribute")
	cuOccupancyMaxActiveBlocksPerMultiprocessor = exported("cuOccupancyMaxActiveBlocksPerMultiprocessor")
	cuLaunchKernel                              = exported("cuLaunchKernel")

	cuMemAlloc          = exported("cuMemAlloc_v2")
	cuMemFree           = exported("cuMemFree_v2")
	cuMemcpyHtoDAsync   = exported("cuMemcpyHtoDAsync_v2")
	cuMemcpyDtoHAsync   = exported("cuMemcpyDtoHAsync_v2")
	cuMemcpyDtoDAsync   = exported("cuMemcpyDtoDAsync_v2")
	cuMemsetD8Async     = exported("cuMemsetD8Async")
	cuStreamSynchronize = exported("cuStreamSynchronize")
	cuStreamIsCapturing = exported("cuStreamIsCapturing")

	cuMemGetAllocationGranularity = exported("cuMemGetAllocationGranularity")
	cuMemAddressReserve           = exported("cuMemAddressReserve")
	cuMemAddressFree              = exported("cuMemAddressFree")
	cuMemCreate                   = exported("cuMemCreate")
	cuMemRelease                  = exported("cuMemRelease")
	cuMemMap                      = exported("cuMemMap")
	cuMemUnmap                    = exported("cuMemUnmap")
	cuMemSetAccess                = exported("cuMemSetAccess")
)

// Codes that an entry returns.
const (
	success         = 0
	noDevice        = 100 // CUDA_ERROR_NO_DEVICE
	notSupported    = 801 // CUDA_ERROR_NOT_SUPPORTED
	captureImplicit = 906 // CUDA_ERROR_STREAM_CAPTURE_IMPLICIT: another stream is captured
)

// Device attributes.
const (
	attributeMultiprocessors = 16
	attributeMajor           = 75 // of the compute capability
	attributeMinor           = 76
)

const (
	oldestDriver     = 11000 // CUDA 11.0: 1000 for the major version, 10 for the minor
	oldestCapability = 8     // what the PTX is compiled for
)

// A library is the driver's library, initialised. One goroutine at a time uses it.
type library struct {
	address []uintptr   // of the entries
	version int         // of CUDA: 12040 is 12.4
	args    [11]uintptr // of a call; cuLaunchKernel has the most
	text    *byte       // of an error, in the driver's memory
}

// gpuVariable is the environment variable that says whether a GPU is used, and whether its kernels are checked first.
const gpuVariable = "REWEIGHT_GPU"

// openLibrary opens the library and readies it for use. It stays open for as long as
// the process lives, as the driver has threads of its own.
func openLibrary() (*library, error) {
	switch v := os.Getenv(gpuVariable); v {
	case "", "unchecked":
	case "off":
		return nil, unavailable("%s is off", gpuVariable)
	default:
		return nil, &reweight.InputError{Arg: gpuVariable, Index: -1,
			Problem: fmt.Sprintf("is %q, want off, unchecked or nothing", v)}
	}
	// The C library keeps the text of an error by thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	handle, err := dlopen()
	if err != nil {
		return nil, err
	}
	lib := library{address: make([]uintptr, len(symbols))}
	var missing error
	for e, symbol := range symbols {
		if lib.address[e], err = purego.Dlsym(handle, symbol); err != nil && missing == nil {
			missing = fmt.Errorf("cuda: the driver's library has no %s: %w", symbol, err)
		}
	}
	// An old driver lacks entries, but its age is the better answer.
	if lib.address[cuDriverGetVersion] != 0 && lib.address[cuGetErrorName] != 0 && lib.address[cuGetErrorString] != 0 {
		var version int32
		if err := lib.call(cuDriverGetVersion, uintptr(unsafe.Pointer(&version))); err != nil {
			return nil, err
		}
		lib.version = int(version)
		if lib.version < oldestDriver {
			v := lib.versions()
			return nil, unavailable("the driver is for CUDA %d.%d, want %d.0 or newer", v[0], v[1], oldestDriver/1000)
		}
	}
	if missing != nil {
		return nil, missing
	}
	return &lib, lib.init()
}

// dlopen opens the file of the library.
func dlopen() (uintptr, error) {
	const flags = purego.RTLD_NOW | purego.RTLD_LOCAL
	if name := os.Getenv("REWEIGHT_LIBCUDA"); name != "" {
		handle, err := purego.Dlopen(name, flags)
		if err != nil {
			return 0, fmt.Errorf("cuda: REWEIGHT_LIBCUDA is %q: %w", name, err)
		}
		return handle, nil
	}
	handle, err := purego.Dlopen("libcuda.so.1", flags)
	if err != nil {
		var other error
		if handle, other = purego.Dlopen("libcuda.so", flags); other != nil {
			return 0, unavailable("there is no driver: %v", err)
		}
	}
	return handle, nil
}

func (l *library) init() error {
	switch code := l.raw(cuInit, 0); code {
	case success:
		return nil
	case noDevice:
		return unavailable("the driver finds no device")
	default:
		return l.callError(cuInit, code)
	}
}

// versions returns the major and the minor version of CUDA.
func (l *library) versions() [2]int { return [2]int{l.version / 1000, l.version % 1000 / 10} }

// devices returns how many devices there are, at least one.
func (l *library) devices() (int, error) {
	var n int32
	if err := l.call(cuDeviceGetCount, uintptr(unsafe.Pointer(&n))); err != nil {
		return 0, err
	}
	if n < 1 {
		return 0, unavailable("the driver finds no device")
	}
	return int(n), nil
}

// device returns the handle of a device and what it is.
func (l *library) device(ordinal int) (device int32, info driver.Info, err error) {
	if err := l.call(cuDeviceGet, uintptr(unsafe.Pointer(&device)), uintptr(ordinal)); err != nil {
		return 0, info, err
	}
	var name [256]byte
	if err := l.call(cuDeviceGetName, uintptr(unsafe.Pointer(&name)), uintptr(len(name)-1),
		uintptr(device)); err != nil {
		return 0, info, err
	}
	var memory uint64
	if err := l.call(cuDeviceTotalMem, uintptr(unsafe.Pointer(&memory)), uintptr(device)); err != nil {
		return 0, info, err
	}
	var values [3]int32
	for i, attribute := range [...]uintptr{attributeMultiprocessors, attributeMajor, attributeMinor} {
		if err := l.call(cuDeviceGetAttribute, uintptr(unsafe.Pointer(&values[i])), attribute,
			uintptr(device)); err != nil {
			return 0, info, err
		}
	}
	return device, driver.Info{
		Name:            text(&name[0]),
		Multiprocessors: int(values[0]),
		Capability:      [2]int{int(values[1]), int(values[2])},
		Memory:          int64(memory),
		Driver:          l.versions(),
	}, nil
}

// raw calls an entry and returns its code. It allocates nothing. What the arguments
// point to must be on the heap, and kept alive: an address on the stack can change.
func (l *library) raw(e entry, args ...uintptr) int {
	n := copy(l.args[:], args) // SyscallN would put args on the heap in every call
	r, _, _ := purego.SyscallN(l.address[e], l.args[:n]...)
	return int(int32(r))
}

// call is raw for any pointers, because the compiler sees to what they point to, with the
// code turned into an error.
//
//go:uintptrescapes
func (l *library) call(e entry, args ...uintptr) error {
	if code := l.raw(e, args...); code != success {
		return l.callError(e, code)
	}
	return nil
}

func (l *library) callError(e entry, code int) *CallError {
	describe := func(e entry, unknown string) string {
		l.text = nil
		if l.raw(e, uintptr(code), uintptr(unsafe.Pointer(&l.text))) != success || l.text == nil {
			return unknown
		}
		return text(l.text)
	}
	return &CallError{symbols[e], code, describe(cuGetErrorName, "an error"),
		describe(cuGetErrorString, "the driver does not say what that is")}
}

// text copies a string of C, which ends with a zero.
func text(s *byte) string {
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(s), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(s, n))
}
