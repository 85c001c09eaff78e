package score

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"math"
	"slices"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/rollout"
)

// A reader prepares trajectories for both passes: it checks them, derives what they lack,
// and takes the identity of each file.
type reader struct {
	ws   reweight.Workspace
	opt  Options
	need []string // names of arrays

	// Of the file:
	hash   hash.Hash
	number int            // of the trajectory that was read last, from 0
	groups map[string]int // their numbers, in the order in which they appear

	// Of the trajectory that was read last:
	batch      reweight.Batch // with derived arrays
	advantages origin         // unknown if it counts for nothing
	signal     []float32      // [T]
	means      []float32      // [spans] of the entropies
	prompt     promptSum

	text                                []byte // scratch
	unused, computed, acting, entropies []float32
	starts                              []int32
}

func newReader(opt Options) *reader {
	return &reader{
		ws:   reweight.Workspace{Workers: 1}, // as Source.Guard asks
		opt:  opt,
		need: append(opt.ActFocus.Signal.Arrays(), "group_ids", "span_ids", "entropy"),
	}
}

func (r *reader) beginFile() { r.hash, r.number, r.groups = sha256.New(), -1, map[string]int{} }

// endFile returns the identity of the file.
func (r *reader) endFile() (sum [sha256.Size]byte) {
	r.hash.Sum(sum[:0])
	return sum
}

// read prepares the next trajectory of the file.
func (r *reader) read(t *rollout.Trajectory) error {
	r.number++
	if err := r.prepare(t); err != nil {
		return r.at(t, err)
	}
	r.identify(t)
	return nil
}

// prepare prepares a trajectory, for the first time or again.
func (r *reader) prepare(t *rollout.Trajectory) error {
	r.batch = t.Batch
	b := &r.batch
	r.advantages, r.prompt = unknown, promptSum{}
	r.signal, r.means = nil, r.means[:0]
	if n := b.Trajectories(); n != 1 {
		return badArray("SeqOffsets", -1, "is of %d trajectories, want 1", n)
	}
	switch {
	case len(b.Rewards) > 0:
		r.advantages = fromRewards
	case len(b.Advantages) > 0:
		r.advantages = givenAdvantages
	case b.Tokens() > 0:
		return fmt.Errorf("%w, and so is advantages", rollout.Require(b, "rewards"))
	}
	if b.Tokens() == 0 { // its reward counts for the group, which is all there is
		if r.advantages == unknown {
			return nil
		}
		if len(b.Rewards) != 1 || !finite(b.Rewards[0]) {
			return badArray("Rewards", -1, "is %v, want one finite reward", b.Rewards)
		}
		return rollout.Require(b, "group_ids")
	}
	if err := b.Validate(); err != nil {
		return err
	}
	if err := rollout.Require(b, r.need...); err != nil {
		return err
	}
	if err := rollout.Derive(&r.ws, b, r.need...); err != nil {
		return err
	}
	if err := r.check(); err != nil {
		return err
	}
	r.setSignal()
	r.setPrompt()
	r.setMeans()
	return nil
}

// check returns the error of the schemes about the trajectory: about a value that is not finite,
// or a span without a response.
func (r *reader) check() error {
	b := &r.batch
	if r.advantages == givenAdvantages {
		for t, role := range b.Role {
			if role != reweight.RoleMasked && !finite(b.Advantages[t]) {
				return badArray("Advantages", t, "is %v at a response token, want a finite number", b.Advantages[t])
			}
		}
	}
	r.unused = resize(r.unused, b.Tokens())
	return r.opt.try(&r.ws, r.unused, b)
}

// setSignal sets the signal of all tokens as reweight.Workspace.ActFocus does.
func (r *reader) setSignal() {
	b := &r.batch
	r.computed = resize(r.computed, b.Tokens())
	switch r.signal = r.computed; r.opt.ActFocus.Signal {
	case reweight.SignalEnergy:
		r.signal = b.RefEnergy
	case reweight.SignalRefEntropy:
		r.signal = b.RefEntropy
	case reweight.SignalSurprisal:
		for t, l := range b.OldLogprobs {
			r.signal[t] = -l
		}
	case reweight.SignalLogRatio:
		for t, l := range b.OldLogprobs {
			r.signal[t] = l - b.RefLogprobs[t]
		}
	}
}

