package reweight

import "unsafe"

// A Workspace holds the scratch memory and the worker settings that calls
// reuse, so that in steady state no call allocates. The zero value is ready: the
// best instruction set and one worker per CPU. Results depend on neither. A
// Workspace serves one call at a time, and must not be copied after its first.
type Workspace struct {
	Workers int // goroutines that share the rows of logits; 0 means GOMAXPROCS
	ISA     ISA // which implementation of the kernels; Auto is the best

	rows    rowScratch
	kernels kernelScratch

	arena []uint64 // scratch memory, as much as the largest call has taken
	taken int      // words of it that calls have taken and not released
}

// take returns n elements of scratch memory, whose contents are unspecified. They stay
// until the exported call returns, which begins with
//
//	defer ws.release(ws.taken)
//
// and may call other exported ones. E holds no pointers: the garbage collector would not
// see them.
func take[E any](ws *Workspace, n int) []E {
	const line = 8 // words: what is taken begins a cache line
	from := ws.taken
	ws.taken += (n*int(unsafe.Sizeof(*new(E))) + 8*line - 1) / (8 * line) * line
	if ws.taken > len(ws.arena) {
		return make([]E, n) // release makes the arena larger
	}
	return unsafe.Slice((*E)(unsafe.Pointer(unsafe.SliceData(ws.arena[from:]))), n)
}

// release takes back what was taken since so many words were.
func (ws *Workspace) release(taken int) {
	if ws.taken > len(ws.arena) {
		ws.arena = make([]uint64, ws.taken)
	}
	ws.taken = taken
}
