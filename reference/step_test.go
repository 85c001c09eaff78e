package reference

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
)

// arrays is a safetensors file: eight bytes of header length, a JSON header
// that gives each array its type and place, and the arrays.
type arrays struct {
	header map[string]struct {
		DType   string `json:"dtype"`
		Offsets [2]int `json:"data_offsets"`
	}
	data []byte
}

func parseArrays(t *testing.T, file []byte) arrays {
	t.Helper()
	n := 8 + int(binary.LittleEndian.Uint64(file))
	a := arrays{data: file[n:]}
	header := map[string]json.RawMessage{}
	if err := json.Unmarshal(file[8:n], &header); err != nil {
		t.Fatal(err)
	}
	delete(header, "__metadata__")
	b, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &a.header); err != nil {
		t.Fatal(err)
	}
	return a
}

// read returns the array of that name, whose elements are E.
func read[E any](t *testing.T, a arrays, name, dtype string) []E {
	t.Helper()
	h, ok := a.header[name]
	if !ok || h.DType != dtype {
		t.Fatalf("array %q: type %q, want %q", name, h.DType, dtype)
	}
	raw := a.data[h.Offsets[0]:h.Offsets[1]]
	var e E
	x := make([]E, len(raw)/binary.Size(e))
	if err := binary.Read(bytes.NewReader(raw), binary.LittleEndian, x); err != nil {
		t.Fatal(err)
	}
	return x
}

// floats returns an F32 array as float64.
func (a arrays) floats(t *testing.T, name string) []float64 {
	t.Helper()
	narrow := read[float32](t, a, name, "F32")
	wide := make([]float64, len(narrow))
	for i, v := range narrow {
		wide[i] = float64(v)
	}
	return wide
}

// logits returns a BF16 array as float64.
func (a arrays) logits(t *testing.T, name string) []float64 {
	t.Helper()
	narrow := read[uint16](t, a, name, "BF16")
	wide := make([]float64, len(narrow))
	for i, v := range narrow {
		wide[i] = float64(math.Float32frombits(uint32(v) << 16))
	}
	return wide
}

func frozenLake(t *testing.T) arrays {
	t.Helper()
	file, err := os.ReadFile(filepath.Join("..", "testdata", "frozenlake.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	return parseArrays(t, file)
}

// TestRealLogits derives the stored arrays from the stored logits: they were
// computed in float64 and rounded to float32.
func TestRealLogits(t *testing.T) {
	a := frozenLake(t)
	ids := read[int32](t, a, "token_ids", "I32")
	vocab := 75
	refLSE, _, refLogprobs, err := TokenStats(a.logits(t, "ref_logits"), vocab, ids, 1)
	if err != nil {
		t.Fatal(err)
	}
	_, entropy, oldLogprobs, err := TokenStats(a.logits(t, "old_logits"), vocab, ids, 1)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range a.floats(t, "ref_energy") {
		if err := rounded(-refLSE[i], want); err != nil {
			t.Fatalf("ref_energy[%d]: %v", i, err)
		}
	}
	for name, got := range map[string][]float64{"entropy": entropy, "old_logprobs": oldLogprobs, "ref_logprobs": refLogprobs} {
		for i, want := range a.floats(t, name) {
			if err := rounded(got[i], want); err != nil {
				t.Fatalf("%s[%d]: %v", name, i, err)
			}
		}
	}
}

// rounded wants got to be want, which has been rounded to float32.
func rounded(got, want float64) error {
	if !(math.Abs(got-want) <= 0x1p-24*math.Abs(want)+1e-14) {
		return fmt.Errorf("got %v, want %v", got, want)
	}
	return nil
}
