package score_test

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/rollout"
	"github.com/seed621a2839/reweight/score"
)

// shards writes the rollouts of testdata to files of some trajectories each, and returns
// their names.
func shards(t *testing.T, each int) []string {
	t.Helper()
	src, err := rollout.Open("../testdata/frozenlake.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	dir := t.TempDir()
	var names []string
	var w *rollout.Writer
	for s := 0; ; s++ {
		tr, err := src.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if s%each == 0 {
			if w != nil {
				if err := w.Close(nil); err != nil {
					t.Fatal(err)
				}
			}
			names = append(names, filepath.Join(dir, fmt.Sprintf("%03d.safetensors", s)))
			if w, err = rollout.NewWriter(names[len(names)-1]); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Add(tr); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(nil); err != nil {
		t.Fatal(err)
	}
	return names
}

func partialOf(t *testing.T, names ...string) *score.Partial {
	t.Helper()
	src, err := rollout.Open(names...)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	p, err := score.Of(src, score.Default)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// scores returns all weights and advantages.
func scores(t *testing.T, merged *score.Partial, names ...string) (weights, advantages []float32) {
	t.Helper()
	src, err := rollout.Open(names...)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	err = score.Apply(src, merged, score.Default, func(s score.Scored) error {
		weights = append(weights, s.Weights...)
		advantages = append(advantages, s.Advantages...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return weights, advantages
}

// TestFiles: files, of which groups lie in several, give what one file gives.
func TestFiles(t *testing.T) {
	const whole = "../testdata/frozenlake.safetensors"
	one := partialOf(t, whole)
	weights, advantages := scores(t, one, whole)
	names := shards(t, 7)
	var m score.Merger
	for _, name := range slices.Backward(names) {
		if err := m.Add(partialOf(t, name)); err != nil {
			t.Fatal(err)
		}
	}
	merged, err := m.Merged()
	if err != nil {
		t.Fatal(err)
	}
	w, a := scores(t, merged, names...)
	if !slices.Equal(w, weights) || !slices.Equal(a, advantages) {
		t.Error("the scores depend on the split")
	}
	if n := merged.Totals(); n.Files != len(names) || n.Trajectories != 128 || n.Tokens != 18308 || n.Actions != 387 || n.Spans != 391 || n.Groups != 8 {
		t.Errorf("%+v", n)
	}
	m = score.Merger{}
	if err := errors.Join(m.Add(merged), m.Add(partialOf(t, names[3]))); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Merged(); err == nil || !strings.HasSuffix(err.Error(), ".safetensors is there twice") {
		t.Errorf("error %v", err)
	}
}