// actions returns the signal at the action tokens.
func (r *reader) actions() []float32 {
	r.acting = r.acting[:0]
	for t, role := range r.batch.Role {
		if role == reweight.RoleAction {
			r.acting = append(r.acting, r.signal[t])
		}
	}
	return r.acting
}

// setPrompt sets the digest of the tokens before the first response, if the trajectory
// has token ids and a response.
func (r *reader) setPrompt() {
	b := &r.batch
	for t, role := range b.Role {
		if role == reweight.RoleMasked {
			continue
		}
		if len(b.TokenIDs) > 0 {
			r.text = r.text[:0]
			for _, id := range b.TokenIDs[:t] {
				r.text = binary.LittleEndian.AppendUint32(r.text, uint32(id))
			}
			sum := sha256.Sum256(r.text)
			r.prompt = promptSum(sum[:])
		}
		return
	}
}

// setMeans sets the mean entropies of the spans.
func (r *reader) setMeans() {
	b := &r.batch
	spans := slices.Max(b.SpanIDs) + 1
	r.starts = resize(r.starts, int(spans)+2)
	clear(r.starts)
	next := r.starts[1:] // the values of span s will begin at next[s]
	for t, s := range b.SpanIDs {
		if s >= 0 && b.Role[t] != reweight.RoleMasked {
			next[s+1]++
		}
	}
	for s := range spans {
		next[s+1] += next[s]
	}
	r.entropies = resize(r.entropies, int(next[spans]))
	for t, s := range b.SpanIDs {
		if s >= 0 && b.Role[t] != reweight.RoleMasked {
			r.entropies[next[s]] = b.Entropy[t]
			next[s]++
		}
	}
	// Now next[s] is where span s ends, and starts[s] where it begins.
	r.means = resize(r.means, int(spans))
	mustCall(r.ws.SpanMeans(r.means, r.entropies, r.starts[:spans+1]))
	for s, m := range r.means {
		r.means[s] = plus(m)
	}
}

// identify adds the trajectory to the identity of its file: what scores are made of, and
// token ids, which tell trajectories apart. Of groups it is the id, or for groups that were
// made by counting, which trajectories share one. Values that count for nothing, such as the entropy
// of a masked token, are left out: they can differ between machines if they are NaN.
func (r *reader) identify(t *rollout.Trajectory) {
	b := &r.batch
	text := r.text[:0]
	u32 := func(x uint32) { text = binary.LittleEndian.AppendUint32(text, x) }
	u64 := func(x int) { text = binary.LittleEndian.AppendUint64(text, uint64(x)) }
	key := keyOf(t.Group)
	if _, known := r.groups[key]; !known {
		r.groups[key] = len(r.groups)
	}
	for _, n := range [...]int{r.groups[key], b.Tokens(), len(b.Rewards), len(b.Advantages), len(b.TokenIDs)} {
		u64(n)
	}
	if t.LocalGroup {
		key = ""
	}
	u64(len(key))
	text = append(text, key...)
	for t, role := range b.Role {
		text = append(text, byte(role))
		u32(uint32(b.SpanIDs[t]))
		if role == reweight.RoleMasked {
			continue
		}
		u32(math.Float32bits(b.Entropy[t]))
		if role == reweight.RoleAction {
			u32(math.Float32bits(r.signal[t]))
		}
		if r.advantages == givenAdvantages {
			u32(math.Float32bits(b.Advantages[t]))
		}
		if len(text) > 1<<16 {
			r.hash.Write(text)
			text = text[:0]
		}
	}
	for _, id := range b.TokenIDs {
		u32(uint32(id))
	}
	for _, reward := range b.Rewards {
		u32(math.Float32bits(reward))
	}
	r.hash.Write(text)
	r.text = text
}

// at returns an error about the trajectory that was read last, with its place before it.
func (r *reader) at(t *rollout.Trajectory, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", rollout.Place(t.File, t.Line, r.number), rollout.InFile(err))
}

func badArray(field string, index int, problem string, values ...any) error {
	return &reweight.InputError{Arg: field, Index: index, Problem: fmt.Sprintf(problem, values...)}
}

func finite(x float32) bool { return x-x == 0 }

// resize returns s with length n, its contents unspecified.
func resize[E any](s []E, n int) []E {
	if cap(s) < n {
		return make([]E, n)
	}
	return s[:n]
}
