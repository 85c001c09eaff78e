package main

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/internal/cli"
	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/internal/test/testprogram"
	"github.com/seed621a2839/reweight/rollout"
	"github.com/seed621a2839/reweight/testdata"
)

// TestMain lets a test run this program as a process of its own.
func TestMain(m *testing.M) { testprogram.Main(m, main) }

func embedded(t *testing.T) []rollout.Tensor {
	t.Helper()
	file := must.Get(rollout.Parse(testdata.FrozenLakeSmall))
	b := must.Get(file.Batch())
	return rollout.Tensors(b)
}

// without returns the tensors but those of these names.
func without(tensors []rollout.Tensor, names ...string) []rollout.Tensor {
	return slices.DeleteFunc(tensors, func(t rollout.Tensor) bool { return slices.Contains(names, t.Name) })
}

// write writes the tensors to a new file and returns its path.
func write(t *testing.T, tensors []rollout.Tensor) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rollouts.safetensors")
	must.Do(rollout.Write(path, tensors, nil))
	return path
}

// program is reweight.
var program testprogram.Run = run

// printed returns what a command prints that works.
func printed(t *testing.T, args ...string) string {
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
	program.WrongUse(t, strings.Join(args, " "), want)
}

// TestWrongUse: one line on standard error that says what is wrong, nothing on
// standard output, status 2.
func TestWrongUse(t *testing.T) {
	good := write(t, embedded(t))
	dir := t.TempDir()
	noise := filepath.Join(dir, "noise")
	must.Do(os.WriteFile(noise, bytes.Repeat([]byte("noise"), 100), 0o666))
	broken := func(name string, change func([]float32)) string {
		tensors := embedded(t)
		for i, tensor := range tensors {
			if tensor.Name == name {
				data := append([]float32(nil), tensor.Data.([]float32)...)
				change(data)
				tensors[i].Data = data
			}
		}
		return write(t, tensors)
	}
	all := func(v float32) func([]float32) {
		return func(x []float32) {
			for i := range x {
				x[i] = v
			}
		}
	}
	inf := float32(math.Inf(1))
	allNaN := all(inf - inf)
	nans := make([]float32, 6272)
	allNaN(nans)
	noEnds := write(t, without(embedded(t), "logprobs", "old_logprobs"))
	noEntropy := write(t, append(embedded(t), rollout.Tensor{Name: "ref_entropy", Shape: []int64{6272}, Data: nans}))
	for _, c := range []struct {
		args string // separated by spaces
		want string // parts of the message, separated by |
	}{
		{"", "reweight: |FILE"},
		{"a " + good, "reweight: a: "},
		{"" + good + " -x", "-x"},
		{"" + good + " -o", "-o"},
		{"" + good + " -o=", "-o is empty, want a name"},
		{"-alpha", "-alpha"},
		{"-alpha x " + good, "-alpha|x"},
		{"-alpha 1.5 " + good, "-alpha is 1.5, want 0 to 1"},
		{"-alpha NaN " + good, "-alpha is NaN"},
		{"" + good + " -beta=-1", "-beta is -1"},
		{"-eps=-1 " + good, "-eps is -1"},
		{"-signal loudness " + good, `-signal is "loudness", want one of [energy ref_entropy surprisal log_ratio]`},
		{"-lambda=-1 " + good, "-lambda is -1"},
		{"-lambda Inf " + good, "-lambda"},
		{"-guard=-1 " + good, "-guard is -1"},
		{"-scope world " + good, `-scope is "world", want one of [group trajectory batch]`},
		{"-clip-low 2 " + good, "-clip-low is 2"},
		{"-clip-high=-1 " + good, "-clip-high is -1"},
		{"-dual-clip 0.5 " + good, "-dual-clip is 0.5"},
		{"-aggregation median " + good, `-aggregation is "median", want one of [token_mean seq_mean_token_sum seq_mean_token_mean seq_mean_token_sum_norm]`},
		{"-norm-length=-1 " + good, "-norm-length is -1"},
		{"-norm-length 1.5 " + good, "-norm-length|1.5"},
		{"-divide-by-std=maybe " + good, "-divide-by-std|maybe"},
		{"-json " + good, "-json"},
		{"-format yaml " + good, `-format is "yaml", want table or json`},
		{"-scheme= " + good, `-scheme has "": no scheme has the name ""; there are uniform, actfocus`},
		{"-scheme remax " + good, `-scheme has "remax": remax is verl's, and not here: docs/schemes.md lists`},
		{"-scheme nothing " + good, `-scheme has "nothing": no scheme has the name "nothing"; there are`},
		{"-scheme uniform,actfocsu " + good, `-scheme has "actfocsu": no scheme has the name "actfocsu"; the nearest is "actfocus"`},
		{"-scheme gspo+cispo " + good, `-scheme has "gspo+cispo": gspo and cispo both are a loss`},
		{"-scheme gigpo,uniform " + good, good + ": gigpo needs anchors and span_rewards"},
		{"-scheme off_policy_mask " + good, ": off_policy_mask needs -delta, which has no default"},
		{"-scheme all -delta NaN " + good, "-delta is NaN"},
		{"-scheme dro " + good, ": dro needs -dro-beta, which has no default"},
		{"-scheme dro -dro-beta 0 " + good, "-dro-beta is 0, want a finite number above 0"},
		{"-o " + dir + " " + good, "-o is " + dir + ", a directory, want a file: reweight score DIR FILE... writes"},
		{"-o " + dir + "/scores/ " + good, "-o is " + dir + "/scores/, a directory, want a file: reweight score DIR FILE... writes"},
		{"-o " + dir + "/scores " + good, "-o: " + dir + "/scores: want a name that ends in one of [|.safetensors"},
		{"-o " + dir + "/x.npz -scheme uniform,off_policy_mask " + good, "off_policy_mask needs -delta, which has no default"},
		{"-scheme all -clip-low 2 " + good, "-clip-low is 2"},
		{"-scheme all -kl full -kl-coef 1 " + good, `-kl is "full", want one of [k3 k2 k1 abs k3+ k1+ abs+]`},
		{"-scheme all -kl-coef NaN " + good, "-kl-coef is NaN"},
		{"-scheme all -kl-coef=-Inf " + good, "-kl-coef is -Inf"},
		{"-scheme all -kl k1 " + good, "-kl means nothing without -kl-coef"},
		{"-scheme all -kl-coef 0.1 " + write(t, without(embedded(t), "ref_logprobs")), "rollouts.safetensors: uniform needs ref_logprobs: "},
		{"-scheme all -trajectory 32 " + good, "-trajectory is 32, want 0 to 31"},
		{"-scheme all -trajectory=-1 " + good, "-trajectory is -1"},
		{"-scheme all -html= " + good, "-html is empty"},
		{"-scheme all -html " + good + " " + good, "-html: |is the input file"},
		{"-scheme all " + noEnds, "old_logprobs is missing|ask the server"},
		{"-scheme all -format csv " + good, `-format is "csv", want table or json`},
		{"/nowhere/at\nall", `/nowhere/at\nall`},
		{"/nowhere/\x1b[31mé\u2028", `/nowhere/\x1b[31mé\u2028`},
		{"" + noise, noise},
		{"-- -o", "reweight: -o: "},
		{"-- -x", "reweight: -x: "},
		{"-o " + good + " " + good, "-o: " + good + " is the input file"},
		{"-o " + filepath.Dir(good) + "/./rollouts.safetensors " + good, "is the input file"},
		{"-o " + noise + "/out " + good, "-o: |" + noise},
		{"-o " + dir + "/out.txt " + good, "-o: " + dir + "/out.txt: want a name that ends in one of [|.safetensors"},
		{"-o " + good + " " + filepath.Dir(good), "-o: " + good + " is one of the files in " + filepath.Dir(good)},
		{"" + good + " " + good, "named twice"},
		{"-entropy-width=-1 " + good, "-entropy-width is -1"},
		{"-entropy-width NaN " + good, "-entropy-width is NaN"},
		{"-action-open 6 " + good, "-action-open and -action-close go together"},
		{"" + write(t, without(embedded(t), "role")), `rollouts.safetensors: role is missing`},
		{"" + write(t, without(embedded(t), "rewards")), `rollouts.safetensors: uniform needs rewards or advantages: a field reward on each line`},
		{"" + write(t, without(embedded(t), "group_ids", "token_ids")), `rollouts.safetensors: uniform needs group_ids: a field group_id on each line of JSON gives it, or -group-size`},
		{"-scheme aem,gtpo " + write(t, without(embedded(t), "entropy")), `rollouts.safetensors: aem needs entropy; gtpo needs entropy: -vocab derives it|, and -surprisal-entropy estimates it`},
		{"" + write(t, without(embedded(t), "old_logprobs")), `: ask the server or the trainer for log-probabilities`},
		{"-scheme actfocus,gigpo " + write(t, without(embedded(t), "ref_energy")), `rollouts.safetensors: actfocus needs ref_energy; gigpo needs anchors and span_rewards: -signal surprisal does without it`},
		{"-signal ref_entropy " + good, `rollouts.safetensors: actfocus needs ref_entropy; actfocus+aem needs ref_entropy: -signal surprisal does without it`},
		{"-signal log_ratio " + write(t, without(embedded(t), "ref_logprobs")), `rollouts.safetensors: actfocus needs ref_logprobs; actfocus+aem needs ref_logprobs: -signal surprisal does without it`},
		{"" + broken("rewards", allNaN), `rollouts.safetensors: rewards[0] is NaN, want a finite reward`},
		{"" + broken("ref_energy", allNaN), `rollouts.safetensors: ref_energy[|] is NaN at an action token, want a finite number`},
		{"-signal ref_entropy " + noEntropy, `rollouts.safetensors: ref_entropy[|NaN`},
		{"" + broken("entropy", allNaN), `rollouts.safetensors: entropy[|NaN`},
		{"" + broken("logprobs", allNaN), `rollouts.safetensors: logprobs[|] is NaN at a response token, want a finite number`},
		{"" + broken("old_logprobs", allNaN), `rollouts.safetensors: old_logprobs[|] is NaN at a response token, want a finite number`},
		{"" + broken("logprobs", all(inf)), `rollouts.safetensors: logprobs[|] is +Inf at a response token, want a finite number`},
		{"" + broken("old_logprobs", all(-inf)), `rollouts.safetensors: old_logprobs[|] is -Inf at a response token, want a finite number`},
		{"convert", "reweight convert: want the names of one input or more, and the name of the output"},
		{"convert " + good, "reweight convert: want the names"},
		{"convert " + good + " " + good, "reweight convert: " + good + " is the input file"},
		{"convert " + noise + " " + good + " " + good, good + " is the input file"},
		{"convert " + filepath.Dir(good) + " " + good, good + " is one of the files in " + filepath.Dir(good)},
		{"convert " + filepath.Dir(good) + " " + filepath.Dir(good) + "/x.npz", "/x.npz would be one of the files in " + filepath.Dir(good) + ", which are the input"},
		{"-o " + filepath.Dir(good) + "/x.npz " + filepath.Dir(good), "reweight: -o: |/x.npz would be one of the files in "},
		{"convert " + good + " " + dir, "reweight convert: " + dir + ": not a regular file"},
		{"convert " + good + " " + dir + "/", dir + "/: not the name of a file"},
		{"convert " + good + " " + dir + "/none/x.safetensors", dir + "/none/x.safetensors: no file can be made in " + dir + "/none: no such file or directory"},
		{"convert " + good + " " + dir + "/x.json", dir + "/x.json: want a name that ends in one of [|.safetensors"},
		{"convert " + good + " -", "reweight convert: - is standard output, which is not supported: give the name of a file"},
		{"-o - " + good, "reweight: -o: - is standard output, which is not supported"},
		{"show -html - " + good, "reweight show: -html: - is standard output, which is not supported"},
		{"score partial -signal surprisal -o - " + good, "reweight score partial: -o: - is standard output, which is not supported"},
		{"score " + dir + "/scores -", "reweight score: standard input cannot be scored into a directory, which reads its inputs twice"},
		{"score " + filepath.Dir(good) + "/ " + good, "reweight score: " + filepath.Dir(good) + "/ is the input " + good + " or its directory"},
		{"score " + good + " " + good, "reweight score: DIR is \"" + good + "\", which is no directory"},
		{"score - " + good, `reweight score: DIR is "-", which is no directory`},
		{"score", "reweight score: want DIR and FILE..., or partial, merge or apply"},
		{"score split", `reweight score: "split" is alone, want DIR and FILE..., or partial, merge or apply`},
		{"score -scheme all " + dir + "/scores " + good, "flag provided but not defined: -scheme"},
		{"score -alpha 1.5 " + dir + "/scores " + good, "-alpha is 1.5, want 0 to 1"},
		{"score -format csv " + dir + "/scores " + good, `-format is "csv", want table or json`},
		{"score partial", "reweight score partial: no files given"},
		{"score merge", "reweight score merge: no files given"},
		{"score apply -o x " + good, "reweight score apply: no -merged given"},
		{"score apply -merged x " + good, "reweight score apply: no -o given"},
		{"score apply -o x.safetensors -merged x", "reweight score apply: no FILE given"},
		{"score apply -o x -merged y a b", "-o is x, want a directory for the scores of several files"},
		{"score partial -lambda 81 " + good, "-lambda is 81, want 0 to 80"},
		{"score partial -scope moon " + good, `-scope is "moon"`},
		{"score partial -entropy-width NaN " + good, "-entropy-width is NaN"},
		{"score partial -vocab 0 " + good, "-vocab is 0"},
		{"score partial -o= " + good, "-o is empty"},
		{"score merge no/none", "no/none: no such file"},
		{"score merge score_test.go", "score_test.go: invalid character"},
		{"score partial -clip-low 0.1 " + good, "flag provided but not defined: -clip-low"},
		{"convert /nowhere/a " + dir + "/x.safetensors", "reweight convert: /nowhere/a: "},
		{"convert " + noise + " " + dir + "/x.safetensors", noise + ": "},
		{"convert " + good + " " + good + " " + dir + "/x.safetensors", good + ": named twice"},
		{"convert -x " + good + " " + dir + "/x.safetensors", "-x"},
		{"convert -format csv " + good + " " + dir + "/x.safetensors", `-format is "csv", want table or json`},
		{"convert -group-size 0 " + good + " " + dir + "/x.safetensors", "-group-size is 0"},
		{"convert -group-size 7 " + good + " " + dir + "/x.safetensors", good + ": 32 trajectories, want a multiple of the group size, 7"},
		{"shwo " + good, `reweight: "shwo" is neither a file nor a command: did you mean reweight show?`},
		{"sho", "did you mean reweight show?"},
		{"scoore x", "did you mean reweight score?"},
		{"konvert x", "did you mean reweight convert?"},
		{"convert -action-tags x " + good + " " + dir + "/x.safetensors", "-action-tags"},
	} {
		program.WrongUse(t, c.args, c.want)
	}
}

