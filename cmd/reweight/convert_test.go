package main

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/found"
	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/rollout"
	"github.com/seed621a2839/reweight/testdata"
)

// lake is the path of a file of testdata.
func lake(name string) string { return filepath.Join("..", "..", "testdata", name) }

// convert runs reweight convert, and returns what it prints.
func convert(t *testing.T, args ...string) string {
	t.Helper()
	return printed(t, append([]string{"convert"}, args...)...)
}

// batchOf returns the batch of a file.
func batchOf(t *testing.T, path string) *reweight.Batch {
	t.Helper()
	source := must.Get(rollout.Open(path))
	t.Cleanup(func() { source.Close() })
	return must.Get(source.Batch())
}

// metadataOf returns the metadata of a safetensors file.
func metadataOf(t *testing.T, path string) map[string]string {
	t.Helper()
	file := must.Get(rollout.OpenFile(path))
	defer file.Close()
	return file.Metadata()
}

// TestConvertTable: what is printed for people.
func TestConvertTable(t *testing.T) {
	t.Chdir(t.TempDir())
	must.Do(os.WriteFile("in.safetensors", testdata.FrozenLakeSmall, 0o666))
	const want = `out.safetensors: 6,272 tokens in 32 trajectories of 4 groups, from 1 file of safetensors

array         where it comes from
-----------------------------------
role          given
group_ids     given
rewards       given
span_ids      given
token_ids     given
ref_energy    given
entropy       given
old_logprobs  given
logprobs      given
ref_logprobs  given

Dropped: __metadata__.environment, __metadata__.note
`
	if got := convert(t, "in.safetensors", "out.safetensors"); got != want {
		t.Errorf("\n%s\nwant\n%s", got, want)
	}
}

// TestConvertRoundTrip: from format to format, and no bit changes.
func TestConvertRoundTrip(t *testing.T) {
	for _, c := range []struct {
		from string
		to   []string
	}{
		{"frozenlake-small.safetensors", []string{"a.safetensors", "a.jsonl", "b.jsonl", "a.npz", "c.jsonl", "b.npz", "b.safetensors"}},
		{"large/frozenlake.safetensors", []string{"a.safetensors", "b.safetensors"}}, // with logits in BF16, which NumPy lacks
	} {
		arrays := func(path string) []byte { return must.Get(os.ReadFile(write(t, rollout.Tensors(batchOf(t, path))))) }
		dir, last := t.TempDir(), lake(c.from)
		for i, name := range c.to {
			next := filepath.Join(dir, string(rune('0'+i))+name)
			convert(t, last, next)
			if !bytes.Equal(arrays(next), arrays(last)) {
				t.Errorf("the arrays of %s and %s differ", next, last)
			}
			last = next
		}
	}
}

// TestConvertJSON: the same for programs, of two files that are one batch.
func TestConvertJSON(t *testing.T) {
	dir := t.TempDir()
	output := filepath.Join(dir, "out.safetensors")
	a, b := write(t, embedded(t)), write(t, without(embedded(t), "ref_energy"))
	refused(t, b+": trajectory 0: ref_energy is missing, but it is there at "+a+": trajectory 0", "convert",
		a, b, output)
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	b = write(t, embedded(t))
	var got struct {
		Output string
		found.Report
	}
	decode(t, []byte(convert(t, "-format", "json", a, b, output)), &got)
	if got.Output != output || got.Files != 2 || got.Trajectories != 64 || got.Tokens != 2*6272 || got.Groups != 4 ||
		len(got.Arrays) != 10 {
		t.Errorf("%+v", got)
	}
	if n := batchOf(t, output).Tokens(); n != 2*6272 {
		t.Errorf("%d tokens", n)
	}
}

// TestConvertGroupSize: groups made by counting have the same numbers in every format.
func TestConvertGroupSize(t *testing.T) {
	dir := t.TempDir()
	second := write(t, embedded(t))
	for _, name := range []string{"a.safetensors", "a.npz", "a.jsonl"} {
		path := filepath.Join(dir, name)
		convert(t, "-group-size", "16", lake("frozenlake-small.safetensors"), second, path)
		want := slices.Concat(slices.Repeat([]int32{0}, 16), slices.Repeat([]int32{1}, 16),
			slices.Repeat([]int32{2}, 16), slices.Repeat([]int32{3}, 16))
		if got := batchOf(t, path).GroupIDs; !slices.Equal(got, want) {
			t.Errorf("%s has the groups %d", name, got)
		}
	}
	text := must.Get(os.ReadFile(filepath.Join(dir, "a.jsonl")))
	for i, line := range slices.Collect(bytes.Lines(text)) {
		if want := fmt.Sprintf(`"group_id":%d,`, i/16); !bytes.Contains(line, []byte(want)) {
			t.Errorf("line %d lacks %s", i+1, want)
		}
	}
}

