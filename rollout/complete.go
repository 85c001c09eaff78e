package rollout

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/printable"
)

// A completer makes trajectories of the records of a source's files.
type completer struct {
	opt     Options
	report  Report // without Arrays, Dropped and Warnings
	several bool   // more than one file

	vocabularies bool       // of the files differ
	words        Vocabulary // of the file that is read

	layouts  layouts
	origins  map[string]*originSum
	entropy  map[string]*originSum // by the name of the file, where it is estimated
	file     string                // the name of the file that is read
	groups   map[[16]byte]group
	dropped  map[string]bool
	warnings []string
	found    counts
}

// Layouts say, by the name of an array, how it is in the trajectories so far. The next one
// has to be like them.
type layouts map[string]layout

type layout struct {
	where string // the first trajectory that has elements of this unit
	has   bool
	width int            // of a row of logits, or of parts
	dtype reweight.DType // of logits
}

// A group is known by the hash of its id.
type group struct {
	number int32    // in the order in which groups appear
	file   int32    // the number of the file that it appeared in first
	prompt [16]byte // the hash of its prompt, or zeros
}

// Counts are of what the tokens so far have, for warnings.
type counts struct {
	tokens, responses, actions int
	ambiguous                  int // spans with an opening tag that was passed over for another one
	// The most log-probabilities of likely tokens at one token, where they are dropped.
	top       int
	topTokens int // response tokens that have some

	unknown map[string]int   // lines with a field of that name, which our own JSONL does not have
	records int              // trajectories, or turns of them, with response tokens
	zeros   map[string]zeros // by the name of the array
	retold  []*retold        // of each file that has some
}

// A zeros says in how many records all log-probabilities are 0.
type zeros struct {
	records int
	long    bool // one of these is too long for a model to be certain of each token
}

// longAnswer is the number of response tokens from which on a model is hardly certain of each.
const longAnswer = 8

// A retold says how many turns of a file have a prompt that is not the tokens before it.
type retold struct {
	first string // the place of the first
	turns int
}

// An originSum is the origin of an array of all trajectories.
type originSum struct {
	kind      Kind
	from      []string
	width     float64 // the mean over response tokens
	responses float64 // the number of those tokens
}

const (
	maxNotes      = 100     // of what a report lists: fields, warnings
	maxTrajectory = 1 << 27 // tokens. A file can declare many more, that are a hole in it
)

func newCompleter(opt Options, several bool, warnings []string) completer {
	return completer{
		opt:      opt,
		several:  several,
		layouts:  make(layouts),
		origins:  make(map[string]*originSum),
		entropy:  make(map[string]*originSum),
		groups:   make(map[[16]byte]group),
		dropped:  make(map[string]bool),
		found:    counts{unknown: make(map[string]int), zeros: make(map[string]zeros)},
		warnings: warnings,
	}
}

// Place says where a trajectory is, as errors do: its file and line, or in a file without
// lines, which has the line 0, its number there from 0. A trajectory without a file has
// only the number.
func Place(file string, line, number int) string {
	switch {
	case file == "":
		return fmt.Sprintf("trajectory %d", number)
	case line == 0:
		return fmt.Sprintf("%s: trajectory %d", shownName(file), number)
	}
	return fmt.Sprintf("%s:%d", shownName(file), line)
}

