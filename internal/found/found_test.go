package found

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/rollout"
)

// TestReport: what was found is there for people and for programs.
func TestReport(t *testing.T) {
	report := rollout.Report{
		Formats: []string{"NeMo-RL train_data", "safetensors"}, Files: 2, Trajectories: 1, Tokens: 12345, Groups: 3,
		Arrays: []rollout.Origin{
			{Name: "role", Kind: rollout.Derived, From: "mask"}, {Name: "rewards"},
			{Name: "entropy", Kind: rollout.Estimated, From: "top 20 log-probabilities", Width: 0.05125},
			{Name: "old_logprobs", Kind: rollout.Estimated, From: "x", Width: math.Inf(1)},
		},
		Dropped: []string{"content", "idx\x1b"}, Warnings: []string{"Take\ncare."},
	}
	found := NewReport(report)
	var out bytes.Buffer
	must.Do(found.Write(&out))
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
	text := must.Get(json.Marshal(found))
	const object = `{"formats":["NeMo-RL train_data","safetensors"],"files":2,"trajectories":1,"tokens":12345,"groups":3,"arrays":[` +
		`{"name":"role","kind":"derived","from":"mask"},{"name":"rewards","kind":"given"},` +
		`{"name":"entropy","kind":"estimated","from":"top 20 log-probabilities","width":0.05125},` +
		`{"name":"old_logprobs","kind":"estimated","from":"x","width":null}],` +
		`"dropped":["content","idx\u001b"],"warnings":["Take\ncare."]}`
	if string(text) != object {
		t.Errorf("\n%s\nwant\n%s", text, object)
	}
	if text, _ = json.Marshal(NewReport(rollout.Report{})); strings.Contains(string(text), "null") {
		t.Errorf("an empty report is %s", text)
	}
}
