//go:build unix

package kernels

import (
	"testing"

	"golang.org/x/sys/unix"
)

// guarded allocates memory that ends (or begins) at a page that no code may read or
// write.
type guarded struct {
	atEnd bool
	maps  [][]byte
}

func (g *guarded) memory(bytes int) []byte {
	page := unix.Getpagesize()
	inner := (bytes + page - 1) / page * page
	m, err := unix.Mmap(-1, 0, inner+2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		panic(err)
	}
	for _, guard := range [][]byte{m[:page], m[page+inner:]} {
		if err := unix.Mprotect(guard, unix.PROT_NONE); err != nil {
			panic(err)
		}
	}
	g.maps = append(g.maps, m)
	if g.atEnd {
		return m[page+inner-bytes : page+inner]
	}
	return m[page : page+bytes]
}

func (g *guarded) free() {
	for _, m := range g.maps {
		unix.Munmap(m)
	}
}

// TestGuardPages runs every kernel with every array next to a guard page, so that a
// read or write past either end is a fault. The lengths are such that arrays which
// end at a page begin at every alignment.
func TestGuardPages(t *testing.T) {
	impls := allWithGPU(t)
	for _, k := range All() {
		for _, dtype := range k.DTypes {
			for _, n := range []int{1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 18, 19, 21, 24, 29, 31, 32, 33, 47, 49, 63, 64, 65,
				66, 67, 68, 69, 70, 71, 72, 73, 74, 75, 76, 77, 78, 79, 97, 127, 128, 129, 143, 255, 511, 1023, 1024, 1025, 1039, 2047, 2063, 5001} {
				for _, atEnd := range []bool{true, false} {
					g := guarded{atEnd: atEnd}
					s := spec(k, n)
					s.DType, s.Seed, s.memory = dtype, uint64(n), g.memory
					check(t, impls, k, s)
					g.free()
				}
			}
		}
	}
}
