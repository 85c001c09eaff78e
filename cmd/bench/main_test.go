package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/internal/cli"
	"github.com/seed621a2839/reweight/rollout"
	"github.com/seed621a2839/reweight/testdata"
)

func embedded(t *testing.T) []rollout.Tensor {
	t.Helper()
	file, err := rollout.Parse(testdata.FrozenLakeSmall)
	if err != nil {
		t.Fatal(err)
	}
	b, err := file.Batch()
	if err != nil {
		t.Fatal(err)
	}
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
	if err := rollout.Write(path, tensors, nil); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestWrongUse: one line on standard error that says what is wrong, nothing on
// standard output, status 2.
func TestWrongUse(t *testing.T) {
	good := write(t, embedded(t))
	dir := t.TempDir()
	noise := filepath.Join(dir, "noise")
	if err := os.WriteFile(noise, bytes.Repeat([]byte("noise"), 100), 0o666); err != nil {
		t.Fatal(err)
	}
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
		{"nonsense", `bench: unknown command "nonsense"|, want reweight, score, show, convert, run, overhead, gate, compare, floors or info`},
		{"-x", "bench: |-x"},
		{"-json", "bench: |-json"},
		{"info -x", "bench info: |-x"},
		{"info more", `bench info: unexpected argument "more"`},

		{"reweight", "bench reweight: |FILE"},
		{"reweight a " + good, "bench reweight: a: "},
		{"reweight " + good + " -x", "-x"},
		{"reweight " + good + " -o", "-o"},
		{"reweight " + good + " -o=", "-o is empty, want a name"},
		{"reweight -alpha", "-alpha"},
		{"reweight -alpha x " + good, "-alpha|x"},
		{"reweight -alpha 1.5 " + good, "-alpha is 1.5, want 0 to 1"},
		{"reweight -alpha NaN " + good, "-alpha is NaN"},
		{"reweight " + good + " -beta=-1", "-beta is -1"},
		{"reweight -eps=-1 " + good, "-eps is -1"},
		{"reweight -signal loudness " + good, `-signal is "loudness", want one of [energy ref_entropy surprisal log_ratio]`},
		{"reweight -lambda=-1 " + good, "-lambda is -1"},
		{"reweight -lambda Inf " + good, "-lambda"},
		{"reweight -guard=-1 " + good, "-guard is -1"},
		{"reweight -scope world " + good, `-scope is "world", want one of [group trajectory batch]`},
		{"reweight -clip-low 2 " + good, "-clip-low is 2"},
		{"reweight -clip-high=-1 " + good, "-clip-high is -1"},
		{"reweight -dual-clip 0.5 " + good, "-dual-clip is 0.5"},
		{"reweight -aggregation median " + good, `-aggregation is "median", want one of [token_mean seq_mean_token_sum seq_mean_token_mean seq_mean_token_sum_norm]`},
		{"reweight -norm-length=-1 " + good, "-norm-length is -1"},
		{"reweight -norm-length 1.5 " + good, "-norm-length|1.5"},
		{"reweight -divide-by-std=maybe " + good, "-divide-by-std|maybe"},
		{"reweight -json " + good, "-json"},
		{"reweight -format yaml " + good, `-format is "yaml", want one of [table json markdown]`},

		{"reweight -scheme= " + good, `-scheme has "": no scheme has the name ""; there are uniform, actfocus`},
		{"reweight -scheme clip_cov " + good, `-scheme has "clip_cov": clip_cov is verl's, and not here: docs/schemes.md lists`},
		{"reweight -scheme clip " + good, `-scheme has "clip": no scheme has the name "clip"; there are`},
		{"reweight -scheme uniform,actfocsu " + good, `-scheme has "actfocsu": no scheme has the name "actfocsu"; the nearest is "actfocus"`},
		{"reweight -scheme gspo+cispo " + good, `-scheme has "gspo+cispo": gspo and cispo both are a loss`},
		{"reweight -scheme gigpo,uniform " + good, good + ": gigpo needs anchors and span_rewards"},
		{"reweight -scheme off_policy_mask " + good, ": off_policy_mask needs -delta, which has no default"},
		{"reweight -scheme all -delta NaN " + good, "-delta is NaN"},
		{"reweight -scheme all -o " + dir + "/scores/ " + good, "-scheme means nothing where -o is a directory"},
		{"reweight -kl-coef 1 -o " + dir + "/scores/ " + good, "-kl-coef means nothing where -o is a directory"},
		{"reweight -o " + dir + "/x.npz -scheme uniform,off_policy_mask " + good, "off_policy_mask needs -delta, which has no default"},
		{"reweight -scheme all -clip-low 2 " + good, "-clip-low is 2"},
		{"reweight -scheme all -kl full -kl-coef 1 " + good, `-kl is "full", want one of [k3 k2 k1 abs k3+ k1+ abs+]`},
		{"reweight -scheme all -kl-coef NaN " + good, "-kl-coef is NaN"},
		{"reweight -scheme all -kl-coef=-Inf " + good, "-kl-coef is -Inf"},
		{"reweight -scheme all -kl k1 " + good, "-kl means nothing without -kl-coef"},
		{"reweight -scheme all -kl-coef 0.1 " + write(t, without(embedded(t), "ref_logprobs")), "rollouts.safetensors: uniform needs ref_logprobs: "},
		{"reweight -scheme all -trajectory 32 " + good, "-trajectory is 32, want 0 to 31"},
		{"reweight -scheme all -trajectory=-1 " + good, "-trajectory is -1"},
		{"reweight -scheme all -html= " + good, "-html is empty"},
		{"reweight -scheme all -html " + good + " " + good, "-html: |is the input file"},
		{"reweight -scheme all " + noEnds, "old_logprobs is missing|ask the server"},
		{"reweight -scheme all -format csv " + good, `-format is "csv", want one of [table json markdown]`},
		{"reweight /nowhere/at\nall", `/nowhere/at\nall`},
		{"reweight /nowhere/\x1b[31mé\u2028", `/nowhere/\x1b[31mé\u2028`},
		{"reweight " + noise, noise},
		{"reweight -- -o", "bench reweight: -o: "},
		{"reweight -- -x", "bench reweight: -x: "},
		{"reweight -o " + good + " " + good, "-o: " + good + " is the input file"},
		{"reweight -o " + filepath.Dir(good) + "/./rollouts.safetensors " + good, "is the input file"},
		{"reweight -o " + noise + "/out " + good, "-o: |" + noise},
		{"reweight -o " + dir + "/out.txt " + good, "-o: " + dir + "/out.txt: want a name that ends in one of [|.safetensors"},
		{"reweight -o " + good + " " + filepath.Dir(good), "-o: " + good + " is one of the files in " + filepath.Dir(good)},
		{"reweight " + good + " " + good, "named twice"},
		{"reweight -entropy-width=-1 " + good, "-entropy-width is -1"},
		{"reweight -entropy-width NaN " + good, "-entropy-width is NaN"},
		{"reweight -action-open 6 " + good, "-action-open and -action-close go together"},
		{"reweight " + write(t, without(embedded(t), "role")), `rollouts.safetensors: role is missing`},
		{"reweight " + write(t, without(embedded(t), "rewards")), `rollouts.safetensors: uniform needs rewards or advantages: a field reward on each line`},
		{"reweight " + write(t, without(embedded(t), "group_ids", "token_ids")), `rollouts.safetensors: uniform needs group_ids: a field group_id on each line of JSON gives it, or -group-size`},
		{"reweight " + write(t, without(embedded(t), "entropy")), `rollouts.safetensors: aem needs entropy: -vocab derives it|, and -surprisal-entropy estimates it`},
		{"reweight " + write(t, without(embedded(t), "old_logprobs")), `: ask the server or the trainer for log-probabilities`},
		{"reweight " + write(t, without(embedded(t), "ref_energy")), `rollouts.safetensors: actfocus needs ref_energy: -signal surprisal does without it`},
		{"reweight -signal ref_entropy " + good, `rollouts.safetensors: actfocus needs ref_entropy: -signal surprisal does without it`},
		{"reweight -signal log_ratio " + write(t, without(embedded(t), "ref_logprobs")), `rollouts.safetensors: actfocus needs ref_logprobs: -signal surprisal does without it`},
		{"reweight " + broken("rewards", allNaN), `rollouts.safetensors: rewards[0] is NaN, want a finite reward`},
		{"reweight " + broken("ref_energy", allNaN), `rollouts.safetensors: ref_energy[|] is NaN at an action token, want a finite number`},
		{"reweight -signal ref_entropy " + noEntropy, `rollouts.safetensors: ref_entropy[|NaN`},
		{"reweight " + broken("entropy", allNaN), `rollouts.safetensors: entropy[|NaN`},
		{"reweight " + broken("logprobs", allNaN), `rollouts.safetensors: logprobs[|] is NaN at a response token, want a finite number`},
		{"reweight " + broken("old_logprobs", allNaN), `rollouts.safetensors: old_logprobs[|] is NaN at a response token, want a finite number`},
		{"reweight " + broken("logprobs", all(inf)), `rollouts.safetensors: logprobs[|] is +Inf at a response token, want a finite number`},
		{"reweight " + broken("old_logprobs", all(-inf)), `rollouts.safetensors: old_logprobs[|] is -Inf at a response token, want a finite number`},

		{"convert", "bench convert: want the names of one input or more, and that of the output"},
		{"convert " + good, "bench convert: want the names"},
		{"convert " + good + " " + good, "bench convert: " + good + " is the input file"},
		{"convert " + noise + " " + good + " " + good, good + " is the input file"},
		{"convert " + filepath.Dir(good) + " " + good, good + " is one of the files in " + filepath.Dir(good)},
		{"convert " + filepath.Dir(good) + " " + filepath.Dir(good) + "/x.npz", "/x.npz would be one of the files in " + filepath.Dir(good) + ", which are the input"},
		{"reweight -o " + filepath.Dir(good) + "/x.npz " + filepath.Dir(good), "bench reweight: -o: |/x.npz would be one of the files in "},
		{"convert " + good + " " + dir, "bench convert: " + dir + ": not a regular file"},
		{"convert " + good + " " + dir + "/", dir + "/: not the name of a file"},
		{"convert " + good + " " + dir + "/none/x.safetensors", dir + "/none/x.safetensors: no file can be made in " + dir + "/none: no such file or directory"},
		{"convert " + good + " " + dir + "/x.json", dir + "/x.json: want a name that ends in one of [|.safetensors"},
		{"convert " + good + " -", "bench convert: - is standard output, which is not supported: give the name of a file"},
		{"reweight -o - " + good, "bench reweight: -o: - is standard output, which is not supported"},
		{"show -html - " + good, "bench show: -html: - is standard output, which is not supported"},
		{"score partial -signal surprisal -o - " + good, "bench score partial: -o: - is standard output, which is not supported"},
		{"reweight -o " + dir + "/scores -", "bench reweight: standard input cannot be scored with -o DIRECTORY, which reads its inputs twice"},
		{"reweight -o " + filepath.Dir(good) + "/ " + good, "-o: " + filepath.Dir(good) + "/ is the directory of " + good + ", an input"},
		{"convert /nowhere/a " + dir + "/x.safetensors", "bench convert: /nowhere/a: "},
		{"convert " + noise + " " + dir + "/x.safetensors", noise + ": "},
		{"convert " + good + " " + good + " " + dir + "/x.safetensors", good + ": named twice"},
		{"convert -x " + good + " " + dir + "/x.safetensors", "-x"},
		{"convert -format csv " + good + " " + dir + "/x.safetensors", `-format is "csv", want one of [table json]`},
		{"convert -group-size 0 " + good + " " + dir + "/x.safetensors", "-group-size is 0"},
		{"convert -group-size 7 " + good + " " + dir + "/x.safetensors", good + ": 32 trajectories, want a multiple of the group size, 7"},
		{"convert -action-tags x " + good + " " + dir + "/x.safetensors", "-action-tags"},

		{"run more", `bench run: unexpected argument "more"`},
		{"run -x", "-x"},
		{"run -kernel", "-kernel"},
		{"run -kernel gemm", `-kernel has "gemm"|[token_stats |rollout_correction]`},
		{"run -kernel token_stats,", `-kernel has ""|token_stats`},
		{"run -kernel=", `-kernel has ""|token_stats`},
		{"run -isa sse9", `-isa has "sse9"|portable`},
		{"run -isa auto", `-isa has "auto"|portable`},
		{"run -isa portable,sse9", `-isa has "sse9"|portable`},
		{"run -vocab 0", `-vocab has "0"`},
		{"run -vocab 8,-1", `-vocab has "-1"`},
		{"run -vocab many", `-vocab has "many"`},
		{"run -vocab 99999999999999999999", `-vocab has "99999999999999999999"`},
		{"run -rows 0", "-rows is 0"},
		{"run -rows -1", "-rows is -1"},
		{"run -rows x", "-rows"},
		{"run -rows 16777216 --vocab 16777216", "-rows is 16777216 and -vocab 16777216"},
		{"run -kernel multiply,surrogate,multiply", `-kernel has "multiply" twice`},
		{"run -isa portable,portable", `-isa has "portable" twice`},
		{"run -vocab 8,08", `-vocab has "08" twice`},
		{"run -kernel multiply,surrogate --vocab 8", "-vocab |multiply,surrogate|no vocabulary"},
		{"run -kernel multiply --workers 2", "-workers |multiply|one worker"},
		{"run -pin=-1", "-pin: |CPU -1"},
		{"run -pin 100000", "-pin: |CPU 100000"},
		{"overhead -pin 100000", "-pin: |CPU 100000"},
		{"overhead -pin x", "-pin"},
		{"run -json", "-json"},
		{"run -format yaml", `-format is "yaml", want one of [table markdown csv json go]`},
		{"run -format", "-format"},
		{"run -out=", "-out is empty, want a name"},
		{"run -out " + noise, "-out: |" + noise},
		{"run -out " + noise + "/x", "-out: |" + noise},
		{"run -baseline=", "-baseline is empty, want a name"},
		{"run -baseline /nowhere/x", "-baseline: |/nowhere/x"},
		{"run -baseline " + dir, "-baseline: |" + dir + ": not a regular file"},
		{"run -baseline " + noise, "-baseline: |" + noise + ": invalid character"},
		{"overhead more", `bench overhead: unexpected argument "more"`},
		{"overhead -kernel multiply", "-kernel"},
		{"overhead -format go", `-format is "go", want one of [table markdown csv json]`},
		{"overhead -isa sse9", `-isa has "sse9"|portable`},
		{"overhead -isa=", `-isa has ""|portable`},
		{"overhead -vocab 0", `-vocab has "0"`},
		{"overhead -rows 0", "-rows is 0"},
		{"overhead -rows 1", "-rows is 1, want at least 2 tokens for a training step"},
		{"overhead -rows 16777216 --vocab 16777216", "-rows is 16777216 and -vocab 16777216"},
		{"overhead -scheme dro", `-scheme has "dro": dro is verl's, and not here`},
		{"overhead -scheme=", `-scheme has ""`},
		{"overhead -workers 0", `-workers has "0"`},
		{"run -workers 0", `-workers has "0"`},
		{"run -workers 1,2,1e9", `-workers has "1e9"`},

		{"gate -base=", "-base is empty, want a name"},
		{"gate -base", "-base"},
		{"gate HEAD~1", `unexpected argument "HEAD~1"`},
		{"gate -x", "-x"},
		{"gate -base HEAD -json=", "-json is empty, want a name"},
		{"gate -base HEAD -json /nowhere/r.json", "/nowhere: no such file"},
		{"gate -base HEAD -junit " + dir, "-junit: |not a regular file"},
		{"gate -base HEAD -json - -markdown -", "-markdown -: only one format"},
		{"floors", "want FILE"},
		{"floors a b", `unexpected argument "b"`},
		{"floors /nowhere/floors.json", "/nowhere/floors.json"},
		{"floors " + noise, noise},
		{"floors " + dir, dir},
		{"floors x -kernel gemm", `-kernel has "gemm"|[token_stats |rollout_correction]`},
		{"floors x -isa sse9", `-isa has "sse9"|portable`},
		{"gate -base HEAD -bench [", "-bench: error parsing regexp"},
		{"gate -base HEAD -bench . -skip a/(b", "-skip: error parsing regexp"},
		{"gate -base HEAD -benchtime 3", `-benchtime: "3" is neither a time`},
		{"gate -base HEAD -benchtime 0x", `-benchtime: "0x" is neither a time`},
		{"gate -base HEAD -bench . -cache on", `-cache is "on", want auto or off`},
		{"compare", "bench compare: want OLD and NEW"},
		{"compare old", "want OLD and NEW"},
		{"compare old new newer", `unexpected argument "newer"`},
		{"compare " + dir + " " + dir, dir + " has no go.mod"},
		{"compare " + dir + " " + noise, dir + " is a directory and " + noise + " is a file"},
		{"compare " + noise + " " + noise, noise + " is not a Go test binary"},
		{"compare " + dir + " /nowhere", "there is no /nowhere"},
		{"compare " + dir + " " + dir + " -bench=", "-bench is empty"},
		{"compare " + dir + " " + dir + " -bench *", "-bench: error parsing regexp"},
		{"compare " + dir + " " + dir + " -slower 0.9", "-slower is 0.9, want a ratio above 1"},
		{"compare " + dir + " " + dir + " -base HEAD", "-base"},
		{"compare " + dir + " " + dir + " -json /nowhere/r.json", "/nowhere: no such file"},
	} {
		var stdout, stderr bytes.Buffer
		status := run(t.Context(), strings.Split(c.args, " "), &stdout, &stderr, nil)
		if status != 2 {
			t.Errorf("bench %s: status %d, want 2", c.args, status)
		}
		if stdout.Len() > 0 {
			t.Errorf("bench %s prints %q", c.args, stdout.String())
		}
		message := stderr.String()
		if strings.Count(message, "\n") != 1 || !strings.HasSuffix(message, "\n") {
			t.Errorf("bench %s: not one line: %q", c.args, message)
		}
		for part := range strings.SplitSeq(c.want, "|") {
			if !strings.Contains(message, part) {
				t.Errorf("bench %s: %q does not tell of %q", c.args, message, part)
			}
		}
	}
}

