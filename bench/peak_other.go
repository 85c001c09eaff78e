//go:build !unix

package bench

// PeakMemory returns the most memory that the process has had in RAM so far, in
// bytes, and false where the system does not tell.
func PeakMemory() (int64, bool) { return 0, false }