// TestConvertTexts: lines have the texts of tokens where the metadata of the input has the
// vocabulary, so that reweight show prints words of both.
func TestConvertTexts(t *testing.T) {
	dir := t.TempDir()
	lines := filepath.Join(dir, "a.jsonl")
	convert(t, lake("frozenlake-small.safetensors"), lines)
	words := func(path string) string {
		return strings.Join(regexp.MustCompile(`(?m)^ *(env|agent) .*`).FindAllString(printed(t, "show", path), -1),
			"\n")
	}
	if got, want := words(lines), words(lake("frozenlake-small.safetensors")); got != want ||
		!strings.Contains(got, "answer") {
		t.Errorf("\n%s\nwant\n%s", got, want)
	}
	in, out := filepath.Join(dir, "in.safetensors"), filepath.Join(dir, "b.jsonl")
	if err := rollout.Write(in, embedded(t), map[string]string{"vocab": `["a", "b"]`}); err != nil { // too few
		t.Fatal(err)
	}
	convert(t, in, out)
	if text, err := os.ReadFile(out); err != nil || bytes.Contains(text, []byte("texts")) {
		t.Errorf("texts of other tokens, or %v", err)
	}
}

// TestConvertMetadata: the vocabulary and the marks of estimates stay.
func TestConvertMetadata(t *testing.T) {
	dir := t.TempDir()
	in, out, again := filepath.Join(dir, "in.safetensors"), filepath.Join(dir, "out.safetensors"),
		filepath.Join(dir, "again.safetensors")
	metadata := map[string]string{"vocab": `["a", "b"]`, "entropy": "estimated from top 20 log-probabilities",
		"entropy_width": "0.0625"}
	more := maps.Clone(metadata)
	more["note"] = "x"
	must.Do(rollout.Write(in, embedded(t), more))
	if text := convert(t, in, out); !strings.Contains(text, "\nentropy       estimated from top 20 log-probabilities, bounds 0.0625 nats apart on average\n") {
		t.Errorf("printed\n%s", text)
	}
	convert(t, out, again)
	for _, path := range []string{out, again} {
		if got := metadataOf(t, path); !maps.Equal(got, metadata) {
			t.Errorf("metadata %q, want %q", got, metadata)
		}
	}
}

// TestEstimates: an entropy that is an estimate is marked in all that reweight
// prints and writes, and refused if its bounds are too wide.
func TestEstimates(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		width, limit string
		ok           bool
	}{
		{"0.05", "", true}, {"0.1", "", true}, {"0.2", "", false}, {"0.2", "0.2", true}, {"0.05", "0.04", false}, {"+Inf", "", false}, {"+Inf", "1e300", false}, {"+Inf", "Inf", true},
	} {
		in, out := filepath.Join(dir, "in.safetensors"), filepath.Join(dir, "out.safetensors")
		must.Do(rollout.Write(in, embedded(t),
			map[string]string{"entropy": "estimated from top 5 log-probabilities", "entropy_width": c.width}))
		bounds := ", bounds " + c.width + " nats apart on average"
		if c.width == "+Inf" {
			bounds = ", without bounds"
		}
		args := []string{in, "-o", out}
		if c.limit != "" {
			args = append(args, "-entropy-width", c.limit)
		}
		if !c.ok {
			refused(t, "reweight: "+in+": aem needs an entropy whose bounds are at most |nats apart, and this one is "+
				"estimated from top 5 log-probabilities"+bounds+": -entropy-width Inf takes it\n", args...)
			continue
		}
		if text, want := printed(t, args...),
			"\nentropy is estimated from top 5 log-probabilities"+bounds+".\n"; !strings.Contains(text, want) {
			t.Errorf("%+v: no %q in\n%s", c, want, text)
		}
		s := runJSON(t, args...)
		if len(s.Estimates) != 1 || s.Estimates[0].Name != "entropy" || s.Estimates[0].Kind != "estimated" ||
			s.Estimates[0].From != "top 5 log-probabilities" || (s.Estimates[0].Width == nil) != (c.width == "+Inf") {
			t.Errorf("%+v: %+v", c, s.Estimates)
		}
		if m := metadataOf(t, out); m["entropy"] != "estimated from top 5 log-probabilities" ||
			m["entropy_width"] != c.width {
			t.Errorf("%+v: metadata %q", c, m)
		}
	}
}

