package bench

import (
	"math"
	"runtime"
)

// Allocs returns the heap allocations of a call of f in steady state: after a
// first call, the mean of several calls rounded down.
func Allocs(f func() error) (uint64, error) {
	if err := f(); err != nil {
		return 0, err
	}
	const calls = 5
	mallocs, _, err := leastHeap(func() error {
		for range calls {
			if err := f(); err != nil {
				return err
			}
		}
		return nil
	})
	return mallocs / calls, err
}

// leastHeap returns the objects and bytes that f allocates on the heap. Others'
// can only add to what is counted, so it is the least of three tries.
func leastHeap(f func() error) (mallocs, bytes uint64, err error) {
	mallocs, bytes = math.MaxUint64, math.MaxUint64
	for range 3 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := f(); err != nil {
			return 0, 0, err
		}
		runtime.ReadMemStats(&after)
		mallocs = min(mallocs, after.Mallocs-before.Mallocs)
		bytes = min(bytes, after.TotalAlloc-before.TotalAlloc)
	}
	return mallocs, bytes, nil
}
