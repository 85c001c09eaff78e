package cli

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/internal/printable"
	"github.com/seed621a2839/reweight/rollout"
	"github.com/seed621a2839/reweight/scheme"
)

// RolloutFlags declares the flags that say what files of rollouts do not say
// themselves.
func (f Flags) RolloutFlags() func() (rollout.Options, error) {
	open := f.String("action-open", "", "token `ids` of the tag before an action, with commas between them, also for files that have roles")
	closing := f.String("action-close", "", "token `ids` of the tag after an action, with commas between them")
	tags := f.String("action-tags", "", "`texts` of the tags before and after an action, with a comma between them, for files that have the texts of tokens")
	groupSize := f.Int("group-size", 0, "every `n` trajectories in a row are a group (default: the groups of the files, or equal prompts)")
	vocab := f.Int("vocab", 0, "`tokens` of the vocabulary: bounds the entropy where a file has only the most likely tokens")
	surprisal := f.Bool("surprisal-entropy", false, "let -old_logprobs stand for the entropy where a file says nothing else about it: an estimate without bounds")
	return func() (opt rollout.Options, err error) {
		if f.Given("action-open") != f.Given("action-close") {
			return opt, errors.New("-action-open and -action-close go together: give both")
		}
		for _, tag := range [...]struct {
			flag, list string
			ids        *[]int32
		}{{"action-open", *open, &opt.ActionOpen}, {"action-close", *closing, &opt.ActionClose}} {
			if !f.Given(tag.flag) {
				continue
			}
			for text := range strings.SplitSeq(tag.list, ",") {
				id, err := strconv.ParseInt(text, 10, 32)
				if err != nil || id < 0 {
					return opt, fmt.Errorf("-%s has %q, want token ids of 0 to %d", tag.flag, text, math.MaxInt32)
				}
				*tag.ids = append(*tag.ids, int32(id))
			}
		}
		if f.Given("action-tags") {
			before, after, found := strings.Cut(*tags, ",")
			if !found || before == "" || after == "" || strings.Contains(after, ",") {
				return opt, fmt.Errorf("-action-tags is %q, want two texts with a comma between them, such as <answer>,</answer>", *tags)
			}
			opt.ActionTags = [2]string{before, after}
		}
		for _, n := range [...]struct {
			flag  string
			value int
		}{{"group-size", *groupSize}, {"vocab", *vocab}} {
			if f.Given(n.flag) && (n.value < 1 || n.value > math.MaxInt32) {
				return opt, fmt.Errorf("-%s is %d, want 1 to %d", n.flag, n.value, math.MaxInt32)
			}
		}
		opt.GroupSize, opt.Vocab, opt.SurprisalEntropy = *groupSize, *vocab, *surprisal
		return opt, nil
	}
}

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

// WithHint adds to an error about arrays that a file lacks how to get the first of them.
func WithHint(err error) error {
	var needs []string
	if missing, ok := errors.AsType[*rollout.MissingError](err); ok {
		needs = []string{missing.Name}
	} else if lacks, ok := errors.AsType[*scheme.LacksError](err); ok {
		needs = lacks.Needs
	}
	for _, need := range needs {
		name, _, _ := strings.Cut(need, " or ")
		if hint := hints[name]; hint != "" {
			return fmt.Errorf("%w: %s", err, hint)
		}
	}
	return err
}

// CheckWidth returns an error if the array is the entropy, and an estimate whose bounds
// are further apart than width.
func CheckWidth(o rollout.Origin, width float64) error {
	if o.Name == "entropy" && !(o.Width <= width) {
		return fmt.Errorf("entropy is %v, which is too wide for AEM: -entropy-width Inf takes it", NewOrigin(o))
	}
	return nil
}

// A Found is the JSON of a rollout.Report: what was found in files of rollouts.
type Found struct {
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

// NewFound returns the JSON of a report.
func NewFound(r rollout.Report) Found {
	f := Found{
		Formats: append([]string{}, r.Formats...), Files: r.Files, Trajectories: r.Trajectories, Tokens: r.Tokens, Groups: r.Groups,
		Arrays: []Origin{}, Dropped: append([]string{}, r.Dropped...), Warnings: append([]string{}, r.Warnings...), // [] and not null
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
		text += fmt.Sprintf(", bounds %s nats apart on average", Small(float64(*o.Width)))
	}
	return text
}

// Write prints what was found for people.
func (f Found) Write(w io.Writer) error {
	_, err := fmt.Fprintf(w, "%s in %s of %s, from %s of %s\n\n", Counted(f.Tokens, "token"), Counted(f.Trajectories, "trajectory"),
		Counted(f.Groups, "group"), Counted(f.Files, "file"), printable.Line(strings.Join(f.Formats, " and ")))
	if err != nil {
		return err
	}
	var rows [][]string
	for _, a := range f.Arrays {
		rows = append(rows, []string{a.Name, a.String()})
	}
	if err := WriteTable(w, 2, []string{"array", "where it comes from"}, rows); err != nil {
		return err
	}
	if len(f.Dropped)+len(f.Warnings) > 0 {
		fmt.Fprintln(w)
	}
	if len(f.Dropped) > 0 {
		fmt.Fprintf(w, "Dropped: %s\n", printable.Line(strings.Join(f.Dropped, ", ")))
	}
	for _, warning := range f.Warnings {
		Warning(w, "Warning: "+printable.Line(warning))
	}
	return nil
}

// Counted returns so many of a thing in words.
func Counted(n int, thing string) string {
	if n != 1 {
		thing = strings.Replace(thing+"s", "ys", "ies", 1)
	}
	return humanize.Comma(int64(n)) + " " + thing
}
