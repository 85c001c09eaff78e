package rollout

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
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
	f, err := OpenFile("../testdata/frozenlake-small.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want, err := f.Batch()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := WriteNPZ(filepath.Join(dir, "go.npz"), Tensors(want)); err != nil {
		t.Fatal(err)
	}
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
	for _, name := range []string{"go", "plain", "deflated", "big", "wide"} {
		data, err := os.ReadFile(filepath.Join(dir, name+".npz"))
		if err != nil {
			t.Fatal(err)
		}
		records, err := readNPZ(data)
		if err != nil {
			t.Fatal(err)
		}
		if got := joined(t, records); !reflect.DeepEqual(got, want) {
			t.Errorf("%s.npz holds another batch", name)
		}
		if records[0].warnings != nil {
			t.Errorf("%s.npz: warnings %q", name, records[0].warnings)
		}
	}
}

// TestNumPyRefused reads what NumPy writes and a batch cannot hold.
func TestNumPyRefused(t *testing.T) {
	dir := t.TempDir()
	python(t, dir, `
import numpy as np
role, off = np.array([0, 1, 2], np.uint8), np.array([0, 3])
def save(name, **more):
    np.savez_compressed(name, role=role, seq_offsets=off, **more)
save("object", entropy=np.array([1, 2, None]))
save("columns", logits=np.asfortranarray(np.zeros((3, 2), np.float32)))
save("structured", entropy=np.zeros(3, [("x", "f4"), ("y", "f4")]))
save("text", token_ids=np.array(["a", "b", "c"]))
save("scalar", rewards=np.float32(1))
save("unused", tags=np.array([{}]), rewards=np.array([True]))
`)
	for name, want := range map[string]string{
		"object":     "x.npz: entropy: has the dtype object, which is a pickle and is not read: save an array of numbers",
		"columns":    "x.npz: logits: is stored column by column (fortran_order), want numpy.ascontiguousarray of it",
		"structured": "x.npz: entropy: is a structured array, want numbers",
		"text":       `x.npz: token_ids: has the dtype "<U1", want bool, an integer of 8 to 64 bits, float16, float32 or float64`,
		"scalar":     "x.npz: rewards has the shape [], want [1]",
		"unused":     "x.npz: rewards has the dtype bool, want numbers",
	} {
		data, err := os.ReadFile(filepath.Join(dir, name+".npz"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := readNPZ(data); err == nil || err.Error() != want {
			t.Errorf("%s: error\n%v\nwant\n%s", name, err, want)
		}
	}
}
