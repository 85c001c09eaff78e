package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/internal/must"
	"github.com/seed621a2839/reweight/internal/scorefiles"
	"github.com/seed621a2839/reweight/internal/testprogram"
	"github.com/seed621a2839/reweight/rollout"
)

// runScore runs a command that succeeds, and returns what it prints.
func runScore(t *testing.T, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if status := run(args, &stdout, &stderr); status != 0 || stderr.Len() > 0 {
		t.Fatalf("reweight %q: status %d: %s", args, status, stderr.String())
	}
	return stdout.String()
}

// refused fails unless a command ends with status 2 and one line that has the text.
func refused(t *testing.T, want string, args ...string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	status := run(args, &stdout, &stderr)
	if s := stderr.String(); status != 2 || strings.Count(s, "\n") != 1 || !strings.Contains(s, want) || stdout.Len() > 0 {
		t.Errorf("reweight %q: status %d, stderr %q, want %q; printed %q", args, status, s, want, stdout.String())
	}
}

// lakeShards writes the trajectories of testdata, n in a file, and returns the names of the
// files.
func lakeShards(t *testing.T, n int) []string {
	t.Helper()
	src := must.Get(rollout.Open(filepath.Join("..", "..", "testdata", "frozenlake.safetensors")))
	defer src.Close()
	dir := t.TempDir()
	var names []string
	var w *rollout.Writer
	end := func() {
		if w == nil {
			return
		}
		must.Do(w.Close(nil))
	}
	for s := 0; ; s++ {
		tr, err := src.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if s%n == 0 {
			end()
			names = append(names, filepath.Join(dir, fmt.Sprintf("shard-%03d.safetensors", s/n)))
			if w, err = rollout.NewWriter(names[len(names)-1]); err != nil {
				t.Fatal(err)
			}
		}
		must.Do(w.Add(tr))
	}
	end()
	return names
}

// contents returns the files of a directory whose names end so.
func contents(t *testing.T, dir, suffix string) map[string]string {
	t.Helper()
	entries := must.Get(os.ReadDir(dir))
	all := map[string]string{}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), suffix) {
			data := must.Get(os.ReadFile(filepath.Join(dir, e.Name())))
			all[e.Name()] = string(data)
		}
	}
	return all
}

// tensorsOf returns the tensors of scores, joined in the order of the files.
func tensorsOf(t *testing.T, names ...string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, name := range names {
		data := must.Get(os.ReadFile(name))
		var header map[string]json.RawMessage
		n := 8 + int(data[0]) + int(data[1])<<8
		decode(t, data[8:n], &header)
		for tensor, text := range header {
			if tensor == "__metadata__" || tensor == "seq_offsets" {
				continue
			}
			var is struct {
				DType   string
				Offsets [2]int `json:"data_offsets"`
			}
			must.Do(json.Unmarshal(text, &is))
			all[tensor] += string(data[n:][is.Offsets[0]:is.Offsets[1]])
		}
	}
	return all
}

// TestScorePieces: the three commands, whatever the split, give what reweight gives
// in a directory.
func TestScorePieces(t *testing.T) {
	whole := filepath.Join("..", "..", "testdata", "frozenlake.safetensors")
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	runScore(t, whole, "-o", in("all"), "-scope", "batch", "-beta", "0.7")
	want := tensorsOf(t, in("all/frozenlake.safetensors.safetensors"))
	if len(want["weights"]) != 4*18308 || len(want["advantages"]) != 4*18308 || len(want) != 2 {
		t.Fatalf("%d tensors of %d and %d bytes", len(want), len(want["weights"]), len(want["advantages"]))
	}
	shards := lakeShards(t, 19)
	var partials []string
	for i, name := range shards {
		partials = append(partials, in(fmt.Sprint("partial-", i)))
		if printed := runScore(t, "score", "partial", "-scope", "batch", "-o", partials[i], name); printed != "" {
			t.Errorf("printed %q", printed)
		}
	}
	write := func(name, text string) string {
		must.Do(os.WriteFile(in(name), []byte(text), 0o666))
		return in(name)
	}
	left := write("left", runScore(t, append([]string{"score", "merge"}, partials[:3]...)...))
	merged := write("merged", runScore(t, append([]string{"score", "merge", left}, partials[3:]...)...))
	if once := runScore(t, append([]string{"score", "partial"}, shards...)...); once != contents(t, dir, "merged")["merged"] {
		t.Error("the statistics of all files at once differ from merged ones")
	}
	var outputs []string
	for i, name := range shards {
		outputs = append(outputs, in(fmt.Sprint(i, ".safetensors")))
		runScore(t, "score", "apply", "-merged", merged, "-scope", "batch", "-beta", "0.7", name, "-o", outputs[i])
	}
	if got := tensorsOf(t, outputs...); !maps.Equal(got, want) {
		t.Error("scores depend on the split")
	}
	f := must.Get(rollout.OpenFile(outputs[1]))
	defer f.Close()
	var shapes []string
	for _, tensor := range f.Tensors() {
		shapes = append(shapes, fmt.Sprint(tensor.Name, tensor.DType, len(tensor.Shape)))
	}
	if got := fmt.Sprint(shapes); got != "[seq_offsetsI641 weightsF321 advantagesF321]" {
		t.Errorf("the output has %s", got)
	}

	refused(t, "is there twice", "score", "merge", left, partials[0])
	refused(t, "not of this file, or it has changed", "score", "apply", "-merged", left, shards[5], "-o", in("x.safetensors"))
	refused(t, "of the signal energy, not of surprisal", "score", "apply", "-signal", "surprisal", "-merged", merged, shards[5], "-o", in("x.safetensors"))
	refused(t, "left: reweight_partial is 9, want 3", "score", "merge", write("left", `{"reweight_partial":9}`))
	refused(t, "left: unexpected EOF", "score", "merge", write("left", ""))
	refused(t, "merged is the input file", "score", "merge", merged, "-o", merged)
	refused(t, "merged is the input file", "score", "apply", "-merged", merged, shards[0], "-o", merged)
	if _, err := os.Stat(in("x.safetensors")); err == nil {
		t.Error("a refused command has written")
	}
}