func TestHelp(t *testing.T) {
	for args, want := range map[string]string{
		"-h":                    "bench reweight",
		"--help":                "Exit status",
		"reweight -h":           "-aggregation",
		"reweight FILE -h":      "-dual-clip",
		"run -help":             "token_stats",
		"gate -h":               "-markdown",
		"compare -h":            "OLD NEW",
		"overhead -h":           "KL anchor",
		"info -h":               "REWEIGHT_ISA",
		"reweight -alpha 0 --h": "-alpha",
	} {
		var stdout, stderr bytes.Buffer
		if status := run(t.Context(), strings.Split(args, " "), &stdout, &stderr, nil); status != 0 || stderr.Len() > 0 {
			t.Errorf("bench %s: status %d, errors %q", args, status, stderr.String())
		}
		if !strings.Contains(stdout.String(), want) || !strings.Contains(stdout.String(), "Usage") {
			t.Errorf("bench %s does not tell of %q:\n%s", args, want, stdout.String())
		}
		if help := stdout.String(); strings.HasPrefix(args, "overhead") && (strings.Contains(help, "-delta") || !strings.Contains(help, "off_policy_mask, which has no default, is 0.1 nats")) {
			t.Errorf("bench %s does not tell of the bound, or of a flag that it lacks:\n%s", args, help)
		}
	}
}

