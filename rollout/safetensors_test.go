package rollout

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/test/must"
)

// rawFile returns a file of that header and data, right or wrong.
func rawFile(header string, data int) []byte {
	file := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	file = append(file, header...)
	return append(file, make([]byte, data)...)
}

// one returns a header of one tensor x of the given description.
func one(dtype, shape, offsets string) string {
	return fmt.Sprintf(`{"x":{"dtype":"%s","shape":%s,"data_offsets":%s}}`, dtype, shape, offsets)
}

// A hostileFile must be refused with exactly this error.
type hostileFile struct {
	name string
	file []byte
	want string
}

func hostileHeaders() []hostileFile {
	length := func(n uint64, rest string) []byte {
		return append(binary.LittleEndian.AppendUint64(nil, n), rest...)
	}
	pair := func(a, b string) string {
		return fmt.Sprintf(`{"a":{"dtype":"U8","shape":[4],"data_offsets":%s},"b":{"dtype":"U8","shape":[4],"data_offsets":%s}}`, a, b)
	}
	return []hostileFile{
		{"empty", nil, `rollout: 0 bytes, want at least 8 for the header's length`},
		{"seven bytes", make([]byte, 7), `rollout: 7 bytes, want at least 8 for the header's length`},
		{"header of zero", length(0, "{}"), `rollout: header length 0, want at least 2`},
		{"header beyond file", length(3, "{}"), `rollout: header length 3, but only 2 bytes follow it`},
		{"header above limit", length(100_000_001, "{}"), `rollout: header length 100000001 is above the format's limit of 100000000`},
		{"header of 2^64-1", length(1<<64-1, "{}"), `rollout: header length 18446744073709551615 is above the format's limit of 100000000`},
		{"not an object", rawFile(`[1]`, 0), `rollout: header begins with byte 0x5b, want '{'`},
		{"space before object", rawFile(` {}`, 0), `rollout: header begins with byte 0x20, want '{'`},
		{"not JSON", rawFile(`{x}`, 0), `rollout: header: byte 2: found 'x', want the name of a field`},
		{"object cut off", rawFile(`{"x":{"dtype":"U8"`, 0), `rollout: header: x, byte 19: found the end, want a comma or }`},
		{"not UTF-8", rawFile("{\"\xff\":1}", 0), `rollout: header is not UTF-8`},
		{"garbage after object", rawFile(`{} x`, 0), `rollout: header: bytes other than spaces after the object, which ends at byte 2`},
		{"newline padding", rawFile("{}\n", 0), `rollout: header: bytes other than spaces after the object, which ends at byte 2`},
		{"duplicate tensor", rawFile(`{"x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}`, 0), `rollout: header: the value has field x twice`},
		{"duplicate metadata key", rawFile(`{"__metadata__":{"k":"","k":""}}`, 0), `rollout: header: __metadata__ has field k twice`},
		{"metadata not strings", rawFile(`{"__metadata__":{"k":1}}`, 0), `rollout: header: __metadata__.k is 1, want a string`},
		{"tensor not an object", rawFile(`{"x":7}`, 0), `rollout: header: x is 7, want an object`},
		{"unknown key", rawFile(`{"x":{"stride":[1]}}`, 0), `rollout: header: x.stride is no key of a tensor`},
		{"no dtype", rawFile(`{"x":{"shape":[0],"data_offsets":[0,0]}}`, 0), `rollout: header: x has 2 of the keys dtype, shape and data_offsets, want all`},
		{"dtype a number", rawFile(`{"x":{"dtype":8}}`, 0), `rollout: header: x.dtype is 8, want a string`},
		{"shape null", rawFile(one("U8", "null", "[0,0]"), 0), `rollout: header: x.shape is null, want an array`},
		{"negative dimension", rawFile(one("U8", "[-1]", "[0,1]"), 1), `rollout: header: x.shape[0] is -1, want at least 0`},
		{"dimension of 2^63", rawFile(one("U8", "[9223372036854775808]", "[0,1]"), 1), `rollout: header: x.shape[0] is 9223372036854775808, want an integer of 64 bits`},
		{"one offset", rawFile(one("U8", "[1]", "[1]"), 1), `rollout: header: x.data_offsets has 1 integers, want 2`},
		{"negative offset", rawFile(one("U8", "[1]", "[-1,0]"), 1), `rollout: header: x.data_offsets[0] is -1, want at least 0`},

		{"decreasing offsets", rawFile(one("U8", "[1]", "[1,0]"), 1), `rollout: tensor "x": data_offsets [1, 0] end before they begin`},
		{"beyond the file", rawFile(one("U8", "[2]", "[0,2]"), 1), `rollout: tensor "x": data_offsets [0, 2] reach beyond the 1 bytes of data`},
		{"overlap", rawFile(pair("[0,4]", "[3,7]"), 7), `rollout: tensor "b": data_offsets [3, 7] overlap tensor "a"`},
		{"same data twice", rawFile(pair("[0,4]", "[0,4]"), 4), `rollout: tensor "b": data_offsets [0, 4] overlap tensor "a"`},
		{"hole", rawFile(pair("[5,9]", "[0,4]"), 9), `rollout: tensor "a": data_offsets [5, 9] leave a hole from byte 4`},
		{"hole at the end", rawFile(pair("[0,4]", "[4,8]"), 9), `rollout: tensor "b" is the last and ends at byte 8 of 9 bytes of data`},
		{"data without tensors", rawFile(`{}`, 9), `rollout: no tensors, but 9 bytes of data`},
		{"size above shape", rawFile(one("I32", "[1,2]", "[0,9]"), 9), `rollout: tensor "x": shape [1, 2] of I32 takes 8 bytes, but data_offsets [0, 9] hold 9`},
		{"size below shape", rawFile(one("F64", "[2]", "[0,15]"), 15), `rollout: tensor "x": shape [2] of F64 takes 16 bytes, but data_offsets [0, 15] hold 15`},
		{"scalar without data", rawFile(one("U8", "[]", "[0,0]"), 0), `rollout: tensor "x": shape [] of U8 takes 1 bytes, but data_offsets [0, 0] hold 0`},
		{"shape that wraps to the size", rawFile(one("I32", "[4611686018427387904,4]", "[0,0]"), 0), `rollout: tensor "x": shape [4611686018427387904, 4] of I32 is more than 2^64 bits`},
		{"bits that wrap to the size", rawFile(one("U8", "[2305843009213693952]", "[0,0]"), 0), `rollout: tensor "x": shape [2305843009213693952] of U8 is more than 2^64 bits`},
		{"within a byte", rawFile(one("F4", "[3]", "[0,1]"), 1), `rollout: tensor "x": shape [3] of F4 ends within a byte`},
		{"long name", rawFile(`{"`+strings.Repeat("n", 1<<20)+`":7}`, 0), `rollout: header: ` + strings.Repeat("n", 60) + `... is 7, want an object`},
		{"newline in name", rawFile(`{"a\nb":7}`, 0), `rollout: header: a\nb is 7, want an object`},
		{"many dimensions", rawFile(one("U8", "["+strings.Repeat("1,", maxDims)+"1]", "[0,0]"), 0), `rollout: header: x.shape[64] is one integer more than the 64 that there may be`},
		{"most dimensions", rawFile(one("U8", "["+strings.Repeat("1,", maxDims-1)+"1]", "[0,0]"), 0), `rollout: tensor "x": shape [1, 1, 1, 1, 1, 1, 1, 1, ...] of U8 takes 1 bytes, but data_offsets [0, 0] hold 0`},
	}
}

