package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/internal/test/must"
)

// TestNotes: reweight says what was made of its input, and what is odd about it, in
// the text and in the JSON.
func TestNotes(t *testing.T) {
	const (
		plain  = `{"token_ids":[1,2,3,4],"mask":[0,1,1,1],"entropy":[0,1,2,1],"old_logprobs":[0,-1,-2,-1],"reward":0,"group_id":7}` + "\n"
		better = `{"token_ids":[1,2,3,4],"mask":[0,1,1,1],"entropy":[0,2,2,1],"old_logprobs":[0,-1,-2,-1],"reward":1,"group_id":7}` + "\n"
		server = `{"meta_info":{"output_token_logprobs":[[-1,5,null],[-2,6,null]]},"sampling_params":{"temperature":0.7},"group_id":"g","reward":1}` + "\n"
	)
	forgotten := "Warning: No response token is an action: tags around actions say which are"
	file := filepath.Join(t.TempDir(), "x.jsonl")
	for _, c := range []struct {
		lines string
		flags []string
		want  []string // in the text
		both  []string // in the text and in the JSON
	}{
		{plain + better, nil, []string{"role is derived from mask.\n", "2 trajectories of 1 group\n", forgotten}, []string{forgotten[len("Warning: "):]}},
		{plain + better, []string{"-action-open", "3", "-action-close", "9"}, nil, []string{"no response has a token between the tags"}},
		{plain + plain, nil, nil, []string{"All advantages of uniform are 0, because the rewards within each group are equal: so is its credit"}},
		{strings.ReplaceAll(plain, "[0,1,1,1]", "[0,0,0,0]"), nil, nil, []string{"No token is one of a response: all are masked."}},
		{strings.ReplaceAll(plain, `"reward":0`, `"advantages":[0,0,0,0]`), nil, []string{"There are no rewards: the advantages come from the input"}, []string{"All advantages of uniform are 0: so is its credit"}},
		{server, []string{"-surprisal-entropy", "-entropy-width", "Inf"}, []string{"entropy is estimated from surprisal"}, []string{"The temperature is not 1 in some requests"}},
	} {
		must.Do(os.WriteFile(file, []byte(c.lines), 0o666))
		args := append([]string{"-signal", "surprisal", file}, c.flags...)
		text, object := printed(t, args...), printed(t, append(args, "-format", "json")...)
		for _, want := range append(c.want, c.both...) {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q in\n%s", c.lines, want, text)
			}
		}
		for _, want := range c.both {
			if !strings.Contains(object, want) {
				t.Errorf("%s: no %q in\n%s", c.lines, want, object)
			}
		}
	}
	must.Do(os.WriteFile(file, []byte(plain+better), 0o666))
	object := printed(t, "-signal", "surprisal", "-format", "json", file)
	for _, want := range []string{`"derived": [`, `"from": "mask"`, `"warnings": [`} {
		if !strings.Contains(object, want) {
			t.Errorf("no %q in\n%s", want, object)
		}
	}
	if text := printed(t, "show", "-action-open", "3", "-action-close", "9", file); !strings.Contains(text,
		"no response has a token between the tags") {
		t.Errorf("show prints\n%s", text)
	}
	if text := printed(t, write(t, embedded(t))); strings.Contains(text, "Warning") || strings.Contains(text, "lacks") {
		t.Errorf("there is nothing to warn of:\n%s", text)
	}
}
