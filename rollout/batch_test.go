package rollout

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/test/must"
)

// goodTensors returns a batch of 2 trajectories and 7 tokens, with every tensor.
func goodTensors() []Tensor {
	first := float32(0)
	floats := func(name string) Tensor {
		first++ // no two alike
		return vector(name, []float32{first, -2, -3, -4, -5, -6, -7})
	}
	return []Tensor{
		vector("seq_offsets", []int64{0, 4, 7}),
		vector("group_ids", []int32{5, 5}),
		vector("rewards", []float32{0, 1}),
		{"reward_parts", []int64{2, 3}, []float32{0, 0.25, -2, 1, 0, 0.5}},
		vector("span_ids", []int32{-1, 0, 0, 1, -1, 2, 2}),
		vector("token_ids", []int32{0, 1, 0, 1, 0, 1, 0}),
		floats("ref_energy"), floats("entropy"), floats("old_logprobs"), floats("logprobs"), floats("ref_entropy"),
		floats("ref_logprobs"), floats("advantages"), floats("values"),
		floats("rollout_logprobs"), floats("token_rewards"), floats("returns"), floats("new_values"),
		floats("teacher_logprobs"), floats("sum_sq_probs"), floats("entropy_drop"),
		floats("actfocus_weights"), floats("aem_factors"),
		vector("anchors", []int32{8, 9, 8}),
		vector("span_rewards", []float32{0.5, 1.5, 2.5}),
		{"logits", []int64{7, 2}, make([]float32, 14)},
		{"ref_logits", []int64{7, 3}, make([]reweight.BF16, 21)},
		{"old_logits", []int64{7, 2}, make([]reweight.F16, 14)},
		vector("role", []reweight.Role{0, 1, 2, 1, 0, 1, 2}),
	}
}

// with returns the good tensors with the tensors of the same name replaced.
func with(replace ...Tensor) []Tensor {
	tensors := goodTensors()
	for _, r := range replace {
		i := slices.IndexFunc(tensors, func(t Tensor) bool { return t.Name == r.Name })
		tensors[i] = r
	}
	return tensors
}

func without(names ...string) []Tensor {
	return slices.DeleteFunc(goodTensors(), func(t Tensor) bool { return slices.Contains(names, t.Name) })
}

