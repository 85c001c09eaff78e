package rollout

import (
	"bytes"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/test/must"
)

// checkFile reads a file of any contents: no panic, no allocation beyond the
// order of its size, errors of one short line, and a batch that is valid and
// survives being written.
func checkFile(t *testing.T, data []byte) {
	t.Helper()
	var b *reweight.Batch
	var err error
	// 64: the header's densest tokens are 2 bytes, each some small objects.
	limit := uint64(64*len(data) + 1<<16)
	if n := allocated(func() { b, err = parseBatch(data) }); n > limit {
		t.Errorf("%d bytes of file made %d bytes of allocations", len(data), n)
	}
	if err != nil {
		if s := err.Error(); !strings.HasPrefix(s, "rollout: ") || strings.Contains(s, "\n") || len(s) > 500 {
			t.Errorf("error is not one short line: %q", s)
		}
		return
	}
	must.Do(b.Validate())
	written := encoded(t, Tensors(b), nil)
	again := must.Get(parseBatch(written))
	if !bytes.Equal(encoded(t, Tensors(again), nil), written) {
		t.Error("the batch changes when it is written and read")
	}
}

func parseBatch(data []byte) (*reweight.Batch, error) {
	f, err := Parse(data)
	if err != nil {
		return nil, err
	}
	return f.Batch()
}

func encoded(t *testing.T, tensors []Tensor, metadata map[string]string) []byte {
	t.Helper()
	var w bytes.Buffer
	must.Do(encode(&w, tensors, metadata))
	return w.Bytes()
}

func FuzzParse(f *testing.F) {
	for _, h := range hostileHeaders() {
		if len(h.file) < 1<<12 {
			f.Add(h.file)
		}
	}
	for _, h := range hostileBatches() {
		f.Add(h.file)
	}
	var w bytes.Buffer
	must.Do(encode(&w, goodTensors(), map[string]string{"key": "value"}))
	f.Add(w.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) { checkFile(t, data) })
}
