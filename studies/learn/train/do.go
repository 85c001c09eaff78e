// Package train trains the agents of studies/learn: it plays episodes with the
// policy, gives their tokens credit with package reweight, and changes the policy
// by the gradient of the loss.
package train

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/scheme"
	"github.com/seed621a2839/reweight/studies/learn/env"
	"github.com/seed621a2839/reweight/studies/learn/policy"
)

// Do trains from a warm start, which is the frozen reference too. Runs at the same
// time may share it. The same run, settings and start give the same result to the
// last bit, but for Seconds, on every instruction set and every CPU.
func (s Settings) Do(run Run, warm *policy.Policy) (Result, error) {
	return s.do(run, warm, reweight.Auto)
}

func (s Settings) do(run Run, warm *policy.Policy, isa reweight.ISA) (Result, error) {
	began := time.Now()
	picked, err := schemeNamed(run.Scheme)
	if err != nil {
		return Result{}, err
	}
	if !slices.Contains(Algorithms, run.Algorithm) {
		return Result{}, unknown("algorithm", run.Algorithm, Algorithms)
	}
	if s, err = s.of(run); err != nil {
		return Result{}, err
	}
	t := trainer{Settings: s, game: env.Games[run.Game], scheme: picked, algorithm: run.Algorithm, reference: warm.Clone()}
	t.agent = warm.Clone()
	t.gradient = warm.Zeros()
	if run.Rate != 0 {
		t.LearningRate = run.Rate
	}
	t.ws = reweight.Workspace{Workers: 1, ISA: isa}
	t.seats.rules = s.rules(run)

	result := Result{Run: run, Start: t.evaluate(run.Seed), Decided: math.NaN()}
	for iteration := range s.Iterations {
		begin := starts(s.Groups, s.GroupSize, forTraining, uint64(run.Seed), uint64(iteration))
		if err := t.iterate(begin, &result); err != nil {
			return Result{}, fmt.Errorf("iteration %d: %w", iteration, err)
		}
	}
	result.Malformed /= float64(s.Iterations)
	result.Final = t.evaluate(run.Seed)
	result.Weights = fingerprint(t.agent.Parameters)
	result.Seconds = time.Since(began).Seconds()
	return result, nil
}

// Algorithms are those that a Run can name.
var Algorithms = []string{"grpo", "ppo"}

// unknown is the error about a name that is none of names.
func unknown(kind, name string, names []string) error {
	return fmt.Errorf("no %s is named %q: want %s", kind, name, strings.Join(names, ", "))
}

// A trainer is a learner in training.
type trainer struct {
	learner
	Settings
	game      env.Game
	scheme    scheme.Scheme
	algorithm string
	reference *policy.Policy

	seats   table
	updates int
	other   []float32 // [rows] a second statistic
	rewards []float32 // [T]
}

// iterate plays a batch of episodes, gives them credit and updates the policy.
func (t *trainer) iterate(begin []start, result *Result) error {
	t.seats.play(t.agent, t.game, begin)
	b := &t.seats.batch
	if err := t.describe(b); err != nil {
		return err
	}
	weights, err := t.credit(b)
	if err != nil {
		return err
	}
	if result.Success == nil {
		result.Actions = share(b.Role, reweight.RoleAction)
	}
	if t.Keep < 1 {
		weights = keep(b, weights, t.Keep)
	}
	o := objective{loss: t.scheme.Options.Loss, critic: reweight.DefaultValueLoss}
	if t.algorithm == "ppo" {
		o.criticCoef = t.CriticCoef
	}
	for range t.Epochs {
		for part := range t.Minibatches {
			mini, miniWeights := slice(b, weights, part, t.Minibatches)
			if _, _, err := t.differentiate(&mini, miniWeights, o); err != nil {
				return err
			}
			t.updates++
			t.update(t.LearningRate * min(1, float64(t.updates)/float64(max(t.Warmup, 1))))
		}
	}
	result.Success = append(result.Success, t.seats.success())
	result.Malformed += t.seats.malformed()
	return nil
}

