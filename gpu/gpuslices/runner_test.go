package gpuslices

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/seed621a2839/reweight/gpu"
	"github.com/seed621a2839/reweight/gpu/internal/driver"
	"github.com/seed621a2839/reweight/internal/raw"
	"github.com/seed621a2839/reweight/internal/test/must"
)

// goDriver is a driver whose memory is Go's and whose one kernel, Multiply's, is a Go
// function. It has faults, and not the methods that a Runner does not call.
type goDriver struct {
	driver.Driver
	memory  []byte // what was allocated, from address base on
	allocs  int
	freed   int
	failing string // the method that fails
	spoil   func(dst, a, b []byte)
}

const base = 1 << 20

var errFailing = errors.New("this fails")

func (d *goDriver) fails(method string) error {
	if method == d.failing {
		return errFailing
	}
	return nil
}

func (d *goDriver) at(p driver.Ptr) []byte { return d.memory[p-base:] }

func (d *goDriver) Info() driver.Info { return driver.Info{Multiprocessors: 1} }

func (d *goDriver) Function(name string, threads, shared int) (driver.Function, int, error) {
	if name == "multiply" {
		return 1, 1, nil
	}
	return 2, 1, nil
}

func (d *goDriver) Launch(f driver.Function, grid, threads, shared int, params unsafe.Pointer, size uintptr,
	s driver.Stream) error {
	if f != 1 {
		return errors.New("no such kernel")
	}
	p := (*struct {
		dst, a, b driver.Ptr
		n         int64
	})(params)
	floats := func(p driver.Ptr, n int64) []float32 {
		return unsafe.Slice((*float32)(unsafe.Pointer(&d.at(p)[0])), n)
	}
	dst, a, b := floats(p.dst, p.n), floats(p.a, p.n), floats(p.b, p.n)
	for i := range dst {
		dst[i] = a[i] * b[i]
	}
	if d.spoil != nil {
		d.spoil(d.memory[p.dst-base-1:][:2+4*p.n], d.at(p.a)[:4*p.n], d.at(p.b)[:4*p.n])
	}
	return d.fails("Launch")
}

func (d *goDriver) Fill(p driver.Ptr, value byte, bytes int, s driver.Stream) error {
	for i := range d.at(p)[:bytes] {
		d.at(p)[i] = value
	}
	return nil
}

func (d *goDriver) Alloc(bytes int) (driver.Ptr, error) {
	p := base + driver.Ptr(len(d.memory)+255)&^255
	d.memory = append(d.memory, make([]byte, int(p-base)+bytes-len(d.memory))...)
	d.allocs++
	return p, d.fails("Alloc")
}

func (d *goDriver) Free(p driver.Ptr) error {
	d.freed++
	return nil
}

func (d *goDriver) Upload(dst driver.Ptr, src []byte, s driver.Stream) error {
	copy(d.at(dst)[:len(src)], src)
	return d.fails("Upload")
}

func (d *goDriver) Download(dst []byte, src driver.Ptr, s driver.Stream) error {
	copy(dst, d.at(src)[:len(dst)])
	return d.fails("Download")
}

func (d *goDriver) Captured(s driver.Stream) (bool, error) { return false, nil }
func (d *goDriver) Synchronize(s driver.Stream) error      { return nil }

func newRunner(t *testing.T, drv *goDriver, p Placement) *Runner {
	return must.Get(NewPlaced(gpu.NewDevice(drv, nil), p))
}

var placements = []Placement{Amid, AtEnd, AtBegin}