func hostileBatches() []hostileFile {
	var cases []hostileFile
	add := func(name string, tensors []Tensor, want string) {
		var w bytes.Buffer
		if err := encode(&w, tensors, nil); err != nil {
			panic(err)
		}
		cases = append(cases, hostileFile{name, w.Bytes(), "rollout: " + want})
	}
	add("no role", without("role"), `role is missing`)
	add("no offsets", without("seq_offsets"), `seq_offsets is missing`)

	// Wrong dtype and shape, for every tensor.
	shapes := map[string]string{"seq_offsets": "[?]", "role": "[?]", "group_ids": "[2]", "rewards": "[2]",
		"reward_parts": "[2, ?]", "logits": "[7, ?]", "old_logits": "[7, ?]", "ref_logits": "[7, ?]"}
	dtypes := map[string]string{"seq_offsets": "I64", "role": "U8", "group_ids": "I32", "span_ids": "I32",
		"token_ids": "I32", "anchors": "I32"}
	for _, x := range goodTensors() {
		shape, dtype := shapes[x.Name], dtypes[x.Name]
		if shape == "" {
			shape = "[7]"
		}
		if dtype == "" {
			dtype = "F32 or BF16 or F16"
		}
		switch x.Name {
		case "seq_offsets", "role":
			add("scalar "+x.Name, with(Tensor{x.Name, nil, sliceOfOne(x.Data)}),
				fmt.Sprintf(`%s has shape [], want [?]`, x.Name))
		case "anchors", "span_rewards":
			add("scalar "+x.Name, with(Tensor{x.Name, nil, sliceOfOne(x.Data)}),
				fmt.Sprintf(`%s has shape [], want [?]`, x.Name))
			add("short "+x.Name, with(Tensor{x.Name, []int64{1}, sliceOfOne(x.Data)}),
				fmt.Sprintf(`%s has 1 elements, want 3, one per span`, x.Name))
			add(x.Name+" without spans", slices.DeleteFunc(goodTensors(), func(t Tensor) bool {
				return t.Name == "span_ids" || t.Name != x.Name && (t.Name == "anchors" || t.Name == "span_rewards")
			}), fmt.Sprintf(`%s has 3 elements, want none for tokens without span ids`, x.Name))
		default:
			add("short "+x.Name, with(Tensor{x.Name, []int64{1}, sliceOfOne(x.Data)}),
				fmt.Sprintf(`%s has shape [1], want %s`, x.Name, shape))
		}
		if x.Name != "seq_offsets" {
			add("dtype of "+x.Name, with(Tensor{x.Name, []int64{2}, []int64{0, 1}}),
				fmt.Sprintf(`%s has dtype I64, want %s`, x.Name, dtype))
		}
	}
	add("dtype of seq_offsets", with(vector("seq_offsets", []int32{0, 7})), `seq_offsets has dtype I32, want I64`)
	add("matrix of roles", with(Tensor{"role", []int64{1, 7}, make([]uint8, 7)}), `role has shape [1, 7], want [?]`)
	add("rows of logits", with(Tensor{"logits", []int64{6, 2}, make([]float32, 12)}),
		`logits has shape [6, 2], want [7, ?]`)
	add("empty rows", with(Tensor{"logits", []int64{7, 0}, []float32{}}),
		`logits has shape [7, 0], want at least 1 logit in a row`)
	cases = append(cases, hostileFile{"dtype unknown", rawFile(
		`{"seq_offsets":{"dtype":"I64","shape":[0],"data_offsets":[0,0]},"role":{"dtype":"U9\n","shape":[1],"data_offsets":[0,1]}}`, 1),
		`rollout: role has dtype "U9\n", want U8`})

	// Contents.
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	add("empty roles", []Tensor{vector("role", []uint8{}), vector("seq_offsets", []int64{0, 0})},
		`role is empty, want at least 1 token`)
	add("role 3", with(vector("role", []uint8{0, 1, 2, 1, 0, 1, 3})), `role[6] is 3, want 0, 1 or 2`)
	offsets := func(name, want string, off ...int64) {
		add(name, []Tensor{vector("seq_offsets", off), vector("role", make([]uint8, 7))}, want)
	}
	offsets("no trajectory", "seq_offsets has 1 elements, want at least 2, for one trajectory", 7)
	offsets("first offset", "seq_offsets[0] is 1, want 0", 1, 7)
	offsets("negative offset", "seq_offsets[0] is -1, want 0", -1, 7)
	offsets("offsets fall", "seq_offsets[2] is 3, below the 4 before it", 0, 4, 3, 7)
	offsets("offsets beyond", "seq_offsets[2] is 8, want 7, the number of tokens", 0, 4, 8)
	offsets("offsets of 2^63-1", "seq_offsets[1] is 9223372036854775807, want 7, the number of tokens", 0,
		math.MaxInt64)
	offsets("offsets overshoot and return", "seq_offsets[2] is 7, below the 9 before it", 0, 9, 7)
	add("NaN reward", with(vector("rewards", []float32{0, nan})), `rewards[1] is NaN, want a finite reward`)
	add("NaN part", with(Tensor{"reward_parts", []int64{2, 2}, []float32{0, 1, nan, 0}}),
		`reward_parts[2] is NaN, want a finite reward`)
	add("infinite reward", with(vector("rewards", []float32{inf, 0})), `rewards[0] is +Inf, want a finite reward`)
	add("NaN reward in half precision", with(vector("rewards", []reweight.F16{0, 0x7c01})),
		`rewards[1] is NaN, want a finite reward`)
	add("span crosses", with(vector("span_ids", []int32{-1, 0, 0, 1, 1, 2, 2})), `span_ids[4] is 1 in trajectory 1, but that span began in an earlier trajectory`)
	add("span skipped", with(vector("span_ids", []int32{-1, 0, 0, 2, -1, 1, 1})), `span_ids[3] is 2, want -1 to 1: spans are numbered from 0 in the order in which they appear`)
	add("span -2", with(vector("span_ids", []int32{-2, 0, 0, 1, -1, 2, 2})), `span_ids[0] is -2, want -1 to 0: spans are numbered from 0 in the order in which they appear`)
	add("response outside spans", with(vector("span_ids", []int32{-1, -1, 0, 0, -1, 1, 1})),
		`span_ids[1] is -1 at a response token (role 1), want its span`)
	add("token -1", with(vector("token_ids", []int32{0, -1, 0, 1, 0, 1, 0})),
		`token_ids[1] is -1, want 0 to 2, for rows of 3 logits`)
	add("token beyond the vocabulary", with(vector("token_ids", []int32{0, 1, 2, 1, 0, 1, 0})),
		`token_ids[2] is 2, want 0 to 1, for rows of 2 logits`)
	return cases
}

func sliceOfOne(data any) any { return reflect.ValueOf(data).Slice(0, 1).Interface() }

func TestHostileBatches(t *testing.T) {
	for _, h := range hostileBatches() {
		t.Run(h.name, func(t *testing.T) {
			_, err := parseBatch(h.file)
			if err == nil || err.Error() != h.want {
				t.Errorf("error\n%v\nwant\n%s", err, h.want)
			}
			checkFile(t, h.file)
		})
	}
}

