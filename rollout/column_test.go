package rollout

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/internal/test/must"
)

// TestColumn: what comes in pieces is one tensor, and nothing else is left.
func TestColumn(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.safetensors")
	a := must.Get(NewColumn(path, "a"))
	defer a.Close()
	none := must.Get(NewColumn(path, "none"))
	defer none.Close()
	var want []float32
	for i := range 100 {
		piece := make([]float32, i*i%71)
		for j := range piece {
			piece[j] = float32(i) + float32(j)/100
		}
		want = append(want, piece...)
		must.Do(a.Append(piece))
	}
	var tensors []Tensor
	for _, c := range []*Column{a, none} {
		tensors = append(tensors, must.Get(c.Tensor()))
	}
	must.Do(Write(path, tensors, nil))
	f := must.Get(OpenFile(path))
	defer f.Close()
	if got := view[float32](f.byName["a"].data); !slices.Equal(got, want) {
		t.Errorf("%d values, want %d", len(got), len(want))
	}
	if len(f.byName["none"].data) != 0 {
		t.Error("the empty column has values")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("the directory holds %v, %v", left, err)
	}
	if _, err := NewColumn(filepath.Join(dir, "no", "x"), "a"); err == nil {
		t.Error("no error where no file can be made")
	}
	full := must.Get(NewColumn(path, "full"))
	full.Close() // as if the disk were full
	_, err := full.Tensor()
	for _, err := range []error{full.Append(make([]float32, 1<<16)), err} {
		if err == nil || !strings.HasPrefix(err.Error(), path+": a temporary file for full beside it: ") {
			t.Error(err)
		}
	}
}
