package rollout

import (
	"archive/zip"
	"bytes"
	"io"
	"math"
	"strings"
	"testing"
)

// drain reads a .npz file of that content to its end: no panic, an error of one short
// line, and no memory beyond what the content expands to.
func drain(t *testing.T, content []byte) {
	t.Helper()
	const name = "f"
	// Each array has some buffers. Deflate expands a byte to at most 1032, and a number
	// of a byte takes up to four, and twice that while its slice grows.
	limit := 8<<20 + 8*1032*uint64(len(content))
	var err error
	n := allocated(func() {
		var a *batchReader
		if a, err = newNPZ(name, bytes.NewReader(content), int64(len(content)), int64(len(content))); err != nil {
			return
		}
		_, err = readFrom(a)
	})
	if n > limit {
		t.Errorf("%d bytes of file made %d bytes of allocations, want at most %d", len(content), n, limit)
	}
	if err == io.EOF {
		return
	}
	if s := err.Error(); !strings.HasPrefix(s, name+": ") ||
		strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) || len(s) > 500 {
		t.Errorf("error is not one short line that names the file: %q", s)
	}
}

func FuzzNPZ(f *testing.F) {
	for _, h := range hostileNPZ() {
		f.Add(h.file)
	}
	f.Add(zipped(zip.Deflate, npy[uint8]("role", "|u1", 0, 1), npy[int64]("seq_offsets", "<i8", 0, 1, 2),
		npy[float32]("rewards", "<f4", 1, 2), npy("entropy", ">f8", 1, math.Pi)))
	f.Fuzz(func(t *testing.T, content []byte) {
		if isZip(content) {
			drain(t, content)
		}
	})
}

// FuzzNPY puts arrays of any bytes into a zip file that is right, so that the fuzzer need
// not find out checksums.
func FuzzNPY(f *testing.F) {
	for _, h := range hostileNPZ() {
		z, err := zip.NewReader(bytes.NewReader(h.file), int64(len(h.file)))
		if err != nil {
			continue
		}
		data := make([][]byte, 3)
		for i, file := range z.File[:min(3, len(z.File))] {
			if r, err := file.Open(); err == nil {
				data[i], _ = io.ReadAll(r)
			}
		}
		f.Add(data[0], data[1], uint8(6), data[2])
	}
	names := []string{"group_ids", "rewards", "span_ids", "token_ids", "ref_energy", "entropy", "logits", "tags"}
	f.Fuzz(func(t *testing.T, role, offsets []byte, which uint8, other []byte) {
		content := zipped(uint16(which>>7)*zip.Deflate, npyFile{"role", role}, npyFile{"seq_offsets", offsets},
			npyFile{names[int(which&127)%len(names)], other})
		drain(t, content)
	})
}