func TestBatch(t *testing.T) {
	file := encoded(t, goodTensors(), nil)
	checkFile(t, file)
	b := must.Get(parseBatch(file))
	v, arrays := reflect.ValueOf(b).Elem(), b.Arrays()
	for field := range v.Type().Fields() {
		if v.FieldByIndex(field.Index).IsZero() {
			t.Errorf("%s is not set", field.Name)
		}
		if !slices.ContainsFunc(arrays[:], func(a reweight.Array) bool { return a.Field == field.Name }) {
			t.Errorf("Batch.Arrays lacks %s", field.Name)
		}
	}
	got := Tensors(b)
	if len(got) != len(goodTensors()) {
		t.Errorf("%d tensors, want %d", len(got), len(goodTensors()))
	}
	for _, want := range goodTensors() {
		i := slices.IndexFunc(got, func(x Tensor) bool { return x.Name == want.Name })
		if !reflect.DeepEqual(got[i], want) {
			t.Errorf("%v, want %v", got[i], want)
		}
	}
}

// Only role and seq_offsets are required. A tensor that is no array of a batch is
// left out.
func TestSmallestBatch(t *testing.T) {
	file := encoded(t, []Tensor{
		vector("role", []uint8{0}),
		vector("Rewards", []int32{7}),
		vector("seq_offsets", []int64{0, 1}),
	}, nil)
	b := must.Get(parseBatch(file))
	want := &reweight.Batch{Role: []reweight.Role{0}, SeqOffsets: []int64{0, 1}}
	if !reflect.DeepEqual(b, want) {
		t.Errorf("%+v, want %+v", b, want)
	}
}

// A file of any alignment gives the same batch; one that is aligned shares its
// memory with it.
func TestAlignment(t *testing.T) {
	want := Tensors(batchOf(t, encoded(t, goodTensors(), nil)))
	file := encoded(t, want, nil)
	memory := make([]uint64, len(file)/8+2)
	room := unsafe.Slice((*byte)(unsafe.Pointer(&memory[0])), 8*len(memory))
	for shift := range 8 {
		moved := room[shift : shift+len(file)]
		copy(moved, file)
		b := batchOf(t, moved)
		if got := Tensors(b); !reflect.DeepEqual(got, want) {
			t.Errorf("shift %d: %v, want %v", shift, got, want)
		}
		clear(moved)
		shared := []bool{b.SeqOffsets[1] == 0, b.RefEnergy[0] == 0, b.TokenIDs[1] == 0, b.Role[1] == 0}
		aligned := func(n uintptr) bool { return uintptr(shift)%n == 0 && !bigEndian }
		want := []bool{aligned(unsafe.Alignof(int64(0))), aligned(4), aligned(4), true}
		if !slices.Equal(shared, want) {
			t.Errorf("shift %d: shares memory %v, want %v", shift, shared, want)
		}
	}
}

func batchOf(t *testing.T, file []byte) *reweight.Batch {
	t.Helper()
	return must.Get(parseBatch(file))
}

func TestReverseEach(t *testing.T) {
	raw := []byte{1, 2, 3, 4, 5, 6, 7, 8}
	reverseEach(raw, 4)
	if want := []byte{4, 3, 2, 1, 8, 7, 6, 5}; !bytes.Equal(raw, want) {
		t.Errorf("%v, want %v", raw, want)
	}
}

func TestWidening(t *testing.T) {
	names := []string{"ref_energy", "entropy", "old_logprobs", "logprobs", "ref_logprobs", "advantages", "values"}
	bf16, f16 := make([]reweight.BF16, 7), make([]reweight.F16, 7)
	bf16[1], f16[1] = 0xc048, 0xc240 // -3.125
	replace := []Tensor{vector("rewards", []reweight.F16{0, 0x3c00})}
	for i, name := range names {
		if i%2 == 0 {
			replace = append(replace, vector(name, bf16))
		} else {
			replace = append(replace, vector(name, f16))
		}
	}
	b := batchOf(t, encoded(t, with(replace...), nil))
	want := []float32{0, -3.125, 0, 0, 0, 0, 0}
	for i, got := range [][]float32{b.RefEnergy, b.Entropy, b.OldLogprobs, b.Logprobs, b.RefLogprobs, b.Advantages,
		b.Values} {
		if !slices.Equal(got, want) {
			t.Errorf("%s = %v, want %v", names[i], got, want)
		}
	}
	if !slices.Equal(b.Rewards, []float32{0, 1}) {
		t.Errorf("rewards = %v, want [0 1]", b.Rewards)
	}
}

