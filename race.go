//go:build race

package reweight

import (
	"runtime"
	"unsafe"
)

// The race detector does not see what assembly touches: it is told.

func raceRead(p unsafe.Pointer, bytes int)  { runtime.RaceReadRange(p, bytes) }
func raceWrite(p unsafe.Pointer, bytes int) { runtime.RaceWriteRange(p, bytes) }
