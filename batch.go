package reweight

import (
	"encoding/binary"
	"fmt"
)

// Role says what a token is to the loss (Batch.Role).
const (
	RoleMasked    = 0 // prompt or observation: no part in the loss
	RoleReasoning = 1 // response token outside the action body
	RoleAction    = 2 // strictly between <answer> and </answer>
)

// A Batch is T tokens of S trajectories, one after another, without padding.
//
// Each slice is one array of the packed layout; the caller owns them all. A
// function reads only the arrays it names and leaves the others alone, so a
// Batch may carry just what the call at hand needs. Energies, entropies and
// log-probabilities are in nats.
type Batch struct {
	Role       []uint8   // [T] RoleMasked, RoleReasoning or RoleAction
	SeqOffsets []int64   // [S+1] tokens SeqOffsets[s] to SeqOffsets[s+1] are trajectory s
	GroupIDs   []int32   // [S] trajectories sampled from one prompt share a group
	Rewards    []float32 // [S] outcome reward
	SpanIDs    []int32   // [T] response of each token, numbered from 0; -1 outside
	TokenIDs   []int32   // [T] sampled token

	RefEnergy   []float32 // [T] -logsumexp of the frozen reference's logits
	Entropy     []float32 // [T] entropy of the old policy
	OldLogprobs []float32 // [T] log-probability of the sampled token, old policy
	Logprobs    []float32 // [T] the same, current policy
	RefLogprobs []float32 // [T] the same, frozen reference
	RefEntropy  []float32 // [T] optional: entropy of the frozen reference
	Advantages  []float32 // [T] optional
	Values      []float32 // [T] optional: critic

	RefLogits Logits // [T, V] optional: frozen reference
	OldLogits Logits // [T, V] optional: old policy
	Logits    Logits // [T, V] optional: current policy
}

// Tokens returns T, the number of tokens.
func (b *Batch) Tokens() int { return len(b.Role) }

// Trajectories returns S, the number of trajectories.
func (b *Batch) Trajectories() int { return max(len(b.SeqOffsets)-1, 0) }

// Validate checks every array that is set against the packed layout and
// returns an error that names the first one that breaks it, the place and both
// sizes. Role and SeqOffsets must be set; the others may be absent.
func (b *Batch) Validate() error {
	T := len(b.Role)
	if T == 0 {
		return fmt.Errorf("reweight: len(Role) = 0, want at least 1 token")
	}
	if err := checkRoles(b.Role); err != nil {
		return err
	}
	if err := checkOffsets(b.SeqOffsets, T); err != nil {
		return err
	}
	S := b.Trajectories()
	for _, a := range [...]struct {
		name      string
		got, want int
		unit      string
	}{
		{"GroupIDs", len(b.GroupIDs), S, "trajectories"},
		{"Rewards", len(b.Rewards), S, "trajectories"},
		{"SpanIDs", len(b.SpanIDs), T, "tokens"},
		{"TokenIDs", len(b.TokenIDs), T, "tokens"},
		{"RefEnergy", len(b.RefEnergy), T, "tokens"},
		{"Entropy", len(b.Entropy), T, "tokens"},
		{"OldLogprobs", len(b.OldLogprobs), T, "tokens"},
		{"Logprobs", len(b.Logprobs), T, "tokens"},
		{"RefLogprobs", len(b.RefLogprobs), T, "tokens"},
		{"RefEntropy", len(b.RefEntropy), T, "tokens"},
		{"Advantages", len(b.Advantages), T, "tokens"},
		{"Values", len(b.Values), T, "tokens"},
	} {
		if a.got != 0 && a.got != a.want {
			return fmt.Errorf("reweight: len(%s) = %d, want %d %s", a.name, a.got, a.want, a.unit)
		}
	}
	if err := checkRewards(b.Rewards); err != nil {
		return err
	}
	if len(b.SpanIDs) != 0 {
		if err := checkSpans(b.SpanIDs, b.Role, b.SeqOffsets); err != nil {
			return err
		}
	}
	for _, l := range [...]struct {
		name string
		l    Logits
	}{{"RefLogits", b.RefLogits}, {"OldLogits", b.OldLogits}, {"Logits", b.Logits}} {
		if l.l.empty() {
			continue
		}
		if err := l.l.check(l.name, T); err != nil {
			return err
		}
		for t, id := range b.TokenIDs {
			if id < 0 || int(id) >= l.l.Vocab {
				return fmt.Errorf("reweight: TokenIDs[%d] = %d, want 0 to %d (%s.Vocab = %d)", t, id, l.l.Vocab-1, l.name, l.l.Vocab)
			}
		}
	}
	return nil
}

// need returns an error unless the array of that name has one element per token.
func need(name string, got, tokens int) error {
	if got != tokens {
		return fmt.Errorf("reweight: len(%s) = %d, want %d tokens", name, got, tokens)
	}
	return nil
}

func finite(f float32) bool { return f-f == 0 }

func checkRoles(role []uint8) error {
	t := 0
	for ; t+8 <= len(role); t += 8 { // eight at a time: no bit above the lowest two, and not both
		if v := binary.LittleEndian.Uint64(role[t:]); v&0xfcfcfcfcfcfcfcfc|v&(v>>1)&0x0101010101010101 != 0 {
			break
		}
	}
	for ; t < len(role); t++ {
		if r := role[t]; r > RoleAction {
			return fmt.Errorf("reweight: Role[%d] = %d, want 0, 1 or 2", t, r)
		}
	}
	return nil
}

func checkOffsets(off []int64, tokens int) error {
	if len(off) < 2 {
		return fmt.Errorf("reweight: len(SeqOffsets) = %d, want at least 2 (one trajectory)", len(off))
	}
	if off[0] != 0 {
		return fmt.Errorf("reweight: SeqOffsets[0] = %d, want 0", off[0])
	}
	for s := 1; s < len(off); s++ {
		if off[s] < off[s-1] {
			return fmt.Errorf("reweight: SeqOffsets[%d] = %d is below SeqOffsets[%d] = %d", s, off[s], s-1, off[s-1])
		}
	}
	if last := off[len(off)-1]; last != int64(tokens) {
		return fmt.Errorf("reweight: SeqOffsets[%d] = %d, want %d tokens", len(off)-1, last, tokens)
	}
	return nil
}

// checkSpans wants spans numbered 0, 1, 2, ... in the order in which they
// first appear, each within one trajectory, and every response token in one.
func checkSpans(span []int32, role []uint8, off []int64) error {
	next, first := int32(0), int32(0) // spans seen so far; those seen before this trajectory
	s := 0
	for t, id := range span {
		for int64(t) >= off[s+1] {
			s, first = s+1, next
		}
		switch {
		case id < -1 || id > next:
			return fmt.Errorf("reweight: SpanIDs[%d] = %d, want -1 to %d (spans are numbered from 0 in order)", t, id, next)
		case id >= 0 && id < first:
			return fmt.Errorf("reweight: SpanIDs[%d] = %d is in trajectory %d, but the span began in an earlier one", t, id, s)
		case id == -1 && role[t] != RoleMasked:
			return fmt.Errorf("reweight: SpanIDs[%d] = -1, but Role[%d] = %d is a response token", t, t, role[t])
		case id == next:
			next++
		}
	}
	return nil
}
