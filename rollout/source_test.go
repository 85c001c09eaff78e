package rollout

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/test/must"
)

var exampleFiles = []string{"../testdata/frozenlake-small.safetensors", "../testdata/large/frozenlake.safetensors"}

// One safetensors file gives the batch of File.Batch, and its arrays are the file's
// memory. Trajectory by trajectory it is the same.
func TestSafetensorsSource(t *testing.T) {
	for _, path := range exampleFiles {
		f := must.Get(OpenFile(path))
		defer f.Close()
		want := must.Get(f.Batch())
		s := must.Get(Open(path))
		defer s.Close()
		var got *reweight.Batch
		memory := allocated(func() { got = must.Get(s.Batch()) })
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: the batch differs from the batch of OpenFile", path)
		}
		if !bigEndian && memory > 1<<20 {
			t.Errorf("%s: %d bytes of memory for a batch that aliases the file", path, memory)
		}

		s = must.Get(Open(path))
		defer s.Close()
		for i, part := range trajectories(want) {
			next := must.Get(s.Next())
			if !reflect.DeepEqual(next.Batch, part.Batch) || next.Group != fmt.Sprint(want.GroupIDs[i]) ||
				next.File != path || next.Line != 0 {
				t.Fatalf("%s: trajectory %d of group %s differs", path, i, next.Group)
			}
		}
		report := s.Report()
		if report.Trajectories != want.Trajectories() || report.Tokens != want.Tokens() || report.Files != 1 ||
			!slices.Equal(report.Formats, []string{"safetensors"}) {
			t.Errorf("%s: %+v", path, report)
		}
	}
}

// What a safetensors file lacks is derived, beside arrays that alias it.
func TestSafetensorsDerived(t *testing.T) {
	f := must.Get(OpenFile(exampleFiles[0]))
	defer f.Close()
	want := must.Get(f.Batch())
	less := *want
	less.SpanIDs, less.GroupIDs, less.Logprobs, less.Entropy = nil, nil, nil, nil
	path := filepath.Join(t.TempDir(), "less.safetensors")
	must.Do(Write(path, append(Tensors(&less), vector("other", []uint8{1})), nil))
	s := must.Get(Options{SurprisalEntropy: true}.Open(path))
	defer s.Close()
	got := must.Get(s.Batch())
	if !slices.Equal(got.SpanIDs, want.SpanIDs) || !slices.Equal(got.GroupIDs, want.GroupIDs) ||
		!slices.Equal(got.Logprobs, want.OldLogprobs) || len(got.Entropy) != want.Tokens() {
		t.Error("the derived arrays differ")
	}
	if dropped := s.Report().Dropped; !slices.Equal(dropped, []string{"other"}) {
		t.Errorf("dropped %q", dropped)
	}

	// The mark of an estimate survives being written.
	path = filepath.Join(t.TempDir(), "estimated.safetensors")
	must.Do(Write(path, Tensors(got),
		map[string]string{"entropy": "estimated from surprisal", "entropy_width": "+Inf"}))
	again := must.Get(Open(path))
	defer again.Close()
	must.Get(again.Batch())
	is := func(o Origin) bool {
		return o.Name == "entropy" && o.Kind == Estimated && o.From == "surprisal" && o.Width > 1e300
	}
	if arrays := again.Report().Arrays; !slices.ContainsFunc(arrays, is) {
		t.Errorf("%+v", arrays)
	}
}

func TestBatchLimit(t *testing.T) {
	s := must.Get(Open(exampleFiles[0], exampleFiles[1]))
	defer s.Close()
	first := must.Get(s.Next())
	size := sizeOf(&first.Batch)
	if want := int64(29*first.Tokens() + 16 + 4 + 4); size != want {
		t.Errorf("a trajectory of %d tokens takes %d bytes, want %d", first.Tokens(), size, want)
	}
	err := s.collect(new(reweight.Batch), new(reweight.Batch), 3*size)
	want := exampleFiles[0] + ": trajectory "
	if err == nil || !strings.HasPrefix(err.Error(), want) ||
		!strings.Contains(err.Error(), fmt.Sprintf("more than %d bytes", 3*size)) {
		t.Errorf("%v, want %s...", err, want)
	}
	if _, again := s.Next(); again != err {
		t.Errorf("after %v, Next says %v", err, again)
	}
}

