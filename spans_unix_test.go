//go:build unix && (amd64 || arm64)

package reweight_test

import (
	"errors"
	"math"
	"testing"
	"unsafe"

	"github.com/seed621a2839/reweight"
	"golang.org/x/sys/unix"
)

// untouched returns n elements that take no memory: reading them is a fault.
func untouched[E any](t *testing.T, n int) []E {
	t.Helper()
	var e E
	m, err := unix.Mmap(-1, 0, n*int(unsafe.Sizeof(e)), unix.PROT_NONE,
		unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { unix.Munmap(m) })
	return unsafe.Slice((*E)(unsafe.Pointer(unsafe.SliceData(m))), n)
}

// TestTooManyTokens: more tokens than spans can count are an error, found
// before any of them is read.
func TestTooManyTokens(t *testing.T) {
	const n = math.MaxInt32 + 1
	floats := untouched[float32](t, n)
	b := reweight.Batch{Role: untouched[reweight.Role](t, n), SpanIDs: untouched[int32](t, n), Entropy: floats,
		OldLogprobs: floats, Advantages: floats}
	var ws reweight.Workspace
	var input *reweight.InputError
	if err := ws.AEM(floats, &b, reweight.DefaultAEM); !errors.As(err, &input) || input.Arg != "SpanIDs" {
		t.Errorf("AEM: error %v", err)
	}
}
