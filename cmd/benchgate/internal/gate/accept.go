package gate

import (
	"context"
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/seed621a2839/reweight/bench"
)

// trailer is the key of the lines at the end of a commit's message that accept a slower
// benchmark: perhaps its package, its name, perhaps "up to" a ratio, and a reason.
const trailer = "Bench-Accept"

// An acceptance is such a line.
type acceptance struct {
	pkg    string // its directory in the module, or its import path; empty if it is not given
	name   string // of a benchmark, with all below it
	most   float64
	reason string
	commit string // short
}

// accepted returns what the commits after the base accept, the newest first.
func (r repository) accepted(ctx context.Context) (list []acceptance, err error) {
	text, err := git(ctx, r.top, "log", "--no-show-signature",
		"--format=%x00%h%n%(trailers:key="+trailer+",valueonly,unfold)", "--end-of-options", r.commit+"..HEAD")
	if err != nil {
		return nil, fmt.Errorf("the commits after the base: %w", err)
	}
	for commit := range strings.SplitSeq(text, "\x00") {
		hash, lines, _ := strings.Cut(commit, "\n")
		for line := range strings.Lines(lines) {
			if strings.TrimSpace(line) == "" {
				continue
			}
			a, err := parseAcceptance(strings.Fields(line))
			if err != nil {
				return nil, fmt.Errorf("commit %s: %s: %w", hash, trailer, err)
			}
			a.commit = hash
			list = append(list, a)
		}
	}
	return list, nil
}

// parseAcceptance reads the words of a line.
func parseAcceptance(words []string) (a acceptance, err error) {
	a.most = math.Inf(1)
	if !strings.HasPrefix(words[0], "Benchmark") && len(words) > 1 {
		a.pkg, words = path.Clean(words[0]), words[1:]
	}
	a.name, words = words[0], words[1:]
	if len(words) > 2 && words[0] == "up" && words[1] == "to" {
		if a.most, err = strconv.ParseFloat(words[2], 64); err != nil || !(a.most >= 1) {
			return a, fmt.Errorf("%s is accepted up to %q, want a ratio such as 1.3", a.name, words[2])
		}
		words = words[3:]
	}
	if len(words) == 0 {
		return a, fmt.Errorf("%s has no reason", a.name)
	}
	a.reason = strings.Join(words, " ")
	return a, nil
}

// covers reports whether the acceptance is about that result.
func (a acceptance) covers(q Result) bool {
	return (a.pkg == "" || a.pkg == q.relative || a.pkg == q.Package) &&
		(a.name == q.Benchmark || strings.HasPrefix(q.Benchmark, a.name+"/"))
}

// worst is the largest ratio of new to base of what failed.
func (q Result) worst() float64 {
	worst := 0.0
	if q.Time == bench.Regression {
		worst = q.Ratio.Median
	}
	for _, m := range q.Metrics {
		switch {
		case m.Verdict != bench.Regression:
		case m.Ratio != nil:
			worst = max(worst, m.Ratio.Median)
		default:
			worst = max(worst, m.New/m.Base)
		}
	}
	return worst
}

// accept marks the regressions that are accepted. What fails, or has no result, is not a
// slow-down and cannot be.
func (g *gate) accept() {
	for _, a := range g.accepted {
		var packages []string
		for _, q := range g.report.Results {
			if a.covers(q) && !slices.Contains(packages, q.relative) {
				packages = append(packages, q.relative)
			}
		}
		if len(packages) == 0 {
			g.note("%s in commit %s names %s, which was not compared", trailer, a.commit, a.name)
			continue
		}
		if len(packages) > 1 {
			g.note("%s in commit %s names %s, which %d packages have: say which, such as %s: ./%s %s",
				trailer, a.commit, a.name, len(packages), trailer, packages[0], a.name)
			continue
		}
		for i := range g.report.Results {
			q := &g.report.Results[i]
			if !a.covers(*q) || q.Verdict != bench.Regression || q.Ratio == nil && len(q.Metrics) == 0 || q.failed ||
				q.Accepted != "" {
				continue
			}
			if q.worst() > a.most {
				q.Message += fmt.Sprintf("; commit %s accepts it up to %v only", a.commit, a.most)
				continue
			}
			q.Accepted = fmt.Sprintf("%s (%s)", a.reason, a.commit)
		}
	}
}