// What the caller appends to a slice of a trajectory is not written into the next one.
func TestSlicesEnd(t *testing.T) {
	s := must.Get(Open(exampleFiles[1]))
	defer s.Close()
	first := must.Get(s.Next())
	for _, a := range first.Arrays() {
		v := valueOf(a)
		if l, ok := a.Data.(*reweight.Logits); ok {
			v = reflect.ValueOf(l.BF16)
		}
		if spare := v.Cap() - v.Len(); spare != 0 && a.Per != reweight.PerBoundary {
			t.Errorf("%s reaches %d elements beyond its end", a.Name, spare)
		}
	}
}

// compressions are ways to write a file.
var compressions = []struct {
	extension string
	compress  func(testing.TB, []byte) []byte
}{
	{"", func(_ testing.TB, data []byte) []byte { return data }},
	{".gz", gzipped},
	{".zst", zstandard},
}

// A fileFormat is a way to write a batch.
type fileFormat struct {
	extension string
	logits    bool // it can hold them
	encode    func(testing.TB, *reweight.Batch) []byte
}

var fileFormats = []fileFormat{
	{".safetensors", true, func(t testing.TB, b *reweight.Batch) []byte {
		var out bytes.Buffer
		must.Do(encode(&out, Tensors(b), nil))
		return out.Bytes()
	}},
	{".npz", false, func(t testing.TB, b *reweight.Batch) []byte {
		var out bytes.Buffer
		must.Do(EncodeNPZ(&out, Tensors(b)))
		return out.Bytes()
	}},
	{".jsonl", false, func(t testing.TB, b *reweight.Batch) []byte {
		var out bytes.Buffer
		for s, next := range trajectories(b) {
			next.Group = fmt.Sprint(b.GroupIDs[s])
			must.Do(WriteJSONL(&out, next))
		}
		return out.Bytes()
	}},
}

// A batch that is written as any number of files, of different formats, is the batch of
// these files again, except that groups are numbered in the order in which they appear.
func TestSplitFiles(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(r *rapid.T) {
		want := drawBatch(r)
		S := want.Trajectories()
		sub := must.Get(os.MkdirTemp(dir, ""))
		var names []string
		for first := 0; first < S; {
			end := first + rapid.IntRange(1, S-first).Draw(r, "trajectories in a file")
			part := reweight.Batch{SeqOffsets: []int64{0}}
			for s := first; s < end; s++ {
				next := partOf(want, s)
				next.SeqOffsets = []int64{want.SeqOffsets[s+1] - want.SeqOffsets[first]}
				next.GroupIDs = want.GroupIDs[min(s, len(want.GroupIDs)):min(s+1, len(want.GroupIDs))]
				appendArrays(&part, &next)
			}
			if part.Tokens() == 0 { // no file has no tokens
				r.Skip()
			}
			renumberSpans(part.SpanIDs, -spansBefore(want, first))
			first = end
			f := rapid.SampledFrom(fileFormats).Filter(func(f fileFormat) bool {
				return f.logits || part.Logits.Rows()+part.RefLogits.Rows()+part.OldLogits.Rows() == 0
			}).Draw(r, "format")
			c := rapid.SampledFrom(compressions).Draw(r, "compression")
			name := filepath.Join(sub, fmt.Sprintf("%03d%s%s", len(names), f.extension, c.extension))
			must.Do(os.WriteFile(name, c.compress(t, f.encode(t, &part)), 0o666))
			names = append(names, name)
		}
		if len(names) > 1 && rapid.Bool().Draw(r, "as a directory") {
			names = []string{sub}
		}
		s := must.Get(Open(names...))
		defer s.Close()
		got := must.Get(s.Batch())
		if len(names) == 1 && strings.Contains(names[0], ".safetensors") && !slices.Equal(got.GroupIDs, want.GroupIDs) {
			r.Fatalf("one file has the groups %d, want %d", got.GroupIDs, want.GroupIDs)
		}
		number := make(map[int32]int32)
		for _, b := range []*reweight.Batch{want, got} {
			clear(number)
			b.GroupIDs = slices.Clone(b.GroupIDs)
			for i, id := range b.GroupIDs {
				if _, ok := number[id]; !ok {
					number[id] = int32(len(number))
				}
				b.GroupIDs[i] = number[id]
			}
		}
		if !slices.EqualFunc(Tensors(got), Tensors(want), func(x, y Tensor) bool { return reflect.DeepEqual(x, y) }) {
			r.Fatalf("got  %+v\nwant %+v", got, want)
		}
	})
}

