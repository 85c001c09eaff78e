package show

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
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
	Chosen Choice
	Signal reweight.Signal // of ActFocus
	Open   rollout.Options // that the source was opened with
	Notes  []string        // sentences of the caller's, above the others
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
	g, err := gather(src, opt)
	if err != nil {
		return p, err
	}
	b := &g.batch
	if b.Tokens() == 0 {
		return p, ErrNoTokens
	}
	if most := opt.Chosen.most(); most >= b.Trajectories() {
		return p, fmt.Errorf("-trajectory has %d, want 0 to %d", most, b.Trajectories()-1)
	}
	c, err := NewCredit(b, opt.Signal)
	if err != nil {
		return p, g.located(err)
	}
	report := src.Report()
	words := opt.Open.Vocabulary
	if words == nil {
		words = rollout.ListedVocabulary(report.Vocabulary)
	}
	named := true // all tokens have texts
	for _, one := range g.chosen {
		from, to := b.SeqOffsets[one.number], b.SeqOffsets[one.number+1]
		named = named && (one.Texts != nil || words != nil && one.ids != nil)
		r := NewTrajectory(b, c, from, to, texts(one, words, int(to-from)))
		r.Title = title(one, b, report)
		p.Trajectories = append(p.Trajectories, r)
	}
	// A trainer's note says it of the whole batch, of which its page has a few trajectories.
	multiplied := len(b.ActFocusWeights) > 0 && len(opt.Notes) > 0
	p.Summary = summary(b, c, g.begins, multiplied)
	p.Notes = append(slices.Clone(opt.Notes), c.Notes...)
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

// gathered is what the figures need of all trajectories. The arrays are copies.
type gathered struct {
	file   string // the first
	batch  reweight.Batch
	places []string    // where each trajectory is
	begins []beginning // how each begins
	chosen []chosen
}

// located returns an error about the batch as one about the trajectory at fault.
func (g *gathered) located(err error) error {
	at := printable.Text(g.file)
	var input *reweight.InputError
	if errors.As(err, &input) && input.Index >= 0 {
		for _, a := range g.batch.Arrays() {
			if a.Field != input.Arg {
				continue
			}
			one := *input
			s, begin := input.Index, input.Index
			if a.Per == reweight.PerToken {
				after, _ := slices.BinarySearch(g.batch.SeqOffsets, int64(input.Index)+1)
				s, begin = after-1, int(g.batch.SeqOffsets[after-1])
			}
			one.Index -= begin
			at, err = g.places[s], &one
		}
	}
	return fmt.Errorf("%s: %w", at, rollout.InFile(err))
}

// gather reads all trajectories.
func gather(src Source, opt Options) (*gathered, error) {
	g := &gathered{batch: reweight.Batch{SeqOffsets: []int64{0}}}
	b := &g.batch
	shown := 0
	spans := int32(0)
	ws := reweight.Workspace{Workers: 1} // as Guard asks
	need := append([]string{"entropy", "old_logprobs"}, opt.Signal.Arrays()...)
	file, inFile := "", -1 // of the trajectory, and its number there
	for number := 0; ; number++ {
		r, err := src.Next()
		if errors.Is(err, io.EOF) {
			return g, nil
		}
		if err != nil {
			return nil, err
		}
		if inFile++; r.File != file {
			file, inFile = r.File, 0
		}
		g.file = cmp.Or(g.file, file)
		at := rollout.Place(file, r.Line, inFile)
		g.places = append(g.places, at)
		if len(b.Role)+r.Tokens() > maxTokens {
			return nil, fmt.Errorf("%s: more than %s tokens, which reweight show has no memory for: split the file by groups",
				printable.Text(r.File), humanize.Comma(maxTokens))
		}
		if opt.Chosen.has(number) {
			if shown += r.Tokens(); shown > maxShown {
				return nil, fmt.Errorf("%s: the trajectories of -trajectory have more than %s tokens up to here, want at most that: choose fewer",
					at, humanize.Comma(maxShown))
			}
		}
		err = src.Guard(func() error { // somebody may make the file shorter
			if err := rollout.Derive(&ws, &r.Batch, need...); err != nil {
				return fmt.Errorf("%s: %w", at, rollout.InFile(err))
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
			first := spans
			for _, s := range r.SpanIDs {
				if s >= 0 {
					s += first
					spans = max(spans, s+1)
				}
				b.SpanIDs = append(b.SpanIDs, s)
			}
			g.begins = append(g.begins, beginningOf(&r.Batch))
			if opt.Chosen.has(number) {
				g.chosen = append(g.chosen, chosen{number, r, slices.Clone(r.TokenIDs)})
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
}

// texts returns the texts of a trajectory's tokens: its own, those of a vocabulary, or
// ids.
func texts(one chosen, words rollout.Vocabulary, n int) []string {
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
func title(one chosen, b *reweight.Batch, report rollout.Report) string {
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
	from, to := b.SeqOffsets[one.number], b.SeqOffsets[one.number+1]
	return text + cli.Counted(len(turnsOf(b, from, to)), "turn") + ", " + cli.Counted(int(to-from), "token") + "."
}