// next returns the next trajectory of the file, or io.EOF.
func (c *completer) next(in *input) (*Trajectory, error) {
	first, err := c.turn(in)
	if err != nil {
		if err == io.EOF && c.opt.GroupSize > 0 && in.read%c.opt.GroupSize != 0 {
			err = fmt.Errorf("%s: %d trajectories, want a multiple of the group size, %d", shownName(in.name), in.read,
				c.opt.GroupSize)
		}
		return nil, err
	}
	here := Place(in.name, first.line, in.read)
	if first.trajectory != "" {
		if err := in.begin(first); err != nil {
			return nil, inContext(here, err)
		}
		if err := c.join(first, in); err != nil {
			return nil, err
		}
	}
	t := &Trajectory{Batch: first.Batch, Texts: first.texts, File: in.name, Line: first.line}
	t.SeqOffsets = []int64{0, int64(t.Tokens())}
	if err := c.group(t, first, in); err != nil {
		return nil, inContext(here, err)
	}
	if err := c.layouts.check(&t.Batch, here, reweight.PerTrajectory, reweight.PerPart); err != nil {
		return nil, err
	}
	in.read++
	c.report.Trajectories++
	c.report.Tokens += t.Tokens()
	c.report.Texts = c.report.Texts || len(t.Texts) != 0
	return t, nil
}

// begin notes that a trajectory begins with that turn, which is an error if its id was
// that of another one: turns that are not in a row would be trajectories of their own.
func (in *input) begin(first *record) error {
	id := digest(first.trajectory)
	if line, known := in.begun[id]; known {
		return fmt.Errorf("trajectory_id %s is also on line %d, and there are others between: sort the lines by trajectory_id", quote(first.trajectory), line)
	}
	if in.begun == nil {
		in.begun = make(map[[16]byte]int)
	}
	in.begun[id] = first.line
	return nil
}

// turn returns the next record of the file, which is complete but for what belongs to
// all of its trajectory.
func (c *completer) turn(in *input) (*record, error) {
	if r := in.turn; r != nil {
		in.turn = nil
		return r, nil
	}
	r, err := in.reader.next()
	if err != nil {
		return nil, err
	}
	here := Place(in.name, r.line, in.read)
	if err := c.complete(r); err != nil {
		return nil, inContext(here, err)
	}
	return r, c.layouts.check(&r.Batch, here, reweight.PerToken, reweight.PerSpan)
}

// complete checks a record, and derives the arrays of its tokens that it lacks.
func (c *completer) complete(r *record) error {
	for _, name := range r.dropped {
		name = printable.Line(name)
		c.drop(name)
		if r.unknown && (c.found.unknown[name] > 0 || len(c.found.unknown) < maxNotes) {
			c.found.unknown[name]++
		}
	}
	for _, sentence := range r.warnings {
		c.warn(sentence)
	}
	from := "role"
	if len(r.Role) == 0 {
		from = "mask"
	}
	r.takeMask()
	n := r.Tokens()
	if n > maxTrajectory {
		return fmt.Errorf("role has %d tokens in one trajectory, want at most %d", n, maxTrajectory)
	}
	if n != 0 && len(r.SpanIDs) == 0 {
		deriveSpans(r)
		c.note(Origin{Name: "span_ids", Kind: Derived, From: from}, 0)
	}
	r.SeqOffsets = []int64{0, int64(n)}
	if err := validate(&r.Batch); err != nil {
		return InFile(err)
	}
	err := cmp.Or(
		r.checkLen("the texts of tokens", len(r.texts)),
		r.checkLen("the list of the most likely tokens", len(r.top)),
	)
	if err != nil || n == 0 {
		return err
	}
	switch {
	case c.opt.hasTags():
		if len(r.texts) == 0 && c.words != nil {
			r.texts = c.words.known(r.TokenIDs)
			defer func() { r.texts = nil }() // the file has none
		}
		ambiguous, err := markActions(r, &c.opt)
		if err != nil {
			return err
		}
		c.found.ambiguous += ambiguous
		c.note(Origin{Name: "role", Kind: Derived, From: from + " and tags"}, 0)
	case from == "mask":
		c.note(Origin{Name: "role", Kind: Derived, From: from}, 0)
	}
	responses := 0
	for _, role := range r.Role {
		if role != reweight.RoleMasked {
			responses++
		}
		if role == reweight.RoleAction {
			c.found.actions++
		}
	}
	c.found.tokens += n
	c.found.responses += responses
	if responses > 0 {
		c.found.records++
		c.countZeros(r, responses)
	}
	if len(r.Entropy) == 0 && r.OldLogits.Rows() == 0 {
		if err := c.estimateEntropy(r, responses); err != nil {
			return err
		}
	}
	for _, o := range r.origins {
		c.note(o, responses)
	}
	if err := r.checkLogprobs(); err != nil {
		return err
	}
	if len(r.Logprobs) == 0 && len(r.OldLogprobs) != 0 && r.Logits.Rows() == 0 {
		r.Logprobs = r.OldLogprobs[:n:n] // appending a turn to one must not change the other
		c.note(Origin{Name: "logprobs", Kind: Derived, From: "old_logprobs: the first update after sampling"}, 0)
	}
	return nil
}

