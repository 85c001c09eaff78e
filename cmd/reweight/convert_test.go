package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/must"
	"github.com/seed621a2839/reweight/rollout"
	"github.com/seed621a2839/reweight/testdata"
)

// lake is the path of a file of testdata.
func lake(name string) string { return filepath.Join("..", "..", "testdata", name) }

// convert runs reweight convert, which must do it, and returns what it prints.
func convert(t *testing.T, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if status := run(append([]string{"convert"}, args...), &stdout, &stderr); status != 0 || stderr.Len() > 0 {
		t.Fatalf("reweight convert %q: status %d: %s", args, status, stderr.String())
	}
	return stdout.String()
}

// batchOf returns the batch of a file.
func batchOf(t *testing.T, path string) *reweight.Batch {
	t.Helper()
	source := must.Get(rollout.Open(path))
	t.Cleanup(func() { source.Close() })
	return must.Get(source.Batch())
}

// expectArrays wants the arrays of b to be those of want, to the bit.
func expectArrays(t *testing.T, b, want *reweight.Batch) {
	t.Helper()
	got, all := rollout.Tensors(b), rollout.Tensors(want)
	for i := range max(len(got), len(all)) {
		if i >= min(len(got), len(all)) || got[i].Name != all[i].Name || !slices.Equal(got[i].Shape, all[i].Shape) {
			t.Fatalf("%d arrays, want %d, and array %d is another", len(got), len(all), i)
		}
	}
	var x, y bytes.Buffer
	for _, c := range []struct {
		to *bytes.Buffer
		of []rollout.Tensor
	}{{&x, got}, {&y, all}} {
		path := filepath.Join(t.TempDir(), "x")
		must.Do(rollout.Write(path, c.of, nil))
		data := must.Get(os.ReadFile(path))
		c.to.Write(data)
	}
	if !bytes.Equal(x.Bytes(), y.Bytes()) {
		t.Error("the arrays differ")
	}
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
		{"frozenlake.safetensors", []string{"a.safetensors", "b.safetensors"}}, // with logits in BF16, which NumPy lacks
	} {
		want := batchOf(t, lake(c.from))
		dir, last := t.TempDir(), lake(c.from)
		for i, name := range c.to {
			next := filepath.Join(dir, string(rune('0'+i))+name)
			convert(t, last, next)
			expectArrays(t, batchOf(t, next), want)
			last = next
		}
	}
}

