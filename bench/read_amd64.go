//go:build !noasm && !purego

package bench

import "github.com/klauspost/cpuid/v2"

//go:noescape
func sumAVX512(x *uint64, n int) uint64

//go:noescape
func sumAVX2(x *uint64, n int) uint64

// The plain read uses the best instruction set of the machine, whichever one the
// functions use that are compared with it.
var (
	hasAVX512 = cpuid.CPU.Supports(cpuid.AVX512F)
	hasAVX2   = cpuid.CPU.Supports(cpuid.AVX2)
)

// plainRead returns the sum of x, read as fast as this machine reads.
func plainRead(x []uint64) uint64 {
	var a uint64
	if n := len(x) &^ 31; n > 0 {
		switch {
		case hasAVX512:
			a, x = sumAVX512(&x[0], n), x[n:]
		case hasAVX2:
			a, x = sumAVX2(&x[0], n), x[n:]
		}
	}
	return a + sum(x)
}