// checkLen wants one element for each token, or none.
func (r *record) checkLen(what string, n int) error {
	if n != 0 && n != r.Tokens() {
		return fmt.Errorf("%s has %d elements, want %d, one per token", what, n, r.Tokens())
	}
	return nil
}

// checkLogprobs returns an error about the first response token with a number that is no
// log-probability of a token that was sampled. Arrays in safetensors and npz files are as
// somebody has computed them, and who reads them checks what it needs.
func (r *record) checkLogprobs() error {
	if r.line == 0 {
		return nil
	}
	for _, a := range r.Arrays() {
		if a.Statistic != reweight.StatisticLogprob && a.Field != "RolloutLogprobs" || a.Len() == 0 {
			continue
		}
		for t, l := range *a.Data.(*[]float32) {
			switch {
			case r.Role[t] == reweight.RoleMasked || l > missingLogprob && l <= maxLogprob:
			case l-l != 0:
				return fmt.Errorf("%s[%d] is %v at a response token, want a finite log-probability", a.Name, t, l)
			case l > maxLogprob:
				return fmt.Errorf("%s[%d] is %v at a response token, want a log-probability: at most 0", a.Name, t, l)
			default:
				return fmt.Errorf("%s[%d] is %v at a response token, which stands for a value that is missing",
					a.Name, t, l)
			}
		}
	}
	return nil
}

// countZeros counts the arrays of log-probabilities that are 0 at all response tokens.
func (c *completer) countZeros(r *record, responses int) {
	for _, a := range r.Arrays() {
		if a.Statistic != reweight.StatisticLogprob && a.Field != "RolloutLogprobs" || a.Len() == 0 {
			continue
		}
		zero := true
		for t, l := range *a.Data.(*[]float32) {
			if l != 0 && r.Role[t] != reweight.RoleMasked {
				zero = false
				break
			}
		}
		if zero {
			z := c.found.zeros[a.Name]
			z.records, z.long = z.records+1, z.long || responses >= longAnswer
			c.found.zeros[a.Name] = z
		}
	}
}

// hasTags reports whether the tags of actions are known.
func (opt *Options) hasTags() bool { return opt.hasIDs() || opt.hasTexts() }

func (opt *Options) hasIDs() bool   { return len(opt.ActionOpen) != 0 }
func (opt *Options) hasTexts() bool { return len(opt.ActionTags) != 0 }

// estimateEntropy estimates the entropy, if the record has what that takes.
func (c *completer) estimateEntropy(r *record, responses int) error {
	o := Origin{Name: "entropy", Kind: Estimated}
	if len(r.top) != 0 && c.opt.Vocab == 0 {
		c.dropTop(r)
	}
	switch {
	case len(r.top) != 0 && c.opt.Vocab > 0:
		e, err := entropyFromTop(r.top, r.Role, c.opt.Vocab)
		if err != nil {
			return err
		}
		r.Entropy = e.entropy
		o.From = fmt.Sprintf("top %d log-probabilities", e.most)
		o.Width = e.width / float64(max(responses, 1))
	case c.opt.SurprisalEntropy && len(r.OldLogprobs) != 0:
		r.Entropy = entropyFromSurprisal(r.OldLogprobs, r.Role)
		o.From = "surprisal"
		o.Width = math.Inf(1)
	default:
		return nil
	}
	r.origins = append(r.origins, o)
	return nil
}

