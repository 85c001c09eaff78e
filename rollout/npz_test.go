package rollout

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/test/must"
	"pgregory.net/rapid"
)

// An npyFile is a file to put into a zip file.
type npyFile struct {
	name string // without .npy
	data []byte
}

// npy returns a .npy file of those elements, big-endian if the descr says so.
func npy[E any](name, descr string, elements ...E) npyFile {
	var order binary.AppendByteOrder = binary.LittleEndian
	if descr[0] == '>' {
		order = binary.BigEndian
	}
	data, err := binary.Append(npyHead(descr, []int64{int64(len(elements))}), order.(binary.ByteOrder), elements)
	if err != nil {
		panic(err)
	}
	return npyFile{name, data}
}

// zipped returns a zip file of the files.
func zipped(method uint16, files ...npyFile) []byte {
	var w bytes.Buffer
	z := zip.NewWriter(&w)
	for _, f := range files {
		out, err := z.CreateHeader(&zip.FileHeader{Name: f.name + ".npy", Method: method})
		if err == nil {
			_, err = out.Write(f.data)
		}
		if err != nil {
			panic(err)
		}
	}
	if err := z.Close(); err != nil {
		panic(err)
	}
	return w.Bytes()
}

// readNPZ returns the records of a .npz file.
func readNPZ(data []byte) ([]*record, error) { return readStored(data, int64(len(data))) }

// readStored returns the records of a .npz file that is in a file of so many bytes.
func readStored(data []byte, stored int64) ([]*record, error) {
	a, err := newNPZ("x.npz", bytes.NewReader(data), int64(len(data)), stored)
	if err != nil {
		return nil, err
	}
	var records []*record
	for range a.batch.Trajectories() {
		records = append(records, must.Get(a.next()))
	}
	return records, nil
}