// An error about a field names the array as files do, once, and is still the value.
func TestErrorsNameArrays(t *testing.T) {
	for _, a := range new(reweight.Batch).Arrays() {
		input := &reweight.InputError{Arg: a.Field, Index: 3, Problem: "is 1"}
		err := InFile(fmt.Errorf("somewhere: %w", input))
		if want := a.Name + "[3] is 1"; err.Error() != want {
			t.Errorf("%s, want %s", err, want)
		}
		var got *reweight.InputError
		if !errors.As(err, &got) || got != input {
			t.Errorf("%v wraps %v", err, got)
		}
	}
	if err := InFile(io.EOF); err != io.EOF {
		t.Errorf("%v, want EOF as it is", err)
	}
	b := goodTensors()
	b[slices.IndexFunc(b, func(x Tensor) bool { return x.Name == "rewards" })].Data = []float32{0, float32(math.NaN())}
	_, err := parseBatch(encoded(t, b, nil))
	var input *reweight.InputError
	if !errors.As(err, &input) || input.Arg != "Rewards" || input.Index != 1 {
		t.Errorf("File.Batch: %v is no InputError about Rewards[1]", err)
	}
}

// Tensors puts each at a multiple of its element size.
func TestTensorsAligned(t *testing.T) {
	f := must.Get(Parse(encoded(t, Tensors(batchOf(t, encoded(t, goodTensors(), nil))), nil)))
	for _, x := range f.tensors {
		if size := int64(elementBits[x.DType] / 8); x.begin%size != 0 {
			t.Errorf("%s of %s begins at byte %d", x.Name, x.DType, x.begin)
		}
	}
}

func TestRequire(t *testing.T) {
	for _, c := range []struct {
		tensors []Tensor
		require string
		want    string
	}{
		{goodTensors(), "role seq_offsets group_ids rewards span_ids token_ids ref_energy entropy old_logprobs logprobs ref_logprobs advantages values ref_logits old_logits logits", ""},
		{without("group_ids"), "role", ""},
		{without("group_ids"), "role group_ids", "group_ids is missing"},
		{without("rewards"), "rewards", "rewards is missing"},
		{without("ref_energy"), "ref_energy", ""},
		{without("ref_energy", "ref_logits"), "ref_energy", "ref_energy is missing, and cannot be derived without ref_logits"},
		{without("entropy", "old_logits"), "entropy", "entropy is missing, and cannot be derived without old_logits"},
		{without("ref_logprobs"), "ref_logprobs", ""},
		{without("ref_logprobs", "token_ids"), "ref_logprobs", "ref_logprobs is missing, and cannot be derived without token_ids"},
		{without("old_logprobs", "token_ids", "old_logits"), "old_logprobs", "old_logprobs is missing, and cannot be derived without old_logits and token_ids"},
		{without("logprobs", "logits"), "logprobs", "logprobs is missing, and cannot be derived without logits"},
		{goodTensors(), "reward", "reward is missing"},
	} {
		b := batchOf(t, encoded(t, c.tensors, nil))
		got := ""
		if err := Require(b, strings.Fields(c.require)...); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("Require(%s) = %q, want %q", c.require, got, c.want)
		}
	}
}

// maxCopied bounds all copies together.
func TestCopiesAddUp(t *testing.T) {
	x := &tensor{Info: Info{Name: "x", DType: "F32"}}
	var l loader
	if !l.takeRoom(x, maxCopied-8, "") || !l.takeRoom(x, 8, "") || l.err != nil {
		t.Errorf("no room for %d bytes: %v", maxCopied, l.err)
	}
	if l.takeRoom(x, 1, "") || l.err == nil {
		t.Errorf("room for %d bytes", l.copied)
	}
}

// testdata/README.md documents the layout of a file: every array with its dtype and
// shape.
func TestLayoutIsDocumented(t *testing.T) {
	text := must.Get(os.ReadFile("../testdata/README.md"))
	for _, a := range new(reweight.Batch).Arrays() {
		dtype, shape := "F32", "[T]"
		switch a.Data.(type) {
		case *[]reweight.Role:
			dtype = "U8"
		case *[]int64:
			dtype = "I64"
		case *[]int32:
			dtype = "I32"
		case *reweight.Logits:
			dtype, shape = "F32, BF16 or F16", "[T, V]"
		}
		switch a.Per {
		case reweight.PerTrajectory:
			shape = "[S]"
		case reweight.PerPart:
			shape = "[S, K]"
		case reweight.PerBoundary:
			shape = "[S+1]"
		case reweight.PerSpan:
			shape = "[N]"
		}
		if line := fmt.Sprintf("\n| `%s` | %s | %s | ", a.Name, dtype, shape); !bytes.Contains(text, []byte(line)) {
			t.Errorf("testdata/README.md lacks %q", line)
		}
	}
}