// dropTop counts the log-probabilities of the most likely tokens, which no array takes.
func (c *completer) dropTop(r *record) {
	for t, known := range r.top {
		if r.Role[t] != reweight.RoleMasked && len(known) > 0 {
			c.found.top = max(c.found.top, likely(known))
			c.found.topTokens++
		}
	}
	c.drop(cmp.Or(r.topField, "top_logprobs"))
}

// drop adds a field that no array takes to the report.
func (c *completer) drop(field string) {
	if len(c.dropped) < maxNotes {
		c.dropped[field] = true
	}
}

// join appends to the first turn of a trajectory the turns that follow it.
func (c *completer) join(first *record, in *input) error {
	spans := countSpans(first.SpanIDs)
	for {
		r, err := c.turn(in)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if r.trajectory != first.trajectory {
			in.turn = r
			return nil
		}
		here := Place(in.name, r.line, in.read)
		again := repeated(first, r)
		if again == 0 && first.Tokens() > 0 && r.Tokens() > 0 && !isResponse(r.Role[0]) {
			if in.retold == nil {
				in.retold = &retold{first: here}
				if len(c.found.retold) < maxNotes {
					c.found.retold = append(c.found.retold, in.retold)
				}
			}
			in.retold.turns++
		}
		switch {
		case first.Tokens()+r.Tokens()-again > maxTrajectory:
			return fmt.Errorf("%s: with this turn the trajectory has more than %d tokens", here, maxTrajectory)
		case len(r.Rewards) == 0:
		case len(first.Rewards) != 0 && r.Rewards[0] != first.Rewards[0]:
			return fmt.Errorf("%s: rewards is %v, but line %d has %v for the same trajectory: want one reward", here, r.Rewards[0], first.line, first.Rewards[0])
		default:
			first.Rewards = r.Rewards
		}
		switch {
		case len(r.RewardParts) == 0:
		case len(first.RewardParts) != 0 && !slices.Equal(r.RewardParts, first.RewardParts):
			return fmt.Errorf("%s: reward_parts is %v, but line %d has %v for the same trajectory", here, r.RewardParts,
				first.line, first.RewardParts)
		default:
			first.RewardParts = r.RewardParts
		}
		if r.group != "" && first.group != "" && r.group != first.group {
			return fmt.Errorf("%s: group_id is %s, but line %d has %s for the same trajectory", here, quote(r.group),
				first.line, quote(first.group))
		}
		first.group = cmp.Or(first.group, r.group)
		if first.prompt == "" && first.promptIDs == nil {
			first.prompt, first.promptIDs = r.prompt, r.promptIDs
		}
		r.Rewards, r.RewardParts = nil, nil
		r.cut(again)
		if (len(first.texts) == 0) != (len(r.texts) == 0) && first.Tokens() != 0 && r.Tokens() != 0 {
			first.texts, r.texts = nil, nil
		}
		first.texts = append(first.texts, r.texts...)
		renumberSpans(r.SpanIDs, spans)
		spans = max(spans, countSpans(r.SpanIDs))
		appendArrays(&first.Batch, &r.Batch)
	}
}

// repeated returns how many tokens at the beginning of a turn repeat the turns before it:
// all of those, if the prompt of the turn begins with them, else none.
func repeated(before, turn *record) int {
	n := len(before.TokenIDs)
	if n > len(turn.TokenIDs) || !slices.Equal(before.TokenIDs, turn.TokenIDs[:n]) {
		return 0
	}
	if slices.ContainsFunc(turn.Role[:n], isResponse) {
		return 0
	}
	return n
}

func isResponse(role reweight.Role) bool { return role != reweight.RoleMasked }

