package testgpu

import (
	"bytes"
	"strings"
	"testing"
	"unsafe"

	"github.com/seed621a2839/reweight/gpu"
	"github.com/seed621a2839/reweight/internal/gpu/driver"
	"github.com/seed621a2839/reweight/internal/gpu/ptx"
)

// Exact returns an interpreter, and a function that says where its kernels on rows of
// logits write the float64 behind their results from then on, which a user never gets.
// For each row in memory these are three: for TokenStats the reference, the logarithm of
// the sum and the entropy; for RowGradient the chosen id's own term, the logsumexp in
// log2 units and the scale of the other ids.
func Exact(t testing.TB, seed uint64) (dev *gpu.Device, write func(at gpu.Ptr)) {
	t.Helper()
	needSupport(t)
	e := &exact{Device: interpreter(seed), onRows: map[driver.Function]bool{}}
	return gpu.NewDevice(e), func(at gpu.Ptr) { e.at = at }
}

// exact is a driver that tells the kernels on rows where to write. The first field of
// their parameters is for that.
type exact struct {
	*ptx.Device
	onRows map[driver.Function]bool
	at     driver.Ptr
}

func (e *exact) Function(name string, threads, shared int) (driver.Function, int, error) {
	f, fit, err := e.Device.Function(name, threads, shared)
	e.onRows[f] = strings.HasPrefix(name, "token_stats_") || strings.HasPrefix(name, "row_gradient_")
	return f, fit, err
}

func (e *exact) Launch(f driver.Function, grid, threads, shared int, params unsafe.Pointer, size uintptr, s driver.Stream) error {
	if e.onRows[f] {
		own := bytes.Clone(unsafe.Slice((*byte)(params), size))
		params = unsafe.Pointer(unsafe.SliceData(own))
		*(*driver.Ptr)(params) = e.at
	}
	return e.Device.Launch(f, grid, threads, shared, params, size, s)
}
