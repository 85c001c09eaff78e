package reweight

import (
	"cmp"

	"github.com/seed621a2839/reweight/internal/problem"
)

// A Role says what a token is to the loss.
type Role uint8

const (
	RoleMasked    Role = iota // prompt or observation: no part in the loss
	RoleReasoning             // response token outside the action body
	RoleAction                // strictly between <answer> and </answer>
)

var roleNames = [...]string{"masked", "reasoning", "action"}

// String returns the role in one word: masked, reasoning or action.
func (r Role) String() string { return nameOf(r, roleNames[:]) }

// A RoleSet is a set of roles.
type RoleSet uint8

// Responses is the set of roles that take part in the loss.
const Responses RoleSet = 1<<RoleReasoning | 1<<RoleAction

// Roles returns the set of the given roles.
func Roles(roles ...Role) RoleSet {
	var set RoleSet
	for _, r := range roles {
		set |= 1 << r
	}
	return set
}

// Has reports whether r is in the set.
func (set RoleSet) Has(r Role) bool { return set>>r&1 != 0 }

// A Batch is T tokens of S trajectories, one after another, without padding.
//
// Each slice is one array of the packed layout; the caller owns them all. A
// function reads only the arrays that it names and leaves the others alone, so a
// Batch may carry just what the call at hand needs. Energies, entropies and
// log-probabilities are in nats.
type Batch struct {
	Role       []Role    // [T] RoleMasked, RoleReasoning or RoleAction
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

	RolloutLogprobs []float32 // [T] optional: log-probability of the sampled token, by the engine that sampled
	TokenRewards    []float32 // [T] optional: reward of each token
	Returns         []float32 // [T] optional: what the critic is to predict
	NewValues       []float32 // [T] optional: current critic; Values is the old one
	TeacherLogprobs []float32 // [T] optional: the same as Logprobs, by a teacher; all NaN in a trajectory without one
	SumSqProbs      []float32 // [T] optional: sum of the squared probabilities of the vocabulary, old policy
	EntropyDrop     []float32 // [T] optional: sum of p^2 (Entropy + log p) over the vocabulary, old policy
	RewardParts     []float32 // [S, K] optional: the K parts of the outcome reward of each trajectory, K at least 1
	Anchors         []int32   // [spans] optional: number of the state before the span; equal states, equal numbers
	SpanRewards     []float32 // [spans] optional: reward of each span

	// What a trainer used, for whoever looks at its batch. No scheme reads them.
	ActFocusWeights []float32 // [T] optional: weight of each token by ActFocus
	AEMFactors      []float32 // [T] optional: factor of each token's advantage by AEM

	RefLogits Logits // [T, V] optional: frozen reference
	OldLogits Logits // [T, V] optional: old policy
	Logits    Logits // [T, V] optional: current policy
}

// Tokens returns T, the number of tokens.
func (b *Batch) Tokens() int { return len(b.Role) }

// Trajectories returns S, the number of trajectories.
func (b *Batch) Trajectories() int { return max(len(b.SeqOffsets)-1, 0) }

// fill sets dst to x at the response tokens of trajectory s, to masked at its others.
func (b *Batch) fill(dst []float32, s int, x, masked float32) {
	for t := b.SeqOffsets[s]; t < b.SeqOffsets[s+1]; t++ {
		dst[t] = masked
		if b.Role[t] != RoleMasked {
			dst[t] = x
		}
	}
}

// responses returns the number of response tokens of trajectory s.
func (b *Batch) responses(s int) int {
	return responses(b.Role[b.SeqOffsets[s]:b.SeqOffsets[s+1]])
}

// An Array describes one array of a [Batch].
type Array struct {
	Field string // of the Batch, and the Arg of an *InputError about it: "SeqOffsets"
	Name  string // in files, flags and other languages: "seq_offsets"
	Per   Unit   // what its elements, or its rows of logits, stand for
	Data  any    // points at the field: *[]Role, *[]int64, *[]int32, *[]float32 or *Logits

	// From names the array of logits that this one is a statistic of, and
	// Statistic says which; "" and NotDerived for all others.
	From      string
	Statistic Statistic
}

// A Unit is what an array of a [Batch] has an element for.
type Unit uint8

const (
	PerToken      Unit = iota // T elements
	PerTrajectory             // S elements
	PerPart                   // S*K elements: K of each trajectory, one trajectory after another
	PerBoundary               // S+1 elements: where each trajectory begins, and where the last ends
	PerSpan                   // as many elements as SpanIDs numbers
)

// A Statistic is what follows from a token's row of logits at temperature 1.
type Statistic uint8

const (
	NotDerived       Statistic = iota
	StatisticEnergy            // -logsumexp
	StatisticEntropy           // of the softmax
	StatisticLogprob           // log-probability of the token in TokenIDs
)

// Arrays lists the arrays of b, those that are not set included. It is the one
// list of them all: what validates, reads, writes or derives arrays walks it.
func (b *Batch) Arrays() []Array {
	all := b.arrays()
	return all[:]
}