func TestVersion(t *testing.T) { program.Version(t, "reweight") }

//go:generate sh -c "go run . -h >testdata/help.txt"

func TestHelp(t *testing.T) {
	program.HelpFile(t)
	for args, want := range map[string]string{
		"-h":               "-aggregation",
		"help":             "-aggregation",
		"--help":           "Exit status",
		"FILE -h":          "-dual-clip",
		"-alpha 0 --h":     "reweight convert [flags] IN... OUT",
		"show -h":          "-action-tags",
		"score -h":         "reweight score merge",
		"score DIR -h":     "-signal",
		"score partial -h": "-signal",
		"score merge -h":   "PARTIAL...",
		"score apply -h":   "-merged",
	} {
		program.Help(t, args, want)
	}
}

func TestOutputCannotBeWritten(t *testing.T) {
	good := write(t, embedded(t))
	for _, args := range [][]string{{good}, {good, "-format", "json"}, {"-h"}, {"convert", "-h"},
		{"show", frozenLakeCopy(t)}} {
		program.CannotWrite(t, args...)
	}
}

// TestBrokenPipe: a command whose output nobody reads ends without a word.
func TestBrokenPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	defer w.Close()
	var stderr bytes.Buffer
	if status := run([]string{"show", frozenLakeCopy(t)}, w, &stderr); status != cli.BrokenPipeStatus ||
		stderr.Len() > 0 {
		t.Errorf("status %d, %q", status, &stderr)
	}
}

// decode reads JSON that may have no other keys than v.
func decode(t *testing.T, text []byte, v any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
}
