//go:build unix

package rollout

import (
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// faults reports whether f touches memory that it may not.
func faults(f func()) (fault bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { fault = recover() != nil }()
	f()
	return
}

func TestMapping(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.safetensors")
	if err := Write(path, goodTensors(), nil); err != nil {
		t.Fatal(err)
	}
	open := func() (*File, []float32) {
		f, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		b, err := f.Batch()
		if err != nil {
			t.Fatal(err)
		}
		return f, b.Logits.F32
	}
	read := func(x []float32) func() { return func() { _ = sum(x) } }
	write := func(x []float32) func() { return func() { x[0] = 1 } }

	f, x := open()
	if faults(read(x)) {
		t.Error("reading faults")
	}
	if !bigEndian && !faults(write(x)) {
		t.Error("the mapping can be written to")
	}
	// A new file under the path leaves the open one alone.
	if err := Write(path, goodTensors(), map[string]string{"new": "file"}); err != nil {
		t.Fatal(err)
	}
	if faults(read(x)) {
		t.Error("reading faults after the path was replaced")
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if !bigEndian && !faults(read(x)) {
		t.Error("still mapped after Close")
	}

	f, x = open()
	defer f.Close()
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	if !bigEndian && !faults(read(x)) {
		t.Error("the documented fault after the file shrinks does not come")
	}
}

func sum(x []float32) (s float32) {
	for _, v := range x {
		s += v
	}
	return s
}

// No room for the file: a limit on file size stands in for a full disk.
func TestWriteWithoutRoom(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x")
	if err := Write(path, nil, nil); err != nil {
		t.Fatal(err)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	signal.Ignore(syscall.SIGXFSZ) // otherwise the limit kills the process
	defer signal.Reset(syscall.SIGXFSZ)
	low := limit
	low.Cur = 1 << 16
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &low); err != nil {
		t.Fatal(err)
	}
	err := Write(path, []Tensor{vector("x", make([]uint8, 1<<20))}, nil)
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(err, syscall.EFBIG) {
		t.Errorf("error %v, want %v", err, syscall.EFBIG)
	}
	if f, err := Open(path); err != nil {
		t.Errorf("the old file: %v", err)
	} else {
		f.Close()
	}
	expectFiles(t, dir, "x")
}