// TestMergeLeavesOut: what a killed reweight score partial left is no partial, and is named.
func TestMergeLeavesOut(t *testing.T) {
	shards := lakeShards(t, 64)
	dir := t.TempDir()
	one, left := filepath.Join(dir, "one"), filepath.Join(dir, ".reweight-0123456789abcdef.tmp")
	runScore(t, "score", "partial", shards[0], "-o", one)
	must.Do(os.WriteFile(left, []byte("{"), 0o666))
	if all, err := filepath.Glob(filepath.Join(dir, "[^.]*")); err != nil || len(all) != 1 {
		t.Errorf("the shell's * stands for %v, %v", all, err)
	}
	var stdout, stderr bytes.Buffer
	status := run([]string{"score", "merge", left, one}, &stdout, &stderr)
	want := "Warning: " + left + " is left out: it is incomplete, and its run was killed or still writes it.\n"
	if status != 0 || stderr.String() != want || stdout.String() != runScore(t, "score", "merge", one) {
		t.Errorf("status %d, %q, want %q", status, &stderr, want)
	}
}

// TestScoreMany: a directory stands for its files, and apply does many files at once.
func TestScoreMany(t *testing.T) {
	shards := lakeShards(t, 19)
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	must.Do(os.Mkdir(in("partials"), 0o777))
	for i, name := range shards {
		runScore(t, "score", "partial", name, "-o", in(fmt.Sprint("partials/", i)))
	}
	must.Do(os.WriteFile(in("partials/.hidden"), []byte("{"), 0o666))
	runScore(t, "score", "merge", in("partials"), "-o", in("merged"))
	if merged, want := contents(t, dir, "merged")["merged"], runScore(t, append([]string{"score", "partial"}, shards...)...); merged != want {
		t.Errorf("merged\n%swant\n%s", merged, want)
	}
	runScore(t, "-o", in("whole"), filepath.Dir(shards[0]))
	want := contents(t, in("whole"), "")
	runScore(t, append([]string{"score", "apply", "-merged", in("merged"), "-o", in("new") + "/"}, shards[:4]...)...)
	runScore(t, append([]string{"score", "apply", "-merged", in("merged"), "-o", in("new")}, shards[4:]...)...)
	if got := contents(t, in("new"), ""); len(want) != len(shards) || !maps.Equal(got, want) {
		t.Errorf("%d files, want the same %d", len(got), len(want))
	}
	refused(t, "want a directory for the scores of several files", "score", "apply", "-merged", in("merged"), "-o", in("none"), filepath.Dir(shards[0]))
	refused(t, "scores need a directory of their own", "score", "apply", "-merged", in("merged"), "-o", filepath.Dir(shards[0]), shards[0])
}

