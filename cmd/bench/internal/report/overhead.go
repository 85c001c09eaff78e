package report

import (
	"fmt"
	"io"
	"strconv"

	"github.com/dustin/go-humanize"
	"github.com/seed621a2839/reweight/cmd/bench/internal/machine"
	"github.com/seed621a2839/reweight/cmd/bench/internal/measure"
	"github.com/seed621a2839/reweight/internal/cli"
)

// An Overhead is a run of bench overhead.
type Overhead struct {
	Machine  machine.Machine    `json:"machine"`
	Partial  bool               `json:"partial"` // the run was interrupted, or failed
	Overhead []measure.Overhead `json:"overhead"`
}

// overheadNotes say how the tables are to be read, in lines of at most 100 columns.
const overheadNotes = `Advantages are of grpo, of ppo (GAE), or own: made by the scheme itself.
KL is an anchor: the step passes over the reference's logits too. No loss here has a KL term.
Null is the time of the uniform step over its own, as if it were two steps: the noise of this run.
A step is free if it takes at most 2% longer than the uniform one; so must the null.`

// Write prints the report: the verdict, and tables of at most 100 columns, or JSON.
func (r Overhead) Write(w io.Writer, asJSON bool) error {
	if asJSON {
		return cli.WriteJSON(w, r)
	}
	if cost := Cost(r.Overhead); cost != "" && !r.Partial {
		fmt.Fprintf(w, "Cost: %s\n", cost)
	}
	if noisy := Noisy(OverheadNulls(r.Overhead)); noisy != "" {
		cli.Warning(w, noisy)
	}
	if len(r.Overhead) > 0 {
		cli.Heading(w, "Training steps from logits to loss and gradient, over the uniform step")
		for i, table := range overheadTables {
			if i > 0 {
				fmt.Fprintln(w)
			}
			var rows [][]string
			for _, o := range r.Overhead {
				name := o.Step + " " + o.Advantages
				if o.KL {
					name += " KL"
				}
				rows = append(rows, append([]string{name}, table.row(o)...))
			}
			if err := cli.WriteTable(w, 2, append([]string{"step"}, table.columns...), rows); err != nil {
				return err
			}
		}
		fmt.Fprintf(w, "\n%s\n", overheadNotes)
	}
	fmt.Fprintln(w)
	if err := cli.WriteTable(w, 2, nil, r.Machine.Rows()); err != nil {
		return err
	}
	if r.Partial {
		fmt.Fprintf(w, "\n%s\n", Ended)
	}
	return nil
}

// overheadTables have training steps as cells for people, numbers with their intervals.
var overheadTables = [...]struct {
	columns []string
	row     func(o measure.Overhead) []string
}{
	{[]string{"isa", "times uniform", "null", "rounds", "allocs"}, func(o measure.Overhead) []string {
		return []string{o.ISA, cli.Ratio(o.OverUniform), cli.Ratio(o.Null), strconv.Itoa(o.OverUniform.N),
			strconv.FormatUint(o.Allocs, 10)}
	}},
	{[]string{"verdict"}, func(o measure.Overhead) []string { return []string{o.Verdict + ": " + o.Reason} }},
	{[]string{"rows", "uniform ms", "extra", "peak"}, func(o measure.Overhead) []string {
		peak := "unknown"
		if o.PeakBytes > 0 {
			peak = humanize.IBytes(uint64(o.PeakBytes))
		}
		return []string{shapeOf(o.Tokens, o.Vocab, o.Workers), fmt.Sprintf("%.2f", o.UniformNs.Median/1e6),
			extraMemory(o), peak}
	}},
}

// extraMemory prints what the step holds on the heap beyond the uniform step.
func extraMemory(o measure.Overhead) string { return humanize.IBytes(uint64(max(0, o.ExtraBytes))) }
