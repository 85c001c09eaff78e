package gpu

import (
	"github.com/seed621a2839/reweight/internal/problem"
	"github.com/seed621a2839/reweight/internal/shape"
)

// What a bench compares the kernels with: on the same device, in the same run, nothing
// reads or copies memory much faster.

const (
	vector     = 16                               // bytes that a thread reads or writes at a time
	memoryTile = 8 * vector * shape.MemoryThreads // bytes that a CTA does at a time
)

// memoryParams are Memory of memory.cu.
type memoryParams struct {
	dst, src Ptr
	n        int64 // vectors
}

// ReadMemory reads so many bytes and does nothing with them. src and bytes are multiples
// of 16.
func (ws *Workspace) ReadMemory(src Ptr, bytes int) error {
	return ws.passMemory("read_memory", 0, src, bytes)
}

// CopyMemory copies so many bytes. dst, src and bytes are multiples of 16, and dst does
// not overlap src.
func (ws *Workspace) CopyMemory(dst, src Ptr, bytes int) error {
	if err := checkArrays(bytes, array{"dst", dst, vector}); err != nil {
		return err
	}
	return ws.passMemory("copy_memory", dst, src, bytes)
}

// Copy queues the driver's own copy of so many bytes. dst does not overlap src.
func (d *Device) Copy(dst, src Ptr, bytes int, s Stream) error { return d.drv.Copy(dst, src, bytes, s) }

func (ws *Workspace) passMemory(name string, dst, src Ptr, bytes int) error {
	if err := checkArrays(bytes, array{"src", src, vector}); err != nil {
		return err
	}
	if bytes < 0 || bytes%vector != 0 {
		return badInput("bytes", problem.Multiple, bytes, vector)
	}
	if bytes == 0 {
		return nil
	}
	ws.params.memory = memoryParams{dst: dst, src: src, n: int64(bytes / vector)}
	return launch(ws, &ws.params.memory, step{name, perThread(bytes, memoryTile)})
}