func TestScoreUse(t *testing.T) {
	file := filepath.Join("..", "..", "testdata", "frozenlake-small.safetensors")
	for _, c := range []struct {
		want string
		args []string
	}{
		{"reweight score: want partial, merge or apply", nil},
		{`reweight score: "split" is no command`, []string{"split"}},
		{"reweight score partial: no files given", []string{"partial"}},
		{"reweight score merge: no files given", []string{"merge"}},
		{"reweight score apply: no -merged given", []string{"apply", file, "-o", "x"}},
		{"reweight score apply: no -o given", []string{"apply", file, "-merged", "x"}},
		{"reweight score apply: no FILE given", []string{"apply", "-o", "x.safetensors", "-merged", "x"}},
		{"-o is x, want a directory for the scores of several files", []string{"apply", "-o", "x", "-merged", "y", "a", "b"}},
		{"-lambda is 81, want 0 to 80", []string{"partial", "-lambda", "81", file}},
		{"-scope is \"moon\"", []string{"partial", "-scope", "moon", file}},
		{"-entropy-width is NaN", []string{"partial", "-entropy-width", "NaN", file}},
		{"-vocab is 0", []string{"partial", "-vocab", "0", file}},
		{"-o is empty", []string{"partial", "-o", "", file}},
		{"no/none: no such file", []string{"merge", "no/none"}},
		{"score_test.go: invalid character", []string{"merge", "score_test.go"}},
		{"flag provided but not defined: -clip-low", []string{"partial", "-clip-low", "0.1", file}},
	} {
		refused(t, c.want, append([]string{"score"}, c.args...)...)
	}
	for _, args := range [][]string{{"-h"}, {"partial", "-h"}, {"merge", "-h"}, {"apply", "-h"}} {
		if text := runScore(t, append([]string{"score"}, args...)...); !strings.HasPrefix(text, "Usage:") {
			t.Errorf("%v: %q", args, text)
		}
	}
}

// TestDirectory: files are scored as one batch, whatever their order, and scores of before
// are replaced.
func TestDirectory(t *testing.T) {
	shards := lakeShards(t, 19)
	dir := filepath.Join(t.TempDir(), "new", "scores")
	score := func(args ...string) scorefiles.Summary {
		t.Helper()
		var s scorefiles.Summary
		decode(t, []byte(runScore(t, append([]string{"-format", "json", "-o", dir}, args...)...)), &s)
		return s
	}
	s := score(shards...)
	if s.Files != 7 || s.Tokens != 18308 || s.Trajectories != 128 || s.Groups != 8 || s.Spans != 391 || s.Actions != 387 || s.Signal != "energy" {
		t.Errorf("%+v", s)
	}
	first := contents(t, dir, "")
	if len(first) != 7 || first["shard-000.safetensors.safetensors"] == "" {
		t.Errorf("the directory has %v", slices.Sorted(maps.Keys(first)))
	}
	if s = score(append(shards, "-signal", "surprisal")...); s.Signal != "surprisal" {
		t.Errorf("with another signal %+v", s)
	}
	if maps.Equal(contents(t, dir, ""), first) {
		t.Error("another signal gives the same scores")
	}
	slices.Reverse(shards)
	if text := runScore(t, append([]string{"-o", dir}, shards...)...); !strings.Contains(text, "files 7, groups 8, trajectories 128, responses 391, tokens 18,308") {
		t.Error(text)
	}
	if !maps.Equal(contents(t, dir, ""), first) {
		t.Error("another order gives other scores")
	}
	// A directory stands for its files, and what a killed run has left is named.
	left := filepath.Join(dir, ".reweight-0123456789abcdef.tmp")
	must.Do(os.WriteFile(left, nil, 0o666))
	want := []string{left + " is incomplete: its run was killed, or still writes it."}
	if s = score(filepath.Dir(shards[0])); s.Files != 7 || !slices.Equal(s.Warnings, want) {
		t.Errorf("%+v", s)
	}
}

// TestTwoInOneDirectory: processes that write to one directory at a time do not disturb
// each other.
func TestTwoInOneDirectory(t *testing.T) {
	shards := lakeShards(t, 19)
	alone, both := t.TempDir(), t.TempDir()
	runScore(t, append([]string{"-o", alone}, shards...)...)
	for range 3 {
		var processes [2]*exec.Cmd
		for i := range processes {
			processes[i] = testprogram.Command(t, append([]string{"-o", both}, shards...)...)
		}
		for _, p := range processes {
			must.Do(p.Start())
		}
		for _, p := range processes {
			must.Do(p.Wait())
		}
		if !maps.Equal(contents(t, both, ""), contents(t, alone, "")) {
			t.Error("two processes leave other files than one")
		}
	}
}

