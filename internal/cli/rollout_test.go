package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/rollout"
)

func TestRolloutFlags(t *testing.T) {
	for _, c := range []struct {
		args string
		want rollout.Options
		err  string
	}{
		{"", rollout.Options{}, ""},
		{"-action-open 6 -action-close 7,0,2147483647 -group-size 8 -vocab 75 -surprisal-entropy", rollout.Options{
			ActionOpen: []int32{6}, ActionClose: []int32{7, 0, math.MaxInt32}, GroupSize: 8, Vocab: 75, SurprisalEntropy: true,
		}, ""},
		{"-action-tags <answer>,</answer>", rollout.Options{ActionTags: [2]string{"<answer>", "</answer>"}}, ""},
		{"-action-open 6", rollout.Options{}, "-action-open and -action-close go together: give both"},
		{"-action-close 6", rollout.Options{}, "-action-open and -action-close go together: give both"},
		{"-action-open 6, -action-close 7", rollout.Options{}, `-action-open has "", want token ids of 0 to 2147483647`},
		{"-action-open 6 -action-close x", rollout.Options{}, `-action-close has "x", want token ids of 0 to 2147483647`},
		{"-action-open 6 -action-close=-1", rollout.Options{}, `-action-close has "-1", want token ids of 0 to 2147483647`},
		{"-action-open 2147483648 -action-close 1", rollout.Options{}, `-action-open has "2147483648", want token ids of 0 to 2147483647`},
		{"-action-tags a", rollout.Options{}, `-action-tags is "a", want two texts with a comma between them, such as <answer>,</answer>`},
		{"-action-tags a,", rollout.Options{}, `-action-tags is "a,", want two texts`},
		{"-action-tags ,a", rollout.Options{}, `-action-tags is ",a", want two texts`},
		{"-action-tags a,b,c", rollout.Options{}, `-action-tags is "a,b,c", want two texts`},
		{"-action-tags=", rollout.Options{}, `-action-tags is "", want two texts`},
		{"-group-size 0", rollout.Options{}, "-group-size is 0, want 1 to 2147483647"},
		{"-vocab=-1", rollout.Options{}, "-vocab is -1, want 1 to 2147483647"},
	} {
		flags := NewFlags("bench convert")
		options := flags.RolloutFlags()
		if err := flags.ParseAlone("", strings.Fields(c.args), io.Discard); err != nil {
			t.Fatalf("%s: %v", c.args, err)
		}
		got, err := options()
		if c.err != "" {
			if err == nil || !strings.HasPrefix(err.Error(), c.err) {
				t.Errorf("%s: error %v, want %s", c.args, err, c.err)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, %v, want %+v", c.args, got, err, c.want)
		}
	}
}

// TestFound: what was found is there for people and for programs.
func TestFound(t *testing.T) {
	report := rollout.Report{
		Formats: []string{"NeMo-RL train_data", "safetensors"}, Files: 2, Trajectories: 1, Tokens: 12345, Groups: 3,
		Arrays: []rollout.Origin{
			{Name: "role", Kind: rollout.Derived, From: "mask"}, {Name: "rewards"},
			{Name: "entropy", Kind: rollout.Estimated, From: "top 20 log-probabilities", Width: 0.05125},
			{Name: "old_logprobs", Kind: rollout.Estimated, From: "x", Width: math.Inf(1)},
		},
		Dropped: []string{"content", "idx\x1b"}, Warnings: []string{"Take\ncare."},
	}
	found := NewFound(report)
	var out bytes.Buffer
	if err := found.Write(&out); err != nil {
		t.Fatal(err)
	}
	const want = `12,345 tokens in 1 trajectory of 3 groups, from 2 files of NeMo-RL train_data and safetensors

array         where it comes from
---------------------------------------------------------------------------------------------
role          derived from mask
rewards       given
entropy       estimated from top 20 log-probabilities, bounds 0.05125 nats apart on average
old_logprobs  estimated from x, without bounds

Dropped: content, idx\x1b
Warning: Take\ncare.
`
	if out.String() != want {
		t.Errorf("\n%s\nwant\n%s", out.String(), want)
	}
	text, err := json.Marshal(found)
	if err != nil {
		t.Fatal(err)
	}
	const object = `{"formats":["NeMo-RL train_data","safetensors"],"files":2,"trajectories":1,"tokens":12345,"groups":3,"arrays":[` +
		`{"name":"role","kind":"derived","from":"mask"},{"name":"rewards","kind":"given"},` +
		`{"name":"entropy","kind":"estimated","from":"top 20 log-probabilities","width":0.05125},` +
		`{"name":"old_logprobs","kind":"estimated","from":"x","width":null}],` +
		`"dropped":["content","idx\u001b"],"warnings":["Take\ncare."]}`
	if string(text) != object {
		t.Errorf("\n%s\nwant\n%s", text, object)
	}
	if text, _ = json.Marshal(NewFound(rollout.Report{})); strings.Contains(string(text), "null") {
		t.Errorf("an empty report is %s", text)
	}
}
