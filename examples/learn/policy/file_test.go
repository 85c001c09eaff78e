package policy

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/rollout"
)

func TestSaveLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.safetensors")
	p := randomPolicy(7, 5, 1)
	if err := p.Save(path); err != nil {
		t.Fatal(err)
	}
	q, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if q.Vocab != 7 || q.Hidden != 5 || !sameBits(p.Parameters, q.Parameters) || !sameBits(p.Head, q.Head) {
		t.Error("another policy came back")
	}
}

func TestLoadErrors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.safetensors")
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("no file: %v", err)
	}
	for _, c := range []struct {
		change func(tensors []rollout.Tensor) []rollout.Tensor
		want   string
	}{
		{func(s []rollout.Tensor) []rollout.Tensor { return s[:3] }, "no tensor head"},
		{func(s []rollout.Tensor) []rollout.Tensor { return s[:6] }, "6 tensors, want 7"},
		{func(s []rollout.Tensor) []rollout.Tensor { s[5].Name = "x"; return s }, "no tensor value"},
		{func(s []rollout.Tensor) []rollout.Tensor { s[3].Shape = []int64{35}; return s },
			"tensor head has shape [35], want [hidden, vocabulary]"},
		{func(s []rollout.Tensor) []rollout.Tensor { s[3].Shape = []int64{7, 5}; return s },
			"tensor input has shape [7 15], want [5 21] as head has [7 5]"},
		{func(s []rollout.Tensor) []rollout.Tensor {
			s[3].Shape, s[3].Data = []int64{1 << 20, 1}, make([]float32, 1<<20)
			return s
		}, "tensor input has shape [7 15], want [1 3145728] as head has [1048576 1]"},
		{func(s []rollout.Tensor) []rollout.Tensor { s[5].Data = make([]reweight.BF16, 5); return s },
			`tensor value is of "BF16", want F32`},
		{func(s []rollout.Tensor) []rollout.Tensor {
			s[3].Shape, s[3].Data = []int64{0, 5}, []float32{}
			return s
		}, "tensor head has shape [0 5], want [hidden, vocabulary]"},
	} {
		var tensors []rollout.Tensor
		for _, x := range New(7, 5, 1).tensors() {
			tensors = append(tensors, rollout.Tensor{Name: x.name, Shape: x.shape, Data: x.part})
		}
		if err := rollout.Write(path, c.change(tensors), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(path); err == nil || err.Error() != path+": "+c.want {
			t.Errorf("error %v, want %s: %s", err, path, c.want)
		}
	}
}

// A damaged file gives an error or a policy, never a panic.
func TestLoadGarbage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.safetensors")
	if err := New(3, 2, 1).Save(path); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(data) {
		if _, err := parse(data[:n]); err == nil {
			t.Errorf("no error of the first %d bytes of %d", n, len(data))
		}
	}
	random := rand.New(rand.NewPCG(1, 1))
	for range 20000 {
		damaged := append([]byte(nil), data...)
		for range 1 + random.IntN(3) {
			damaged[random.IntN(len(damaged))] = byte(random.Uint32())
		}
		if p, err := parse(damaged); err == nil && len(p.Parameters) != len(p.Input)+len(p.U)+len(p.Bias)+len(p.Head)+len(p.HeadBias)+len(p.Value)+1 {
			t.Error("a policy of another size")
		}
	}
}