// cut removes the first n tokens of a turn that has no rewards.
func (r *record) cut(n int) {
	r.SeqOffsets = []int64{0, int64(n), int64(r.Tokens())}
	r.Batch = trajectory(&r.Batch, 1, 0, countSpans(r.SpanIDs))
	r.texts = r.texts[min(n, len(r.texts)):]
}

// renumberSpans adds a number to the ids of spans.
func renumberSpans(ids []int32, add int32) {
	for t, id := range ids {
		if id >= 0 {
			ids[t] = id + add
		}
	}
}

// countSpans returns how many spans there are, which are numbered from 0.
func countSpans(ids []int32) int32 {
	n := int32(0)
	for _, id := range ids {
		n = max(n, id+1)
	}
	return n
}

// group sets the group of a trajectory.
func (c *completer) group(t *Trajectory, r *record, in *input) error {
	switch {
	case c.opt.GroupSize > 0:
		t.Group, t.LocalGroup = fmt.Sprintf("%s: group %d", in.name, in.read/c.opt.GroupSize), true
		c.note(Origin{Name: "group_ids", Kind: Derived, From: fmt.Sprintf("every %d trajectories", c.opt.GroupSize)}, 0)
	case r.group != "":
		t.Group = r.group
	default:
		if t.Group = promptKey(r); t.Group == "" {
			return nil
		}
		c.note(Origin{Name: "group_ids", Kind: Derived, From: "prompt"}, 0)
	}
	key := digest(t.Group)
	g, known := c.groups[key]
	if !known {
		if len(c.groups) == math.MaxInt32 {
			return fmt.Errorf("more than %d groups", math.MaxInt32)
		}
		g = group{number: int32(len(c.groups)), file: int32(c.report.Files)}
	}
	if c.several && c.opt.GroupSize == 0 && r.group != "" {
		// The ids of two files may number different groups.
		if prompt := idsKey(r); prompt != "" {
			other := digest(prompt)
			if known && g.file != int32(c.report.Files) && g.prompt != [16]byte{} && g.prompt != other {
				return fmt.Errorf("group_id %s is also in an earlier file, but with another prompt: number the groups of all files anew, or convert each file alone", quote(t.Group))
			}
			g.prompt = other
		}
	}
	c.groups[key] = g
	t.GroupIDs = []int32{g.number}
	return nil
}

// idsKey returns what is equal for equal ids of prompt tokens, or "" if r has no ids,
// or no response that would end the prompt.
func idsKey(r *record) string {
	if !slices.ContainsFunc(r.Role, isResponse) {
		return ""
	}
	ids := *r
	ids.prompt = ""
	return promptKey(&ids)
}

func digest(text string) [16]byte {
	sum := sha256.Sum256([]byte(text))
	return [16]byte(sum[:16])
}

// check wants those arrays of b that have elements of these units to be like those of the
// trajectories before. An error begins with here, the place of b.
func (known layouts) check(b *reweight.Batch, here string, units ...reweight.Unit) error {
	tokens, spans := b.Tokens(), countSpans(b.SpanIDs)
	for _, a := range b.Arrays() {
		none := a.Per == reweight.PerToken && tokens == 0 || a.Per == reweight.PerSpan && spans == 0
		if none || !slices.Contains(units, a.Per) {
			continue
		}
		is := layout{where: here, has: a.Len() != 0}
		if l, ok := a.Data.(*reweight.Logits); ok {
			is.width, is.dtype = l.Vocab, l.DType()
		} else if a.Per == reweight.PerPart {
			is.width = a.Len()
		}
		switch before, ok := known[a.Name]; {
		case !ok:
			known[a.Name] = is
		case is.has && !before.has:
			return fmt.Errorf("%s: %s is there, but it is missing at %s", here, a.Name, before.where)
		case !is.has && before.has:
			return fmt.Errorf("%s: %s is missing, but it is there at %s", here, a.Name, before.where)
		case a.Per == reweight.PerPart && is.width != before.width:
			return fmt.Errorf("%s: %s has %d elements, but %d at %s", here, a.Name, is.width, before.width,
				before.where)
		case is.width != before.width || is.dtype != before.dtype:
			return fmt.Errorf("%s: %s has rows of %d %v logits, but of %d %v at %s", here, a.Name, is.width, is.dtype,
				before.width, before.dtype, before.where)
		}
	}
	return nil
}

