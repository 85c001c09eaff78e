package bench

import (
	"math"
	"runtime"
)

// Allocs returns the objects and bytes that a call of f allocates on the heap in
// steady state: after a first call, the mean of several calls rounded down.
func Allocs(f func() error) (objects, bytes uint64, err error) {
	if err := f(); err != nil {
		return 0, 0, err
	}
	const calls = 5
	objects, bytes, err = leastHeap(func() error {
		for range calls {
			if err := f(); err != nil {
				return err
			}
		}
		return nil
	})
	return objects / calls, bytes / calls, err
}

// leastHeap returns the objects and bytes that f allocates on the heap. Others'
// can only add to what is counted, so it is the least of three tries.
func leastHeap(f func() error) (objects, bytes uint64, err error) {
	objects, bytes = math.MaxUint64, math.MaxUint64
	for range 3 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := f(); err != nil {
			return 0, 0, err
		}
		runtime.ReadMemStats(&after)
		objects = min(objects, after.Mallocs-before.Mallocs)
		bytes = min(bytes, after.TotalAlloc-before.TotalAlloc)
	}
	return objects, bytes, nil
}
