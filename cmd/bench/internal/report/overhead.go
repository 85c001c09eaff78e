package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"

	"github.com/dustin/go-humanize"
	"github.com/seed621a2839/reweight/cmd/bench/internal/cli"
	"github.com/seed621a2839/reweight/cmd/bench/internal/measure"
)

// An Overhead is a run of bench overhead.
type Overhead struct {
	Machine  cli.Machine        `json:"machine"`
	Partial  bool               `json:"partial"` // the run was interrupted, or failed
	Overhead []measure.Overhead `json:"overhead"`
}

// Write prints the report in that format.
func (r Overhead) Write(w io.Writer, as cli.Format) error {
	switch as {
	case cli.JSON:
		return cli.WriteJSON(w, r)
	case cli.CSV:
		return r.writeCSV(w)
	case cli.Markdown:
		if r.Partial {
			fmt.Fprintf(w, "**%s**\n\n", Ended)
		}
		fmt.Fprintf(w, "%s, %s, %s/%s\n\n", cli.MarkdownText(r.Machine.CPU), r.Machine.Go, r.Machine.OS, r.Machine.Arch)
		return cli.WriteMarkdown(w, overheadText, overheadHeader, r.rows())
	}
	if err := cli.WriteTable(w, 2, nil, r.Machine.Rows()); err != nil {
		return err
	}
	cli.Heading(w, "Training steps from logits to loss and gradient, over the uniform step")
	if err := cli.WriteTable(w, overheadText, overheadHeader, r.rows()); err != nil {
		return err
	}
	if r.Partial {
		fmt.Fprintf(w, "\n%s\n", Ended)
	}
	return nil
}

const overheadText = 5 // columns of text

var overheadHeader = []string{"step", "advantages", "KL", "isa", "verdict", "times uniform", "null", "rounds", "extra", "allocs", "peak", "rows", "uniform ms"}

func (r Overhead) rows() [][]string {
	var rows [][]string
	for _, o := range r.Overhead {
		peak := "unknown"
		if o.PeakBytes > 0 {
			peak = humanize.IBytes(uint64(o.PeakBytes))
		}
		rows = append(rows, []string{
			o.Step, o.Advantages, YesNo(o.KL), o.ISA, o.Verdict, cli.Ratio(o.OverUniform), cli.Ratio(o.Null),
			strconv.Itoa(o.OverUniform.N), ExtraMemory(o), strconv.FormatUint(o.Allocs, 10), peak, cli.Shape(o.Tokens, o.Vocab, o.Workers), fmt.Sprintf("%.2f", o.UniformNs.Median/1e6),
		})
	}
	return rows
}

// ExtraMemory prints what the step holds on the heap beyond the uniform step.
func ExtraMemory(o measure.Overhead) string { return humanize.IBytes(uint64(max(0, o.ExtraBytes))) }

// YesNo prints a bool.
func YesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func (r Overhead) writeCSV(w io.Writer) error {
	c := csv.NewWriter(w)
	c.Write([]string{"step", "advantages", "kl", "isa", "tokens", "vocab", "workers", "uniform_ns", "over_uniform", "lo", "hi", "verdict", "rounds", "outliers",
		"null", "null_lo", "null_hi", "extra_bytes", "allocs", "alloc_bytes", "peak_bytes", "partial"}) // the first error stays, and Error returns it
	f := func(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
	for _, o := range r.Overhead {
		e := o.OverUniform
		c.Write([]string{o.Step, o.Advantages, strconv.FormatBool(o.KL), o.ISA, strconv.Itoa(o.Tokens), strconv.Itoa(o.Vocab), strconv.Itoa(o.Workers),
			f(o.UniformNs.Median), f(e.Median), f(e.Lo), f(e.Hi), o.Verdict, strconv.Itoa(e.N), strconv.Itoa(e.Outliers), f(o.Null.Median), f(o.Null.Lo), f(o.Null.Hi),
			strconv.FormatInt(o.ExtraBytes, 10), strconv.FormatUint(o.Allocs, 10), strconv.FormatUint(o.AllocBytes, 10), strconv.FormatInt(o.PeakBytes, 10), strconv.FormatBool(r.Partial)})
	}
	c.Flush()
	return c.Error()
}
