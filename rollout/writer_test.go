package rollout

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/testdata"
	"pgregory.net/rapid"
)

// trajectories returns those of a batch as a source would. Their slices alias b's.
func trajectories(b *reweight.Batch) []*Trajectory {
	var all []*Trajectory
	spans := int32(0)
	for s := range b.Trajectories() {
		begin, end := b.SeqOffsets[s], b.SeqOffsets[s+1]
		first, last := spans, spans
		if b.SpanIDs != nil {
			last = max(first, countSpans(b.SpanIDs[begin:end]))
		}
		t := &Trajectory{File: "x.jsonl", Line: s + 1}
		to := t.Arrays()
		for i, a := range b.Arrays() {
			if a.Len() == 0 {
				continue
			}
			switch from := a.Data.(type) {
			case *[]reweight.Role:
				t.Role = (*from)[begin:end]
			case *[]int64:
				t.SeqOffsets = []int64{0, end - begin}
			case *[]int32:
				dst := to[i].Data.(*[]int32)
				switch a.Per {
				case reweight.PerTrajectory:
					*dst = (*from)[s : s+1]
				case reweight.PerSpan:
					*dst = (*from)[first:last]
				default:
					*dst = slices.Clone((*from)[begin:end])
				}
			case *[]float32:
				dst := to[i].Data.(*[]float32)
				switch a.Per {
				case reweight.PerTrajectory:
					*dst = (*from)[s : s+1]
				case reweight.PerSpan:
					*dst = (*from)[first:last]
				default:
					*dst = (*from)[begin:end]
				}
			case *reweight.Logits:
				dst, v := to[i].Data.(*reweight.Logits), int64(from.Vocab)
				dst.Vocab = from.Vocab
				switch {
				case from.BF16 != nil:
					dst.BF16 = from.BF16[begin*v : end*v]
				case from.F16 != nil:
					dst.F16 = from.F16[begin*v : end*v]
				default:
					dst.F32 = from.F32[begin*v : end*v]
				}
			}
		}
		renumberSpans(t.SpanIDs, -first)
		spans = last
		all = append(all, t)
	}
	return all
}

