package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/testdata"
	"github.com/seed621a2839/reweight/testdata/golden"
)

// frozenLakeCopy writes the embedded file, with its metadata, and returns its path.
func frozenLakeCopy(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "lake.safetensors")
	must.Do(os.WriteFile(path, testdata.FrozenLakeSmall, 0o666))
	return path
}

// shown runs reweight show and returns what it prints.
func shown(t *testing.T, args ...string) string {
	t.Helper()
	t.Setenv("COLUMNS", "")
	return printed(t, append([]string{"show"}, args...)...)
}

// TestShow: what is printed into a pipe.
func TestShow(t *testing.T) {
	path := frozenLakeCopy(t)
	t.Chdir(filepath.Dir(path))
	const want = `Actions are 4.1% of the agent's 3,302 tokens, and have 34.4% of the weight by
ActFocus.
Answers without an action: 1 of 135.
Groups in which all rewards are equal: 0 of 4.
Groups in which AEM changes nothing, because the entropies of the answers are
alike: 0 of 4.
In which tokens the signal is, and whether other weights of them help, is not to
be seen in rollouts alone: python -m reweight audit measures it, with the model
that drew them.
A loss that is a mean over tokens divides by the sum of the weights: it
multiplies the advantages of actions by 8.48 on average, and those of reasoning
by 0.684.

Trajectory 9 of lake.safetensors: group 1, reward 1, 2 turns, 87 tokens.

Turn 1: tokens read 22, tokens written 21, mean entropy 0.245,
mean surprisal 0.134, AEM factor 1.33, advantage +0.354, reasoning weighs 0.133,
action weighs 1.87
  env | <obs> _ _ _ G / _ _ _ _ / _ _ _ P / _ _ _ _ / </obs>
agent | <think> the player is at row 2 col 3 . so I should go Up . </think>
agent | <answer> Up </answer> <eos>
      |          9

Turn 2: tokens read 22, tokens written 22, mean entropy 0.258,
mean surprisal 0.366, AEM factor 1.31, advantage +0.354, reasoning weighs 0.131,
action weighs 1.52
  env | <obs> _ _ _ G / _ _ _ P / _ _ _ _ / _ _ _ _ / </obs>
agent | <think> the player is goal at row 3 col 3 . so I should go Left .
agent | </think> <answer> Up </answer> <eos>
      |                   7

The weight of a token is its ActFocus weight times its AEM factor; uniform
training weighs each token 1.
Under each action token stands the step of its weight. The steps begin at:
  0: 0  1: 0.2  2: 0.4  3: 0.6  4: 0.8  5: 1  6: 1.2  7: 1.4  8: 1.6  9: 1.8
`
	if got := shown(t, "lake.safetensors", "-trajectory", "9"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestShowAudit: an audit is printed from its file and its folder, alone.
func TestShowAudit(t *testing.T) {
	var cases []struct {
		Text string
		File json.RawMessage
	}
	golden.Read(t, "audit.json", &cases)
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.json")
	must.Do(os.WriteFile(path, cases[0].File, 0o666))
	for _, name := range []string{dir, path} {
		if got := shown(t, name); got != cases[0].Text+"\n" {
			t.Errorf("got\n%s\nwant\n%s", got, cases[0].Text)
		}
	}
	for _, args := range [][]string{{path, "-html", filepath.Join(dir, "page.html")}, {path, path}} {
		refused(t, path+": an audit, want it alone and without -html: its page lies beside it",
			append([]string{"show"}, args...)...)
	}
	must.Do(os.WriteFile(path, []byte(`{"audit": {"parts": []}}`), 0o666))
	refused(t, path+": the audit's Parts are 0, of 0 layers, want at least one of each", "show", dir)
}

// TestShowPage: -html writes a page, and prints nothing.
func TestShowPage(t *testing.T) {
	path := frozenLakeCopy(t)
	page := filepath.Join(t.TempDir(), "page.html")
	if got := shown(t, path, "-trajectory", "0,30-31", "-html", page); got != "" {
		t.Errorf("it prints %q", got)
	}
	html := must.Get(os.ReadFile(page))
	for _, want := range []string{"<!DOCTYPE html>", "<p>Answers without an action: 1 of 135.</p>", "Trajectory 0 of ",
		"Trajectory 30 of ", "Trajectory 31 of ", "&lt;think&gt;</span>", "</html>"} {
		if !strings.Contains(string(html), want) {
			t.Errorf("no %s", want)
		}
	}
	if strings.Contains(string(html), "Trajectory 1 of ") {
		t.Error("a trajectory that was not chosen")
	}
}

// TestShowTexts: texts come from the file's metadata, or from -vocab-file; else there are
// ids.
func TestShowTexts(t *testing.T) {
	path := frozenLakeCopy(t)
	plain := write(t, embedded(t)) // without metadata
	words := filepath.Join(t.TempDir(), "words.json")
	must.Do(os.WriteFile(words, []byte(`["", "", "[obs]", "", "[think]"]`), 0o666))
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{path}, "agent | <think> the player "},
		{[]string{plain}, "agent | #4 #68 #60 "},
		{[]string{plain, "-vocab-file", words}, "agent | [think] #68 #60 "},
		{[]string{path, "-vocab-file", words}, "agent | [think] #68 #60 "},
		{[]string{plain, path, "-trajectory", "0,32"}, "agent | <think> the player "},
	} {
		if got := shown(t, c.args...); !strings.Contains(got, c.want) {
			t.Errorf("show %v: no %q in\n%s", c.args, c.want, got)
		}
	}
}