// TestOpenNPZ writes rollouts with logits of every dtype as .npz, and opens them as that, and compressed once more.
func TestOpenNPZ(t *testing.T) {
	small := must.Get(OpenFile("../testdata/frozenlake-small.safetensors"))
	defer small.Close()
	want := must.Get(small.Batch())
	T := want.Tokens()
	want.TokenIDs = make([]int32, T) // in the rows of all of them
	want.Logits = reweight.Logits{Vocab: 1, F32: want.Entropy}
	want.OldLogits = reweight.Logits{Vocab: 2, F16: slices.Repeat([]reweight.F16{0x3c00, 0xc000}, T)}
	want.RewardParts = make([]float32, 3*want.Trajectories())
	for i := range want.RewardParts {
		want.RewardParts[i] = float32(i)
	}
	b := *want
	b.RefLogits = reweight.Logits{Vocab: 2, BF16: slices.Repeat([]reweight.BF16{0x3f80, 0xc000}, T)}
	want.RefLogits = reweight.Logits{Vocab: 2, F32: slices.Repeat([]float32{1, -2}, T)} // NumPy has no BF16
	var npz, again bytes.Buffer
	must.Do(EncodeNPZ(&npz, Tensors(&b)))
	must.Do(EncodeNPZ(&again, Tensors(&b)))
	if !bytes.Equal(npz.Bytes(), again.Bytes()) {
		t.Error("the same batch makes another file")
	}
	dir := writeFiles(t, map[string][]byte{"a.npz": npz.Bytes(), "b.npz.gz": gzipped(t, npz.Bytes()),
		"c.zip.zst": zstandard(t, npz.Bytes())})
	for _, name := range []string{"a.npz", "b.npz.gz", "c.zip.zst"} {
		s := must.Get(Open(filepath.Join(dir, name)))
		got := must.Get(s.Batch())
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s holds another batch", name)
		}
		if report := s.Report(); !slices.Equal(report.Formats, []string{"npz"}) || report.Files != 1 ||
			report.Trajectories != 32 || report.Groups != 4 || report.Dropped != nil || report.Warnings != nil {
			t.Errorf("%s: report %+v", name, report)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestNPZTypes reads every array of every dtype that it may have.
func TestNPZTypes(t *testing.T) {
	role := []npyFile{
		npy[uint8]("role", "|u1", 0, 1, 2, 1), npy[int8]("role", "|i1", 0, 1, 2, 1),
		npy[uint16]("role", "<u2", 0, 1, 2, 1), npy[int16]("role", ">i2", 0, 1, 2, 1),
		npy[int32]("role", "<i4", 0, 1, 2, 1), npy[uint32]("role", ">u4", 0, 1, 2, 1),
		npy[int64]("role", ">i8", 0, 1, 2, 1), npy[uint64]("role", "<u8", 0, 1, 2, 1),
		npy("role", "|b1", false, true, true, true),
	}
	offsets := []npyFile{npy[int64]("seq_offsets", "<i8", 0, 3, 3, 4), npy[uint16]("seq_offsets", ">u2", 0, 3, 3, 4),
		npy[int32]("seq_offsets", ">i4", 0, 3, 3, 4)}
	ids := []npyFile{
		npy[int32]("token_ids", "<i4", 7, math.MinInt32, math.MaxInt32, 9), npy[int64]("token_ids", ">i8", 7, math.MinInt32, math.MaxInt32, 9),
		npy[int64]("token_ids", "<i8", 7, math.MinInt32, math.MaxInt32, 9),
	}
	nan := float32(math.NaN())
	floats := []npyFile{
		npy("entropy", "<f4", 0.1, nan, -2, float32(math.Inf(1))), npy("entropy", ">f4", 0.1, nan, -2, float32(math.Inf(1))),
		npy("entropy", "<f8", float64(float32(0.1)), math.NaN(), -2, math.Inf(1)), npy("entropy", ">f8", float64(float32(0.1)), math.NaN(), -2, math.Inf(1)),
	}
	for i := range 9 {
		records, err := readNPZ(zipped(uint16(i%2)*zip.Deflate, role[i], offsets[i%3], ids[i%3], floats[i%4],
			npy[int64]("rewards", "<i8", 1, -1, 0), npy[uint8]("group_ids", "|u1", 0, 200, 0)))
		if err != nil {
			t.Fatalf("%d: %v", i, err)
		}
		if len(records) != 3 {
			t.Fatalf("%d: %d records", i, len(records))
		}
		r := records[0]
		if i == 8 {
			if !slices.Equal(r.mask, []bool{false, true, true}) || r.Role != nil {
				t.Errorf("mask %v, roles %v", r.mask, r.Role)
			}
		} else if !slices.Equal(r.Role, []reweight.Role{0, 1, 2}) {
			t.Errorf("%d: roles %v", i, r.Role)
		}
		if !slices.Equal(r.TokenIDs, []int32{7, math.MinInt32, math.MaxInt32}) || records[2].TokenIDs[0] != 9 {
			t.Errorf("%d: ids %v", i, r.TokenIDs)
		}
		if e := r.Entropy; e[0] != 0.1 || e[1] == e[1] || e[2] != -2 || !math.IsInf(float64(records[2].Entropy[0]), 1) {
			t.Errorf("%d: entropy %v", i, e)
		}
		if r.Rewards[0] != 1 || records[1].Rewards[0] != -1 || records[0].group != "0" || records[1].group != "200" {
			t.Errorf("%d: reward %v, group %s", i, r.Rewards, r.group)
		}
		if len(records[1].Role)+len(records[1].mask) != 0 || r.warnings != nil {
			t.Errorf("%d: %d tokens in the empty trajectory, warnings %q", i, len(records[1].Role), r.warnings)
		}
	}
}

// A number that is no float32 is rounded, and the report says so.
func TestNPZRounds(t *testing.T) {
	role, offsets := npy[uint8]("role", "|u1", 1, 1), npy[int64]("seq_offsets", "<i8", 0, 1, 2)
	for _, c := range []struct {
		file npyFile
		want float32
		warn string
	}{
		{npy("entropy", "<f8", 0.1, 0), 0.1, "float64"},
		{npy("entropy", "<f8", 0.5, 0), 0.5, ""},
		{npy[int32]("entropy", "<i4", 1<<24+1, 0), 1 << 24, "int32"},
		{npy[uint64]("entropy", "<u8", 1<<63+1, 0), 1 << 63, "uint64"},
		{npy[int64]("entropy", "<i8", 1<<60, 0), 1 << 60, ""},
	} {
		records := must.Get(readNPZ(zipped(zip.Store, role, offsets, c.file)))
		var want []string
		if c.warn != "" {
			want = []string{"entropy has the dtype " + c.warn + ", and some of its elements were rounded to float32."}
		}
		if got := records[0].Entropy[0]; got != c.want || !slices.Equal(records[0].warnings, want) ||
			records[1].warnings != nil {
			t.Errorf("%v, warnings %q, want %v and %q", got, records[0].warnings, c.want, want)
		}
	}
}

// TestNPYFloats: every float16, and float32 of any bits, come out as they went in.
func TestNPYFloats(t *testing.T) {
	halves := make([]reweight.F16, 1<<16)
	for i := range halves {
		halves[i] = reweight.F16(i)
	}
	file := npy("entropy", ">f2", halves...)
	a := must.Get(readNPY("entropy", bytes.NewReader(file.data), int64(len(file.data))))
	got := must.Get(a.readFloats(1 << 16))
	for i, h := range halves {
		if math.Float32bits(got[i]) != math.Float32bits(h.Float32()) {
			t.Fatalf("%v, want %v", got[i], h.Float32())
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(rapid.Uint32(), 1, 10).Draw(t, "bits")
		file := npy("entropy", rapid.SampledFrom([]string{"<f4", ">f4"}).Draw(t, "descr"), want...)
		a := must.Get(readNPY("entropy", bytes.NewReader(file.data), int64(len(file.data))))
		got, err := a.readFloats(int64(len(want)))
		for i := range want {
			if err != nil || math.Float32bits(got[i]) != want[i] {
				t.Fatalf("%v (%v), want %x", got, err, want)
			}
		}
	})
}

func hostileNPZ() []hostileFile {
	role, offsets := npy[uint8]("role", "|u1", 0, 1), npy[int64]("seq_offsets", "<i8", 0, 1, 2)
	with := func(files ...npyFile) []byte {
		return zipped(zip.Deflate, append([]npyFile{role, offsets}, files...)...)
	}
	raw := func(header string, data int) []byte {
		head := append([]byte(npyMagic+"\x01\x00"), byte(len(header)), byte(len(header)>>8))
		return with(npyFile{"entropy", append(append(head, header...), make([]byte, data)...)})
	}
	header := func(descr, order, shape string, data int) []byte {
		return raw(fmt.Sprintf("{'descr': %s, 'fortran_order': %s, 'shape': %s, }\n", descr, order, shape), data)
	}
	damaged := func(at int, files ...npyFile) []byte {
		data := zipped(zip.Store, files...)
		i := bytes.Index(data, files[0].data)
		data[i+at]++
		return data
	}
	version := npy[uint8]("entropy", "|u1", 0, 1)
	version.data[6] = 4
	logits := npyFile{"logits", append(npyHead("<i4", []int64{2, 1}), make([]byte, 8)...)}
	wide := npyFile{"logits", npyHead("<f4", []int64{2, 0})}
	return []hostileFile{
		{"empty", nil, "zip: not a valid zip file"},
		{"cut off", zipped(zip.Store, role, offsets)[:100], "zip: not a valid zip file"},
		{"no arrays", zipped(zip.Store), "role is missing: each array of a batch is saved under its name"},
		{"positional arrays", zipped(zip.Store, npyFile{"arr_0", role.data}), "role is missing: each array of a batch is saved under its name"},
		{"no offsets", zipped(zip.Store, role), "seq_offsets is missing: each array of a batch is saved under its name"},
		{"an array twice", with(role), "role is there twice"},
		{"bytes that changed", damaged(len(role.data)-1, role, offsets), "role: zip: checksum error"},
		{"rewards that changed", damaged(140, npy[float32]("rewards", "<f4", 1, 2), role, offsets), "rewards: zip: checksum error"},
		{"no array", with(npyFile{"entropy", []byte("not an array")}), `entropy: begins with "not an", want \x93NUMPY`},
		{"an empty file", with(npyFile{"entropy", nil}), "entropy: is cut off"},
		{"a file cut off in the header", with(npyFile{"entropy", role.data[:20]}), "entropy: is cut off"},
		{"version 4", with(version), "entropy: has version 4.0 of the format, want 1.0, 2.0 or 3.0"},
		{"a long header", with(npyFile{"entropy", []byte(npyMagic + "\x02\x00\x01\x00\x01\x00")}), "entropy: has a header of 65537 bytes, want at most 65536"},
		{"pickle", header("'|O'", "False", "(2,)", 16), "entropy: has the dtype object, which is a pickle and is not read: save an array of numbers"},
		{"structured", header("[('x', '<f4')]", "False", "(2,)", 8), `entropy: has the header "{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (2,),...", want descr, fortran_order and shape of an array of numbers`},
		{"complex", header("'<c8'", "False", "(2,)", 16), `entropy: has the dtype "<c8", want bool, an integer of 8 to 64 bits, float16, float32 or float64`},
		{"no byte order", header("'|f4'", "False", "(2,)", 8), `entropy: has the dtype "|f4", want bool, an integer of 8 to 64 bits, float16, float32 or float64`},
		{"columns", header("'<f4'", "True", "(2, 1)", 8), "entropy: is stored column by column (fortran_order), want numpy.ascontiguousarray of it"},
		{"not a dictionary", raw("import os", 0), `entropy: has the header "import os", want descr, fortran_order and shape of an array of numbers`},
		{"no shape", raw("{'descr': '<f4', 'fortran_order': False}", 0), `entropy: has the header "{'descr': '<f4', 'fortran_order': False}", want descr, fortran_order and shape of an array of numbers`},
		{"a negative shape", header("'<f4'", "False", "(-2,)", 8), `entropy: has the header "{'descr': '<f4', 'fortran_order': False, 'shape': (-2,), }\n", want descr, fortran_order and shape of an array of numbers`},
		{"no dimensions", header("'<f4'", "False", "()", 4), "entropy has the shape [], want [2]"},
		{"a shape above 2^64", header("'<f4'", "False", "(4611686018427387904, 4)", 0), "entropy: has the shape [4611686018427387904, 4], which is more than 2^64 bytes"},
		{"a shape above the data", header("'<f4'", "False", "(3,)", 8), "entropy: has the shape [3] of float32, which takes 12 bytes, but 8 bytes of data"},
		{"a shape below the data", header("'<f4'", "False", "(1,)", 8), "entropy: has the shape [1] of float32, which takes 4 bytes, but 8 bytes of data"},
		{"a shape of other tokens", with(npy[float32]("entropy", "<f4", 1, 2, 3)), "entropy has the shape [3], want [2]"},
		{"rewards per token", zipped(zip.Store, role, npy[int64]("seq_offsets", "<i8", 0, 2), npy[float32]("rewards", "<f4", 1, 2)), "rewards has the shape [2], want [1]"},
		{"a fraction as id", with(npy[float32]("token_ids", "<f4", 1, 2)), "token_ids has the dtype float32, want integers"},
		{"a boolean as number", with(npy("entropy", "|b1", true, true)), "entropy has the dtype bool, want numbers"},
		{"an id above int32", with(npy[int64]("token_ids", "<i8", 1, 1<<31)), "token_ids[1] is 2147483648, want -2147483648 to 2147483647"},
		{"an id above int64", with(npy[uint64]("token_ids", ">u8", 1, 1<<63)), "token_ids[1] is 9223372036854775808, want -2147483648 to 2147483647"},
		{"a role", zipped(zip.Store, npy[int8]("role", "|i1", 0, 3), offsets), "role[1] is 3, want 0 to 2"},
		{"a negative role", zipped(zip.Store, npy[int16]("role", ">i2", 0, -1), offsets), "role[1] is -1, want 0 to 2"},
		{"a float64 beyond float32", with(npy("entropy", "<f8", 0, -1e39)), "entropy[1] is -1e+39, want a number that float32 holds"},
		{"one offset", zipped(zip.Store, role, npy[int64]("seq_offsets", "<i8", 2)), "seq_offsets has 1 elements, want at least 2, for one trajectory"},
		{"a span of an earlier trajectory", with(npy[int32]("span_ids", "<i4", 0, 0)), "span_ids[1] is 0 in trajectory 1, but that span began in an earlier trajectory"},
		{"anchors without spans", with(npy[int32]("anchors", "<i4", 3)), "anchors has 1 elements, want none for tokens without span ids"},
		{"anchors as a matrix", with(npy[int32]("span_ids", "<i4", -1, 0),
			npyFile{"anchors", append(npyHead("<i4", []int64{1, 1}), make([]byte, 4)...)}),
			"anchors has the shape [1, 1], want [?]"},
		{"too few anchors", with(npy[int32]("span_ids", "<i4", 0, 1), npy[int32]("anchors", "<i4", 3)), "anchors has 1 elements, want 2, one per span"},
		{"too many span rewards", with(npy[int32]("span_ids", "<i4", 0, 1), npy[float32]("span_rewards", "<f4", 3, 4, 5)), "span_rewards has 3 elements, want 2, one per span"},
		{"integers as logits", with(logits), "logits has the dtype int32, want float16, float32 or float64"},
		{"parts of no reward", with(npyFile{"reward_parts", npyHead("<f4", []int64{2, 0})}), "reward_parts has the shape [2, 0], want [2, ?]"},
		{"parts in a row", with(npy[float32]("reward_parts", "<f4", 1, 2)), "reward_parts has the shape [2], want [2, ?]"},
		{"no logits in a row", with(wide), "logits has the shape [2, 0], want [2, ?]"},
	}
}

func TestHostileNPZ(t *testing.T) {
	for _, h := range hostileNPZ() {
		t.Run(h.name, func(t *testing.T) {
			_, err := readNPZ(h.file)
			if want := "x.npz: " + h.want; err == nil || err.Error() != want {
				t.Errorf("error\n%v\nwant\n%s", err, want)
			}
		})
	}
}

// A promise is an array of zeros that a zip file declares, and of which it has only the
// first few.
type promise struct {
	name, descr string
	n, size     int64
}

// promised returns a zip file of arrays and promises.
func promised(files []npyFile, promises ...promise) []byte {
	var w bytes.Buffer
	z := zip.NewWriter(&w)
	add := func(name string, data []byte, size int64) {
		var packed bytes.Buffer
		flater, _ := flate.NewWriter(&packed, flate.BestSpeed)
		flater.Write(data)
		flater.Close()
		out, err := z.CreateRaw(&zip.FileHeader{Name: name + ".npy", Method: zip.Deflate,
			CRC32:            crc32.ChecksumIEEE(data),
			CompressedSize64: uint64(packed.Len()), UncompressedSize64: uint64(int64(len(data)) + size)})
		if err == nil {
			_, err = packed.WriteTo(out)
		}
		if err != nil {
			panic(err)
		}
	}
	for _, f := range files {
		add(f.name, f.data, 0)
	}
	for _, p := range promises {
		const few = 1 << 17 // bytes, more than one call of Read returns
		add(p.name, append(npyHead(p.descr, []int64{p.n}), make([]byte, few)...), p.n*p.size-few)
	}
	if err := z.Close(); err != nil {
		panic(err)
	}
	return w.Bytes()
}

// Bombs: what a small file declares is not allocated before it is there.
func TestNPZBombs(t *testing.T) {
	many := make([]npyFile, 60_000)
	for i := range many {
		many[i].name = strings.Repeat("x", 100) + strconv.Itoa(i)
	}
	const tokens = 1 << 27
	offsets := []npyFile{npy[int64]("seq_offsets", "<i8", 0, tokens)}
	for _, c := range []struct {
		name  string
		file  []byte
		limit uint64
		want  string
	}{
		{"a list of many files", zipped(zip.Store, many...), 4 * maxDirectory, "the list of its files takes more than 8388608 bytes, want at most that"},
		{"data that is not there", promised(offsets, promise{"role", "|u1", tokens, 1}, promise{"values", "<f4", tokens, 4}), 1 << 20, "role: is cut off"},
		{"more than memory", promised(offsets, promise{"role", "|u1", 1 << 33, 1}), 1 << 20, fmt.Sprintf("role has the shape [8589934592], and with it the arrays take more than %d bytes: write them as safetensors", int64(maxBatch))},
	} {
		t.Run(c.name, func(t *testing.T) {
			var err error
			n := allocated(func() { _, err = readStored(c.file, math.MaxInt64) })
			if err == nil || err.Error() != "x.npz: "+c.want {
				t.Errorf("error\n%v\nwant\nx.npz: %s", err, c.want)
			}
			if t.Logf("%d bytes of file, %d allocated", len(c.file), n); n > c.limit {
				t.Errorf("%d bytes allocated, want at most %d", n, c.limit)
			}
		})
	}
}

// TestNPZRatio: an archive that expands to too many times its size is refused before its arrays
// are read, also where another compression hides that.
func TestNPZRatio(t *testing.T) {
	const tokens = 17 << 20
	file := zipped(zip.Deflate, npy("role", "|u1", make([]byte, tokens)...),
		npy[int64]("seq_offsets", "<i8", 0, tokens),
		npy("entropy", "<f4", make([]float32, tokens)...))
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	w.Write(file)
	w.Close()
	for name, data := range map[string][]byte{"x.npz": file, "x.npz.gz": packed.Bytes()} {
		path := filepath.Join(t.TempDir(), name)
		must.Do(os.WriteFile(path, data, 0o666))
		src := must.Get(Open(path))
		var err error
		n := allocated(func() { _, err = src.Next() })
		want := fmt.Sprintf("%s: %d bytes of npz data expand to more than 250 times as many, want at most that", path, len(data))
		if err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
		if limit := uint64(4 << 20); n > limit {
			t.Errorf("%s: %d bytes allocated, want at most %d", name, n, limit)
		}
		src.Close()
	}
}
