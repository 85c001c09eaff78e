package show

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/cli"
	"github.com/seed621a2839/reweight/internal/found"
	"github.com/seed621a2839/reweight/internal/printable"
	"github.com/seed621a2839/reweight/rollout"
)

// A Source gives trajectories, as a *rollout.Source does.
type Source interface {
	Next() (*rollout.Trajectory, error)
	Guard(do func() error) error
	Report() rollout.Report
}

// Options say what to show of a source.
type Options struct {
	Chosen     Choice
	Signal     reweight.Signal // of ActFocus
	Open       rollout.Options // that the source was opened with
	Vocabulary Vocabulary      // texts of tokens whose source has none; may be nil
}

// A Choice is which trajectories to show, by their numbers in the source: ranges, each
// from its first number to its last.
type Choice [][2]int

// ParseChoice reads numbers and ranges, such as 0,4-7.
func ParseChoice(text string) (Choice, error) {
	var c Choice
	for part := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, err := strconv.ParseUint(from, 10, 31)
		last, err2 := strconv.ParseUint(to, 10, 31)
		if err != nil || err2 != nil || last < first {
			return nil, fmt.Errorf("has %q, want numbers from 0 and ranges, such as 0,4-7", part)
		}
		c = append(c, [2]int{int(first), int(last)})
	}
	return c, nil
}

func (c Choice) has(n int) bool {
	return slices.ContainsFunc(c, func(r [2]int) bool { return r[0] <= n && n <= r[1] })
}

// most is the largest number of the choice.
func (c Choice) most() int {
	most := 0
	for _, r := range c {
		most = max(most, r[1])
	}
	return most
}

// maxTokens bounds the memory of Read, which takes some 40 bytes a token: a small file can
// declare many tokens that are a hole in it.
const maxTokens = 1 << 26

// maxShown bounds the tokens of the chosen trajectories: Read and what it returns take some
// 300 bytes for each.
const maxShown = 1 << 20

// A place is where a trajectory is.
type place struct {
	file   string
	line   int // from 1, or 0
	number int // of the trajectory in the file
}

func (p place) String() string { return rollout.Place(p.file, p.line, p.number) }

// A chosen trajectory of a source.
type chosen struct {
	number int // in the source
	*rollout.Trajectory
	ids []int32
}

// ErrNoTokens is the error of Read about a source without tokens.
var ErrNoTokens = errors.New("there are no tokens")

// Read reads all trajectories of the source, because the weights of one depend on the
// others, and returns a page with the chosen ones.
func Read(src Source, opt Options) (Page, error) {
	var p Page
	b, places, begins, all, err := gather(src, opt)
	if err != nil {
		return p, err
	}
	n, most := b.Trajectories(), opt.Chosen.most()
	if b.Tokens() == 0 {
		return p, ErrNoTokens
	}
	if most >= n {
		return p, fmt.Errorf("-trajectory has %d, want 0 to %d", most, n-1)
	}
	c, err := NewCredit(b, opt.Signal)
	if err != nil {
		return p, located(err, b, places)
	}
	files := map[string]Vocabulary{}
	named := true // all tokens have texts
	report := src.Report()
	for _, one := range all {
		from, to := b.SeqOffsets[one.number], b.SeqOffsets[one.number+1]
		words := opt.Vocabulary
		if one.Texts == nil && words == nil {
			if _, ok := files[one.File]; !ok {
				files[one.File] = fileVocabulary(one.File)
			}
			words = files[one.File]
		}
		named = named && (one.Texts != nil || words != nil && one.ids != nil)
		r := NewTrajectory(b, c, from, to, texts(one, words, int(to-from)))
		r.Title = title(one, b, report, len(r.Turns))
		p.Trajectories = append(p.Trajectories, r)
	}
	p.Summary = summary(b, c, begins)
	p.Notes = c.Notes
	if !named {
		p.Notes = append(p.Notes, "Tokens without a text are shown as #ID: -vocab-file names a file that has the texts.")
	}
	for _, o := range report.Arrays {
		if o.Kind != rollout.Estimated {
			continue
		}
		p.Estimated = p.Estimated || o.Name == "entropy"
		p.Notes = append(p.Notes, fmt.Sprintf("Figures with ~ are estimates: %s is %s.", o.Name, found.NewOrigin(o)))
	}
	p.Notes = append(p.Notes, report.Warnings...)
	return p, nil
}

// located returns an error about the batch as one about the trajectory at fault.
func located(err error, b *reweight.Batch, places []place) error {
	var input *reweight.InputError
	if !errors.As(err, &input) || input.Index < 0 {
		return fmt.Errorf("%s: %w", printable.Text(places[0].file), rollout.InFile(err))
	}
	for _, a := range b.Arrays() {
		if a.Field != input.Arg {
			continue
		}
		s, first := input.Index, input.Index
		if a.Per == reweight.PerToken {
			s = sort.Search(len(places), func(s int) bool { return b.SeqOffsets[s+1] > int64(input.Index) })
			first = int(b.SeqOffsets[s])
		}
		one := *input
		one.Index -= first
		return fmt.Errorf("%v: %w", places[s], rollout.InFile(&one))
	}
	return err
}

