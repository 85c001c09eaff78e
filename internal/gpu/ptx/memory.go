package ptx

import (
	"cmp"
	"slices"
	"strings"
)

// Addresses. Global memory and the window through which a generic address reaches shared
// memory lie far apart, so that an address of one kind never is an address of the other.
const (
	firstAddress = 0x7f00_0000_0000 // of global memory
	sharedWindow = 0x7e00_0000_0000
	windowSize   = 1 << 32

	allocationAlignment = 256
	guard               = 4096 // bytes at least between two allocations
)

// A space is a kind of memory that an instruction can name.
type space uint8

const (
	generic space = iota // the address says which
	global
	shared
	param
)

var spaceNames = [...]string{"generic", "global", "shared", "param"}

// A region is one allocation of global memory, with a shadow that tells which bytes
// have been written: 1, or 0.
type region struct {
	base    uint64
	data    []byte
	written []byte
}

// A memory is the global memory of a device.
type memory struct {
	regions []*region // by address
	next    uint64
}

// add makes a region of size bytes, of which none is written.
func (m *memory) add(size int) *region {
	if m.next == 0 {
		m.next = firstAddress
	}
	r := &region{base: m.next, data: make([]byte, size), written: make([]byte, size)}
	m.regions = append(m.regions, r)
	m.next = (m.next + uint64(size) + guard + allocationAlignment - 1) &^ (allocationAlignment - 1)
	return r
}

// search returns the place of the region that begins at a, or where it would be.
func (m *memory) search(a uint64) (i int, ok bool) {
	return slices.BinarySearchFunc(m.regions, a, func(r *region, a uint64) int { return cmp.Compare(r.base, a) })
}

// remove takes away the region that begins at a. Its addresses are not used again.
func (m *memory) remove(a uint64) bool {
	i, ok := m.search(a)
	if !ok {
		return false
	}
	m.regions[i].data, m.regions[i].written = nil, nil // for those who remember it
	m.regions = slices.Delete(m.regions, i, i+1)
	return true
}

// before returns the last region that does not begin after a, or nil.
func (m *memory) before(a uint64) *region {
	i, ok := m.search(a)
	switch {
	case ok:
		return m.regions[i]
	case i == 0:
		return nil
	}
	return m.regions[i-1]
}

// find returns the region that has all of the n bytes at a, or nil.
func (m *memory) find(a, n uint64) *region {
	if r := m.before(a); r != nil && r.has(a, n) {
		return r
	}
	return nil
}

func (r *region) has(a, n uint64) bool {
	at, size := a-r.base, uint64(len(r.data))
	return at < size && n <= size-at
}

// allWritten is the shadow of the most bytes that an access has.
var allWritten = strings.Repeat("\x01", 16)

// isWritten says whether a shadow of at most 16 bytes is 1 everywhere.
func isWritten(s []byte) bool { return string(s) == allWritten[:len(s)] }

// setWritten sets a shadow to 1 everywhere.
func setWritten(s []byte) {
	for len(s) > 0 {
		s = s[copy(s, allWritten):]
	}
}

// firstUnwritten returns the place of the first 0 in a shadow.
func firstUnwritten(s []byte) int {
	return slices.Index(s, 0)
}

// A site is what an instruction that accesses global memory remembers from one time
// to the next: mostly it meets the region that it met before.
type site struct{ last *region }

// global returns the region of the n bytes at a, and where in it they begin.
func (l *lane) global(s *site, a, n uint64) (*region, uint64) {
	if a&(n-1) != 0 {
		l.misaligned(global, a, n)
	}
	r := s.last
	if r == nil || !r.has(a, n) {
		if r = l.dev.memory.find(a, n); r == nil {
			l.outside(a, n)
		}
		s.last = r
	}
	return r, a - r.base
}

// load returns the n bytes at address a, after all checks.
func (l *lane) load(sp space, s *site, a, n uint64) []byte {
	if sp == generic {
		sp, a = l.resolve(a)
	}
	switch sp {
	case global:
		r, at := l.global(s, a, n)
		if !isWritten(r.written[at : at+n]) {
			l.undefined(sp, a+uint64(firstUnwritten(r.written[at:at+n])))
		}
		return r.data[at : at+n]
	case shared:
		return l.loadShared(a, n)
	}
	return l.bounded(param, l.dev.params, a, n)
}

// store returns the n bytes at address a to be written, after all checks.
func (l *lane) store(sp space, s *site, a, n uint64) []byte {
	if sp == generic {
		sp, a = l.resolve(a)
	}
	if sp == shared {
		return l.storeShared(a, n, 0)
	}
	r, at := l.global(s, a, n)
	setWritten(r.written[at : at+n])
	return r.data[at : at+n]
}

// resolve tells which memory a generic address means, and the address there.
func (l *lane) resolve(a uint64) (space, uint64) {
	if a-sharedWindow < windowSize {
		return shared, a - sharedWindow
	}
	return global, a
}

// bounded returns the n bytes at a of a memory that is one range from 0.
func (l *lane) bounded(sp space, b []byte, a, n uint64) []byte {
	if a&(n-1) != 0 {
		l.misaligned(sp, a, n)
	}
	if size := uint64(len(b)); a >= size || n > size-a {
		l.fail("%d bytes at %#x lie outside the %d bytes of %s memory", n, a, size, spaceNames[sp])
	}
	return b[a : a+n]
}

func (l *lane) misaligned(sp space, a, n uint64) {
	l.fail("the %s address %#x is not a multiple of %d", spaceNames[sp], a, n)
}

func (l *lane) undefined(sp space, a uint64) {
	l.fail("the byte at %s address %#x is loaded, but nothing has written it", spaceNames[sp], a)
}

func (l *lane) outside(a, n uint64) {
	r := l.dev.memory.before(a)
	if r == nil {
		l.fail("%d bytes at global address %#x lie outside every allocation", n, a)
	}
	l.fail("%d bytes at global address %#x lie outside every allocation: the nearest one below has %d bytes from %#x, which is %d bytes before",
		n, a, len(r.data), r.base, a-r.base)
}
