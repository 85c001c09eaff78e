package bench

import (
	"testing"
	"unsafe"
)

// TestReaderReadsAll looks for one byte that is not 0, at every place.
func TestReaderReadsAll(t *testing.T) {
	for _, bytes := range []int{1, 2, 7, 8, 9, 56, 120, 127, 128, 136, 248, 264, 800, 2056, 2062} {
		for _, workers := range []int{1, 2, 3, 8, 300} {
			memory := make([]byte, bytes)
			r := newReader(memory, workers)
			for i := range memory {
				memory[i] = 7
				r.sum.Store(0)
				if err := r.read(); err != nil {
					t.Fatal(err)
				}
				want := uint64(7)
				if i < bytes&^7 {
					want = *(*uint64)(unsafe.Pointer(&memory[i&^7]))
				}
				if got := r.sum.Load(); got != want {
					t.Errorf("%d bytes, %d workers: read %d, want %d at %d", bytes, workers, got, want, i)
				}
				memory[i] = 0
			}
		}
	}
}

func BenchmarkPlainRead(b *testing.B) {
	memory := make([]byte, 64<<20)
	for i := range memory { // pages that were never written are all one page
		memory[i] = byte(i)
	}
	r := newReader(memory, 1)
	b.SetBytes(64 << 20)
	for b.Loop() {
		r.read()
	}
}
