package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"flag"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/seed621a2839/reweight/rollout"
)

func TestMain(m *testing.M) {
	flag.Parse()
	beam.Init() // does not return in a worker's process
	os.Exit(m.Run())
}

// writeShards writes the rollouts of testdata, whose groups have 16 trajectories, to files
// of 15, and returns their names.
func writeShards(t *testing.T) []string {
	t.Helper()
	src, err := rollout.Open("../../testdata/frozenlake.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	dir := t.TempDir()
	var names []string
	var w *rollout.Writer
	for i := 0; ; i++ {
		next, err := src.Next()
		if err != nil && err != io.EOF {
			t.Fatal(err)
		}
		if w != nil && (err == io.EOF || i%15 == 0) {
			if err := w.Close(nil); err != nil {
				t.Fatal(err)
			}
			w = nil
		}
		if err == io.EOF {
			return names
		}
		if w == nil {
			names = append(names, filepath.Join(dir, string(rune('a'+len(names)))+".safetensors"))
			if w, err = rollout.NewWriter(names[len(names)-1]); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Add(next); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBytes: the arrays that the pipeline writes have the bytes of those of the command.
func TestBytes(t *testing.T) {
	names := writeShards(t)
	folder, want := t.TempDir(), t.TempDir()
	if err := run(folder, "energy", names); err != nil {
		t.Fatal(err)
	}
	bench := filepath.Join(t.TempDir(), "bench")
	build := exec.Command("go", "build", "-o", bench, "./cmd/bench")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	score := func(args ...string) {
		t.Helper()
		if out, err := exec.Command(bench, append([]string{"score"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	merged := filepath.Join(want, "merged")
	merge := []string{"merge", "-o", merged}
	for _, name := range names {
		partial := filepath.Join(want, filepath.Base(name)+".partial")
		score("partial", "-o", partial, name)
		merge = append(merge, partial)
	}
	score(merge...)
	for _, name := range names {
		base := filepath.Base(name) + ".safetensors"
		score("apply", "-merged", merged, "-o", filepath.Join(want, base), name)
		got, want := arrays(t, filepath.Join(folder, base)), arrays(t, filepath.Join(want, base))
		if len(got) != 3 {
			t.Errorf("%s has the arrays %v", base, slices.Collect(maps.Keys(got)))
		}
		for array := range want {
			if len(want[array]) == 0 || !bytes.Equal(got[array], want[array]) {
				t.Errorf("%s: the command writes other bytes of %s", base, array)
			}
		}
	}
}

// arrays returns the bytes of each array of a safetensors file.
func arrays(t *testing.T, name string) map[string][]byte {
	t.Helper()
	file, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	begin := 8 + binary.LittleEndian.Uint64(file)
	var header map[string]struct {
		Offsets [2]int `json:"data_offsets"`
	}
	if err := json.Unmarshal(file[8:begin], &header); err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{}
	for name, array := range header {
		if name != "__metadata__" {
			all[name] = file[begin:][array.Offsets[0]:array.Offsets[1]]
		}
	}
	return all
}

// TestErrors: what is wrong with a file ends the pipeline, and says which.
func TestErrors(t *testing.T) {
	names := writeShards(t)[:2:2]
	for _, c := range []struct {
		files []string
		want  string
	}{
		{append(names, names[0]), names[0] + " is there twice"},
		{append(names, "missing.jsonl"), "missing.jsonl: no such file or directory"},
		{nil, "want -o FOLDER and the names of files"},
	} {
		if err := run(t.TempDir(), "energy", c.files); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %s", c.files, err, c.want)
		}
	}
}
