package ptx

import (
	"bytes"
	"slices"
)

const (
	firstAddress = 0x7f00_0000_0000 // of global memory
	alignment    = 256              // of allocations, and no more
	pageSize     = 4096             // and as many bytes at least between two allocations
)

// A space is a kind of memory that an instruction can name.
type space uint8

const (
	global space = iota
	shared
	param
)

var spaceNames = [...]string{"global", "shared", "param"}

// A region is one allocation of global memory, with a shadow that tells which bytes
// have been written: 1, or 0.
type region struct {
	base    uint64
	data    []byte
	written []byte
}

// A memory is the global memory of a device: for each page of addresses the region that has
// bytes there, or nil. No page has bytes of two.
type memory struct{ pages []*region }

// add makes a region of size bytes, of which none is written.
func (m *memory) add(size int) *region {
	base := firstAddress + uint64(len(m.pages))*pageSize + alignment
	r := &region{base: base, data: make([]byte, size), written: make([]byte, size)}
	for range (alignment + size + pageSize - 1) / pageSize {
		m.pages = append(m.pages, r)
	}
	m.pages = append(m.pages, nil)
	return r
}

// page returns the page of an address.
func page(a uint64) uint64 { return (a - firstAddress) / pageSize }

// find returns the region that has all of the n bytes at a, or nil.
func (m *memory) find(a, n uint64) *region {
	if p := page(a); p < uint64(len(m.pages)) {
		if r := m.pages[p]; r != nil && a-r.base < uint64(len(r.data)) && n <= uint64(len(r.data))-(a-r.base) {
			return r
		}
	}
	return nil
}

// remove takes away the region that begins at a. Its addresses are not used again.
func (m *memory) remove(a uint64) bool {
	r := m.find(a, 1)
	if r == nil || r.base != a {
		return false
	}
	for p := page(a); m.pages[p] == r; p++ {
		m.pages[p] = nil
	}
	return true
}

// setWritten sets a shadow to 1 everywhere.
func setWritten(s []byte) {
	for i := range s {
		s[i] = 1
	}
}

// region returns the region of global memory that has the n bytes at a, and where in it
// they begin.
func (l *lane) region(a, n uint64) (*region, uint64) {
	r := l.dev.memory.find(a, n)
	if r == nil {
		l.outside(a, n)
	}
	return r, a - r.base
}

// aligned fails unless a is a multiple of n.
func (l *lane) aligned(sp space, a, n uint64) {
	if a&(n-1) != 0 {
		l.misaligned(sp, a, n)
	}
}

func (l *lane) misaligned(sp space, a, n uint64) {
	l.fail("the %s address %#x is not a multiple of %d", spaceNames[sp], a, n)
}

// load returns the n bytes at address a, after all checks.
func (l *lane) load(sp space, a, n uint64) []byte {
	l.aligned(sp, a, n)
	switch sp {
	case global:
		r, at := l.region(a, n)
		if i := bytes.IndexByte(r.written[at:at+n], 0); i >= 0 {
			l.undefined(sp, a+uint64(i))
		}
		return r.data[at : at+n]
	case shared:
		return l.loadShared(a, n)
	}
	return l.bounded(param, l.dev.params, a, n)
}

// store returns the n bytes at address a to be written, after all checks.
func (l *lane) store(sp space, a, n uint64) []byte {
	l.aligned(sp, a, n)
	if sp == shared {
		return l.storeShared(a, n, 0)
	}
	r, at := l.region(a, n)
	setWritten(r.written[at : at+n])
	return r.data[at : at+n]
}

// bounded returns the n bytes at a of a memory that is one range from 0.
func (l *lane) bounded(sp space, b []byte, a, n uint64) []byte {
	if size := uint64(len(b)); a >= size || n > size-a {
		l.fail("%d bytes at %#x lie outside the %d bytes of %s memory", n, a, size, spaceNames[sp])
	}
	return b[a : a+n]
}

func (l *lane) undefined(sp space, a uint64) {
	l.fail("the byte at %s address %#x is loaded, but nothing has written it", spaceNames[sp], a)
}

func (l *lane) outside(a, n uint64) {
	for _, r := range slices.Backward(l.dev.memory.pages) {
		if r != nil && r.base <= a {
			l.fail("%d bytes at global address %#x lie outside every allocation: the nearest one below has %d bytes from %#x, which is %d bytes before",
				n, a, len(r.data), r.base, a-r.base)
		}
	}
	l.fail("%d bytes at global address %#x lie outside every allocation", n, a)
}
