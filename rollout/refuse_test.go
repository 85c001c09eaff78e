package rollout

import (
	"archive/zip"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/internal/test/must"
)

// TestRefused opens files of formats that are known and not read.
func TestRefused(t *testing.T) {
	const (
		texts  = ", without token ids, masks and log-probabilities: https://github.com/seed621a2839/reweight/blob/main/docs/formats.md has the lines that make the trainer write them"
		pickle = " could run any program when it is read, and is not read: Python's reweight.rollout converts the pickles of slime and verl (docs/engines.md)"
	)
	var torch bytes.Buffer
	z := zip.NewWriter(&torch)
	for _, name := range []string{"train_3/data.pkl", "train_3/version"} {
		must.Get(z.Create(name))
	}
	must.Do(z.Close())
	weights := encoded(t, []Tensor{vector("model.norm.weight", []float32{1})}, nil)
	for _, c := range []struct{ name, content, want string }{
		{"17.jsonl", `{"input": "a, b", "output": "c", "gts": null, "score": 1.0, "step": 17, "uid": "0-a"}` + "\n", "texts that verl (trainer.rollout_data_dir) dumps" + texts + ", and Python's reweight.rollout.from_text makes tokens of the texts"},
		{"0.jsonl", `{"task_id": "0", "sample_idx": 0, "seqlen": 9, "prompt_len": 4, "head_version": 0, "tail_version": 0, "reward": 1.0, "prompt": "a", "completion": "b"}`, "texts that AReaL (rollout.dump_to_file) dumps" + texts},
		{"completions_00010.parquet", "PAR1\x15\x04", parquetInPython},
		{"batch.pkl", "\x80\x04\x95\x10\x00\x00\x00", "a pickle" + pickle},
		{"old.pt", "\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.", "a pickle" + pickle},
		{"train_3.pt", torch.String(), "a file of torch.save holds a pickle, which" + pickle},
		{"role.npy", string(npy[uint8]("role", "|u1", 1).data), "one array alone, want a batch: save all arrays by numpy.savez"},
		{"model.safetensors", string(weights), `holds no rollouts: neither role nor seq_offsets is there, but "model.norm.weight" is, as in the weights of a model`},
	} {
		path := filepath.Join(t.TempDir(), c.name)
		must.Do(os.WriteFile(path, []byte(c.content), 0o666))
		s := must.Get(Open(path))
		_, err := s.Next()
		if want := path + ": " + c.want; err == nil || err.Error() != want {
			t.Errorf("error\n%v\nwant\n%s", err, want)
		} else if strings.Contains(err.Error(), "\n") {
			t.Errorf("more than one line: %q", err)
		}
		s.Close()
	}
}

// A text or a header that only looks like one that is refused is something else.
func TestNotRefused(t *testing.T) {
	for _, head := range []string{"\x80\x01", "PAR"} {
		for _, f := range refusedFormats {
			if f.begins != nil && f.begins([]byte(head)) {
				t.Errorf("%q is taken for %s", head, f.name)
			}
		}
	}
	for _, f := range refusedFormats {
		if f.fields != nil && f.fields(fields{"input": true, "output": true, "score": true, "step": true,
			"token_ids": true, "task_id": true, "sample_idx": true, "seqlen": true, "prompt": true,
			"completion": true}) {
			t.Errorf("a line with token_ids is taken for %s", f.name)
		}
	}
}
