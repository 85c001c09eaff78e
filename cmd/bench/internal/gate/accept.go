package gate

import (
	"context"
	"fmt"
	"strings"

	"github.com/seed621a2839/reweight/bench"
)

// trailer is the key of the lines at the end of a commit's message that accept a slower
// benchmark: its name and a reason.
const trailer = "Bench-Accept"

// An acceptance is such a line.
type acceptance struct {
	name   string // of a benchmark, with or without sub-benchmarks
	reason string
	commit string // short
}

// accepted returns what the commits after the base accept.
func (r repository) accepted(ctx context.Context) (list []acceptance, err error) {
	text, err := git(ctx, r.top, "log", "--format=%x00%h%n%(trailers:key="+trailer+",valueonly,unfold)", "--end-of-options", r.commit+"..HEAD")
	if err != nil {
		return nil, fmt.Errorf("the commits after the base: %w", err)
	}
	for commit := range strings.SplitSeq(text, "\x00") {
		hash, lines, _ := strings.Cut(commit, "\n")
		for line := range strings.Lines(lines) {
			name, reason, _ := strings.Cut(strings.TrimSpace(line), " ")
			if name == "" {
				continue
			}
			if reason = strings.TrimSpace(reason); reason == "" {
				return nil, fmt.Errorf("commit %s: %s: %s has no reason", hash, trailer, name)
			}
			list = append(list, acceptance{name, reason, hash})
		}
	}
	return list, nil
}

// covers reports whether the acceptance is about that benchmark.
func (a acceptance) covers(name string) bool {
	return name == a.name || strings.HasPrefix(name, a.name+"/")
}

// accept marks the regressions that are accepted. What fails, or has no result, is not a
// slow-down and cannot be.
func (g *gate) accept() {
	for i := range g.report.Results {
		q := &g.report.Results[i]
		if q.Verdict != bench.Regression || q.Ratio == nil {
			continue
		}
		for _, a := range g.accepted {
			if a.covers(q.Benchmark) {
				q.Accepted = fmt.Sprintf("%s (%s)", a.reason, a.commit)
			}
		}
	}
}