// frozenLake returns the batch of a file of testdata. It must not be written to.
func frozenLake(t *testing.T, name string) *reweight.Batch {
	t.Helper()
	f, err := OpenFile(filepath.Join("..", "testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	b, err := f.Batch()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// expectStream adds the trajectories of a batch to a Writer, and expects the file that
// Write writes.
func expectStream(t interface {
	Helper()
	Fatal(...any)
	Errorf(string, ...any)
}, path string, b *reweight.Batch, metadata map[string]string) {
	t.Helper()
	w, err := NewWriter(path)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for _, one := range trajectories(b) {
		if err := w.Add(one); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(metadata); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var want bytes.Buffer
	if err := encode(&want, Tensors(b), metadata); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Errorf("the file has %d bytes, and they are not the %d of Write", len(got), want.Len())
	}
}

func TestWriterEqualsWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.safetensors")
	for _, name := range []string{"frozenlake-small.safetensors", "frozenlake.safetensors"} {
		expectStream(t, path, frozenLake(t, name), map[string]string{"vocab": "[]", "entropy": "an estimate"})
		expectFiles(t, dir, "x.safetensors")
	}
}

// TestWriterRandom: batches of all kinds of arrays, with trajectories without tokens.
func TestWriterRandom(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.safetensors")
	rapid.Check(t, func(t *rapid.T) {
		b := &reweight.Batch{SeqOffsets: []int64{0}}
		span := int32(0)
		for range rapid.IntRange(1, 5).Draw(t, "trajectories") {
			for range rapid.IntRange(0, 3).Draw(t, "turns") {
				b.Role = append(b.Role, reweight.RoleMasked)
				b.SpanIDs = append(b.SpanIDs, -1)
				for _, r := range rapid.SliceOfN(rapid.SampledFrom([]reweight.Role{reweight.RoleReasoning, reweight.RoleAction}), 1, 4).Draw(t, "roles") {
					b.Role = append(b.Role, r)
					b.SpanIDs = append(b.SpanIDs, span)
				}
				span++
			}
			b.SeqOffsets = append(b.SeqOffsets, int64(len(b.Role)))
		}
		T, S := b.Tokens(), b.Trajectories()
		if T == 0 {
			t.Skip("no tokens")
		}
		floats := func(n int) []float32 {
			bits := rapid.SliceOfN(rapid.Uint32(), n, n).Draw(t, "bits")
			x := make([]float32, n)
			for i, u := range bits {
				x[i] = math.Float32frombits(u) // NaN of every kind, too
			}
			return x
		}
		for _, a := range b.Arrays() {
			if a.Len() > 0 || !rapid.Bool().Draw(t, a.Name) {
				continue
			}
			switch dst := a.Data.(type) {
			case *[]int32:
				n := map[reweight.Unit]int{reweight.PerToken: T, reweight.PerTrajectory: S, reweight.PerSpan: int(span)}[a.Per]
				*dst = rapid.SliceOfN(rapid.Int32Range(0, 2), n, n).Draw(t, "ids")
			case *[]float32:
				switch a.Per {
				case reweight.PerToken:
					*dst = floats(T)
				case reweight.PerSpan:
					*dst = floats(int(span))
				default:
					*dst = make([]float32, S)
				}
			case *reweight.Logits:
				dst.Vocab = 3
				switch rapid.IntRange(0, 2).Draw(t, "dtype") {
				case 0:
					dst.F32 = floats(3 * T)
				case 1:
					dst.BF16 = make([]reweight.BF16, 3*T)
				case 2:
					dst.F16 = make([]reweight.F16, 3*T)
				}
			}
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
	lake := frozenLake(t, "frozenlake.safetensors")
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
		{func(a, b *Trajectory) { b.SeqOffsets = []int64{0, 1, int64(b.Tokens())} }, "x.jsonl:2: seq_offsets is of 2 trajectories, want 1"},
		{func(a, b *Trajectory) { b.SpanIDs[len(b.SpanIDs)-1] = 100 }, "x.jsonl:2: span_ids["},
		{func(a, b *Trajectory) {
			b.RefLogits = reweight.Logits{F16: make([]reweight.F16, 75*b.Tokens()), Vocab: 75}
		}, "x.jsonl:2: ref_logits has F16 in rows of 75, but at x.jsonl:1 it has BF16 in rows of 75"},
		{func(a, b *Trajectory) {
			b.RefLogits = reweight.Logits{BF16: make([]reweight.BF16, 80*b.Tokens()), Vocab: 80}
		}, "x.jsonl:2: ref_logits has BF16 in rows of 80, but at x.jsonl:1 it has BF16 in rows of 75"},
	} {
		w, err := NewWriter(path)
		if err != nil {
			t.Fatal(err)
		}
		two := trajectories(lake)[:2]
		c.change(two[0], two[1])
		if err := w.Add(two[0]); err != nil {
			t.Fatal(err)
		}
		err = w.Add(two[1])
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
		w, err := NewWriter(path)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	w := start()
	if err, want := w.Close(nil), path+": there are no tokens to write"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	w = start()
	if err := w.Add(one); err != nil {
		t.Fatal(err)
	}
	w.Abort()
	if err := w.Add(one); !errors.Is(err, errWriterClosed) {
		t.Errorf("Add after Abort: %v", err)
	}
	expectFiles(t, dir)
	w = start()
	if err := w.Add(one); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(map[string]string{"x": "\xff"}); err == nil || err.Error() != path+`: metadata "x": not UTF-8` {
		t.Errorf("error %v", err)
	}
	expectFiles(t, dir)
	w = start()
	if err := w.Add(one); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(nil); err != nil {
		t.Fatal(err)
	}
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
	w, err := NewWriter(filepath.Join(dir, "x.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	w.tokens = math.MaxInt32
	one := trajectories(frozenLake(t, "frozenlake-small.safetensors"))[0]
	if err := w.Add(one); err == nil || !strings.Contains(err.Error(), "write several files") {
		t.Errorf("error %v", err)
	}
	expectFiles(t, dir)
}

// TestKilledWriter: one that is killed while it adds leaves the old file as it was, and
// where open files can lose their names, nothing else.
func TestKilledWriter(t *testing.T) {
	const variable = "ROLLOUT_TEST_WRITER"
	file, err := Parse(testdata.FrozenLakeSmall)
	if err != nil {
		t.Fatal(err)
	}
	b, err := file.Batch()
	if err != nil {
		t.Fatal(err)
	}
	if path := os.Getenv(variable); path != "" {
		w, err := NewWriter(path)
		if err != nil {
			t.Fatal(err)
		}
		all := trajectories(b)
		for range 1000 {
			for _, one := range all {
				if err := w.Add(one); err != nil {
					t.Fatal(err)
				}
			}
			fmt.Println("added") // all temporary files are there
			time.Sleep(time.Millisecond)
		}
		io.Copy(io.Discard, os.Stdin) // until it is killed, or the other process has ended
		t.Fatal("the writer was not killed")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "x")
	if err := os.WriteFile(path, []byte("old"), 0o666); err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		writer := exec.Command(program, "-test.run=^TestKilledWriter$")
		writer.Env = append(os.Environ(), variable+"="+path)
		printed, err := writer.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := writer.StdinPipe(); err != nil { // nothing comes from there
			t.Fatal(err)
		}
		if err := writer.Start(); err != nil {
			t.Skipf("this program cannot run itself, as in an emulator: %v", err)
		}
		if _, err := printed.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(rand.IntN(20_000)) * time.Microsecond)
		if err := writer.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := writer.Wait(); err == nil || writer.ProcessState.ExitCode() > 0 {
			t.Fatalf("the writer ended by itself: %v", err)
		}
		if got, err := os.ReadFile(path); string(got) != "old" {
			t.Errorf("the file holds %.20q, %v", got, err)
		}
		if runtime.GOOS != "windows" {
			expectFiles(t, dir, "x")
		}
	}
}
