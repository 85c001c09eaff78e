package rollout

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/test/must"
	"pgregory.net/rapid"
)

func TestEncode(t *testing.T) {
	header := `{"__metadata__":{"a":"\u003c","b":""},` +
		`"x":{"dtype":"I32","shape":[2,1],"data_offsets":[0,8]},` +
		`"w":{"dtype":"BF16","shape":[],"data_offsets":[8,10]}}`
	header += strings.Repeat(" ", -len(header)&7)
	want := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	want = append(want, header...)
	want = append(want, 1, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff, 0x80, 0x3f)
	got := encoded(t, []Tensor{
		{"x", []int64{2, 1}, []int32{1, -2}},
		{"w", nil, []reweight.BF16{0x3f80}},
	}, map[string]string{"b": "", "a": "<"})
	if !bytes.Equal(got, want) {
		t.Errorf("%q\nwant\n%q", got, want)
	}
}

func drawTensor[E element](t *rapid.T, name string, shape []int64) Tensor {
	n := int(unsafe.Sizeof(*new(E)))
	for _, d := range shape {
		n *= int(d)
	}
	raw := rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, "data")
	return Tensor{name, shape, view[E](raw)}
}

// What is written is what is read, of every dtype.
func TestRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tensors.safetensors")
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.String(), 0, 8, rapid.ID).Draw(t, "names")
		metadata := rapid.MapOf(rapid.String(), rapid.String()).Draw(t, "metadata")
		var tensors []Tensor
		for _, name := range names {
			shape := rapid.SliceOfN(rapid.Int64Range(0, 5), 0, 3).Draw(t, "shape")
			draw := rapid.SampledFrom([]func(*rapid.T, string, []int64) Tensor{
				drawTensor[uint8], drawTensor[int32], drawTensor[int64], drawTensor[float32], drawTensor[reweight.BF16], drawTensor[reweight.F16],
			}).Draw(t, "dtype")
			tensors = append(tensors, draw(t, name, shape))
		}
		must.Do(Write(path, tensors, metadata))
		f := must.Get(OpenFile(path))
		defer f.Close()
		if got := f.Metadata(); !maps.Equal(got, metadata) {
			t.Errorf("metadata %q, want %q", got, metadata)
		}
		infos := f.Tensors()
		if len(infos) != len(tensors) {
			t.Fatalf("%d tensors, want %d", len(infos), len(tensors))
		}
		for _, want := range tensors {
			got := f.byName[want.Name]
			if got == nil || got.DType != dtypeOf(want.Data) || !slices.Equal(got.Shape, want.Shape) {
				t.Fatalf("%+v, want %+v", got, want)
			}
			if !bytes.Equal(got.data, dataOf(want.Data)) {
				t.Fatalf("%q is %x, want %v", want.Name, got.data, want.Data)
			}
		}
	})
}

func TestWriteErrors(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.safetensors")
	for _, c := range []struct {
		tensors  []Tensor
		metadata map[string]string
		want     string
	}{
		{[]Tensor{{"x", []int64{1}, []float64{1}}}, nil, `tensor "x": data is []float64, want []uint8, []reweight.Role, []int32, []int64, []float32, []reweight.BF16 or []reweight.F16`},
		{[]Tensor{{"x", []int64{0}, nil}}, nil, `tensor "x": data is <nil>, want []uint8, []reweight.Role, []int32, []int64, []float32, []reweight.BF16 or []reweight.F16`},
		{[]Tensor{{"x", []int64{2, 2}, []int32{1, 2, 3}}}, nil, `tensor "x": shape [2 2] of I32 takes 16 bytes, but data has 12`},
		{[]Tensor{{"x", nil, []int32{}}}, nil, `tensor "x": shape [] of I32 takes 4 bytes, but data has 0`},
		{[]Tensor{{"x", []int64{-1, -1}, []uint8{1}}}, nil, `tensor "x": shape [-1 -1] is not a shape`},
		{[]Tensor{{"x", []int64{1 << 62, 4}, []uint8{}}}, nil, `tensor "x": shape [4611686018427387904 4] is not a shape`},
		{[]Tensor{vector("x", []uint8{1}), vector("x", []uint8{1})}, nil, `tensor "x": name is taken`},
		{[]Tensor{vector("__metadata__", []uint8{1})}, nil, `tensor "__metadata__": name is taken`},
		{[]Tensor{vector("\xff", []uint8{1})}, nil, `tensor "\xff": name is not UTF-8`},
		{[]Tensor{{"x", make([]int64, maxDims+1), []uint8{}}}, nil, `tensor "x": 65 dimensions, want at most 64`},
		{nil, map[string]string{"key": "\xff"}, `metadata "key": not UTF-8`},
		{nil, map[string]string{"\xff": ""}, `metadata "\xff": not UTF-8`},
		{nil, map[string]string{"": strings.Repeat(" ", maxHeader)}, `header of 100000024 bytes is above the format's limit of 100000000`},
	} {
		err := Write(path, c.tensors, c.metadata)
		if want := path + ": " + c.want; err == nil || err.Error() != want {
			t.Errorf("error\n%v\nwant\n%s", err, want)
		}
		expectFiles(t, dir)
	}
}

// The error of a disk is the error of writing, wherever the disk becomes full.
func TestEncodeFails(t *testing.T) {
	full := errors.New("the disk is full")
	for room := range 3 { // calls of Write that succeed
		w := writerFunc(func(data []byte) (int, error) {
			if room--; room < 0 {
				return 0, full
			}
			return len(data), nil
		})
		if err := encode(w, []Tensor{vector("x", []uint8{1}), vector("y", []uint8{2})}, nil); !errors.Is(err, full) {
			t.Error(err)
		}
	}
}

// expectFiles checks the directory's entries.
func expectFiles(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries := must.Get(os.ReadDir(dir))
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if !slices.Equal(got, want) {
		t.Errorf("the directory holds %q, want %q", got, want)
	}
}
