package gate

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/cmd/benchgate/internal/history"
	"github.com/seed621a2839/reweight/internal/test/must"
)

// TestKeep: the file of -history gets what was measured of a commit, whatever the verdict, and nothing else.
func TestKeep(t *testing.T) {
	path := filepath.Join(t.TempDir(), "h.jsonl")
	pairs := slices.Repeat([]bench.Pair{{Base: 1000, New: 1234.567}}, 15)
	ran := func(change func(*gate), err error) error {
		g := gate{Options: Options{History: path}, report: report{Date: "2026-11-28T15:00:00Z",
			BaseCommit: strings.Repeat("a", 40), HeadCommit: strings.Repeat("b", 40), Results: []Result{
				{Package: "m", Benchmark: "BenchmarkSlower", Verdict: bench.Regression, Ratio: ratioOf(1.2),
					BaseNs: 1000,
					NewNs:  1234.567, Pairs: pairs},
				{Package: "m", Benchmark: "BenchmarkCrashes", Verdict: bench.Regression, failed: true, Pairs: pairs},
				{Package: "m", Benchmark: "BenchmarkHidden", Verdict: bench.Pass},
				{Package: "m", Benchmark: "BenchmarkFew", Verdict: bench.Inconclusive, Pairs: pairs[:5]},
			}}}
		change(&g)
		return g.finish(t.Context(), err, &outputs{stdout: io.Discard})
	}
	ran(func(g *gate) { g.History = "" }, nil)
	ran(func(g *gate) { g.changed = true }, nil)
	ran(func(g *gate) {}, errors.New("a full disk"))
	if _, err := os.Stat(path); err == nil {
		t.Fatal("something was written that is not of a commit, or not to the end")
	}
	ran(func(g *gate) {}, nil)
	all, notes, err := history.Read(path)
	if err != nil || len(notes) > 0 || len(all) != 1 || len(all[0].Points) != 1 {
		t.Fatalf("%+v, notes %q, %v", all, notes, err)
	}
	if p := all[0].Points[0]; p.Benchmark != "BenchmarkSlower" || p.Ratio != 1.2346 || p.Lo != 1.2346 ||
		p.Ns != 1234.6 ||
		p.Pairs != 15 || p.Reference != strings.Repeat("a", 40) || p.Commit != strings.Repeat("b", 40) {
		t.Errorf("%+v", p)
	}
	if err := ran(func(g *gate) { g.History = t.TempDir() }, nil); err == nil ||
		!strings.HasPrefix(err.Error(), "-history: ") {
		t.Errorf("a directory: %v", err)
	}
}

// TestCheckHistory: a file that cannot take lines, or that a report would replace, is refused before minutes of work.
func TestCheckHistory(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	must.Do(os.WriteFile("h.jsonl", []byte("x\n"), 0o666))
	must.Do(os.Symlink("h.jsonl", "link"))
	for _, c := range []struct{ history, json, want string }{
		{dir, "", "-history: "},
		{"none/h", "", "-history: "},
		{"h.jsonl", "h.jsonl", "-json and -history are the same file"},
		{"link", "h.jsonl", "-json and -history are the same file"},
		{"new", "./new", "-json and -history are the same file"},
	} {
		opt := Options{Base: "HEAD", Dir: ".", History: c.history}
		opt.Files[0] = c.json
		if err := Run(t.Context(), opt, io.Discard); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("-history %s -json %q: %v, want %s", c.history, c.json, err, c.want)
		}
	}
	if text := must.Get(os.ReadFile("h.jsonl")); string(text) != "x\n" {
		t.Errorf("the file is %q now", text)
	}
}

// TestOwnFile: the file of -history in the working tree does not make it one with changes.
func TestOwnFile(t *testing.T) {
	dir := must.Get(filepath.EvalSymlinks(t.TempDir()))
	_, commit := newRepository(t, dir)
	commit("a", "text")
	changed := func(own ...string) bool {
		return must.Get(openRepository(t.Context(), dir, "HEAD", false, own...)).changed
	}
	path := filepath.Join(dir, "sub", "h *.jsonl")
	put(path, "lines")
	if !changed() || !changed(filepath.Join(dir, "other")) || changed(path) || changed(path, filepath.Dir(dir)) {
		t.Error("it is not the file alone that does not count")
	}
	put(filepath.Join(dir, "sub", "h x.jsonl"), "another file")
	if !changed(path) {
		t.Error("another file does not count either")
	}
}
