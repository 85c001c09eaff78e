package main

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/cmd/reweight/internal/scorefiles"
	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/internal/test/testprogram"
	"github.com/seed621a2839/reweight/rollout"
)

// lakeShards writes the trajectories of testdata, n in a file, and returns the names of the
// files.
func lakeShards(t *testing.T, n int) []string {
	t.Helper()
	src := must.Get(rollout.Open(filepath.Join("..", "..", "testdata", "large", "frozenlake.safetensors")))
	defer src.Close()
	var all []*rollout.Trajectory
	for {
		tr, err := src.Next()
		if err == io.EOF {
			break
		}
		must.Do(err)
		all = append(all, tr)
	}
	dir := t.TempDir()
	var names []string
	for part := range slices.Chunk(all, n) {
		names = append(names, filepath.Join(dir, fmt.Sprintf("shard-%03d.safetensors", len(names))))
		w := must.Get(rollout.NewWriter(names[len(names)-1]))
		for _, tr := range part {
			must.Do(w.Add(tr))
		}
		must.Do(w.Close(nil))
	}
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

// TestScorePieces: the three commands, whatever the split, give what reweight score gives in a
// directory, for a file or for many at once.
func TestScorePieces(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	flags := []string{"-scope", "batch", "-beta", "0.7"}
	printed(t, append([]string{"score", in("all"), lake("large/frozenlake.safetensors")}, flags...)...)
	want := tensorsOf(t, in("all/frozenlake.safetensors.safetensors"))
	if len(want["weights"]) != 18308 || len(want["advantages"]) != 18308 || len(want) != 2 {
		t.Fatalf("%d tensors of %d and %d elements", len(want), len(want["weights"]), len(want["advantages"]))
	}
	shards := lakeShards(t, 19)
	must.Do(os.Mkdir(in("partials"), 0o777))
	must.Do(os.WriteFile(in("partials/.hidden"), []byte("{"), 0o666))
	var partials []string
	for i, name := range shards {
		partials = append(partials, in(fmt.Sprint("partials/", i)))
		if printed := printed(t, "score", "partial", "-scope", "batch", "-o", partials[i], name); printed != "" {
			t.Errorf("printed %q", printed)
		}
	}
	write := func(name, text string) string {
		must.Do(os.WriteFile(in(name), []byte(text), 0o666))
		return in(name)
	}
	left := write("left", printed(t, append([]string{"score", "merge"}, partials[:3]...)...))
	all := printed(t, append([]string{"score", "merge", left}, partials[3:]...)...)
	merged := write("merged", all)
	for _, same := range [][]string{append([]string{"score", "partial"}, shards...),
		{"score", "merge", in("partials")}} {
		if got := printed(t, same...); got != all {
			t.Errorf("%q prints other statistics", same)
		}
	}
	apply := append([]string{"score", "apply", "-merged", merged}, flags...)
	printed(t, slices.Concat(apply, []string{"-o", in("new") + "/"}, shards[:4])...)
	printed(t, slices.Concat(apply, []string{"-o", in("new")}, shards[4:])...)
	printed(t, append(apply, "-o", in("one.safetensors"), shards[1])...)
	var outputs []string
	for _, name := range shards {
		outputs = append(outputs, in("new/"+filepath.Base(name)+".safetensors"))
	}
	if got := tensorsOf(t, outputs...); !maps.EqualFunc(got, want, slices.Equal) {
		t.Error("scores depend on the split")
	}
	printed(t, slices.Concat([]string{"score"}, flags, []string{in("whole"), filepath.Dir(shards[0])})...)
	files := contents(t, in("new"), "")
	one := string(must.Get(os.ReadFile(in("one.safetensors"))))
	if !maps.Equal(files, contents(t, in("whole"), "")) || files[filepath.Base(outputs[1])] != one {
		t.Error("scores depend on how many files a command has")
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
	refused(t, "not of this file, or it has changed", "score", "apply", "-merged", left, shards[5], "-o",
		in("x.safetensors"))
	refused(t, "of the signal energy, not of surprisal", "score", "apply", "-signal", "surprisal", "-merged", merged,
		shards[5], "-o", in("x.safetensors"))
	refused(t, "left: reweight_partial is 9, want 4", "score", "merge", write("left", `{"reweight_partial":9}`))
	refused(t, "left: unexpected EOF", "score", "merge", write("left", ""))
	refused(t, "merged is the input file", "score", "merge", merged, "-o", merged)
	refused(t, "merged is the input file", "score", "apply", "-merged", merged, shards[0], "-o", merged)
	refused(t, "want a directory for the scores of several files",
		append(apply, "-o", in("none"), filepath.Dir(shards[0]))...)
	refused(t, "scores need a directory of their own", append(apply, "-o", filepath.Dir(shards[0]), shards[0])...)
	if _, err := os.Stat(in("x.safetensors")); err == nil {
		t.Error("a refused command has written")
	}
}

// TestMergeLeavesOut: what a killed reweight score partial left is no partial, and is named.
func TestMergeLeavesOut(t *testing.T) {
	shards := lakeShards(t, 64)
	dir := t.TempDir()
	one, left := filepath.Join(dir, "one"), filepath.Join(dir, ".reweight-0123456789abcdef.tmp")
	printed(t, "score", "partial", shards[0], "-o", one)
	must.Do(os.WriteFile(left, []byte("{"), 0o666))
	if all, err := filepath.Glob(filepath.Join(dir, "[^.]*")); err != nil || len(all) != 1 {
		t.Errorf("the shell's * stands for %v, %v", all, err)
	}
	var stdout, stderr bytes.Buffer
	status := run([]string{"score", "merge", left, one}, &stdout, &stderr)
	want := "Warning: " + left + " is left out: it is incomplete, and its run was killed or still writes it.\n"
	if status != 0 || stderr.String() != want || stdout.String() != printed(t, "score", "merge", one) {
		t.Errorf("status %d, %q, want %q", status, &stderr, want)
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
		decode(t, []byte(printed(t, append([]string{"score", "-format", "json", dir}, args...)...)), &s)
		return s
	}
	s := score(shards...)
	if s.Files != 7 || s.Tokens != 18308 || s.Trajectories != 128 || s.Groups != 8 || s.Spans != 391 ||
		s.Actions != 387 || s.Signal != "energy" {
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
	if text := printed(t, append([]string{"score", dir}, shards...)...); !strings.Contains(text,
		"files 7, groups 8, trajectories 128, responses 391, tokens 18,308") {
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
	printed(t, append([]string{"score", alone}, shards...)...)
	for range 3 {
		var processes [2]*exec.Cmd
		for i := range processes {
			processes[i] = testprogram.Command(t, append([]string{"score", both}, shards...)...)
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
	all := func(dir string, args ...string) []string { return append([]string{"score", dir}, args...) }
	refused(t, "or its directory: scores need a directory of their own",
		all(filepath.Dir(shards[0]), filepath.Dir(shards[0]))...)
	refused(t, "would both be "+in("out/shard-000.safetensors.safetensors"),
		all(in("out"), shards[0], place("a/shard-000.safetensors"))...)
	long := place("b/" + strings.Repeat("l", 244))
	refused(t, in("d/"+filepath.Base(long)+".safetensors")+": file name too long", all(in("d"), long)...)
	refused(t, "have the same trajectories: a file counts once",
		all(in("out"), shards[0], place("copy.safetensors"))...)
	refused(t, "flag provided but not defined: -clip-low", all(in("out"), shards[0], "-clip-low", "0.3")...)
	refused(t, "standard input cannot be scored into a directory, which reads its inputs twice", all(in("out"), "-")...)
	refused(t, "no such file", all(in("out"), in("none"))...)
	refused(t, "named twice", all(in("out"), shards[0], shards[0])...)
	refused(t, in("copy.safetensors"), all(in("copy.safetensors/out"), shards[0])...)
	for _, name := range []string{"rollouts", "text"} { // which nobody named
		kept := place(name + "/" + filepath.Base(shards[0]) + ".safetensors")
		refused(t, kept+": is there and has no scores: it would be lost", all(in(name), shards[0])...)
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
		printed(t, "score", "partial", "-signal", "surprisal", "-surprisal-entropy", "-entropy-width", "Inf", name,
			"-o", partials[i])
	}
	together := printed(t, append([]string{"score", "partial", "-signal", "surprisal", "-surprisal-entropy",
		"-entropy-width", "Inf"}, names...)...)
	if merged := printed(t, append([]string{"score", "merge"}, partials...)...); together != merged ||
		strings.Count(merged, "estimated_entropy") != 1 {
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
	printed(t, append([]string{"score", "partial", in("x.jsonl"), "-o", in("merged")}, flags...)...)
	apply := []string{"score", "apply", in("x.jsonl"), "-merged", in("merged"), "-o", in("out.safetensors")}
	refused(t, "since they were made: they were made with action tags of the ids [6] and [7], groups of 2, but it is opened with groups of 2 (the flags have to be",
		append(apply, "-signal", "surprisal", "-group-size", "2")...)
	refused(t, "but it is opened with no options (the flags have to be", append(apply, "-signal", "surprisal")...)
	printed(t, append(apply, flags...)...)
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
	refused(t, "x.jsonl:1: ref_energy is missing, and cannot be derived without ref_logits: -signal surprisal does without it", "score", out, name)
	refused(t, "x.jsonl:1: entropy is missing", "score", out, name, "-signal", "surprisal")
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
		refused(t, hint, "score", out, lacks, "-signal", "surprisal")
		refused(t, hint, "score", "partial", lacks, "-signal", "surprisal")
		refused(t, hint, lacks, "-signal", "surprisal")
	}
	flags := []string{"-signal", "surprisal", "-surprisal-entropy", name}
	const wide = "x.jsonl: entropy is estimated from surprisal, without bounds, which is too wide for AEM: -entropy-width Inf takes it"
	refused(t, wide, append([]string{"score", out}, flags...)...)
	refused(t, wide, append([]string{"score", "partial"}, flags...)...)
	flags = append(flags, "-entropy-width", "Inf")
	if printed := printed(t, append([]string{"score", out}, flags...)...); !strings.Contains(printed,
		"x.jsonl is estimated from surprisal, without bounds.") {
		t.Errorf("printed %s", printed)
	}
	if printed := printed(t, append([]string{"score", "-format", "json", out}, flags...)...); !strings.Contains(printed,
		`"from": "surprisal"`) {
		t.Errorf("printed %s", printed)
	}
	if printed := printed(t, append([]string{"score", "partial"}, flags...)...); !strings.Contains(printed,
		`"estimated_entropy":{"from":"surprisal","width":null}`) {
		t.Errorf("printed %s", printed)
	}
	if m := metadataOf(t, filepath.Join(out, "x.jsonl.safetensors")); m["entropy"] != "estimated from surprisal" ||
		m["entropy_width"] != "+Inf" {
		t.Errorf("metadata %v", m)
	}
}