// TestSlices: slices of every alignment, those that overlap too.
func TestSlices(t *testing.T) {
	for _, p := range placements {
		drv := &goDriver{}
		r := newRunner(t, drv, p)
		for _, n := range []int{0, 1, 2, 3, 5, 100} {
			for at := range 4 {
				for _, shared := range []string{"", "dst is a", "dst is b", "a is b", "a is in b"} {
					x := make([]float32, 4*n+20)
					for i := range x {
						x[i] = float32(i + 2)
					}
					dst, a, b := x[at:][:n], x[n+4+at:][:n], x[2*n+8+at:][:n]
					switch shared {
					case "dst is a":
						dst = a
					case "dst is b":
						dst = b
					case "a is b":
						a = b
					case "a is in b":
						a = x[3*n/2+8+at:][:n]
					}
					want, product := slices.Clone(x), make([]float32, n)
					for i := range product {
						product[i] = a[i] * b[i]
					}
					if n > 0 {
						copy(want[(uintptr(unsafe.Pointer(&dst[0]))-uintptr(unsafe.Pointer(&x[0])))/4:], product)
					}
					if err := r.Multiply(dst, a, b); err != nil || !slices.Equal(x, want) {
						t.Errorf("%v, %d elements from %d on, %s: %v, error %v, want %v", p, n, at, shared,
							x, err, want)
					}
				}
			}
		}
		if err := r.Close(); err != nil || drv.allocs != drv.freed {
			t.Errorf("%d allocations, %d freed, error %v", drv.allocs, drv.freed, err)
		}
	}
}

// TestAlignment: an array begins on the device where the host's does, in bytes past a
// multiple of 16.
func TestAlignment(t *testing.T) {
	r := newRunner(t, &goDriver{}, Amid)
	for at := range 4 {
		x := make([]float32, 100)[at:]
		m := r.begin()
		h := in(m, x)
		must.Do(m.upload())
		if got, want := uintptr(*h)%16, address(raw.Bytes(x))%16; got != want {
			t.Errorf("%d bytes past a multiple of 16, want %d", got, want)
		}
	}
}

// TestWrongKernels: what a kernel must not do is an error, and so is what fails in the
// driver.
func TestWrongKernels(t *testing.T) {
	for name, spoil := range map[string]func(dst, a, b []byte){
		"before": func(dst, a, b []byte) { dst[0]++ },
		"after":  func(dst, a, b []byte) { dst[len(dst)-1]++ },
		"input":  func(dst, a, b []byte) { a[3]++ },
	} {
		r := newRunner(t, &goDriver{spoil: spoil}, Amid)
		dst := []float32{7, 7, 7}
		err := r.Multiply(dst, []float32{1, 2, 3}, []float32{4, 5, 6})
		if err == nil || !strings.Contains(err.Error(), name) || dst[0] != 7 {
			t.Errorf("%s: error %v, %v", name, err, dst)
		}
	}
	for _, method := range []string{"Upload", "Download", "Launch", "Alloc"} {
		drv := &goDriver{}
		r := newRunner(t, drv, Amid)
		drv.failing = method
		if err := r.Multiply(make([]float32, 3), make([]float32, 3), make([]float32, 3)); !errors.Is(err, errFailing) {
			t.Errorf("%s: error %v", method, err)
		}
		drv.failing = ""
		if err := r.Multiply(make([]float32, 3), make([]float32, 3), make([]float32, 3)); err != nil {
			t.Errorf("after %s has failed: error %v", method, err)
		}
	}
}

// TestSteady: calls with the sizes of an earlier one allocate nothing, on either side,
// and the memory of other sizes does not pile up.
func TestSteady(t *testing.T) {
	for _, p := range placements {
		drv := &goDriver{}
		r := newRunner(t, drv, p)
		x := make([]float32, 1000)
		call := func() {
			must.Do(r.Multiply(x[:300], x[300:600], x[600:900]))
		}
		call()
		before := drv.allocs
		if allocs := testing.AllocsPerRun(20, call); allocs != 0 || drv.allocs != before {
			t.Errorf("%v: %v allocations per call on the host, and %d on the device, want 0", p, allocs,
				drv.allocs-before)
		}
		for n := range 300 {
			must.Do(r.Multiply(x[:n], x[300:300+n], x[600:600+n]))
		}
		if held := drv.allocs - drv.freed; held > kept+10 {
			t.Errorf("%v: %d allocations are held", p, held)
		}
	}
}
