package rollout

import (
	"slices"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/test/must"
)

// TestTextActions: what of a response is an action. python/tests/test_tags.py has more texts, and holds the rules
// against package reweight of Python on texts at random.
func TestTextActions(t *testing.T) {
	const call = `{"name": "go", "args": {"to": "a } b", "quote": "\"}"}}`
	for _, c := range []struct {
		tags, text string
		passed     int
		want       []string
	}{
		{"answer", "<think>I use <answer> tags</think><answer>Down</answer>", 1, []string{"Down"}},
		{"answer", "begun before <answer>Up</answer></think><answer>Down</answer>", 1, []string{"Down"}},
		{"answer", "<answer>I mean <answer>Down</answer>", 1, []string{"Down"}},
		{"answer", "<think>never ends <answer>Down</answer>", 0, []string{"Down"}},
		{"<think>,</think>", "<think>so</think>", 0, []string{"so"}},
		{"tool_call", "<tool_call>\n" + call + "\n</tool_call>", 0, []string{"\n" + call + "\n"}},
		{"json", "<think>{</think>So: " + call + " or {1", 0, []string{call[1 : len(call)-1]}},
		{"json", "{ {5\" wide\n} {\"a\": 1}", 0, []string{"5\" wide\n", `"a": 1`}},
		{"react", "Thought: x\nAction: go\nAction Input: {\"x\": 1}", 0, []string{" go", ` {"x": 1}`}},
		{"boxed", `$\boxed{\frac{1}{2}}$ and \boxed{\{}`, 0, []string{`\frac{1}{2}`, `\{`}},
		{"code", "```go\nx\n``` or ```y```", 0, []string{"go\nx\n", "y"}},
		{`Say:,\n`, "Say: a Say: b", 1, []string{" b"}},
	} {
		found, passed := textActions([]byte(c.text), must.Get(ParseTags(c.tags)), len(c.text))
		var got []string
		for _, a := range found {
			got = append(got, c.text[a.begin:a.end])
		}
		if !slices.Equal(got, c.want) || passed != c.passed {
			t.Errorf("%s: %q: %q, %d passed over, want %q, %d", c.tags, c.text, got, passed, c.want, c.passed)
		}
	}
}

// TestTagsAsActions: tokens that hold a part of a tag are actions too, but none that ends the response.
func TestTagsAsActions(t *testing.T) {
	for _, c := range []struct {
		texts []string
		tags  string
		want  string
	}{
		{[]string{"so <ans", "wer>", "Down", "</answer>.", " x"}, "answer", "22221"},
		{[]string{"so", "Action:", " go", "", "</s>", ""}, "react", "122211"},
		{[]string{"Action:", "</s>"}, "react", "21"},
	} {
		r := &record{texts: c.texts, mask: slices.Repeat([]bool{true}, len(c.texts))}
		r.takeMask()
		deriveSpans(r)
		must.Get(markActions(r, &Options{ActionTags: must.Get(ParseTags(c.tags)), TagsAsActions: true}))
		got := ""
		for _, role := range r.Role {
			got += string('0' + rune(role))
		}
		if got != c.want {
			t.Errorf("%q: %s, want %s", c.texts, got, c.want)
		}
	}
	ids := &Options{ActionOpen: []int32{1}, ActionClose: []int32{2, 3}, TagsAsActions: true}
	r := &record{mask: []bool{true, true, true, true, true}}
	r.TokenIDs = []int32{0, 1, 7, 2, 3}
	r.takeMask()
	deriveSpans(r)
	must.Get(markActions(r, ids))
	if got := r.Role; got[0] != 1 || slices.ContainsFunc(got[1:], func(role reweight.Role) bool { return role != 2 }) {
		t.Error(got)
	}
}
