//go:build unix

package rollout

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"testing"
	"unsafe"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/test/must"
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
	must.Do(Write(path, goodTensors(), nil))
	open := func() (*File, []float32) {
		f := must.Get(OpenFile(path))
		b := must.Get(f.Batch())
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
	must.Do(Write(path, goodTensors(), map[string]string{"new": "file"}))
	if faults(read(x)) {
		t.Error("reading faults after the path was replaced")
	}
	must.Do(f.Close())
	if !bigEndian && !faults(read(x)) {
		t.Error("still mapped after Close")
	}

	f, x = open()
	defer f.Close()
	must.Do(os.Truncate(path, 0))
	if !bigEndian && !faults(read(x)) {
		t.Error("the documented fault after the file shrinks does not come")
	}
}

// openTruncated opens a file of three kinds of logits, reads its batch and makes
// the file shorter then: it ends within a row of the named logits.
func openTruncated(t *testing.T, logits string) (*File, *reweight.Batch) {
	t.Helper()
	const tokens, vocab = 64, 5120 // whole chunks: no tail, which Go reads first
	path := filepath.Join(t.TempDir(), "x.safetensors")
	must.Do(Write(path, []Tensor{
		vector("seq_offsets", []int64{0, tokens}),
		{"logits", []int64{tokens, vocab}, make([]float32, tokens*vocab)},
		{"ref_logits", []int64{tokens, vocab}, make([]reweight.BF16, tokens*vocab)},
		{"old_logits", []int64{tokens, vocab}, make([]reweight.F16, tokens*vocab)},
		vector("token_ids", make([]int32, tokens)),
		vector("role", make([]uint8, tokens)),
	}, nil))
	f := must.Get(OpenFile(path))
	t.Cleanup(func() { f.Close() })
	b := must.Get(f.Batch())
	data := f.byName[logits].data
	row := int(uintptr(unsafe.Pointer(&data[0]))-uintptr(unsafe.Pointer(&f.data[0]))) + len(data)/2
	page := os.Getpagesize()
	end := (row + 4096 + page) / page * page // beyond the row's first block of 1024
	must.Do(os.Truncate(path, int64(end)))
	needAddresses(t, &f.data[len(f.data)-1])
	return f, b
}

// needAddresses skips the test where the address that is reported of a fault is
// not the address of the byte which was read, as in some emulators.
func needAddresses(t *testing.T, missing *byte) {
	t.Helper()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		page := uintptr(os.Getpagesize())
		fault, ok := recover().(interface{ Addr() uintptr })
		if !ok || fault.Addr()/page != uintptr(unsafe.Pointer(missing))/page {
			t.Skip("no address is reported of a fault, as in an emulator")
		}
	}()
	sink = float32(*missing)
}

// expectShorter checks the error of a read that faults.
func expectShorter(t *testing.T, f *File, err error) {
	t.Helper()
	want := f.prefix + ": its memory cannot be used: the file became shorter while it was open, its disk fails, or a slice of it was written to"
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// Where a file has become shorter, Guard returns an error, whether Go or assembly
// reads it. While a fault is handled, the garbage collector can look through the
// stack, and the stack can move.
func TestGuard(t *testing.T) {
	for logits, derived := range map[string]string{"logits": "logprobs", "ref_logits": "ref_energy",
		"old_logits": "entropy"} {
		t.Run(logits, func(t *testing.T) {
			f, b := openTruncated(t, logits)
			_, err := f.Batch() // the roles are at the end
			expectShorter(t, f, err)
			if bigEndian {
				return // the batch is a copy
			}
			expectShorter(t, f, f.Guard(func() error { sink += float32(b.Role[0]); return nil }))
			for _, isa := range reweight.AvailableISAs() {
				ws := reweight.Workspace{Workers: 1, ISA: isa}
				for _, handle := range []func(){func() {}, runtime.GC, func() { deep(1 << 12) }} {
					some := *b
					some.TokenIDs = make([]int32, b.Tokens())
					expectShorter(t, f, f.Guard(func() error {
						defer handle()
						return Derive(&ws, &some, derived)
					}))
				}
				small := reweight.Logits{Vocab: 2, F32: make([]float32, 2)}
				if err := ws.TokenStats(reweight.Stats{LSE: make([]float32, 1)}, small, nil,
					reweight.DefaultTokenStats); err != nil {
					t.Errorf("%v: the workspace cannot be used after a fault: %v", isa, err)
				}
			}
		})
	}
}

// deep needs a large stack.
func deep(n int) int {
	var frame [64]int
	if n > 0 {
		frame[n%64] = deep(n - 1)
	}
	return frame[(n+1)%64] + 1
}

// Guard does not turn what has nothing to do with its file into an error.
func TestGuardElsewhere(t *testing.T) {
	f, _ := openTruncated(t, "logits")
	if err := f.Guard(func() error { return nil }); err != nil {
		t.Error(err)
	}
	boom := errors.New("boom")
	if err := f.Guard(func() error { return boom }); err != boom {
		t.Errorf("error %v, want %v", err, boom)
	}
	_, other := openTruncated(t, "logits")
	for name, do := range map[string]func(){
		"panic":            func() { panic(boom) },
		"index":            func() { _ = make([]int, other.Tokens())[other.Tokens()] },
		"nil":              func() { *(*int)(nil) = 1 },
		"another's memory": func() { sink = sum(other.Logits.F32) },
	} {
		if bigEndian && name == "another's memory" {
			continue
		}
		if !faults(func() { f.Guard(func() error { do(); return nil }) }) {
			t.Errorf("%s: Guard takes a panic that is not its file's", name)
		}
	}
	if old := debug.SetPanicOnFault(false); old {
		t.Error("Guard leaves the goroutine's setting changed")
	}
}

var sink float32 // keeps the compiler from leaving a read out

func sum(x []float32) (s float32) {
	for _, v := range x {
		s += v
	}
	return s
}