func TestInfo(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if status := run(t.Context(), []string{"info"}, &stdout, &stderr, nil); status != 0 {
		t.Fatalf("status %d: %s", status, stderr.String())
	}
	m, err := cli.ThisMachine()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{m.CPU, m.Go, m.Chosen, "caches"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("no %q in\n%s", want, stdout.String())
		}
	}
}

// A fullDisk takes so many bytes and no more.
type fullDisk int

func (d *fullDisk) Write(b []byte) (int, error) {
	n := min(len(b), int(*d))
	*d -= fullDisk(n)
	if n < len(b) {
		return n, errors.New("no space left on device")
	}
	return n, nil
}

func TestOutputCannotBeWritten(t *testing.T) {
	good := write(t, embedded(t))
	for _, args := range [][]string{{"reweight", good}, {"reweight", good, "-format", "json"}, {"info"}, {"-h"}, {"run", "-h"}, {"gate", "-h"}} {
		for _, space := range []fullDisk{0, 30} {
			var stderr bytes.Buffer
			if status := run(t.Context(), args, &space, &stderr, nil); status != 2 {
				t.Errorf("bench %v: status %d, want 2", args, status)
			}
			if m := stderr.String(); strings.Count(m, "\n") != 1 || !strings.Contains(m, "no space left on device") {
				t.Errorf("bench %v: %q", args, m)
			}
		}
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
	if status := run(t.Context(), []string{"show", frozenLakeCopy(t)}, w, &stderr, nil); status != cli.BrokenPipeStatus || stderr.Len() > 0 {
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
