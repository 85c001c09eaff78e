package measure

import (
	"bytes"
	"fmt"
	"unsafe"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/gpu"
	"github.com/seed621a2839/reweight/internal/raw"
)

// An onDevice runs the kernels on arrays of a GPU that stand for slices of the host.
// The first call with a slice uploads it; later calls find it there. A call waits and
// copies the results back only if it is asked to. It is a kernels.Runner.
type onDevice struct {
	dev  *gpu.Device
	ws   *gpu.Workspace
	take func(bytes int) (gpu.Ptr, error) // returns memory of the device

	inPlace bool // whether gradients take the place of the logits
	times   int  // how many copies of the rows of logits, and of what goes with them, lie behind one another
	waits   bool // whether a call waits and copies its results back
	arrays  map[unsafe.Pointer]array
	err     error // the first in a call

	results gpu.Ptr // where scalar results come to
	moments [1]reweight.Moments
	sums    [1]reweight.SurrogateSums
}

// An array is memory of the device that stands for memory of the host.
type array struct {
	ptr    gpu.Ptr
	host   []byte
	output bool
}

// newOnDevice returns a runner with its own workspace on the default stream.
func newOnDevice(dev *gpu.Device, size gpu.Size, times int, take func(bytes int) (gpu.Ptr, error)) (*onDevice, error) {
	ws, err := dev.NewWorkspace(0, size)
	if err != nil {
		return nil, err
	}
	return &onDevice{dev: dev, ws: ws, take: take, times: times, arrays: map[unsafe.Pointer]array{}}, nil
}

// in returns where a slice is that the call reads, and out where one is that it writes;
// 0 for no slice.
func in[E any](d *onDevice, x []E) gpu.Ptr  { return d.find(raw.Bytes(x), false) }
func out[E any](d *onDevice, x []E) gpu.Ptr { return d.find(raw.Bytes(x), true) }

func (d *onDevice) find(host []byte, output bool) gpu.Ptr {
	if len(host) == 0 {
		return 0
	}
	key := unsafe.Pointer(unsafe.SliceData(host))
	a, ok := d.arrays[key]
	if !ok && d.err == nil {
		a = array{host: host, output: output}
		if a.ptr, d.err = d.upload(host); d.err == nil {
			d.arrays[key] = a
		}
	}
	return a.ptr
}

// same makes rows of the host stand for memory of the device that other rows stand for
// too: what is written there is in place.
func (d *onDevice) same(dst reweight.Logits, ptr gpu.Ptr) {
	host := raw.Logits(dst)
	d.arrays[unsafe.Pointer(unsafe.SliceData(host))] = array{ptr: ptr, host: host, output: true}
}

// result returns memory for a scalar result of so many bytes.
func (d *onDevice) result(bytes uintptr) gpu.Ptr {
	if d.results == 0 && d.err == nil {
		d.results, d.err = d.take(int(bytes))
	}
	return d.results
}

// fetch copies a scalar result to dst if the call waits; err is that of the call.
func fetch[E any](d *onDevice, dst []E, err error) error {
	if err != nil || !d.waits {
		return err
	}
	return gpu.Download(d.dev, dst, d.results, 0)
}

// upload takes memory for the copies of an array and fills it.
func (d *onDevice) upload(host []byte) (gpu.Ptr, error) {
	ptr, err := d.take(d.times * len(host))
	for i := 0; i < d.times && err == nil; i++ {
		err = gpu.Upload(d.dev, ptr+gpu.Ptr(i*len(host)), host, 0)
	}
	return ptr, err
}

// finish ends a call: err is that of the method of package gpu.
func (d *onDevice) finish(err error) error {
	if d.err != nil {
		return d.err
	}
	if err != nil || !d.waits {
		return err
	}
	if err := d.ws.Check(); err != nil {
		return err
	}
	for _, a := range d.arrays {
		if !a.output {
			continue
		}
		if err := gpu.Download(d.dev, a.host, a.ptr, 0); err != nil {
			return err
		}
	}
	return nil
}

// comparedBytes bounds what is copied back of a large output to compare its copies.
const comparedBytes = 256 << 20

// sameCopies returns an error if a copy of an output differs from the first: the first
// and the last are compared, and as many between them as comparedBytes allow. The
// outputs must have been copied back.
func (d *onDevice) sameCopies() error {
	for _, a := range d.arrays {
		if !a.output || d.times < 2 {
			continue
		}
		other := make([]byte, len(a.host))
		step := max(1, (d.times*len(a.host)+comparedBytes-1)/comparedBytes)
		for i := d.times - 1; i > 0; i -= step {
			if err := gpu.Download(d.dev, other, a.ptr+gpu.Ptr(i*len(a.host)), 0); err != nil {
				return err
			}
			if !bytes.Equal(other, a.host) {
				return fmt.Errorf("copy %d of %d of the same rows has other bits than the first", i+1, d.times)
			}
		}
	}
	return nil
}
