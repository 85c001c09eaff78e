package gpuslices

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/seed621a2839/reweight/gpu"
	"github.com/seed621a2839/reweight/internal/raw"
)

// A Placement says where arrays stand on the device.
type Placement uint8

const (
	// Amid: as many bytes past a multiple of 16 as on the host, amid bytes that no
	// kernel may write.
	Amid Placement = iota
	// AtEnd: at the end of an allocation, after which nothing is mapped if the device can
	// do that.
	AtEnd
	// AtBegin: at the beginning of an allocation, before which nothing is mapped if the
	// device can do that.
	AtBegin
)

// memory holds the arrays of a call on the device. A call names its slices by in and
// out, copies them by upload, passes the address of each to package gpu, and gets its
// results by download.
type memory struct {
	dev       *gpu.Device
	placement Placement

	args    []arg       // of the call at hand
	ptrs    [32]gpu.Ptr // their addresses on the device, but for those of a batch
	order   []int       // args in the order of their addresses
	regions []region    // of the call at hand
	buffers []*buffer   // the most recently used first
	size    gpu.Size    // that the call at hand needs
	device  gpu.Batch   // of the call at hand
}

// An arg is a slice that the call takes.
type arg struct {
	bytes  []byte
	output bool
	to     *gpu.Ptr // where upload puts its address; nil: one of ptrs
	region int
}

// A region is memory of the host that is one array on the device: a slice, or several
// that overlap.
type region struct {
	bytes  []byte
	output bool // one of them is an output
	buffer *buffer
	at     int // where in the buffer it begins
}

// A buffer is memory on the device, and as much on the host: everything is copied
// through it.
type buffer struct {
	ptr   gpu.Ptr
	stage []byte
	shift int // bytes of the allocation before ptr
	free  func() error
	taken bool // by a region of the call at hand
}

const (
	margin  = 256  // bytes before and after an array that no kernel may write
	filling = 0xa5 // of what surrounds an array
	kept    = 64   // buffers for later calls
)

// begin forgets the call before.
func (m *memory) begin() *memory {
	for _, b := range m.buffers {
		b.taken = false
	}
	clear(m.args) // keep nothing of the caller's alive
	clear(m.regions)
	m.args, m.regions, m.size = m.args[:0], m.regions[:0], gpu.Size{}
	return m
}

// in names a slice that the call reads, and out one that it writes. They return where its
// address is after upload: 0 for a slice without elements.
func in[E any](m *memory, x []E) *gpu.Ptr  { return m.add(arg{bytes: raw.Bytes(x)}) }
func out[E any](m *memory, x []E) *gpu.Ptr { return m.add(arg{bytes: raw.Bytes(x), output: true}) }

func (m *memory) add(a arg) *gpu.Ptr {
	if a.to == nil {
		a.to = &m.ptrs[len(m.args)]
	}
	*a.to = 0
	m.args = append(m.args, a)
	return a.to
}

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// upload gives each slice its place on the device and copies it there, outputs too:
// what a kernel leaves alone keeps its bytes.
func (m *memory) upload() error {
	m.order = m.order[:0]
	for i := range m.args {
		if len(m.args[i].bytes) > 0 {
			m.order = append(m.order, i)
		}
	}
	slices.SortFunc(m.order, func(i, j int) int {
		return cmp.Compare(address(m.args[i].bytes), address(m.args[j].bytes))
	})
	for _, i := range m.order {
		a := &m.args[i]
		if last := len(m.regions) - 1; last >= 0 {
			r := &m.regions[last]
			if begin := int(address(a.bytes) - address(r.bytes)); begin < len(r.bytes) {
				r.bytes = unsafe.Slice(unsafe.SliceData(r.bytes), max(len(r.bytes), begin+len(a.bytes)))
				r.output = r.output || a.output
				a.region = last
				continue
			}
		}
		m.regions = append(m.regions, region{bytes: a.bytes, output: a.output})
		a.region = len(m.regions) - 1
	}
	for i := range m.regions {
		r := &m.regions[i]
		past := int(address(r.bytes) % 16)
		shift, after := 0, 0
		switch m.placement {
		case Amid:
			r.at, after = margin+past, margin
		case AtEnd:
			shift = past
		}
		b, err := m.take(r.at+len(r.bytes)+after, shift)
		if err != nil {
			return err
		}
		r.buffer = b
		for j := range b.stage {
			b.stage[j] = filling
		}
		copy(b.stage[r.at:], r.bytes)
		if err := gpu.Upload(m.dev, b.ptr, b.stage, 0); err != nil {
			return err
		}
	}
	for _, i := range m.order {
		a := &m.args[i]
		r := &m.regions[a.region]
		*a.to = r.buffer.ptr + gpu.Ptr(r.at) + gpu.Ptr(address(a.bytes)-address(r.bytes))
	}
	return nil
}