func TestHostileHeaders(t *testing.T) {
	for _, h := range hostileHeaders() {
		t.Run(h.name, func(t *testing.T) {
			_, err := Parse(h.file)
			if err == nil {
				t.Fatalf("no error, want %s", h.want)
			}
			if got := err.Error(); got != h.want {
				t.Errorf("error\n%s\nwant\n%s", got, h.want)
			}
			checkFile(t, h.file)

			path := filepath.Join(t.TempDir(), "hostile.safetensors")
			must.Do(os.WriteFile(path, h.file, 0o666))
			_, err2 := OpenFile(path)
			want := strings.Replace(err.Error(), "rollout: ", path+": ", 1)
			if err2 == nil || err2.Error() != want {
				t.Errorf("Open: %v, want %s", err2, want)
			}
		})
	}
}

// allocated returns the bytes that f allocates, garbage included.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestAcceptedHeaders(t *testing.T) {
	for _, c := range []struct {
		name string
		file []byte
		want []Info
	}{
		{"no tensors", rawFile(`{}`, 0), []Info{}},
		{"padding", rawFile(`{}      `, 0), []Info{}},
		{"spaces within", rawFile(`{ "x" : { "shape" : [ 1 ] , "data_offsets" : [ 0 , 1 ] , "dtype" : "U8" } }`, 1), []Info{{"x", "U8", []int64{1}}}},
		{"scalar", rawFile(one("F64", "[]", "[0,8]"), 8), []Info{{"x", "F64", nil}}},
		{"bits", rawFile(one("F6_E2M3", "[2,2]", "[0,3]"), 3), []Info{{"x", "F6_E2M3", []int64{2, 2}}}},
		{"unknown dtype", rawFile(one("Q3", "[7]", "[0,5]"), 5), []Info{{"x", "Q3", []int64{7}}}},
		{"data in another order", rawFile(
			`{"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},`+
				`"none":{"dtype":"U8","shape":[0],"data_offsets":[1,1]},`+
				`"a":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}}`, 2),
			[]Info{{"a", "BOOL", []int64{1}}, {"none", "U8", []int64{0}}, {"b", "U8", []int64{1}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := must.Get(Parse(c.file))
			if got := f.Tensors(); !reflect.DeepEqual(got, c.want) {
				t.Errorf("tensors %v, want %v", got, c.want)
			}
			checkFile(t, c.file)
		})
	}
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	none := filepath.Join(dir, "none")
	if _, err := OpenFile(none); !errors.Is(err, os.ErrNotExist) || !strings.HasPrefix(err.Error(), none+": ") {
		t.Errorf("no file: %v", err)
	}
	for _, path := range []string{dir, os.DevNull} {
		if _, err := OpenFile(path); err == nil || err.Error() != path+": not a regular file" {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// A name that a terminal would obey is quoted, whatever the error is.
func TestErrorsQuotePath(t *testing.T) {
	t.Chdir(t.TempDir())
	const name, quoted = "a\u202eb", `"a\u202eb`
	check := func(what string, err error) {
		t.Helper()
		if err == nil || strings.Contains(err.Error(), "\u202e") || !strings.Contains(err.Error(), quoted) {
			t.Errorf("%s: error %v, want one that holds %s", what, err, quoted)
		}
	}
	_, err := OpenFile(name)
	check("no file", err)
	if err := os.WriteFile(name, nil, 0o666); err != nil {
		t.Skip(err)
	}
	_, err = OpenFile(name)
	check("empty file", err)
	must.Do(Write(name, []Tensor{vector("x", []uint8{1})}, nil))
	f := must.Get(OpenFile(name))
	_, err = f.Batch()
	check("no batch", err)
	f.Close()
	_, err = f.Batch()
	check("Batch after Close", err)
	os.Remove(name)
	must.Do(os.Mkdir(name, 0o777))
	_, err = OpenFile(name)
	check("directory", err)
	check("Write to a directory", Write(name, nil, nil))
}

func TestClose(t *testing.T) {
	f := must.Get(OpenFile("../testdata/frozenlake-small.safetensors"))
	unmaps := 0
	unmap := f.unmap
	f.unmap = func() error { unmaps++; return unmap() }
	for range 2 {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	if unmaps != 1 {
		t.Errorf("unmapped %d times", unmaps)
	}
	if _, err := f.Batch(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Batch after Close: %v", err)
	}
	if n := len(f.Tensors()); n != 11 {
		t.Errorf("%d tensors after Close", n)
	}
}

func TestSampleFile(t *testing.T) {
	f := must.Get(OpenFile("../testdata/large/frozenlake.safetensors"))
	defer f.Close()
	infos := f.Tensors()
	if got, want := infos[11], (Info{"ref_logits", "BF16", []int64{18308, 75}}); !reflect.DeepEqual(got, want) {
		t.Errorf("tensor 11 is %v, want %v", got, want)
	}
	infos[11].Shape[0] = 0
	if f.Tensors()[11].Shape[0] != 18308 {
		t.Error("Tensors returns the file's own shapes")
	}
	metadata := f.Metadata()
	if metadata["format"] != "packed rollouts" {
		t.Errorf("metadata %v", metadata)
	}
	clear(metadata)
	if len(f.Metadata()) == 0 {
		t.Error("Metadata returns the file's own map")
	}

	b := must.Get(f.Batch())
	count := make(map[reweight.Role]int)
	for _, r := range b.Role {
		count[r]++
	}
	if want := map[reweight.Role]int{0: 8602, 1: 9319, 2: 387}; !maps.Equal(count, want) {
		t.Errorf("roles %v, want %v", count, want)
	}
	if spans := slices.Max(b.SpanIDs) + 1; spans != 391 {
		t.Errorf("%d spans, want 391", spans)
	}
	if groups := slices.Max(b.GroupIDs) + 1; b.Trajectories() != 128 || groups != 8 {
		t.Errorf("%d trajectories in %d groups, want 128 in 8", b.Trajectories(), groups)
	}
	if b.Logits.Rows() != 0 || b.RefLogits.Rows() != 18308 || b.OldLogits.Vocab != 75 {
		t.Errorf("logits of %d, %d, %d rows", b.Logits.Rows(), b.RefLogits.Rows(), b.OldLogits.Rows())
	}
	// The arrays are the file's bytes, aligned or not (seq_offsets is not).
	for _, x := range Tensors(b) {
		if !bytes.Equal(dataOf(x.Data), f.byName[x.Name].data) {
			t.Errorf("%s differs from the file", x.Name)
		}
	}
}

// Headers that are all small objects cost the most memory for their size.
func TestDenseHeaders(t *testing.T) {
	var tensors, metadata []string
	for i := range 10_000 {
		tensors = append(tensors, fmt.Sprintf(`"%x":{"dtype":"","shape":[],"data_offsets":[0,0]}`, i))
		metadata = append(metadata, fmt.Sprintf(`"%x":""`, i))
	}
	digits := strings.Repeat("1", 1_000_000)
	for _, header := range []string{
		"{" + strings.Join(tensors, ",") + "}",
		`{"__metadata__":{` + strings.Join(metadata, ",") + "}}",
		`{"` + strings.Repeat("x", 1<<20) + `":{"dtype":"","shape":[],"data_offsets":[0,0]}}`,
		`{"x":{"shape":` + strings.Repeat("[", 9_000),
		`{"__metadata__":{"a":` + digits + `}}`, `{"x":{"dtype":1e` + digits + `}}`, `{"x":{"shape":[` + digits + `]}}`, // which no error repeats
	} {
		file := rawFile(header, 0)
		checkFile(t, file)
	}
}
