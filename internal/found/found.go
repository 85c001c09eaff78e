// Package found says what was found in files of rollouts: where each array comes from,
// and what is missing.
package found

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/internal/cli"
	"github.com/seed621a2839/reweight/internal/printable"
	"github.com/seed621a2839/reweight/rollout"
	"github.com/seed621a2839/reweight/scheme"
)

// hints say how to get the arrays that files may lack, or how to do without them.
var hints = map[string]string{
	"entropy": "-vocab derives it from the log-probabilities of the most likely tokens where the file has them, " +
		"and -surprisal-entropy estimates it from old_logprobs",
	"group_ids":    "a field group_id on each line of JSON gives it, or -group-size",
	"rewards":      "a field reward on each line of JSON gives it",
	"old_logprobs": "ask the server or the trainer for log-probabilities",
	"logprobs":     "ask the server or the trainer for log-probabilities",
	"ref_energy":   "-signal surprisal does without it",
	"ref_entropy":  "-signal surprisal does without it",
	"ref_logprobs": "-signal surprisal does without it",
}

// WithHint adds to an error about arrays that a file lacks how to get them.
func WithHint(err error) error {
	var all []string
	for _, need := range needs(err) {
		name, _, _ := strings.Cut(need, " or ")
		if hint := hints[name]; hint != "" && !slices.Contains(all, hint) {
			all = append(all, hint)
		}
	}
	if all == nil {
		return err
	}
	return fmt.Errorf("%w: %s", err, strings.Join(all, "; "))
}

// needs returns the names of all arrays that an error says are missing.
func needs(err error) []string {
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		var all []string
		for _, err := range several.Unwrap() {
			all = append(all, needs(err)...)
		}
		return all
	}
	if missing, ok := errors.AsType[*rollout.MissingError](err); ok {
		return []string{missing.Name}
	}
	if lacks, ok := errors.AsType[*scheme.LacksError](err); ok {
		return lacks.Needs
	}
	return nil
}

// CheckWidth returns an error if the array is the entropy, and an estimate whose bounds
// are further apart than width.
func CheckWidth(o rollout.Origin, width float64) error {
	if o.Name == "entropy" && !(o.Width <= width) {
		return fmt.Errorf("entropy is %v, which is too wide for AEM: -entropy-width Inf takes it", NewOrigin(o))
	}
	return nil
}

// A Report is the JSON of a rollout.Report.
type Report struct {
	Formats      []string `json:"formats"`
	Files        int      `json:"files"`
	Trajectories int      `json:"trajectories"`
	Tokens       int      `json:"tokens"`
	Groups       int      `json:"groups"`
	Arrays       []Origin `json:"arrays"`
	Dropped      []string `json:"dropped"`
	Warnings     []string `json:"warnings"`
}

// An Origin is the JSON of a rollout.Origin.
type Origin struct {
	Name  string        `json:"name"`
	Kind  string        `json:"kind"` // given, derived or estimated
	From  string        `json:"from,omitempty"`
	Width *bench.Number `json:"width,omitempty"` // of an estimate, in nats; null if it has no bounds
}

// NewReport returns the JSON of a report.
func NewReport(r rollout.Report) Report {
	f := Report{
		Formats: append([]string{}, r.Formats...), Files: r.Files, Trajectories: r.Trajectories, Tokens: r.Tokens,
		Groups: r.Groups, // empty arrays are [] and not null
		Arrays: []Origin{}, Dropped: append([]string{}, r.Dropped...), Warnings: append([]string{}, r.Warnings...),
	}
	for _, a := range r.Arrays {
		f.Arrays = append(f.Arrays, NewOrigin(a))
	}
	return f
}

// NewOrigin returns the JSON of an origin.
func NewOrigin(o rollout.Origin) Origin {
	origin := Origin{Name: o.Name, Kind: kinds[o.Kind], From: o.From}
	if o.Kind == rollout.Estimated {
		width := bench.Number(o.Width)
		origin.Width = &width
	}
	return origin
}

var kinds = [...]string{rollout.Given: "given", rollout.Derived: "derived", rollout.Estimated: "estimated"}

// String says where the array comes from.
func (o Origin) String() string {
	text := o.Kind
	if o.From != "" {
		text += " from " + o.From
	}
	switch {
	case o.Width == nil:
	case math.IsInf(float64(*o.Width), 0):
		text += ", without bounds"
	default:
		text += fmt.Sprintf(", bounds %s nats apart on average", cli.Small(float64(*o.Width)))
	}
	return text
}

// Write prints what was found for people.
func (f Report) Write(w io.Writer) error {
	_, err := fmt.Fprintf(w, "%s in %s of %s, from %s of %s\n\n", cli.Counted(f.Tokens, "token"),
		cli.Counted(f.Trajectories, "trajectory"),
		cli.Counted(f.Groups, "group"), cli.Counted(f.Files, "file"), printable.Line(strings.Join(f.Formats, " and ")))
	if err != nil {
		return err
	}
	var rows [][]string
	for _, a := range f.Arrays {
		rows = append(rows, []string{a.Name, a.String()})
	}
	if err := cli.WriteTable(w, 2, []string{"array", "where it comes from"}, rows); err != nil {
		return err
	}
	if len(f.Dropped)+len(f.Warnings) > 0 {
		fmt.Fprintln(w)
	}
	if len(f.Dropped) > 0 {
		fmt.Fprintf(w, "Dropped: %s\n", printable.Line(strings.Join(f.Dropped, ", ")))
	}
	for _, warning := range f.Warnings {
		cli.Warning(w, "Warning: "+printable.Line(warning))
	}
	return nil
}