// take returns a buffer of that size, which no other region has, so many bytes past a
// multiple of 16.
func (m *memory) take(size, shift int) (*buffer, error) {
	for i, b := range m.buffers {
		if !b.taken && len(b.stage) == size && b.shift == shift {
			copy(m.buffers[1:i+1], m.buffers[:i])
			m.buffers[0] = b
			b.taken = true
			return b, nil
		}
	}
	if last := len(m.buffers) - 1; last >= kept && !m.buffers[last].taken {
		if err := m.buffers[last].free(); err != nil {
			return nil, err
		}
		m.buffers = m.buffers[:last]
	}
	b, err := m.alloc(size, shift)
	if err != nil {
		return nil, err
	}
	m.buffers = slices.Insert(m.buffers, 0, b)
	return b, nil
}

func (m *memory) alloc(size, shift int) (*buffer, error) {
	b := &buffer{stage: make([]byte, size), shift: shift, taken: true}
	if m.placement != Amid {
		lo, hi, free, err := m.dev.AllocGuarded(size)
		if err == nil {
			b.free = free
			if b.ptr = lo; m.placement == AtEnd {
				b.ptr = hi - gpu.Ptr(size)
			}
			return b, nil
		}
		if !errors.Is(err, errors.ErrUnsupported) {
			return nil, err
		}
	}
	p, err := m.dev.Alloc(size + shift)
	if err != nil {
		return nil, err
	}
	b.ptr, b.free = p+gpu.Ptr(shift), func() error { return m.dev.Free(p) }
	return b, nil
}

// download waits for the call, looks for bytes that no kernel may change, and copies
// the outputs back if they are wanted.
func (m *memory) download(results bool) error {
	var wrong error
	for i := range m.regions {
		r := &m.regions[i]
		b := r.buffer
		if err := gpu.Download(m.dev, b.stage, b.ptr, 0); err != nil {
			return err
		}
		spoiled := func(v byte) bool { return v != filling }
		if at := slices.IndexFunc(b.stage[:r.at], spoiled); at >= 0 {
			wrong = errors.Join(wrong, fmt.Errorf("gpuslices: a kernel wrote %d bytes before an array of %d", r.at-at,
				len(r.bytes)))
		}
		if at := slices.IndexFunc(b.stage[r.at+len(r.bytes):], spoiled); at >= 0 {
			wrong = errors.Join(wrong, fmt.Errorf("gpuslices: a kernel wrote %d bytes after an array of %d", at,
				len(r.bytes)))
		}
		if !r.output && !bytes.Equal(r.bytes, b.stage[r.at:][:len(r.bytes)]) {
			wrong = errors.Join(wrong, fmt.Errorf("gpuslices: a kernel changed an input of %d bytes", len(r.bytes)))
		}
	}
	if wrong != nil || !results {
		return wrong
	}
	for _, a := range m.args {
		if a.output {
			copy(a.bytes, m.staged(a))
		}
	}
	return nil
}

// staged returns what download has brought of a slice.
func (m *memory) staged(a arg) []byte {
	if len(a.bytes) == 0 {
		return nil
	}
	b := m.regions[a.region].buffer
	return b.stage[*a.to-b.ptr:][:len(a.bytes)]
}

// close gives back the memory on the device.
func (m *memory) close() error {
	var err error
	for _, b := range m.buffers {
		err = errors.Join(err, b.free())
	}
	m.buffers = nil
	return err
}
