package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/internal/cli"
	"github.com/seed621a2839/reweight/internal/machine"
	"github.com/seed621a2839/reweight/internal/measure"
)

// A Comparison compares a measurement with that of an earlier run.
type Comparison struct {
	// Ratio is the time now over the time then. Its interval is the widest that
	// the intervals of the two allow, and its rounds are the fewer of theirs.
	Ratio bench.Estimate `json:"ratio"`
	Read  bench.Number   `json:"read_ratio"` // of the times of the plain read: how far the machine itself drifted
	Word  string         `json:"verdict"`    // slower, faster, within drift or not decided
}

// compare compares a result with the same of an earlier run. Runs at different
// times drift apart, so a kernel is slower or faster only if its time and its
// share of the plain read of the same run both say so, beyond their intervals,
// which take enough rounds.
func compare(now, then measure.Result) Comparison {
	t, old := now.NsPerElement, then.NsPerElement
	c := Comparison{
		Ratio: bench.Estimate{Median: t.Median / old.Median, Lo: t.Lo / old.Hi, Hi: t.Hi / old.Lo, N: min(t.N, old.N)},
		Read:  bench.Number(then.ReadGBPerS / now.ReadGBPerS),
		Word:  "within drift",
	}
	switch {
	case c.Ratio.N < bench.FewestRounds:
		c.Word = measure.OnlyRounds(c.Ratio.N)
	case c.Ratio.Lo > 1 && now.Share.Hi < then.Share.Lo:
		c.Word = "slower"
	case c.Ratio.Hi < 1 && now.Share.Lo > then.Share.Hi:
		c.Word = "faster"
	}
	return c
}

// String is for tables.
func (c *Comparison) String() string { return cli.Ratio(c.Ratio) + " " + c.Word }

// Comparable returns an error that says why results of this machine and these
// shapes cannot be compared with an earlier run. The planned results say what
// they are of and have no figures yet.
func (then Report) Comparable(m machine.Machine, planned []measure.Result) error {
	old := then.Machine
	for _, c := range [...]struct {
		what      string
		now, then any
	}{
		{"CPU", m.CPU, old.CPU},
		{"architecture", m.OS + "/" + m.Arch, old.OS + "/" + old.Arch},
		{"instruction sets", strings.Join(m.Features, " "), strings.Join(old.Features, " ")},
		{"number of CPUs", m.CPUs, old.CPUs},
		{"GOMAXPROCS", m.GOMAXPROCS, old.GOMAXPROCS},
		{"pinning", m.Pinning(), old.Pinning()},
		{"Go version", m.Go, old.Go},
	} {
		if c.now != c.then {
			return fmt.Errorf("another %s: %v then, %v now", c.what, c.then, c.now)
		}
	}
	for _, p := range planned {
		if p.ISA == machine.CUDA {
			if now, old := nameOf(m.GPU), nameOf(old.GPU); now != old {
				return fmt.Errorf("another GPU: %s then, %s now", old, now)
			}
		}
		if then.find(p) != nil {
			continue
		}
		if then.Partial {
			return fmt.Errorf("%v: not measured before that run ended", keyOf(p))
		}
		var shapes []string // of the kernel with that instruction set, then
		for _, q := range then.Results {
			if q.Kernel == p.Kernel && q.DType == p.DType && q.ISA == p.ISA {
				shapes = append(shapes, keyOf(q.Result).shape())
			}
		}
		switch {
		case shapes != nil:
			return fmt.Errorf("another shape: %s then, %v now", strings.Join(shapes, " and "), keyOf(p))
		case slices.ContainsFunc(then.Results, func(q Result) bool { return q.ISA == p.ISA }):
			return fmt.Errorf("%s %s was not measured then", p.Kernel, p.DType)
		default:
			return fmt.Errorf("another instruction set: %s was not measured then", p.ISA)
		}
	}
	return nil
}

// nameOf names a GPU.
func nameOf(g *machine.Graphics) string {
	if g == nil {
		return "none"
	}
	return g.Name + " with CUDA " + g.Driver
}

// find returns the result of the same kernel, instruction set and shape, or nil.
func (r Report) find(like measure.Result) *Result {
	i := slices.IndexFunc(r.Results, func(q Result) bool { return keyOf(q.Result) == keyOf(like) })
	if i < 0 {
		return nil
	}
	return &r.Results[i]
}

// Compare sets the comparisons of r's results with those of an earlier run that
// has them (see Comparable).
func (r *Report) Compare(then Report) {
	for i := range r.Results {
		now := &r.Results[i]
		if old := then.find(now.Result); old != nil {
			c := compare(now.Result, old.Result)
			now.Baseline = &c
		}
	}
}

// Drift says how the comparisons are to be read, or nothing if there are none.
func (r Report) Drift() string {
	var lo, hi bench.Number
	for _, q := range r.Results {
		if c := q.Baseline; c != nil {
			if hi == 0 {
				lo, hi = c.Read, c.Read
			}
			lo, hi = min(lo, c.Read), max(hi, c.Read)
		}
	}
	if hi == 0 {
		return ""
	}
	reads := fmt.Sprintf("%.2f to %.2f", lo, hi)
	if lo == hi {
		reads = fmt.Sprintf("%.2f", lo)
	}
	return fmt.Sprintf("Against the earlier run: time now over time then. Runs at different times drift: the plain reads, which are the same\n"+
		"code, now take %s times as long. Slower or faster is said only where the share of the plain read says so too;\n"+
		"a regression is for benchgate to find, which runs both versions in turn.", reads)
}