// TestConvertJSON: the same for programs, of two files that are one batch.
func TestConvertJSON(t *testing.T) {
	dir := t.TempDir()
	output := filepath.Join(dir, "out.safetensors")
	a, b := write(t, embedded(t)), write(t, without(embedded(t), "ref_energy"))
	var stdout, stderr bytes.Buffer
	if status := run([]string{"convert", a, b, output}, &stdout, &stderr); status != 2 || stdout.Len() > 0 ||
		!strings.Contains(stderr.String(), b+": trajectory 0: ref_energy is missing, but it is there at "+a+": trajectory 0") {
		t.Errorf("status %d, %s%s", status, stdout.String(), stderr.String())
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	b = write(t, embedded(t))
	var got struct {
		Output                              string
		Formats                             []string
		Files, Trajectories, Tokens, Groups int
		Arrays                              []struct{ Name, Kind, From string }
		Dropped, Warnings                   []string
	}
	decode(t, []byte(convert(t, "-format", "json", a, b, output)), &got)
	if got.Output != output || got.Files != 2 || got.Trajectories != 64 || got.Tokens != 2*6272 || got.Groups != 4 || len(got.Arrays) != 10 {
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
		want := slices.Concat(slices.Repeat([]int32{0}, 16), slices.Repeat([]int32{1}, 16), slices.Repeat([]int32{2}, 16), slices.Repeat([]int32{3}, 16))
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
		var stdout, stderr bytes.Buffer
		if status := run([]string{"show", path}, &stdout, &stderr); status != 0 {
			t.Fatalf("status %d: %s", status, stderr.String())
		}
		return strings.Join(regexp.MustCompile(`(?m)^ *(env|agent) .*`).FindAllString(stdout.String(), -1), "\n")
	}
	if got, want := words(lines), words(lake("frozenlake-small.safetensors")); got != want || !strings.Contains(got, "answer") {
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
	in, out, again := filepath.Join(dir, "in.safetensors"), filepath.Join(dir, "out.safetensors"), filepath.Join(dir, "again.safetensors")
	metadata := map[string]string{"vocab": `["a", "b"]`, "entropy": "estimated from top 20 log-probabilities", "entropy_width": "0.0625"}
	must.Do(rollout.Write(in, embedded(t), map[string]string{"vocab": metadata["vocab"], "note": "x", "entropy": metadata["entropy"], "entropy_width": "0.0625"}))
	if text := convert(t, in, out); !strings.Contains(text, "\nentropy       estimated from top 20 log-probabilities, bounds 0.0625 nats apart on average\n") {
		t.Errorf("printed\n%s", text)
	}
	convert(t, out, again)
	for _, path := range []string{out, again} {
		file := must.Get(rollout.OpenFile(path))
		defer file.Close()
		got, _ := json.Marshal(file.Metadata())
		if want, _ := json.Marshal(metadata); !bytes.Equal(got, want) {
			t.Errorf("metadata %s, want %s", got, want)
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
		must.Do(rollout.Write(in, embedded(t), map[string]string{"entropy": "estimated from top 5 log-probabilities", "entropy_width": c.width}))
		bounds := ", bounds " + c.width + " nats apart on average"
		if c.width == "+Inf" {
			bounds = ", without bounds"
		}
		for _, format := range []string{"table", "json"} {
			args := []string{in, "-o", out, "-format", format}
			if c.limit != "" {
				args = append(args, "-entropy-width", c.limit)
			}
			var stdout, stderr bytes.Buffer
			status := run(args, &stdout, &stderr)
			if !c.ok {
				want := "nats apart, and this one is estimated from top 5 log-probabilities" + bounds + ": -entropy-width Inf takes it\n"
				if status != 2 || stdout.Len() > 0 || !strings.HasPrefix(stderr.String(), "reweight: "+in+": aem needs an entropy whose bounds are at most ") || !strings.HasSuffix(stderr.String(), want) || strings.Count(stderr.String(), "\n") != 1 {
					t.Errorf("%+v: status %d, %q", c, status, stderr.String())
				}
				continue
			}
			if status != 0 {
				t.Fatalf("%+v: %s", c, stderr.String())
			}
			if format == "table" {
				if want := "\nentropy is estimated from top 5 log-probabilities" + bounds + ".\n"; !strings.Contains(stdout.String(), want) {
					t.Errorf("%+v: no %q in\n%s", c, want, stdout.String())
				}
				continue
			}
			var s struct {
				Estimates []struct {
					Name, Kind, From string
					Width            *float64
				}
			}
			if err := json.Unmarshal(stdout.Bytes(), &s); err != nil || len(s.Estimates) != 1 || s.Estimates[0].Name != "entropy" || s.Estimates[0].Kind != "estimated" ||
				s.Estimates[0].From != "top 5 log-probabilities" || (s.Estimates[0].Width == nil) != (c.width == "+Inf") {
				t.Errorf("%+v: %v in\n%s", c, err, stdout.String())
			}
			file := must.Get(rollout.OpenFile(out))
			if m := file.Metadata(); m["entropy"] != "estimated from top 5 log-probabilities" || m["entropy_width"] != c.width {
				t.Errorf("%+v: metadata %q", c, m)
			}
			file.Close()
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
	if !got.GivenAdvantages || want.GivenAdvantages || got.Bottleneck.All != nil {
		t.Errorf("given_advantages %v and %v, correlation %v", got.GivenAdvantages, want.GivenAdvantages, got.Bottleneck.All)
	}
	var stdout, stderr bytes.Buffer
	if status := run([]string{path}, &stdout, &stderr); status != 0 ||
		!strings.Contains(stdout.String(), "\nThere are no rewards: the advantages are those of the input, and not of GRPO.\n") {
		t.Errorf("status %d, %s%s", status, stdout.String(), stderr.String())
	}
	for i, role := range b.Role {
		if role != reweight.RoleMasked {
			b.Advantages[i] = float32(math.NaN())
			break
		}
	}
	stderr.Reset()
	if status := run([]string{write(t, rollout.Tensors(&b))}, &stdout, &stderr); status != 2 ||
		!strings.Contains(stderr.String(), "rollouts.safetensors: advantages[") || !strings.Contains(stderr.String(), "] is NaN at a response token") {
		t.Errorf("status %d, %s", status, stderr.String())
	}
}

func marshal(t *testing.T, v any) string {
	t.Helper()
	text := must.Get(json.Marshal(v))
	return string(text)
}

// primeLines are the trajectories of a batch as prime-rl's trainer exports them, with
// their rewards and groups added, and also with what no reader knows.
func primeLines(t *testing.T, b *reweight.Batch) string {
	t.Helper()
	var text strings.Builder
	for s := range b.Trajectories() {
		begin, end := b.SeqOffsets[s], b.SeqOffsets[s+1]
		n := int(end - begin)
		mask, zeros := make([]int, n), make([]float32, n)
		for i, role := range b.Role[begin:end] {
			if role != reweight.RoleMasked {
				mask[i] = 1
			}
		}
		fmt.Fprintf(&text, `{"unknown": {"x" : 1.50e0}, "token_ids": %s, "loss_mask": %s,  "advantages": %s, "inference_logprobs": %s, "trainer_logprobs": %s, "entropy": %s, "reward": %v, "group_id": "g%d", "z": "}\u00e9" }`+"\n",
			marshal(t, b.TokenIDs[begin:end]), marshal(t, mask), marshal(t, zeros), marshal(t, b.OldLogprobs[begin:end]), marshal(t, b.Logprobs[begin:end]), marshal(t, b.Entropy[begin:end]),
			b.Rewards[s], b.GroupIDs[s])
	}
	return text.String()
}

// TestConvertDerived: what is printed of a file that lacks much.
func TestConvertDerived(t *testing.T) {
	t.Chdir(t.TempDir())
	file := must.Get(rollout.Parse(testdata.FrozenLakeSmall))
	b := must.Get(file.Batch())
	lines := strings.ReplaceAll(primeLines(t, b), `"entropy"`, `"entropies\u001b"`)
	must.Do(os.WriteFile("in.jsonl", []byte(lines), 0o666))
	const want = `out.safetensors: 6,272 tokens in 32 trajectories of 4 groups, from 1 file of prime-rl token_exports

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
		var stdout, stderr bytes.Buffer
		status := run([]string{"convert", "-surprisal-entropy", "in.jsonl", out}, &stdout, &stderr)
		if want := "reweight convert: " + out + ": entropy is an estimate, and only .safetensors has a place that says so\n"; status != 2 || stderr.String() != want {
			t.Errorf("status %d, %q, want %q", status, stderr.String(), want)
		}
	}
}
