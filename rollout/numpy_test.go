package rollout

import (
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/internal/test/must"
)

// python runs a program with NumPy, in the directory dir.
func python(t *testing.T, dir, program string) string {
	t.Helper()
	if exec.Command("python3", "-c", "import numpy").Run() != nil {
		t.Skip("there is no python3 with NumPy")
	}
	command := exec.Command("python3", "-c", program)
	command.Dir = dir
	var stderr strings.Builder
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	return string(out)
}

// TestNumPyReads lets NumPy read what WriteNPZ writes, and write it again in its ways.
func TestNumPyReads(t *testing.T) {
	f := must.Get(OpenFile("../testdata/frozenlake-small.safetensors"))
	defer f.Close()
	want := must.Get(f.Batch())
	dir := t.TempDir()
	must.Do(WriteNPZ(filepath.Join(dir, "go.npz"), Tensors(want)))
	out := python(t, dir, `
import numpy as np
data = dict(np.load("go.npz"))
print(" ".join(f"{k}:{v.dtype}{list(v.shape)}" for k, v in sorted(data.items())))
np.savez("plain.npz", **data)
np.savez_compressed("deflated.npz", **data)
np.savez_compressed("big.npz", **{k: v.astype(v.dtype.newbyteorder(">")) for k, v in data.items()})
np.savez("wide.npz", **{k: v.astype(np.int64 if v.dtype.kind in "iu" else np.float64) for k, v in data.items()})
`)
	const arrays = "entropy:float32[6272] group_ids:int32[32] logprobs:float32[6272] old_logprobs:float32[6272] ref_energy:float32[6272] " +
		"ref_logprobs:float32[6272] rewards:float32[32] role:uint8[6272] seq_offsets:int64[33] span_ids:int32[6272] token_ids:int32[6272]"
	if got := strings.TrimSpace(out); got != arrays {
		t.Errorf("NumPy reads\n%s\nwant\n%s", got, arrays)
	}
	for _, name := range []string{"go.npz", "plain.npz", "deflated.npz", "big.npz", "wide.npz"} {
		s := must.Get(Open(filepath.Join(dir, name)))
		if got := must.Get(s.Batch()); !reflect.DeepEqual(got, want) {
			t.Errorf("%s holds another batch", name)
		}
		if w := s.Report().Warnings; w != nil {
			t.Errorf("%s: warnings %q", name, w)
		}
		must.Do(s.Close())
	}
}