// TestGivenAdvantages: they take the place of those of GRPO where there are no rewards,
// and that is said.
func TestGivenAdvantages(t *testing.T) {
	b := *batchOf(t, lake("frozenlake-small.safetensors"))
	b.Advantages = make([]float32, b.Tokens())
	must.Do(new(reweight.Workspace).GRPO(b.Advantages, &b, reweight.DefaultGRPO))
	want := runJSON(t, write(t, rollout.Tensors(&b)))
	b.Rewards = nil
	for i, role := range b.Role {
		if role == reweight.RoleMasked {
			b.Advantages[i] = float32(math.NaN())
		}
	}
	path := write(t, rollout.Tensors(&b))
	got := runJSON(t, path)
	if !reflect.DeepEqual(got.Schemes, want.Schemes) {
		t.Errorf("%+v, want %+v", got.Schemes, want.Schemes)
	}
	if !got.GivenAdvantages || want.GivenAdvantages || !math.IsNaN(float64(got.Bottleneck.All)) {
		t.Errorf("given_advantages %v and %v, correlation %v", got.GivenAdvantages, want.GivenAdvantages,
			got.Bottleneck.All)
	}
	if text := printed(t, path); !strings.Contains(text, "\nThere are no rewards: the advantages come from the input, and not from GRPO.\n") {
		t.Error(text)
	}
	for i, role := range b.Role {
		if role != reweight.RoleMasked {
			b.Advantages[i] = float32(math.NaN())
			break
		}
	}
	refused(t, "rollouts.safetensors: advantages[|] is NaN at a response token", write(t, rollout.Tensors(&b)))
}

// TestConvertDerived: what is printed of a file that lacks much, and has what no reader knows.
func TestConvertDerived(t *testing.T) {
	t.Chdir(t.TempDir())
	const line = `{"unknown": {"x" : 1.50e0}, "token_ids": [1, 6, 3, 7], "loss_mask": [0, 1, 1, 1],  "advantages": [0, 0, 0, 0], ` +
		`"inference_logprobs": [0, -1, -2, -1], "trainer_logprobs": [0, -1, -2, -1], "entropies\u001b": [0, 1, 1, 1], ` +
		`"reward": 1, "group_id": "g0", "z": "}\u00e9" }` + "\n"
	must.Do(os.WriteFile("in.jsonl", []byte(line+line), 0o666))
	const want = `out.safetensors: 8 tokens in 2 trajectories of 1 group, from 1 file of prime-rl token_exports

array         where it comes from
--------------------------------------------------------
role          derived from mask and tags
group_ids     given
rewards       given
span_ids      derived from mask
token_ids     given
entropy       estimated from surprisal, without bounds
old_logprobs  given
logprobs      given
advantages    given

Dropped: entropies\x1b, unknown, z
`
	got := convert(t, "-surprisal-entropy", "-action-open", "6", "-action-close", "7", "in.jsonl", "out.safetensors")
	if got != want {
		t.Errorf("\n%s\nwant\n%s", got, want)
	}
	for _, out := range []string{"out.npz", "out.jsonl"} {
		want := "reweight convert: " + out +
			": entropy is an estimate, and only .safetensors has a place that says so\n"
		refused(t, want, "convert", "-surprisal-entropy", "in.jsonl", out)
	}
}

// What the format of the output has no place for is listed.
func TestConvertDropsTexts(t *testing.T) {
	t.Chdir(t.TempDir())
	must.Do(os.WriteFile("in.safetensors", testdata.FrozenLakeSmall, 0o666))
	must.Do(os.WriteFile("texts.jsonl", []byte(`{"role": [0, 2], "texts": ["a", "b"], "x": 1}`+"\n"), 0o666))
	for _, c := range []struct{ in, out, want string }{
		{"texts.jsonl", "out.safetensors", "Dropped: texts, x\n"}, {"texts.jsonl", "out.npz", "Dropped: texts, x\n"}, {"texts.jsonl", "out.jsonl", "Dropped: x\n"},
		{"in.safetensors", "out.npz", "Dropped: __metadata__.environment, __metadata__.note, __metadata__.vocab\n"},
		{"in.safetensors", "out.jsonl", "Dropped: __metadata__.environment, __metadata__.note\n"},
	} {
		if got := convert(t, c.in, c.out); !strings.Contains(got, c.want) {
			t.Errorf("%s to %s:\n%s\nwant in it\n%s", c.in, c.out, got, c.want)
		}
	}
}

// Tags are found in the bytes of tokens that end within a character, after lines of JSON too.
func TestConvertBytes(t *testing.T) {
	t.Chdir(t.TempDir())
	must.Do(os.WriteFile("in.jsonl", []byte(`{"reward": 1, "choices": [{"logprobs": {"content": [`+
		`{"token": "?", "logprob": -1, "bytes": [227, 128]}, {"token": "?", "logprob": -1, "bytes": [144]}, {"token": "up", "logprob": -1}, {"token": "\u3011", "logprob": -1}]}}]}`), 0o666))
	convert(t, "in.jsonl", "lines.jsonl")
	for _, name := range []string{"in.jsonl", "lines.jsonl"} {
		convert(t, "-action-tags", "\u3010,\u3011", name, "out.safetensors")
		if got, want := batchOf(t, "out.safetensors").Role, []reweight.Role{1, 1, 2, 1}; !slices.Equal(got, want) {
			t.Errorf("%s: roles %d, want %d", name, got, want)
		}
	}
}
