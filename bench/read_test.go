package bench

import "testing"

// TestReaderReadsAll looks for one word that is not 0, at every place.
func TestReaderReadsAll(t *testing.T) {
	for _, words := range []int{1, 7, 15, 16, 17, 31, 33, 100, 257} {
		for _, workers := range []int{1, 2, 3, 8, 300} {
			r := newReader(int64(8*words), workers)
			clear(r.buf)
			for i := range r.buf {
				r.buf[i] = 7
				r.sum.Store(0)
				if err := r.read(); err != nil {
					t.Fatal(err)
				}
				if got := r.sum.Load(); got != 7 {
					t.Errorf("%d words, %d workers: read %d, want 7 at %d", words, workers, got, i)
				}
				r.buf[i] = 0
			}
		}
	}
}

// TestReaderOwnsItsMemory: pages that were never written are all one page.
func TestReaderOwnsItsMemory(t *testing.T) {
	r := newReader(1<<20, 1)
	for i := 511; i < len(r.buf); i += 512 { // a page
		if r.buf[i] == 0 {
			t.Fatalf("word %d was not written", i)
		}
	}
}

func BenchmarkPlainRead(b *testing.B) {
	r := newReader(StreamBytes, 1)
	b.SetBytes(StreamBytes)
	for b.Loop() {
		r.read()
	}
}
