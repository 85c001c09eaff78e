// Package diagnose says what a batch of rollouts looks like: how the energies of a group
// go with its rewards, what a step does to the entropy of the policy, and which tokens
// have the weight. It is for looking at a batch, not for a training step: it allocates.
//
// An argument that is wrong is a [*reweight.InputError].
package diagnose

import (
	"slices"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/problem"
)

// WeightMass returns the action tokens' share of the sum of weights, 0 if the
// sum is 0; weights nil stands for 1 at each response token. weights and role
// have the same length, and roles are 0 to 2; anything else is an error.
func WeightMass(weights []float32, role []reweight.Role) (float64, error) {
	if weights != nil && len(weights) != len(role) {
		return 0, badInput("weights", problem.Length, len(weights), len(role), "token")
	}
	var reasoning, action float64
	for t, r := range role {
		w := 1.0
		if weights != nil {
			w = float64(weights[t])
		}
		switch r {
		case reweight.RoleMasked:
		case reweight.RoleReasoning:
			reasoning += w
		case reweight.RoleAction:
			action += w
		default:
			return 0, badElement("role", t, problem.Role, uint8(r))
		}
	}
	if all := reasoning + action; all != 0 {
		return action / all, nil
	}
	return 0, nil
}

// EntropyDrift returns the mean over spans of A_s (S_s - H_s), the first-order
// change of the policy's entropy (AEM, arXiv 2605.00425): S_s is the surprisal
// -sum l_old of the span's response tokens, H_s the sum of their entropies and
// A_s the mean of their advantages, nats. It is 0 if no token is in a span. Role,
// SpanIDs, OldLogprobs, Entropy and Advantages have one element per token, and
// SeqOffsets must be set; anything else is an error, as is a span without a
// response token.
func EntropyDrift(b *reweight.Batch) (float64, error) {
	read := reweight.Batch{Role: b.Role, SeqOffsets: b.SeqOffsets, SpanIDs: b.SpanIDs,
		OldLogprobs: b.OldLogprobs, Entropy: b.Entropy, Advantages: b.Advantages}
	if err := check(&read, "OldLogprobs", "Entropy", "Advantages", "SpanIDs"); err != nil {
		return 0, err
	}
	type span struct {
		tokens    int     // response tokens
		advantage float64 // the sum of theirs
		excess    float64 // their surprisal less their entropy
	}
	var spans []span
	for t, id := range b.SpanIDs {
		if id < 0 {
			continue
		}
		if int(id) == len(spans) { // spans are numbered in the order in which they appear
			spans = append(spans, span{})
		}
		if b.Role[t] != reweight.RoleMasked {
			s := &spans[id]
			s.tokens++
			s.advantage += float64(b.Advantages[t])
			s.excess -= float64(b.OldLogprobs[t]) + float64(b.Entropy[t])
		}
	}
	sum := 0.0
	for i, s := range spans {
		if s.tokens == 0 {
			return 0, badInput("SpanIDs", problem.SpanEmpty, i)
		}
		sum += float64(s.advantage / float64(s.tokens) * s.excess)
	}
	return sum / float64(max(len(spans), 1)), nil
}

// check wants the arrays of the batch to be sound, and those of these fields to be there.
func check(b *reweight.Batch, fields ...string) error {
	if err := b.Validate(); err != nil {
		return err
	}
	for _, a := range b.Arrays() {
		if a.Len() == 0 && slices.Contains(fields, a.Field) {
			size, unit := b.Tokens(), "token"
			if a.Per == reweight.PerTrajectory {
				size, unit = b.Trajectories(), "trajectory"
			}
			return badInput(a.Field, problem.Length, 0, size, unit)
		}
	}
	return nil
}

func badInput(arg string, p *problem.Problem, values ...any) error {
	return badElement(arg, -1, p, values...)
}

func badElement(arg string, index int, p *problem.Problem, values ...any) error {
	return &reweight.InputError{Arg: arg, Index: index, Problem: p.Says(values...)}
}
