package rollout

import (
	"bytes"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/test/must"
	"pgregory.net/rapid"
)

// trajectories returns the trajectories of a batch as a source would. Their slices alias b's.
func trajectories(b *reweight.Batch) []*Trajectory {
	var all []*Trajectory
	for s := range b.Trajectories() {
		t := &Trajectory{File: "x.jsonl", Line: s + 1, Batch: partOf(b, s)}
		t.SeqOffsets = []int64{0, int64(t.Tokens())}
		if b.GroupIDs != nil {
			t.GroupIDs = b.GroupIDs[s : s+1]
		}
		t.SpanIDs = slices.Clone(t.SpanIDs)
		renumberSpans(t.SpanIDs, -spansBefore(b, s))
		all = append(all, t)
	}
	return all
}

// frozenLake returns the batch of a file of testdata. It must not be written to.
func frozenLake(t *testing.T, name string) *reweight.Batch {
	t.Helper()
	f := must.Get(OpenFile(filepath.Join("..", "testdata", name)))
	t.Cleanup(func() { f.Close() })
	return must.Get(f.Batch())
}

// expectStream adds the trajectories of a batch to a Writer, and expects the file that
// Write writes.
func expectStream(t interface {
	Helper()
	Fatal(...any)
	Errorf(string, ...any)
}, path string, b *reweight.Batch, metadata map[string]string) {
	t.Helper()
	w := must.Get(NewWriter(path))
	defer w.Abort()
	for _, one := range trajectories(b) {
		must.Do(w.Add(one))
	}
	must.Do(w.Close(metadata))
	got := must.Get(os.ReadFile(path))
	var want bytes.Buffer
	must.Do(encode(&want, Tensors(b), metadata))
	if !bytes.Equal(got, want.Bytes()) {
		t.Errorf("the file has %d bytes, and they are not the %d of Write", len(got), want.Len())
	}
}

// TestWriterRandom: batches of all kinds of arrays, with trajectories without tokens.
func TestWriterRandom(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.safetensors")
	rapid.Check(t, func(t *rapid.T) {
		b := drawBatch(t)
		if b.Entropy != nil {
			b.Entropy = drawFloats(t, "any entropy", b.Tokens()) // NaN of every kind, too
		}
		if rapid.Bool().Draw(t, "without spans") {
			b.SpanIDs, b.Anchors, b.SpanRewards = nil, nil, nil
		}
		expectStream(t, path, b, nil)
	})
}

