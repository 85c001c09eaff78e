//go:build race

package reweight

import (
	"runtime"
	"unsafe"
)

// raceEnabled is for tests: the race detector's own goroutine bookkeeping allocates.
const raceEnabled = true

// The race detector does not see what assembly touches: it is told.

func raceRead[E any](x []E) {
	runtime.RaceReadRange(unsafe.Pointer(unsafe.SliceData(x)), len(x)*int(unsafe.Sizeof(*new(E))))
}

func raceWrite[E any](x []E) {
	runtime.RaceWriteRange(unsafe.Pointer(unsafe.SliceData(x)), len(x)*int(unsafe.Sizeof(*new(E))))
}