// gather packs the arrays that the figures need of all trajectories, which are at the
// places that it returns, and returns how each begins and the chosen ones. The arrays are
// copies.
func gather(src Source, opt Options) (*reweight.Batch, []place, []beginning, []chosen, error) {
	b := &reweight.Batch{SeqOffsets: []int64{0}}
	var places []place
	var begins []beginning
	var all []chosen
	shown := 0
	spans := int32(0)
	ws := reweight.Workspace{Workers: 1} // as Guard asks
	need := append([]string{"entropy", "old_logprobs"}, opt.Signal.Arrays()...)
	for number := 0; ; number++ {
		r, err := src.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, nil, nil, nil, err
		}
		at := place{file: r.File, line: r.Line}
		if number > 0 && places[number-1].file == at.file {
			at.number = places[number-1].number + 1
		}
		places = append(places, at)
		if len(b.Role)+r.Tokens() > maxTokens {
			return nil, nil, nil, nil, fmt.Errorf("%s: more than %s tokens, which reweight show has no memory for: split the file by groups",
				printable.Text(r.File), humanize.Comma(maxTokens))
		}
		if opt.Chosen.has(number) {
			if shown += r.Tokens(); shown > maxShown {
				return nil, nil, nil, nil, fmt.Errorf("%v: the trajectories of -trajectory have more than %s tokens up to here, want at most that: choose fewer",
					at, humanize.Comma(maxShown))
			}
		}
		err = src.Guard(func() error { // somebody may make the file shorter
			if err := rollout.Derive(&ws, &r.Batch, need...); err != nil {
				return fmt.Errorf("%v: %w", at, rollout.InFile(err))
			}
			b.Role = append(b.Role, r.Role...)
			b.SeqOffsets = append(b.SeqOffsets, int64(len(b.Role)))
			b.GroupIDs = append(b.GroupIDs, r.GroupIDs...)
			b.Rewards = append(b.Rewards, r.Rewards...)
			b.RefEnergy = append(b.RefEnergy, r.RefEnergy...)
			b.Entropy = append(b.Entropy, r.Entropy...)
			b.OldLogprobs = append(b.OldLogprobs, r.OldLogprobs...)
			b.RefLogprobs = append(b.RefLogprobs, r.RefLogprobs...)
			b.RefEntropy = append(b.RefEntropy, r.RefEntropy...)
			b.Advantages = append(b.Advantages, r.Advantages...)
			b.ActFocusWeights = append(b.ActFocusWeights, r.ActFocusWeights...)
			b.AEMFactors = append(b.AEMFactors, r.AEMFactors...)
			b.SpanIDs = append(b.SpanIDs, r.SpanIDs...)
			begins = append(begins, beginningOf(&r.Batch))
			if opt.Chosen.has(number) {
				all = append(all, chosen{number, r, slices.Clone(r.TokenIDs)})
			}
			return nil
		})
		if err != nil {
			return nil, nil, nil, nil, err
		}
		first := spans
		for i, s := range b.SpanIDs[len(b.SpanIDs)-len(r.SpanIDs):] {
			if s >= 0 {
				b.SpanIDs[len(b.SpanIDs)-len(r.SpanIDs)+i] += first
				spans = max(spans, s+first+1)
			}
		}
	}
	return b, places, begins, all, nil
}

// texts returns the texts of a trajectory's tokens: its own, those of a vocabulary, or
// ids.
func texts(one chosen, words Vocabulary, n int) []string {
	if one.Texts != nil {
		return one.Texts
	}
	all := make([]string, n)
	for i := range all {
		if one.ids == nil {
			all[i] = "#?"
		} else if text, ok := words[one.ids[i]]; ok {
			all[i] = text
		} else {
			all[i] = fmt.Sprintf("#%d", one.ids[i])
		}
	}
	return all
}

// title names a trajectory and says what it is.
func title(one chosen, b *reweight.Batch, report rollout.Report, turns int) string {
	text := fmt.Sprintf("Trajectory %d of %s", one.number, printable.Text(one.File))
	if one.Line > 0 {
		text += fmt.Sprintf(", line %d", one.Line)
	}
	text += ": "
	isID := func(o rollout.Origin) bool { return o.Name == "group_ids" && o.Kind == rollout.Given }
	if slices.ContainsFunc(report.Arrays, isID) { // else groups have numbers only
		if one.Group != "" {
			text += "group " + printable.Text(one.Group) + ", "
		}
	} else if b.GroupIDs != nil {
		text += fmt.Sprintf("group %d, ", b.GroupIDs[one.number])
	}
	if b.Rewards != nil {
		text += fmt.Sprintf("reward %g, ", b.Rewards[one.number])
	}
	return text + cli.Counted(turns, "turn") + ", " + cli.Counted(int(b.SeqOffsets[one.number+1]-b.SeqOffsets[one.number]), "token") + "."
}
