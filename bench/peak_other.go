//go:build !unix

package bench

func peakMemory() (int64, bool) { return 0, false }
