package score

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/rollout"
)

// counted returns the trajectories as a file of that name, of which each n make a group.
func counted(name string, n int, of ...*rollout.Trajectory) shard {
	s := named(name, of...)
	for i, t := range s {
		t.Group, t.LocalGroup = fmt.Sprintf("%s: group %d", name, i/n), true
	}
	return s
}

// TestLocalGroups: groups that were made by counting stay apart in files of one name, and
// are found again when the file has another. The scores are the same as of groups with ids.
func TestLocalGroups(t *testing.T) {
	all := trajectories(t)
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	const n = 3
	for _, scope := range scopes {
		opt := Default
		opt.AEM.Scope = scope
		one := mustOf(t, opt, counted("s.jsonl", n, all[:12]...))
		two := mustOf(t, opt, counted("s.jsonl", n, all[12:24]...))
		merged := reread(t, mustMerge(t, reread(t, two), one))
		if got := merged.Totals().Groups; got != 8 {
			t.Errorf("%d groups, want 8", got)
		}
		got := results(t, merged, opt, counted("elsewhere/s.jsonl", n, all[12:24]...))
		maps.Copy(got, results(t, merged, opt, counted("renamed", n, all[:12]...)))

		whole := named("whole", all[:24]...)
		for i, tr := range whole {
			tr.Group = fmt.Sprint(i / n)
		}
		expectSame(t, got, results(t, mustOf(t, opt, whole), opt, whole))

		err := apply(sourceOf(counted("s.jsonl", 2*n, all[:12]...)), merged, opt, func(Scored) error { return nil })
		if err == nil || !strings.Contains(err.Error(), "not of this file") {
			t.Errorf("other groups: error %v", err)
		}
	}
	if _, err := merge(mustOf(t, Default, counted("a", n, all[:3]...)),
		mustOf(t, Default, counted("b", n, all[:3]...))); err == nil {
		t.Error("a file is taken twice")
	}
}

// TestSameSamples: equal trajectories of two groups are two files.
func TestSameSamples(t *testing.T) {
	one := trajectories(t)[0]
	one.TokenIDs = nil
	other := *one
	other.Group = "another"
	a, b := named("a", one), named("b", &other)
	p := mustMerge(t, mustOf(t, Default, a), mustOf(t, Default, b))
	if got := p.Totals(); got.Files != 2 || got.Groups != 2 {
		t.Errorf("%d files of %d groups, want 2 of 2", got.Files, got.Groups)
	}
	results(t, p, Default, a, b)
}