// validate is b.Validate for a batch that may have no tokens.
func validate(b *reweight.Batch) error {
	if b.Tokens() != 0 {
		return b.Validate()
	}
	for _, a := range b.Arrays() {
		if n := a.Len(); n != 0 && (a.Per == reweight.PerToken || a.Per == reweight.PerSpan) {
			problem := fmt.Sprintf("has %d elements, but neither role nor a mask of the response tokens has any", n)
			return &reweight.InputError{Arg: a.Field, Index: -1, Problem: problem}
		}
	}
	one := reweight.Batch{Role: []reweight.Role{reweight.RoleMasked}, SeqOffsets: []int64{0, 1}}
	one.Rewards, one.RewardParts = b.Rewards, b.RewardParts
	return one.Validate()
}

// warn adds a sentence to the report.
func (c *completer) warn(sentence string) {
	if len(c.warnings) < maxNotes && !slices.Contains(c.warnings, sentence) {
		c.warnings = append(c.warnings, sentence)
	}
}

// note adds the origin of an array of a trajectory, with that many response tokens, to
// the report.
func (c *completer) note(o Origin, responses int) {
	noteIn(c.origins, o.Name, o, responses)
	if o.Name == entropyKey && o.Kind == Estimated {
		noteIn(c.entropy, c.file, o, responses)
	}
}

// noteIn adds the origin of an array of a trajectory to the sum of that name.
func noteIn(sums map[string]*originSum, name string, o Origin, responses int) {
	sum := sums[name]
	if sum == nil {
		sum = new(originSum)
		sums[name] = sum
	}
	if o.Kind > sum.kind {
		sum.kind, sum.from = o.Kind, nil
	}
	if o.Kind == sum.kind && !slices.Contains(sum.from, o.From) && len(sum.from) < 8 {
		sum.from = append(sum.from, o.From)
	}
	if o.Kind == Estimated && responses > 0 {
		sum.responses += float64(responses)
		if math.IsInf(o.Width, 1) || math.IsInf(sum.width, 1) {
			sum.width = math.Inf(1)
		} else { // the mean of equal numbers is that number, to the bit
			sum.width += (o.Width - sum.width) * (float64(responses) / sum.responses)
		}
	}
}

// origin returns the origin of all of the array of that name.
func (sum *originSum) origin(name string) Origin {
	return Origin{Name: name, Kind: sum.kind, From: strings.Join(sum.from, "; "), Width: sum.width}
}

// result returns the report on the trajectories so far.
func (c *completer) result() Report {
	r := c.report
	r.Formats = slices.Clone(r.Formats)
	r.Groups = len(c.groups)
	r.Dropped = slices.Sorted(maps.Keys(c.dropped))
	r.Warnings = slices.Concat(c.warnings, c.found.warnings(&c.opt))
	for _, a := range new(reweight.Batch).Arrays() {
		if sum := c.origins[a.Name]; sum != nil {
			r.Arrays = append(r.Arrays, sum.origin(a.Name))
		} else if c.layouts[a.Name].has {
			r.Arrays = append(r.Arrays, Origin{Name: a.Name})
		}
	}
	if len(c.entropy) != 0 {
		r.Entropy = make(map[string]Origin, len(c.entropy))
		for file, sum := range c.entropy {
			r.Entropy[file] = sum.origin(entropyKey)
		}
	}
	return r
}

