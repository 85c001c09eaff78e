package bench

import (
	"sync"
	"sync/atomic"
)

// A reader reads memory and does nothing else: the roofline of kernels that
// are bound by memory.
type reader struct {
	buf     []uint64
	workers int
	sum     atomic.Uint64 // keeps the reads from being optimised away
}

// newReader makes a reader of so many bytes. They are written first: memory
// that was only allocated is one page of zeros, again and again.
func newReader(bytes int64, workers int) *reader {
	r := &reader{buf: make([]uint64, max(1, bytes/8)), workers: workers}
	for i := range r.buf {
		r.buf[i] = uint64(i)
	}
	return r
}

// read reads it all, shared among the workers.
func (r *reader) read() error {
	part := (len(r.buf) + r.workers - 1) / r.workers
	var wg sync.WaitGroup
	for lo := part; lo < len(r.buf); lo += part {
		wg.Go(func() { r.sum.Add(plainRead(r.buf[lo:min(lo+part, len(r.buf))])) })
	}
	r.sum.Add(plainRead(r.buf[:part]))
	wg.Wait()
	return nil
}

// sum returns the sum of x, a cache line at a time.
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