// partOf returns trajectory s of the batch, whose spans keep their numbers.
func partOf(b *reweight.Batch, s int) reweight.Batch {
	return trajectory(b, s, spansBefore(b, s), spansBefore(b, s+1))
}

// spansBefore returns the number of spans before trajectory s.
func spansBefore(b *reweight.Batch, s int) int32 {
	return countSpans(b.SpanIDs[:min(b.SeqOffsets[s], int64(len(b.SpanIDs)))])
}

// drawBatch draws a batch that has those arrays which would be derived.
func drawBatch(t *rapid.T) *reweight.Batch {
	b := &reweight.Batch{SeqOffsets: []int64{0}}
	spans := int32(0)
	for range rapid.IntRange(1, 8).Draw(t, "trajectories") {
		group := rapid.Int32Range(-3, 3).Draw(t, "group")
		b.GroupIDs = append(b.GroupIDs, group)
		b.Rewards = append(b.Rewards, rapid.Float32().Draw(t, "reward"))
		n := rapid.IntRange(0, 6).Draw(t, "tokens")
		prompt := rapid.IntRange(0, n).Draw(t, "prompt")
		if prompt > 0 {
			prompt = 1 // the same for all trajectories of a group
		}
		for i := range n {
			role, span := reweight.RoleMasked, int32(-1)
			if i >= prompt {
				role = rapid.SampledFrom([]reweight.Role{reweight.RoleReasoning, reweight.RoleAction}).Draw(t, "role")
				if i == prompt || rapid.Bool().Draw(t, "new span") {
					spans++
				}
				span = spans - 1
			}
			b.Role = append(b.Role, role)
			b.SpanIDs = append(b.SpanIDs, span)
		}
		b.SeqOffsets = append(b.SeqOffsets, int64(b.Tokens()))
	}
	T := b.Tokens()
	if T == 0 {
		t.Skip("no tokens were drawn")
	}
	if n := rapid.IntRange(0, 3).Draw(t, "parts") * b.Trajectories(); n > 0 {
		b.RewardParts = rapid.SliceOfN(rapid.Float32(), n, n).Draw(t, "reward_parts")
	}
	logits := rapid.Bool().Draw(t, "with logits")
	for _, a := range b.Arrays() {
		if _, is := a.Data.(*reweight.Logits); a.Per != reweight.PerToken && a.Per != reweight.PerSpan ||
			a.Len() != 0 || is && !logits {
			continue
		}
		n := T
		if a.Per == reweight.PerSpan {
			n = int(spans)
		}
		always := a.Name == "logprobs" // would be made of old_logprobs
		if !always && !rapid.Bool().Draw(t, a.Name) {
			continue
		}
		switch data := a.Data.(type) {
		case *[]int32:
			*data = make([]int32, n)
			if a.Field == "Anchors" {
				*data = rapid.SliceOfN(rapid.Int32(), n, n).Draw(t, a.Name)
			}
		case *[]float32:
			*data = rapid.SliceOfN(rapid.Float32Range(-100, 0), n, n).Draw(t, a.Name)
		case *reweight.Logits:
			data.Vocab = rapid.IntRange(1, 3).Draw(t, "vocab")
			n := T * data.Vocab
			switch rapid.IntRange(0, 2).Draw(t, "dtype") {
			case 0:
				data.F32 = rapid.SliceOfN(rapid.Float32(), n, n).Draw(t, a.Name)
			case 1:
				data.BF16 = make([]reweight.BF16, n)
			case 2:
				data.F16 = make([]reweight.F16, n)
			}
		}
	}
	must.Do(b.Validate())
	return b
}

