package rollout

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/test/must"
)

// The file was written by verifiers 0.4.0: two episodes of one task, the second of which has a trace of
// two paths, and one of a judge.
func TestVerifiersFile(t *testing.T) {
	s := must.Get(Open("testdata/verifiers.jsonl"))
	defer s.Close()
	first, second := must.Get(s.Next()), must.Get(s.Next())
	if _, err := s.Next(); err == nil {
		t.Fatal("a third trajectory")
	}
	for _, c := range []struct{ got, want any }{
		{first.TokenIDs, []int32{5, 6, 7, 8, 20, 21, 22, 9, 5, 8, 22, 21, 20}},
		{first.Role, []reweight.Role{0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1}},
		{first.OldLogprobs[4:7], []float32{-0.134, -0.847, -0.764}},
		{first.Logprobs[4:7], []float32{-0.255, -0.495, -0.449}},
		{first.RefLogprobs[4:7], []float32{-0.652, -0.789, -0.094}},
		{first.Entropy[4:7], []float32{0.057, 1.672, 0.866}},
		{first.Advantages[4:7], []float32{0.5, 0.5, 0.5}},
		{[]float32{first.Rewards[0], second.Rewards[0]}, []float32{1.25, 0.25}},
		{first.GroupIDs[0], second.GroupIDs[0]},
		// The second path of the trace repeats its root and its first answer, which count once.
		{second.TokenIDs, []int32{5, 6, 7, 8, 23, 24, 9, 5, 8, 24, 23, 5, 6, 7, 8, 23, 24, 9, 6, 8, 3}},
		{second.Role, []reweight.Role{0, 0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}},
	} {
		if fmt.Sprint(c.got) != fmt.Sprint(c.want) {
			t.Errorf("%v, want %v", c.got, c.want)
		}
	}
	if first.SpanRewards != nil {
		t.Errorf("rewards of turns %v", first.SpanRewards)
	}
	r := s.Report()
	if !slices.ContainsFunc(r.Warnings, func(w string) bool { return strings.HasPrefix(w, "Traces are left out") }) {
		t.Errorf("warnings %q", r.Warnings)
	}
}

// Rewards of turns are those of the messages that were sampled, in the order of the messages; null is 0.
// Those of a trace of two paths are in the order in which its turns count.
func TestVerifiersTurns(t *testing.T) {
	node := `{"parent": %d, "token_ids": [%d, %d], "mask": [false, %v], "logprobs": [%s]}`
	line := func(rewards string) string {
		of := func(parent, id int, sampled bool) string {
			logprob := ""
			if sampled {
				logprob = "-1"
			}
			return fmt.Sprintf(node, parent, id, id+1, sampled, logprob)
		}
		nodes := strings.Join([]string{of(-1, 1, false), of(0, 3, true), of(1, 5, true), of(1, 7, true)}, ",")
		return `{"id": "a", "info": {"turn_rewards": ` + rewards + `, "more": 1}, "rewards": {"x": {"score": 2}}, ` +
			`"nodes": [` + nodes + "]}\n"
	}
	read := func(text string) (*Trajectory, error) {
		path := filepath.Join(t.TempDir(), "traces.jsonl")
		must.Do(os.WriteFile(path, []byte(text), 0o600))
		s := must.Get(Open(path))
		defer s.Close()
		return s.Next()
	}
	got := must.Get(read(line("[0.5, null, -1]")))
	if want := []float32{0.5, 0, -1}; !slices.Equal(got.SpanRewards, want) || got.Rewards[0] != 2 {
		t.Errorf("%v and %v, want %v and 2", got.SpanRewards, got.Rewards, want)
	}
	if got := must.Get(read(line("null"))); got.SpanRewards != nil {
		t.Errorf("%v of null", got.SpanRewards)
	}
	const problem = "traces.jsonl:1: info.turn_rewards has 2 elements, but 3 messages were sampled"
	if _, err := read(line("[0.5, 1]")); err == nil || !strings.HasSuffix(err.Error(), problem) {
		t.Errorf("%v, want %s", err, problem)
	}
}
