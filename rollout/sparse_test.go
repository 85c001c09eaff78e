package rollout

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// A file of 64 GiB, nearly all of it a hole on disk, opens at once and takes
// memory only for what is read.
func TestLargerThanMemory(t *testing.T) {
	if runtime.GOOS != "linux" || strconv.IntSize < 64 {
		t.Skip("needs sparse files, /proc and a 64-bit address space")
	}
	const tokens, vocab = 1 << 17, 1 << 17
	const size = int64(tokens) * vocab * 4
	header := fmt.Sprintf(`{"seq_offsets":{"dtype":"I64","shape":[2],"data_offsets":[0,16]},`+
		`"logits":{"dtype":"F32","shape":[%d,%d],"data_offsets":[16,%d]},`+
		`"role":{"dtype":"U8","shape":[%d],"data_offsets":[%d,%d]}}`,
		tokens, vocab, 16+size, tokens, 16+size, 16+size+tokens)
	for len(header)%8 != 0 {
		header += " "
	}
	begin := rawFile(header, 0)
	begin = binary.LittleEndian.AppendUint64(begin, 0)
	begin = binary.LittleEndian.AppendUint64(begin, tokens)
	end := int64(len(begin)) + size // of the logits
	path := filepath.Join(t.TempDir(), "sparse.safetensors")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(end + tokens); err != nil {
		t.Skipf("no sparse file of 64 GiB here: %v", err)
	}
	for at, data := range map[int64][]byte{
		0:       begin,
		end - 4: binary.LittleEndian.AppendUint32(nil, math.Float32bits(-7)),
	} {
		if _, err := file.WriteAt(data, at); err != nil {
			t.Fatal(err)
		}
	}

	start, before := time.Now(), resident(t)
	var f *File
	heap := allocated(func() {
		f, err = Open(path)
		if errors.Is(err, syscall.ENOMEM) {
			t.Skipf("no room for 64 GiB in this address space, as in an emulator: %v", err)
		}
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		b, err := f.Batch()
		if err != nil {
			t.Fatal(err)
		}
		if n := b.Logits.Rows(); n != tokens || b.Logits.Vocab != vocab {
			t.Fatalf("logits [%d, %d], want [%d, %d]", n, b.Logits.Vocab, tokens, vocab)
		}
		if x := b.Logits.F32[len(b.Logits.F32)-1]; x != -7 {
			t.Errorf("last logit %v, want -7", x)
		}
		if n := resident(t) - before; n > 64<<20 {
			t.Errorf("%d bytes of memory are resident for the file", n)
		}
	})
	if heap > 1<<20 {
		t.Errorf("%d bytes allocated", heap)
	}
	if d := time.Since(start); d > 2*time.Second {
		t.Errorf("took %v", d)
	}
}

// resident returns the bytes of the process in memory, mappings included.
func resident(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	var total, pages int
	if _, err := fmt.Sscan(string(text), &total, &pages); err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}
