package gpu_test

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// TestMemory: CopyMemory and Copy copy all of it and nothing else, and ReadMemory changes
// nothing.
func TestMemory(t *testing.T) {
	m := newMachine(t)
	r := rand.New(rand.NewPCG(21, 21))
	for _, n := range []int{0, 16, 16 * 255, 16 * 256, 16 * 257, 16*2048 - 16, 16 * 2048, 16*2048 + 16, 400_000} {
		x := make([]byte, n)
		for i := range x {
			x[i] = byte(r.Uint32())
		}
		src, dst, again := m.place(x, 16), m.place(make([]byte, n), 32), m.place(make([]byte, n), 48)
		m.must(m.ws.CopyMemory(dst.Ptr, src.Ptr, n))
		m.must(m.dev.Copy(again.Ptr, src.Ptr, n, 0))
		m.must(m.ws.ReadMemory(src.Ptr, n))
		m.must(m.ws.Check())
		if !bytes.Equal(m.read("dst", dst), x) || !bytes.Equal(m.read("dst", again), x) ||
			!bytes.Equal(m.read("src", src), x) {
			t.Errorf("%d bytes are not copied", n)
		}
		m.free()
	}
}