// describe sets what the batch says about the policy that played it and about
// the frozen reference.
func (t *trainer) describe(b *reweight.Batch) error {
	n := b.Tokens()
	t.look(t.agent, b)
	t.logprobs, t.other = resized(t.logprobs, len(t.rows)), resized(t.other, len(t.rows))
	logits := reweight.Logits{Vocab: t.agent.Vocab, F32: t.logits}
	tau := reweight.DefaultTokenStats
	if err := t.ws.TokenStats(reweight.Stats{Logprob: t.logprobs, Entropy: t.other}, logits, t.ids, tau); err != nil {
		return err
	}
	b.OldLogprobs = t.spread(b.OldLogprobs, t.logprobs, n)
	b.Entropy = t.spread(b.Entropy, t.other, n)
	b.Values = t.spread(b.Values, t.agent.Values(t.tape.State, t.rows), n)

	t.look(t.reference, b)
	logits.F32 = t.logits
	if err := t.ws.TokenStats(reweight.Stats{Logprob: t.logprobs, LSE: t.other}, logits, t.ids, tau); err != nil {
		return err
	}
	for i := range t.other {
		t.other[i] = -t.other[i] // energy
	}
	b.RefLogprobs = t.spread(b.RefLogprobs, t.logprobs, n)
	b.RefEnergy = t.spread(b.RefEnergy, t.other, n)
	return nil
}

// evaluate returns the success of the policy on episodes that are kept for that.
func (t *trainer) evaluate(seed int) float64 {
	t.seats.play(t.agent, t.game, starts(t.Evaluation, 1, forEvaluation, uint64(seed), 0))
	return t.seats.success()
}

// slice returns the trajectories of one of the minibatches that a batch is cut
// into, and their weights, in the memory of the batch.
func slice(b *reweight.Batch, weights []float32, number, minibatches int) (reweight.Batch, []float32) {
	first := number * b.Trajectories() / minibatches
	end := (number + 1) * b.Trajectories() / minibatches
	from, to := b.SeqOffsets[first], b.SeqOffsets[end]
	part := reweight.Batch{
		Role:        b.Role[from:to],
		TokenIDs:    b.TokenIDs[from:to],
		OldLogprobs: b.OldLogprobs[from:to],
		RefLogprobs: b.RefLogprobs[from:to],
		Advantages:  b.Advantages[from:to],
		Values:      b.Values[from:to],
	}
	if b.Returns != nil {
		part.Returns = b.Returns[from:to]
	}
	for _, offset := range b.SeqOffsets[first : end+1] {
		part.SeqOffsets = append(part.SeqOffsets, offset-from)
	}
	if weights != nil {
		weights = weights[from:to]
	}
	return part, weights
}

// rules are those of the run's episodes.
func (s Settings) rules(run Run) rules {
	return rules{fluent: run.Fluent, echo: s.Echo, formatActs: s.FormatActs, penalty: float32(s.Penalty)}
}

// share returns the share of the role among the response tokens.
func share(roles []reweight.Role, role reweight.Role) float64 {
	of, all := 0, 0
	for _, r := range roles {
		if r != reweight.RoleMasked {
			all++
		}
		if r == role {
			of++
		}
	}
	return float64(of) / float64(max(all, 1))
}

// keep returns the weights with 0 in place of those of all groups but the share whose rewards
// vary most; of groups that vary alike, the first are kept.
func keep(b *reweight.Batch, weights []float32, share float64) []float32 {
	type group struct{ number, n, sum, squares float64 }
	groups := make([]group, b.GroupIDs[len(b.GroupIDs)-1]+1)
	for i, g := range b.GroupIDs {
		r := float64(b.Rewards[i])
		groups[g].number, groups[g].n, groups[g].sum, groups[g].squares = float64(g), groups[g].n+1, groups[g].sum+r, groups[g].squares+r*r
	}
	slices.SortStableFunc(groups, func(x, y group) int {
		variance := func(g group) float64 { return g.squares/g.n - g.sum/g.n*g.sum/g.n }
		return cmp.Compare(variance(y), variance(x))
	})
	kept := map[int32]bool{}
	for _, g := range groups[:int(math.Ceil(share*float64(len(groups))))] {
		kept[int32(g.number)] = true
	}
	var all []float32
	for i, g := range b.GroupIDs {
		for t := b.SeqOffsets[i]; t < b.SeqOffsets[i+1]; t++ {
			w := float32(1)
			if weights != nil {
				w = weights[t]
			}
			if !kept[g] {
				w = 0
			}
			all = append(all, w)
		}
	}
	return all
}

// fingerprint returns the SHA-256 of parameters.
func fingerprint(parameters []float32) string {
	hash := sha256.New()
	var bytes [4]byte
	for _, parameter := range parameters {
		binary.LittleEndian.PutUint32(bytes[:], math.Float32bits(parameter))
		hash.Write(bytes[:])
	}
	return hex.EncodeToString(hash.Sum(nil))
}
