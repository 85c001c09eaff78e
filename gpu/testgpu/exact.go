package testgpu

import (
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/seed621a2839/reweight/gpu"
	"github.com/seed621a2839/reweight/gpu/internal/driver"
	"github.com/seed621a2839/reweight/gpu/internal/ptx"
)

// Exact returns an interpreter, and a function that says where its kernels on rows of
// logits write the float64 behind their results from then on: see Watched.
func Exact(t testing.TB, seed uint64) (dev *gpu.Device, write func(at gpu.Ptr)) {
	t.Helper()
	needSupport(t)
	w := Watch(interpreter(t, seed))
	return gpu.NewDevice(w, nil), func(at gpu.Ptr) { w.Behind = at }
}

// Watched is an interpreter as a driver that notes which kernels are launched, and tells
// those on rows of logits where to write the float64 behind their results, which a user
// never gets. The first field of their parameters is for that.
type Watched struct {
	*ptx.Device
	Launched map[string]bool

	// Behind is 0, or has for each row in memory four numbers of TokenStats, the reference and
	// the logarithm of the sum, the entropy and the logarithm of the sum of squares, or three
	// of RowGradient, the chosen id's own term, the logsumexp in log2 units and the scale of
	// the other ids.
	Behind driver.Ptr

	names map[driver.Function]string
}

// Watch returns the interpreter as a driver.
func Watch(d *ptx.Device) *Watched {
	return &Watched{Device: d, Launched: map[string]bool{}, names: map[driver.Function]string{}}
}

// Function finds a kernel.
func (w *Watched) Function(name string, threads, shared int) (driver.Function, int, error) {
	f, fit, err := w.Device.Function(name, threads, shared)
	w.names[f] = name
	return f, fit, err
}

// Launch runs a kernel.
func (w *Watched) Launch(f driver.Function, grid, threads, shared int, params unsafe.Pointer, size uintptr,
	s driver.Stream) error {
	name := w.names[f]
	w.Launched[name] = true
	if strings.HasPrefix(name, "token_stats_") || strings.HasPrefix(name, "row_gradient_") {
		own := slices.Clone(unsafe.Slice((*driver.Ptr)(params), size/8))
		own[0] = w.Behind
		params = unsafe.Pointer(unsafe.SliceData(own))
	}
	return w.Device.Launch(f, grid, threads, shared, params, size, s)
}