// TestDirectoryRefuses: what is no batch is refused in one line, and leaves no scores.
func TestDirectoryRefuses(t *testing.T) {
	shards := lakeShards(t, 64)
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	data := must.Get(os.ReadFile(shards[0]))
	place := func(name string) string {
		must.Do(os.MkdirAll(filepath.Dir(in(name)), 0o777))
		must.Do(os.WriteFile(in(name), data, 0o666))
		return in(name)
	}
	all := func(dir string, args ...string) []string { return append([]string{"-o", dir}, args...) }
	refused(t, "or its directory: scores need a directory of their own", all(filepath.Dir(shards[0]), filepath.Dir(shards[0]))...)
	refused(t, "would both be "+in("out/shard-000.safetensors.safetensors"), all(in("out"), shards[0], place("a/shard-000.safetensors"))...)
	long := place("b/" + strings.Repeat("l", 244))
	refused(t, "-o: "+in("d/"+filepath.Base(long)+".safetensors")+": file name too long", all(in("d"), long)...)
	refused(t, "have the same trajectories: a file counts once", all(in("out"), shards[0], place("copy.safetensors"))...)
	refused(t, "-clip-low means nothing where -o is a directory", all(in("out"), shards[0], "-clip-low", "0.3")...)
	refused(t, "standard input cannot be scored with -o DIRECTORY, which reads its inputs twice", all(in("out"), "-")...)
	refused(t, "no such file", all(in("out"), in("none"))...)
	refused(t, "named twice", all(in("out"), shards[0], shards[0])...)
	refused(t, "-o: "+in("copy.safetensors"), all(in("copy.safetensors/out"), shards[0])...)
	for _, name := range []string{"rollouts", "text"} { // which nobody named
		kept := place(name + "/" + filepath.Base(shards[0]) + ".safetensors")
		refused(t, "-o: "+kept+": is there and has no scores: it would be lost", all(in(name), shards[0])...)
		if string(must.Get(os.ReadFile(kept))) != string(data) {
			t.Errorf("%s is lost", kept)
		}
		data = []byte("text")
	}
	data = must.Get(os.ReadFile(shards[0]))
	data = data[:len(data)-1]
	refused(t, "short.safetensors: ", all(in("out"), shards[1], place("short.safetensors"))...)
	for name := range contents(t, in("out"), "") {
		t.Errorf("a refused command has left %s", name)
	}
}

// TestPartialEstimates: the entropies of a file are estimates or not whatever other files
// are read with it.
func TestPartialEstimates(t *testing.T) {
	dir := t.TempDir()
	var names, partials []string
	for i, entropy := range []string{`,"entropy":[0,1,2,3]`, "", `,"entropy":[0,3,2,1]`} {
		name := filepath.Join(dir, fmt.Sprint(i, ".jsonl"))
		line := fmt.Sprintf(`{"token_ids":[1,2,3,%d],"mask":[0,1,1,1],"old_logprobs":[0,-0.5,-1,-1],"rewards":%d,"group_id":0%s}`+"\n", i, i, entropy)
		must.Do(os.WriteFile(name, []byte(line), 0o666))
		names, partials = append(names, name), append(partials, name+".partial")
		runScore(t, "score", "partial", "-signal", "surprisal", "-surprisal-entropy", "-entropy-width", "Inf", name, "-o", partials[i])
	}
	together := runScore(t, append([]string{"score", "partial", "-signal", "surprisal", "-surprisal-entropy", "-entropy-width", "Inf"}, names...)...)
	if merged := runScore(t, append([]string{"score", "merge"}, partials...)...); together != merged || strings.Count(merged, "estimated_entropy") != 1 {
		t.Errorf("together\n%smerged\n%s", together, merged)
	}
}

