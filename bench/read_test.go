package bench

import "testing"

func TestReaderReadsAll(t *testing.T) {
	for _, words := range []int{1, 15, 16, 17, 1000, 4097} {
		for _, workers := range []int{1, 2, 3, 8, 5000} {
			r := newReader(int64(8*words), workers)
			if err := r.read(); err != nil {
				t.Fatal(err)
			}
			if got, want := r.sum.Load(), uint64(words*(words-1)/2); got != want {
				t.Errorf("%d words, %d workers: the sum is %d, want %d", words, workers, got, want)
			}
		}
	}
}

func BenchmarkPlainRead(b *testing.B) {
	r := newReader(64<<20, 1)
	b.SetBytes(64 << 20)
	for b.Loop() {
		r.read()
	}
}