// warnings returns sentences about what is missing in all that was read.
func (n counts) warnings(opt *Options) []string {
	var all []string
	var tags []string
	if opt.hasIDs() {
		tags = append(tags, fmt.Sprintf("of the token ids %v and %v", opt.ActionOpen, opt.ActionClose))
	}
	if opt.hasTexts() {
		for _, pair := range opt.ActionTags {
			closing := cmp.Or(printable.Line(pair[1]), "the end of the response")
			tags = append(tags, fmt.Sprintf("%s and %s", printable.Line(pair[0]), closing))
		}
	}
	switch {
	case n.tokens == 0 || n.actions > 0:
	case n.responses == 0:
		all = append(all, "No token is one of a response: all are masked.")
	case tags != nil:
		all = append(all, "No response token is an action: no response has a token between the tags "+strings.Join(tags,
			", or ")+", in this order.")
	default:
		all = append(all, "No response token is an action: tags around actions say which are, -action-tags or -action-open and -action-close, "+
			"and tags= of a trainer's Credit.")
	}
	if n.ambiguous > 0 {
		all = append(all, fmt.Sprintf("Responses in which an opening tag opens no action, because another one follows it before the closing tag, "+
			"or because it stands in <think>: %d. The last one counts.", n.ambiguous))
	}
	if len(n.unknown) > 0 {
		var fields []string
		for _, name := range slices.Sorted(maps.Keys(n.unknown)) {
			if len(fields) == 8 {
				fields = append(fields, "...")
				break
			}
			fields = append(fields, fmt.Sprintf("%s in %d", name, n.unknown[name]))
		}
		all = append(all, "Lines of JSON have fields that no array takes: "+strings.Join(fields,
			", ")+" of them. "+pageOfFormats+" lists the names.")
	}
	for _, name := range slices.Sorted(maps.Keys(n.zeros)) {
		z := n.zeros[name]
		if !z.long && z.records < n.records {
			continue
		}
		all = append(all, fmt.Sprintf("%s is 0 at every response token in %d of %d trajectories or turns, as if each token had been certain: "+
			"some servers and trainers write that where they compute none.", name, z.records, n.records))
	}
	for _, r := range n.retold {
		all = append(all, fmt.Sprintf("%s: the prompt of this turn is not known to be the tokens of the turns before it, and stands behind them whole: "+
			"if it repeats them in other tokens, they are there twice. Such turns in the file: %d.", r.first, r.turns))
	}
	if n.topTokens > 0 {
		all = append(all, fmt.Sprintf("The log-probabilities of the most likely tokens, up to %d at each of %d response tokens, are dropped: bounds of the entropy "+
			"need the size of the vocabulary too, Options.Vocab, on the command line -vocab.", n.top, n.topTokens))
	}
	return all
}

// A safetensors file says in its metadata that its entropies are estimates: the key
// entropy has a sentence on what they were estimated from, and entropy_width has the
// Width of their Origin.
const (
	entropyKey    = "entropy"
	widthSuffix   = "_width"
	estimatedFrom = "estimated from "
	vocabularyKey = "vocab"
)

// originsOf returns the origins that the metadata of a safetensors file states.
func originsOf(metadata map[string]string) []Origin {
	sentence, ok := metadata[entropyKey]
	if !ok {
		return nil
	}
	width, err := strconv.ParseFloat(metadata[entropyKey+widthSuffix], 64)
	if err != nil || !(width >= 0) {
		width = math.Inf(1)
	}
	if len(sentence) > 200 {
		sentence = sentence[:200] + "..."
	}
	return []Origin{{Name: entropyKey, Kind: Estimated,
		From: strings.TrimPrefix(printable.Line(sentence), estimatedFrom), Width: width}}
}

// addVocabulary takes the vocabulary of a file, if the file has one.
func (c *completer) addVocabulary(text string) {
	switch known := &c.report.Vocabulary; {
	case text == "" || text == *known || c.vocabularies:
	case *known == "":
		*known = text
	default:
		*known, c.vocabularies = "", true
		c.warn("The vocabularies in the metadata of the files differ: none of them is kept.")
	}
}