// TestWriterErrors: what does not fit is named with both places, and nothing is left.
func TestWriterErrors(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.safetensors")
	lake := frozenLake(t, "large/frozenlake.safetensors")
	for _, c := range []struct {
		change func(a, b *Trajectory)
		want   string
	}{
		{func(a, b *Trajectory) { b.Entropy = nil }, "x.jsonl:2: entropy is missing, but it is there at x.jsonl:1"},
		{func(a, b *Trajectory) { a.Entropy = nil }, "x.jsonl:2: entropy is there, but it is missing at x.jsonl:1"},
		{func(a, b *Trajectory) { b.Rewards = nil }, "x.jsonl:2: rewards is missing, but it is there at x.jsonl:1"},
		{func(a, b *Trajectory) { a.File, b.File, b.GroupIDs = "", "", nil }, "trajectory 1: group_ids is missing, but it is there at trajectory 0"},
		{func(a, b *Trajectory) { b.File, b.Line, b.GroupIDs = "b\n", 0, nil }, `"b\n": trajectory 1: group_ids is missing, but it is there at x.jsonl:1`},
		{func(a, b *Trajectory) { b.Entropy = b.Entropy[1:] }, "x.jsonl:2: entropy has "},
		{func(a, b *Trajectory) { b.Anchors = make([]int32, 100) }, "x.jsonl:2: anchors has 100 elements, want "},
		{func(a, b *Trajectory) { a.SpanRewards = make([]float32, countSpans(a.SpanIDs)) }, "x.jsonl:2: span_rewards is missing, but it is there at x.jsonl:1"},
		{func(a, b *Trajectory) { b.Rewards = []float32{1, 2} }, "x.jsonl:2: rewards has 2 elements, want "},
		{func(a, b *Trajectory) { a.RewardParts, b.RewardParts = []float32{1, 2}, []float32{3} }, "x.jsonl:2: reward_parts has 1 elements, but 2 at x.jsonl:1"},
		{func(a, b *Trajectory) { b.RewardParts = []float32{3} }, "x.jsonl:2: reward_parts is there, but it is missing at x.jsonl:1"},
		{func(a, b *Trajectory) { b.SeqOffsets = []int64{0, 1, int64(b.Tokens())} }, "x.jsonl:2: seq_offsets is of 2 trajectories, want 1"},
		{func(a, b *Trajectory) { b.SpanIDs[len(b.SpanIDs)-1] = 100 }, "x.jsonl:2: span_ids["},
		{func(a, b *Trajectory) {
			b.RefLogits = reweight.Logits{F16: make([]reweight.F16, 75*b.Tokens()), Vocab: 75}
		}, "x.jsonl:2: ref_logits has rows of 75 f16 logits, but of 75 bf16 at x.jsonl:1"},
		{func(a, b *Trajectory) {
			b.RefLogits = reweight.Logits{BF16: make([]reweight.BF16, 80*b.Tokens()), Vocab: 80}
		}, "x.jsonl:2: ref_logits has rows of 80 bf16 logits, but of 75 bf16 at x.jsonl:1"},
	} {
		w := must.Get(NewWriter(path))
		two := trajectories(lake)[:2]
		c.change(two[0], two[1])
		must.Do(w.Add(two[0]))
		err := w.Add(two[1])
		if err == nil || !strings.HasPrefix(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("error\n%v\nwant\n%s", err, c.want)
		}
		if again := w.Add(two[0]); again != err {
			t.Errorf("then Add returns %v", again)
		}
		if again := w.Close(nil); again != err {
			t.Errorf("then Close returns %v", again)
		}
		w.Abort()
		expectFiles(t, dir)
	}
}

func TestWriterEnds(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.safetensors")
	one := trajectories(frozenLake(t, "frozenlake-small.safetensors"))[0]
	start := func() *Writer {
		return must.Get(NewWriter(path))
	}
	w := start()
	if err, want := w.Close(nil), path+": there are no tokens to write"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	w = start()
	must.Do(w.Add(one))
	if runtime.GOOS != "windows" {
		expectFiles(t, dir) // nor would there be if it were killed now
	}
	w.Abort()
	if err := w.Add(one); !errors.Is(err, errWriterClosed) {
		t.Errorf("Add after Abort: %v", err)
	}
	expectFiles(t, dir)
	w = start()
	must.Do(w.Add(one))
	if err := w.Close(map[string]string{"x": "\xff"}); err == nil || err.Error() != path+`: metadata "x": not UTF-8` {
		t.Errorf("error %v", err)
	}
	expectFiles(t, dir)
	w = start()
	must.Do(w.Add(one))
	must.Do(w.Close(nil))
	if err := w.Close(nil); !errors.Is(err, errWriterClosed) {
		t.Errorf("Close after Close: %v", err)
	}
	w.Abort()
	expectFiles(t, dir, "x.safetensors")
	for _, bad := range []string{"", dir, filepath.Join(dir, "none", "x")} {
		if _, err := NewWriter(bad); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
	if _, err := NewWriter(filepath.Join(dir, "none", "x")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
}

// TestWriterTokens: a batch counts the tokens of spans in 32 bits.
func TestWriterTokens(t *testing.T) {
	dir := t.TempDir()
	w := must.Get(NewWriter(filepath.Join(dir, "x.safetensors")))
	w.tokens = math.MaxInt32
	one := trajectories(frozenLake(t, "frozenlake-small.safetensors"))[0]
	if err := w.Add(one); err == nil || !strings.Contains(err.Error(), "write several files") {
		t.Errorf("error %v", err)
	}
	expectFiles(t, dir)
}