// TestScoreOtherFlags: where a file is not found with other flags than its statistics were
// made with, the error says which.
func TestScoreOtherFlags(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	var text strings.Builder
	for i := range 4 {
		fmt.Fprintf(&text, `{"token_ids":[1,6,3,7],"mask":[0,1,1,1],"entropy":[0,1,2,%d],"old_logprobs":[0,-0.5,-1,-1],"rewards":%d,"group_id":0}`+"\n", i, i)
	}
	must.Do(os.WriteFile(in("x.jsonl"), []byte(text.String()), 0o666))
	flags := []string{"-signal", "surprisal", "-action-open", "6", "-action-close", "7", "-group-size", "2"}
	runScore(t, append([]string{"score", "partial", in("x.jsonl"), "-o", in("merged")}, flags...)...)
	apply := []string{"score", "apply", in("x.jsonl"), "-merged", in("merged"), "-o", in("out.safetensors")}
	refused(t, "since they were made: they were made with action tags of the ids [6] and [7], groups of 2, but it is opened with groups of 2 (the flags have to be",
		append(apply, "-signal", "surprisal", "-group-size", "2")...)
	refused(t, "but it is opened with no options (the flags have to be", append(apply, "-signal", "surprisal")...)
	runScore(t, append(apply, flags...)...)

	// The same file elsewhere has the same groups, and one of the same name others.
	must.Do(os.MkdirAll(in("other"), 0o777))
	for name, text := range map[string]string{"other/x.jsonl": strings.ReplaceAll(text.String(), "1,6,3", "2,6,3"), "copy.jsonl": text.String()} {
		must.Do(os.WriteFile(in(name), []byte(text), 0o666))
	}
	t.Chdir(in("other"))
	runScore(t, append([]string{"score", "partial", "x.jsonl", "-o", "partial"}, flags...)...)
	runScore(t, "score", "merge", "partial", in("merged"), "-o", "both")
	if both := contents(t, ".", "both")["both"]; strings.Count(both, `"id":"file `) != 4 {
		t.Errorf("want 4 groups: %s", both)
	}
	runScore(t, append([]string{"score", "apply", in("copy.jsonl"), "-merged", "both", "-o", "out.safetensors"}, flags...)...)
}

// TestDirectoryEstimates: entropies without bounds are refused, and marked in what is
// written if they are taken.
func TestDirectoryEstimates(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "x.jsonl")
	var text strings.Builder
	for i := range 6 {
		fmt.Fprintf(&text, `{"token_ids":[1,2,3,%d],"mask":[0,1,1,1],"old_logprobs":[0,-0.5,-%d,-1],"rewards":%d,"group_id":%d}`+"\n", i, i+1, i%3, i/3)
	}
	must.Do(os.WriteFile(name, []byte(text.String()), 0o666))
	out := filepath.Join(dir, "out")
	refused(t, "x.jsonl:1: ref_energy is missing, and cannot be derived without ref_logits: -signal surprisal does without it", "-o", out, name)
	refused(t, "x.jsonl:1: entropy is missing", "-o", out, name, "-signal", "surprisal")
	refused(t, "-surprisal-entropy estimates it", "score", "partial", name, "-signal", "surprisal")
	for field, hint := range map[string]string{
		"group_id": ": a field group_id on each line", "rewards": ": a field reward on each line",
		"old_logprobs": ": ask the server or the trainer for log-probabilities",
	} {
		lacks := filepath.Join(dir, field+".jsonl")
		entropy := strings.ReplaceAll(text.String(), `"token_ids":[1,2`, `"entropy":[0,1,1,1],"token_ids":[1,2`)
		if field == "group_id" {
			entropy = strings.ReplaceAll(entropy, `"token_ids":[1,2`, `"x":[1,2`) // whose equal prompts are groups
		}
		must.Do(os.WriteFile(lacks, []byte(strings.ReplaceAll(entropy, `"`+field+`"`, `"y"`)), 0o666))
		refused(t, hint, "-o", out, lacks, "-signal", "surprisal")
		refused(t, hint, "score", "partial", lacks, "-signal", "surprisal")
		refused(t, hint, lacks, "-signal", "surprisal")
	}
	flags := []string{"-signal", "surprisal", "-surprisal-entropy", name}
	const wide = "x.jsonl: entropy is estimated from surprisal, without bounds, which is too wide for AEM: -entropy-width Inf takes it"
	refused(t, wide, append([]string{"-o", out}, flags...)...)
	refused(t, wide, append([]string{"score", "partial"}, flags...)...)
	flags = append(flags, "-entropy-width", "Inf")
	if printed := runScore(t, append([]string{"-o", out}, flags...)...); !strings.Contains(printed, "x.jsonl is estimated from surprisal, without bounds.") {
		t.Errorf("printed %s", printed)
	}
	if printed := runScore(t, append([]string{"-format", "json", "-o", out}, flags...)...); !strings.Contains(printed, `"from": "surprisal"`) {
		t.Errorf("printed %s", printed)
	}
	if printed := runScore(t, append([]string{"score", "partial"}, flags...)...); !strings.Contains(printed, `"estimated_entropy":{"from":"surprisal","width":null}`) {
		t.Errorf("printed %s", printed)
	}
	f := must.Get(rollout.OpenFile(filepath.Join(out, "x.jsonl.safetensors")))
	defer f.Close()
	if m := f.Metadata(); m["entropy"] != "estimated from surprisal" || m["entropy_width"] != "+Inf" {
		t.Errorf("metadata %v", m)
	}
}
