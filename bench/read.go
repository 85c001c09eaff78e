package bench

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

// PlainRead returns a function that reads all of memory, shared among the given
// number of workers, and does nothing else. No function can read memory much
// faster, so its time is a lower limit for every function that reads as much. Give
// it the main input of the function that you compare it with, because other pages
// may be faster or slower, and sample the two together. Fewer than one worker means
// one.
func PlainRead(memory []byte, workers int) func() error {
	return newReader(memory, max(1, workers)).read
}

// A reader reads memory for PlainRead.
type reader struct {
	words   []uint64
	tail    []byte // fewer than 8 bytes
	workers int
	sum     atomic.Uint64 // of all words, so that the compiler cannot leave the reads out
}

func newReader(memory []byte, workers int) *reader {
	n := len(memory) / 8
	r := &reader{tail: memory[8*n:], workers: workers}
	if n > 0 { // &memory[0] may be read as a *uint64 only if 8 bytes are there
		r.words = unsafe.Slice((*uint64)(unsafe.Pointer(&memory[0])), n)
	}
	return r
}

// read reads all of the memory, shared among the workers.
func (r *reader) read() error {
	part := (len(r.words) + r.workers - 1) / r.workers
	var wg sync.WaitGroup
	for lo := part; lo < len(r.words); lo += part {
		wg.Go(func() { r.sum.Add(plainRead(r.words[lo:min(lo+part, len(r.words))])) })
	}
	r.sum.Add(plainRead(r.words[:part]))
	for _, b := range r.tail {
		r.sum.Add(uint64(b))
	}
	wg.Wait()
	return nil
}

// sum returns the sum of x. It adds two cache lines of 64 bytes at a time, in four
// sums that do not wait for each other.
func sum(x []uint64) uint64 {
	var a, b, c, d uint64
	for ; len(x) >= 16; x = x[16:] {
		a += x[0] + x[4] + x[8] + x[12]
		b += x[1] + x[5] + x[9] + x[13]
		c += x[2] + x[6] + x[10] + x[14]
		d += x[3] + x[7] + x[11] + x[15]
	}
	for _, v := range x {
		a += v
	}
	return a + b + c + d
}