// Batch after some calls of Next has the trajectories that are left.
func TestRest(t *testing.T) {
	s := must.Get(Open(exampleFiles[0]))
	defer s.Close()
	for range 5 {
		must.Get(s.Next())
	}
	b, err := s.Batch()
	if err != nil || b.Trajectories() != 27 || b.Validate() != nil {
		t.Errorf("%v, %d trajectories", err, b.Trajectories())
	}
	if _, err := s.Next(); err != io.EOF {
		t.Error(err)
	}
	if _, err := s.Batch(); err == nil || err.Error() != exampleFiles[0]+": no trajectories are left" {
		t.Error(err)
	}
}

func TestStandardInput(t *testing.T) {
	data := must.Get(os.ReadFile(exampleFiles[0]))
	for _, c := range []struct {
		data []byte
		want string
	}{
		{data, ""},
		{gzipped(t, data), ""},
		{nil, "standard input: empty"},
		{[]byte("x"), `standard input: begins with "x", which is no format that can be read: see https://github.com/seed621a2839/reweight/blob/main/docs/formats.md`},
		{gzipped(t, data)[:1000], "standard input: the gzip data is cut off"},
		{data[:1000], "standard input: header length"},
	} {
		r, w, err := os.Pipe()
		must.Do(err)
		go func() { // the reader may stop before the end
			w.Write(c.data)
			w.Close()
		}()
		old := os.Stdin
		os.Stdin = r
		s := must.Get(Open("-"))
		b, err := s.Batch()
		switch {
		case c.want == "" && err == nil && b.Tokens() == 6272:
		case c.want != "" && err != nil && strings.HasPrefix(err.Error(), c.want):
		default:
			t.Errorf("%v, want %s", err, c.want)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		os.Stdin = old
		if err := r.Close(); err != nil {
			t.Error("standard input was closed: ", err)
		}
	}
}

func TestClosedSource(t *testing.T) {
	s := must.Get(Open(exampleFiles...))
	must.Get(s.Next())
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.Next(); !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
	if _, err := s.Batch(); !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
}

func TestOptions(t *testing.T) {
	for _, opt := range []Options{{GroupSize: -1}, {Vocab: -1}} {
		var input *reweight.InputError
		if _, err := opt.Open(exampleFiles[0]); !errors.As(err, &input) ||
			input.Problem != "is -1, want 0 to 2147483647" {
			t.Error(err)
		}
	}
	for want, opt := range map[string]Options{
		"ActionClose": {ActionOpen: []int32{6}}, "ActionOpen": {ActionClose: []int32{7}}, "ActionTags": {ActionTags: [][2]string{{"", "</answer>"}}},
	} {
		var input *reweight.InputError
		if _, err := opt.Open(exampleFiles[0]); !errors.As(err, &input) || input.Arg != want {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// Tags take the place of the actions that a file has, which stays as it is.
func TestTagsForRoles(t *testing.T) {
	role := []reweight.Role{0, 2, 1, 1, 0}
	for _, format := range fileFormats {
		b := &reweight.Batch{Role: role, SeqOffsets: []int64{0, 5}, GroupIDs: []int32{0},
			TokenIDs: []int32{6, 6, 8, 7, 9}}
		path := filepath.Join(writeFiles(t, map[string][]byte{"f" + format.extension: format.encode(t, b)}),
			"f"+format.extension)
		s := must.Get(Options{ActionOpen: []int32{6}, ActionClose: []int32{7}}.Open(path))
		got := must.Get(s.Batch())
		if !slices.Equal(got.Role, []reweight.Role{0, 1, 2, 1, 0}) {
			t.Errorf("%s: roles %v", format.extension, got.Role)
		}
		s.Close()
	}
}

// Dumps as people have them, in one directory: an error says where it is.
func TestSourceErrors(t *testing.T) {
	const good = `{"role": [0, 1], "old_logprobs": [0, -1], "group_id": "g", "reward": 1}` + "\n"
	lines := []byte(good + good)
	b := &reweight.Batch{
		Role: []reweight.Role{0, 1}, SeqOffsets: []int64{0, 2}, GroupIDs: []int32{0}, Rewards: []float32{1},
		SpanIDs: []int32{-1, 0}, OldLogprobs: []float32{0, -1},
	}
	binary := encoded(t, Tensors(b), nil)
	b.OldLogprobs, b.Entropy = nil, []float32{0, 1}
	other := encoded(t, Tensors(b), nil)
	for _, c := range []struct {
		name  string
		files map[string][]byte
		want  string // behind the path of the directory; "" if there is no error
	}{
		{"good", map[string][]byte{"a.jsonl": lines, "b.jsonl.gz": gzipped(t, lines), "b2.jsonl": []byte("\ufeff" + good), "c.safetensors": binary, "d.safetensors.zst": zstandard(t, binary), "e.jsonl": nil}, ""},
		{"value", map[string][]byte{"a.jsonl": []byte(good + strings.Replace(good, "-1", `"x"`, 1))}, `/a.jsonl:2: old_logprobs[1] is "x", want a number`},
		{"logprob", map[string][]byte{"a.jsonl": []byte(good + strings.Replace(good, "-1", "-9999", 1))}, "/a.jsonl:2: old_logprobs[1] is -9999 at a response token, which stands for a value that is missing"},
		{"anchors", map[string][]byte{"a.jsonl": []byte(good + strings.Replace(good, `"g"`, `"g", "anchors": [1, 2]`, 1))}, "/a.jsonl:2: anchors has 2 elements, want 1, one per span"},
		{"anchors in some lines", map[string][]byte{"a.jsonl": []byte(good + strings.Replace(good, `"g"`, `"g", "anchors": [1]`, 1))}, "/a.jsonl:2: anchors is there, but it is missing at "},
		{"token rewards", map[string][]byte{"a.jsonl": []byte(strings.Replace(good, `"g"`, `"g", "token_rewards": [1]`, 1))}, "/a.jsonl:1: token_rewards has 1 elements, want 2, one per token"},
		{"logprob of the engine", map[string][]byte{
			"a.jsonl": []byte(strings.Replace(good, `"g"`, `"g", "rollout_logprobs": [0, "NaN"]`, 1))},
			"/a.jsonl:1: rollout_logprobs[1] is NaN at a response token, want a finite log-probability"},
		{"line cut off", map[string][]byte{"a.jsonl": lines[:len(lines)-20]}, "/a.jsonl:2: "},
		{"gzip cut off", map[string][]byte{"a.jsonl.gz": gzipped(t, lines)[:70]}, "/a.jsonl.gz: the gzip data is cut off"},
		{"Zstandard cut off", map[string][]byte{"a.jsonl.zst": zstandard(t, lines)[:70]}, "/a.jsonl.zst: the Zstandard data is cut off"},
		{"arrays", map[string][]byte{"a.jsonl": lines, "b.safetensors": other}, "/b.safetensors: trajectory 0: entropy is there, but it is missing at "},
		{"empty", map[string][]byte{"a.jsonl": lines, "b.npz": nil}, "/b.npz: empty"},
		{"other text", map[string][]byte{"a.jsonl": lines, "b.json": []byte("notes\n")}, `/b.json: begins with "notes\n", `},
	} {
		dir := writeFiles(t, c.files)
		s := must.Get(Open(dir))
		batch, err := s.Batch()
		switch {
		case c.want == "" && err == nil && batch.Trajectories() == 7:
		case c.want != "" && err != nil && strings.HasPrefix(filepath.ToSlash(err.Error()),
			filepath.ToSlash(dir)+c.want) && !strings.Contains(err.Error(), "\n"):
		default:
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
