//go:build race

package reweight

import (
	"runtime"
	"unsafe"
)

// raceEnabled is for tests: the race detector's own goroutine bookkeeping allocates.
const raceEnabled = true

// The race detector does not see what assembly touches: it is told.

func raceRead(p unsafe.Pointer, bytes int)  { runtime.RaceReadRange(p, bytes) }
func raceWrite(p unsafe.Pointer, bytes int) { runtime.RaceWriteRange(p, bytes) }

func raceReadFloats(x []float32)  { raceRead(unsafe.Pointer(unsafe.SliceData(x)), 4*len(x)) }
func raceWriteFloats(x []float32) { raceWrite(unsafe.Pointer(unsafe.SliceData(x)), 4*len(x)) }
