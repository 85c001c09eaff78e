package rollout

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/seed621a2839/reweight/internal/test/must"
)

// A declared tensor is one of a sparse file: data is what it begins with, and the
// rest is a hole.
type declared struct {
	name, dtype string
	shape       []int64
	data        []byte
	size        int64 // in bytes
}

// sparseFile writes a file that takes next to nothing on disk.
func sparseFile(t *testing.T, tensors ...declared) string {
	t.Helper()
	if strconv.IntSize < 64 {
		t.Skip("needs a 64-bit address space")
	}
	var entries []string
	size := int64(0)
	for _, x := range tensors {
		entries = append(entries, fmt.Sprintf(`"%s":{"dtype":"%s","shape":%s,"data_offsets":[%d,%d]}`,
			x.name, x.dtype, marshal(x.shape), size, size+x.size))
		size += x.size
	}
	header := "{" + strings.Join(entries, ",") + "}"
	header += strings.Repeat(" ", -len(header)&7)
	path := filepath.Join(t.TempDir(), "sparse.safetensors")
	file := must.Get(os.Create(path))
	defer file.Close()
	begin := rawFile(header, 0)
	at := int64(len(begin))
	if err := file.Truncate(at + size); err != nil {
		t.Skipf("no sparse file of %d bytes here: %v", at+size, err)
	}
	write := func(data []byte, at int64) {
		must.Get(file.WriteAt(data, at))
	}
	write(begin, 0)
	for _, x := range tensors {
		write(x.data, at)
		at += x.size
	}
	return path
}

// openSparse opens a sparse file, unless the address space has no room for it.
func openSparse(t *testing.T, path string) *File {
	t.Helper()
	f, err := OpenFile(path)
	if errors.Is(err, syscall.ENOMEM) {
		t.Skipf("no room in this address space, as in an emulator: %v", err)
	}
	must.Do(err)
	return f
}

// oneTrajectory declares what a batch must have.
func oneTrajectory(tokens int64) (offsets, role declared) {
	offsets = declared{"seq_offsets", "I64", []int64{2},
		binary.LittleEndian.AppendUint64(make([]byte, 8), uint64(tokens)), 16}
	return offsets, declared{"role", "U8", []int64{tokens}, nil, tokens}
}

// A file of 64 GiB, nearly all of it a hole on disk, opens at once and takes
// memory only for what is read.
func TestLargerThanMemory(t *testing.T) {
	if bigEndian {
		t.Skip("a big-endian machine copies all")
	}
	const tokens, vocab = 1 << 17, 1 << 17
	const size = int64(tokens) * vocab * 4
	offsets, role := oneTrajectory(tokens)
	path := sparseFile(t, offsets, declared{"logits", "F32", []int64{tokens, vocab},
		binary.LittleEndian.AppendUint32(nil, math.Float32bits(-7)), size}, role)

	before := resident(t)
	heap := allocated(func() {
		f := openSparse(t, path)
		defer f.Close()
		b := must.Get(f.Batch())
		if n := b.Logits.Rows(); n != tokens || b.Logits.Vocab != vocab {
			t.Fatalf("logits [%d, %d], want [%d, %d]", n, b.Logits.Vocab, tokens, vocab)
		}
		if x, y := b.Logits.F32[0], b.Logits.F32[len(b.Logits.F32)-1]; x != -7 || y != 0 {
			t.Errorf("first and last logit %v and %v, want -7 and 0", x, y)
		}
		if n := resident(t) - before; n > 64<<20 {
			t.Errorf("%d bytes of memory are resident for the file", n)
		}
	})
	if heap > 1<<20 {
		t.Errorf("%d bytes allocated", heap)
	}
}

// Copies of data that a file of a few KiB declares do not exhaust the memory.
func TestCopiesAreBounded(t *testing.T) {
	const tokens = 1 << 20
	offsets, role := oneTrajectory(tokens)
	pad := declared{"pad", "U8", []int64{1}, nil, 1} // what follows it is not aligned
	logits := func(dtype string, size int64) declared {
		return declared{"logits", dtype, []int64{tokens, 1 << 13}, nil, size << 33}
	}
	manyOffsets, manyRoles := oneTrajectory(1 << 33)
	const unaligned = "its data is not aligned to its element size, or this machine is big-endian"
	for _, c := range []struct {
		tensors []declared
		want    string
	}{
		{[]declared{offsets, role, pad, logits("F32", 4)}, `logits has dtype F32 and shape [1048576, 8192] and needs a copy of 34359738368 bytes (` + unaligned + `)`},
		{[]declared{offsets, role, pad, logits("BF16", 2)}, `logits has dtype BF16 and shape [1048576, 8192] and needs a copy of 17179869184 bytes (` + unaligned + `)`},
		{[]declared{offsets, role, pad, logits("F16", 2)}, `logits has dtype F16 and shape [1048576, 8192] and needs a copy of 17179869184 bytes (` + unaligned + `)`},
		{[]declared{manyOffsets, manyRoles, {"entropy", "BF16", []int64{1 << 33}, nil, 1 << 34}}, `entropy has dtype BF16 and shape [8589934592] and needs a copy of 34359738368 bytes (it is widened to F32)`},
		{[]declared{manyOffsets, manyRoles, {"entropy", "F16", []int64{1 << 33}, nil, 1 << 34}}, `entropy has dtype F16 and shape [8589934592] and needs a copy of 34359738368 bytes (it is widened to F32)`},
		{[]declared{role, pad, {"seq_offsets", "I64", []int64{1 << 30}, nil, 1 << 33}}, `seq_offsets has dtype I64 and shape [1073741824] and needs a copy of 8589934592 bytes (` + unaligned + `)`},
	} {
		path := sparseFile(t, c.tensors...)
		f := openSparse(t, path)
		heap := allocated(func() {
			_, err := f.Batch()
			want := path + ": " + c.want + ", want at most 1073741824 bytes in all copies of a file"
			if err == nil || err.Error() != want {
				t.Errorf("error %v\nwant  %s", err, want)
			}
		})
		if heap > 1<<20 {
			t.Errorf("%s: %d bytes allocated", c.want, heap)
		}
		f.Close()
	}
}

// resident returns the bytes of the process in memory, mappings included.
func resident(t *testing.T) int {
	t.Helper()
	text := must.Get(os.ReadFile("/proc/self/statm"))
	var total, pages int
	must.Get(fmt.Sscan(string(text), &total, &pages))
	return pages * os.Getpagesize()
}

// A source refuses a trajectory for which arrays would be derived that take more memory
// than there is.
func TestSparseSource(t *testing.T) {
	if bigEndian {
		t.Skip("a big-endian machine copies all")
	}
	offsets, role := oneTrajectory(maxTrajectory + 1)
	path := sparseFile(t, offsets, role)
	openSparse(t, path).Close()
	s := must.Get(Open(path))
	defer s.Close()
	var err error
	memory := allocated(func() { _, err = s.Batch() })
	want := fmt.Sprintf("%s: trajectory 0: role has %d tokens in one trajectory, want at most %d", path,
		maxTrajectory+1, maxTrajectory)
	if err == nil || err.Error() != want || memory > 1<<20 {
		t.Errorf("%v, %d bytes of memory, want %s", err, memory, want)
	}
}
