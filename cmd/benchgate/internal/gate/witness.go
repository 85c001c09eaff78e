package gate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed621a2839/reweight/bench"
)

// instructions is the unit of the second witness.
const instructions = "instructions/op"

const (
	countTime   = 2 * time.Millisecond // of the shorter run of a count
	witnessTime = time.Minute          // for all counts
)

// errNotCounted is the error of a machine that does not count instructions.
var errNotCounted = errors.New("instructions are not counted")

// countedSample counts the instructions of a call: what grows with the calls.
func countedSample(b bencher, f *function) (sample, error) {
	few, many := f.calls, 9*f.calls
	var n [2]float64
	for i, calls := range [...]int{few, many} {
		_, o, err := runBlocks(b, f.runnable, calls, 1)
		if err == nil && o.instructions == 0 {
			err = errNotCounted
		}
		if err != nil {
			return nil, err
		}
		n[i] = float64(o.instructions)
	}
	return sample{instructions: max(1, (n[1]-n[0])/float64(many-few))}, nil
}

// countInstructions asks a second witness about functions whose time leaves them open. Noise
// hardly moves the number of instructions, but fewer of them may take longer. So they decide
// only what the median of the times does not contradict.
func (c *comparison) countInstructions(ctx context.Context) error {
	open := slices.DeleteFunc(slices.Clone(c.functions), func(f *function) bool {
		time := f.units[0]
		return f.Verdict == bench.Regression || time.Verdict == bench.Pass || f.failed || f.dropped ||
			len(time.pairs) == 0
	})
	if len(open) == 0 {
		return nil
	}
	second, notes := c.fresh(open, instructions), c.report.Notes
	second.deadline = time.Now().Add(min(witnessTime, max(0, time.Until(c.deadline))+c.overtime()))
	for i, f := range second.functions {
		ns := open[i].units[0].Base
		f.calls = max(1, f.calls, int(float64(countTime)/ns))
		f.cost = time.Duration(40 * float64(f.calls) * ns)
	}
	err := second.measure(ctx, 0)
	c.report.Notes = notes // and not those on the time for the counts
	if errors.Is(err, errNotCounted) {
		c.note("This machine does not let the gate count instructions (perf_event_open), which might decide what is open")
		return nil
	}
	for i, f := range open {
		f.testify(second.functions[i], c.ruleOf(f))
	}
	return err
}

// testify takes what the count of instructions says.
func (f *function) testify(counted *function, rule bench.Rule) {
	ratio := counted.units[0].Ratio
	if ratio == nil || counted.failed || counted.dropped {
		return
	}
	time, median := f.units[0], f.units[0].Ratio.Median
	f.Instructions = ratio
	switch {
	case counted.Verdict == bench.Regression && median > rule.Surely:
		time.Verdict = bench.Regression
	case counted.Verdict == bench.Pass && median < rule.Slower:
		time.Verdict = bench.Pass
	default:
		time.Verdict = bench.Inconclusive
	}
	time.message = fmt.Sprintf("%s after %d pairs", time.finding(), len(time.pairs))
	time.more = append(time.more, counted.units[0].finding())
	f.conclude()
	if f.Verdict == bench.Open { // another unit is
		f.Verdict = bench.Inconclusive
	}
}