// arrays is apart from Arrays so that this is compiled into its callers: a list that does
// not leave them is not allocated then.
func (b *Batch) arrays() [29]Array {
	return [...]Array{
		{Field: "Role", Name: "role", Per: PerToken, Data: &b.Role},
		{Field: "SeqOffsets", Name: "seq_offsets", Per: PerBoundary, Data: &b.SeqOffsets},
		{Field: "GroupIDs", Name: "group_ids", Per: PerTrajectory, Data: &b.GroupIDs},
		{Field: "Rewards", Name: "rewards", Per: PerTrajectory, Data: &b.Rewards},
		{Field: "SpanIDs", Name: "span_ids", Per: PerToken, Data: &b.SpanIDs},
		{Field: "TokenIDs", Name: "token_ids", Per: PerToken, Data: &b.TokenIDs},
		{Field: "RefEnergy", Name: "ref_energy", Per: PerToken, Data: &b.RefEnergy, From: "ref_logits", Statistic: StatisticEnergy},
		{Field: "Entropy", Name: "entropy", Per: PerToken, Data: &b.Entropy, From: "old_logits", Statistic: StatisticEntropy},
		{Field: "OldLogprobs", Name: "old_logprobs", Per: PerToken, Data: &b.OldLogprobs, From: "old_logits", Statistic: StatisticLogprob},
		{Field: "Logprobs", Name: "logprobs", Per: PerToken, Data: &b.Logprobs, From: "logits", Statistic: StatisticLogprob},
		{Field: "RefLogprobs", Name: "ref_logprobs", Per: PerToken, Data: &b.RefLogprobs, From: "ref_logits", Statistic: StatisticLogprob},
		{Field: "RefEntropy", Name: "ref_entropy", Per: PerToken, Data: &b.RefEntropy, From: "ref_logits", Statistic: StatisticEntropy},
		{Field: "Advantages", Name: "advantages", Per: PerToken, Data: &b.Advantages},
		{Field: "Values", Name: "values", Per: PerToken, Data: &b.Values},
		{Field: "RolloutLogprobs", Name: "rollout_logprobs", Per: PerToken, Data: &b.RolloutLogprobs},
		{Field: "TokenRewards", Name: "token_rewards", Per: PerToken, Data: &b.TokenRewards},
		{Field: "Returns", Name: "returns", Per: PerToken, Data: &b.Returns},
		{Field: "NewValues", Name: "new_values", Per: PerToken, Data: &b.NewValues},
		{Field: "TeacherLogprobs", Name: "teacher_logprobs", Per: PerToken, Data: &b.TeacherLogprobs},
		{Field: "SumSqProbs", Name: "sum_sq_probs", Per: PerToken, Data: &b.SumSqProbs},
		{Field: "EntropyDrop", Name: "entropy_drop", Per: PerToken, Data: &b.EntropyDrop},
		{Field: "RewardParts", Name: "reward_parts", Per: PerPart, Data: &b.RewardParts},
		{Field: "Anchors", Name: "anchors", Per: PerSpan, Data: &b.Anchors},
		{Field: "SpanRewards", Name: "span_rewards", Per: PerSpan, Data: &b.SpanRewards},
		{Field: "ActFocusWeights", Name: "actfocus_weights", Per: PerToken, Data: &b.ActFocusWeights},
		{Field: "AEMFactors", Name: "aem_factors", Per: PerToken, Data: &b.AEMFactors},
		{Field: "RefLogits", Name: "ref_logits", Per: PerToken, Data: &b.RefLogits},
		{Field: "OldLogits", Name: "old_logits", Per: PerToken, Data: &b.OldLogits},
		{Field: "Logits", Name: "logits", Per: PerToken, Data: &b.Logits},
	}
}

// Len returns the number of elements, or of rows of logits; 0 if the array is
// not set.
func (a *Array) Len() int {
	switch data := a.Data.(type) {
	case *[]Role:
		return len(*data)
	case *[]int64:
		return len(*data)
	case *[]int32:
		return len(*data)
	case *[]float32:
		return len(*data)
	case *Logits:
		return data.Rows()
	}
	return 0
}

// Validate checks every array that is set against the packed layout, and
// returns an [*InputError] about the first that breaks it. Role and SeqOffsets
// must be set; the others may be absent.
func (b *Batch) Validate() error {
	T, S := b.Tokens(), b.Trajectories()
	if T == 0 {
		return badInput("Role", problem.NoTokens)
	}
	if err := b.checkLayout(); err != nil {
		return err
	}
	for _, a := range b.Arrays() {
		var err error
		switch l, logits := a.Data.(*Logits); {
		case logits && !l.empty():
			err = cmp.Or(l.check(a.Field, T), checkIDs("TokenIDs", b.TokenIDs, 0, l.Vocab))
		case a.Len() == 0:
		case a.Per == PerToken:
			err = checkLen(a.Field, a.Len(), T, "token")
		case a.Per == PerTrajectory:
			err = checkLen(a.Field, a.Len(), S, "trajectory")
		case a.Per == PerPart:
			err = b.checkParts()
		}
		if err != nil {
			return err
		}
	}
	if err := checkRewards("Rewards", b.Rewards); err != nil {
		return err
	}
	if len(b.SpanIDs) != 0 {
		if err := checkTokenCount(T); err != nil {
			return err
		}
		if err := checkSpans(b.SpanIDs, b.Role, b.SeqOffsets); err != nil {
			return err
		}
	}
	for _, a := range b.Arrays() {
		if n := a.Len(); a.Per == PerSpan && n != 0 {
			if len(b.SpanIDs) == 0 {
				return badInput(a.Field, problem.NoSpans, n)
			}
			if err := checkLen(a.Field, n, numberOfSpans(b.SpanIDs), "span"); err != nil {
				return err
			}
		}
	}
	return nil
}
