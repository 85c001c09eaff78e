// Package cuda opens NVIDIA GPUs for package gpu. It needs the driver of the GPU and
// nothing else: no toolkit and no cgo. It opens the driver's library when Open or
// Devices is called, so a program that imports this package runs without a driver too.
//
// A GPU is one of compute capability 8.0 or newer (A100, RTX 30, and what followed)
// with a driver for CUDA 11.0 or newer, on Linux on amd64 or arm64. On other systems,
// and with the build tag nogpu, Open and Devices return an *UnavailableError and
// nothing of CUDA is linked.
//
// The library is libcuda.so.1, or else libcuda.so. The environment variable
// REWEIGHT_LIBCUDA names another file. The driver's own variables apply:
// CUDA_VISIBLE_DEVICES for example says which devices there are, and in what order.
// With REWEIGHT_GPU=off there is no GPU; with REWEIGHT_GPU=unchecked, kernels are used without a check.
//
// A device is used through its primary context, which PyTorch and CUDA's runtime use
// as well: their pointers and streams are valid here. Each call makes that context
// current on its thread, and then the one again that was current before.
//
// On Linux a program that imports this package is linked to the C library, with cgo
// and without: built with CGO_ENABLED=0 it needs glibc, which NVIDIA's driver needs too.
package cuda

import "fmt"

// An UnavailableError says why there is no GPU that this package can use: there is no
// driver or no device, or one of them is too old.
type UnavailableError struct {
	Reason string // "there is no driver: ..."
}

func (e *UnavailableError) Error() string { return "cuda: " + e.Reason }

func unavailable(format string, values ...any) error {
	return &UnavailableError{fmt.Sprintf(format, values...)}
}

// A CallError says which function of the driver failed.
type CallError struct {
	Function string // "cuMemAlloc_v2"
	Code     int    // 2
	Name     string // "CUDA_ERROR_OUT_OF_MEMORY"
	Text     string // "out of memory"
}

func (e *CallError) Error() string {
	return fmt.Sprintf("cuda: %s failed with %s (%d): %s", e.Function, e.Name, e.Code, e.Text)
}
