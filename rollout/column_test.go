package rollout

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestColumn: what comes in pieces is one tensor, and nothing else is left.
func TestColumn(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.safetensors")
	a, err := NewColumn(path, "a")
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	none, err := NewColumn(path, "none")
	if err != nil {
		t.Fatal(err)
	}
	defer none.Close()
	var want []float32
	for i := range 100 {
		piece := make([]float32, i*i%71)
		for j := range piece {
			piece[j] = float32(i) + float32(j)/100
		}
		want = append(want, piece...)
		if err := a.Append(piece); err != nil {
			t.Fatal(err)
		}
	}
	var tensors []Tensor
	for _, c := range []*Column{a, none} {
		tensor, err := c.Tensor()
		if err != nil {
			t.Fatal(err)
		}
		tensors = append(tensors, tensor)
	}
	if err := Write(path, tensors, nil); err != nil {
		t.Fatal(err)
	}
	f, err := OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
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
}
