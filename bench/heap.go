package bench

import (
	"math"
	"runtime"
)

// Allocs returns the objects and bytes that a call of f allocates on the heap in
// steady state: it calls f once without counting, and then takes the mean of several
// calls, rounded down.
func Allocs(f func() error) (objects, bytes uint64, err error) {
	if err := f(); err != nil {
		return 0, 0, err
	}
	const calls = 5
	objects, bytes, err = FirstAllocs(func() error {
		for range calls {
			if err := f(); err != nil {
				return err
			}
		}
		return nil
	})
	return objects / calls, bytes / calls, err
}

// FirstAllocs returns the objects and bytes that a call of f allocates on the heap.
// f must do the same at each call: to count what something allocates the first time
// that it is used, f makes it anew. Other goroutines and the start of new ones can
// only add to the count, so FirstAllocs calls f until the smallest count of bytes
// has come three times, and at most 30 times.
func FirstAllocs(f func() error) (objects, bytes uint64, err error) {
	objects, bytes = math.MaxUint64, math.MaxUint64
	seen := 0
	for try := 0; try < 30 && seen < 3; try++ {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := f(); err != nil {
			return 0, 0, err
		}
		runtime.ReadMemStats(&after)
		objects = min(objects, after.Mallocs-before.Mallocs)
		n := after.TotalAlloc - before.TotalAlloc
		if n < bytes {
			bytes, seen = n, 0
		}
		if n == bytes {
			seen++
		}
	}
	return objects, bytes, nil
}
