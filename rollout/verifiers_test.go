package rollout

import (
	"fmt"
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
	r := s.Report()
	if !slices.ContainsFunc(r.Warnings, func(w string) bool { return strings.HasPrefix(w, "Traces are left out") }) {
		t.Errorf("warnings %q", r.Warnings)
	}
}
