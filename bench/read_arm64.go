//go:build !noasm && !purego

package bench

//go:noescape
func sumNEON(x *uint64, n int) uint64

// plainRead returns the sum of x, read as fast as this machine reads.
func plainRead(x []uint64) uint64 {
	var a uint64
	if n := len(x) &^ 15; n > 0 {
		a, x = sumNEON(&x[0], n), x[n:]
	}
	return a + sum(x)
}
