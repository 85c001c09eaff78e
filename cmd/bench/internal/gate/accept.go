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
	name   string // of a benchmark, with all below it
	reason string
	commit string // short
}

// accepted returns what the commits after the base accept, the newest first.
func (r repository) accepted(ctx context.Context) (list []acceptance, err error) {
	text, err := git(ctx, r.top, "log", "--no-show-signature", "--format=%x00%h%n%(trailers:key="+trailer+",valueonly,unfold)", "--end-of-options", r.commit+"..HEAD")
	if err != nil {
		return nil, fmt.Errorf("the commits after the base: %w", err)
	}
	for commit := range strings.SplitSeq(text, "\x00") {
		hash, lines, _ := strings.Cut(commit, "\n")
		for line := range strings.Lines(lines) {
			fields := strings.Fields(line)
			switch len(fields) {
			case 0:
			case 1:
				return nil, fmt.Errorf("commit %s: %s: %s has no reason", hash, trailer, fields[0])
			default:
				list = append(list, acceptance{fields[0], strings.Join(fields[1:], " "), hash})
			}
		}
	}
	return list, nil
}

// covers reports whether the acceptance is about that result.
func (a acceptance) covers(q Result) bool {
	return a.name == q.Benchmark || strings.HasPrefix(q.Benchmark, a.name+"/")
}

// accept marks the regressions that are accepted. What fails, or has no result, is not a
// slow-down and cannot be.
func (g *gate) accept() {
	for _, a := range g.accepted {
		known := false
		for i := range g.report.Results {
			q := &g.report.Results[i]
			if !a.covers(*q) {
				continue
			}
			known = true
			if q.Verdict == bench.Regression && q.Ratio != nil && !q.failed && q.Accepted == "" {
				q.Accepted = fmt.Sprintf("%s (%s)", a.reason, a.commit)
			}
		}
		if !known {
			g.report.Notes = append(g.report.Notes, fmt.Sprintf("%s in commit %s names %s, which was not compared", trailer, a.commit, a.name))
		}
	}
}