// TestTagsByVocabulary: tags as texts are found in files that have only the ids of tokens, by a vocabulary
// in a file, or in the metadata of a safetensors file.
func TestTagsByVocabulary(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rollouts.jsonl")
	line := `{"reward": %d, "group_id": 1, "token_ids": [0, 1, 2, 4, 3], "mask": [0, 1, 1, 1, 1]}` + "\n"
	must.Do(os.WriteFile(path, fmt.Appendf(nil, line+line, 0, 1), 0o666))
	for _, words := range []string{
		`["<s>", "think", "<answer>", "</answer>", " left"]`,
		`{"<s>": 0, "think": 1, "<answer>": 2, "</answer>": 3, "Ġleft": 4}`,
	} {
		file := filepath.Join(t.TempDir(), "vocab.json")
		must.Do(os.WriteFile(file, []byte(words), 0o666))
		got := shown(t, path, "-vocab-file", file, "-action-tags", "answer")
		for _, want := range []string{"agent | think<answer> left</answer>", "Answers without an action: 0 of 2"} {
			if !strings.Contains(got, want) {
				t.Errorf("%s: no %q in\n%s", words, want, got)
			}
		}
	}
	got := shown(t, frozenLakeCopy(t), "-action-tags", "<answer>,</answer>")
	if !strings.Contains(got, "Answers without an action: 0 of 135") {
		t.Errorf("the vocabulary of the file does not find the tags:\n%s", got)
	}
}

// TestShowMultipliers: what a trainer's weights do to its advantages is said, unless a note of the page has it.
func TestShowMultipliers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "step.jsonl")
	line := `{"reward": %d, "group_id": 1, "token_ids": [0, 1, 2, 3, 4], "role": [0, 1, 1, 1, 2], ` +
		`"actfocus_weights": [0, 0.5, 0.5, 0.5, 2.5], "advantages": [0, 1, 1, 1, 1], "credited_advantages": [0, 0.5, 0.5, 0.5, 2.5]}` + "\n"
	must.Do(os.WriteFile(path, fmt.Appendf(nil, line+line, 0, 1), 0o666))
	const want = "advantages of actions by 2.5 on average, and those of reasoning by 0.5."
	for _, c := range []struct {
		args []string
		said bool
	}{{nil, true}, {[]string{"-note", "The trainer says it."}, false}} {
		got := shown(t, append(c.args, path)...)
		if said := strings.Contains(strings.Join(strings.Fields(got), " "), want); said != c.said {
			t.Errorf("show %v: multipliers said: %t, in\n%s", c.args, said, got)
		}
	}
}

func TestShowWrongUse(t *testing.T) {
	path := frozenLakeCopy(t)
	bad := filepath.Join(t.TempDir(), "bad.json")
	must.Do(os.WriteFile(bad, []byte("{}"), 0o666))
	page := filepath.Join(t.TempDir(), "page.html")
	empty := filepath.Join(t.TempDir(), "empty.jsonl")
	must.Do(os.WriteFile(empty, nil, 0o666))
	for _, c := range []struct{ args, want string }{ // the message after "reweight show: "
		{"", "no FILE given\n"},
		{path + " -x", "flag provided but not defined: -x"},
		{path + " -trajectory 32", "-trajectory has 32, want 0 to 31\n"},
		{path + " -trajectory 0-x", `-trajectory has "0-x", want numbers from 0 and ranges, such as 0,4-7` + "\n"},
		{path + " -trajectory=", `-trajectory has "", want numbers`},
		{path + " -signal loudness", `-signal is "loudness", want one of [energy ref_entropy surprisal log_ratio]`},
		{path + " -html=", "-html is empty, want a name"},
		{path + " -html " + path, "-html: " + path + " is the input file"},
		{path + " -html " + filepath.Join(bad, "page.html"), "-html: " + filepath.Join(bad, "page.html") + ": "},
		{path + " -vocab-file=", "-vocab-file is empty, want a name"},
		{path + " -vocab-file " + bad, "-vocab-file: " + bad + ": is neither a JSON list of texts nor"},
		{path + " -vocab-file /nowhere\x1b.json", `-vocab-file: "/nowhere\x1b.json": no such file`},
		{path + " -group-size 0", "-group-size is 0"},
		{path + " -group-size 7 -html " + page, path + ": 32 trajectories, want a multiple of the group size, 7"},
		{"/nowhere/\x1b[31m", `"/nowhere/\x1b[31m": `},
		{path + " " + write(t, embedded(t)) + " -trajectory 64 -html " + page, "-trajectory has 64, want 0 to 63\n"},
		{empty, empty + ": there are no tokens\n"},
	} {
		refused(t, "reweight show: "+c.want, "show "+c.args)
	}
	if _, err := os.Stat(page); err == nil {
		t.Error("an error leaves a page")
	}
}
