// Package train trains the agents of studies/learn: it plays episodes with the
// policy, gives their tokens credit with package reweight, and changes the policy
// by the gradient of the loss.
package train

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"slices"
	"time"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/scheme"
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
	t, err := s.trainer(run, warm)
	if err != nil {
		return Result{}, err
	}
	t.ws.ISA = isa
	result := Result{Run: run, Start: t.evaluate(run.Seed), Decided: math.NaN()}
	for iteration := range t.Iterations {
		begin := starts(t.Groups, t.GroupSize, forTraining, uint64(run.Seed), uint64(iteration))
		if err := t.iterate(begin, &result); err != nil {
			return Result{}, err
		}
	}
	result.Success /= float64(t.Iterations)
	result.Malformed /= float64(t.Iterations)
	result.Final = t.evaluate(run.Seed)
	result.Weights = fingerprint(t.agent.Parameters)
	result.Seconds = time.Since(began).Seconds()
	return result, nil
}

// A trainer is a learner in training.
type trainer struct {
	learner
	Settings
	rules
	scheme    scheme.Scheme
	measured  []float32 // weights of Parts, or nil
	rate      float64
	reference *policy.Policy
	updates   int
}

func (s Settings) trainer(run Run, warm *policy.Policy) (*trainer, error) {
	s = s.of(run)
	of, err := run.scheme()
	if err != nil {
		return nil, err
	}
	measured, err := run.measured()
	if err != nil {
		return nil, err
	}
	return &trainer{newLearner(warm.Clone()), s, s.rules(run), of, measured, run.Rate, warm, 0}, nil
}

// iterate plays a batch of episodes, gives them credit and updates the policy.
func (t *trainer) iterate(begin []start, result *Result) error {
	episodes := t.play(t.agent, begin)
	b := pack(episodes)
	if err := t.describe(b); err != nil {
		return err
	}
	weights, err := t.credit(b)
	if err != nil {
		return err
	}
	if t.updates == 0 {
		result.Actions = actions(b.Role)
	}
	if t.Keep < 1 {
		weights = keep(b, weights, t.GroupSize, t.Keep)
	}
	for range t.Epochs {
		for part := range t.Minibatches {
			mini, miniWeights := slice(b, weights, part, t.Minibatches)
			if _, err := t.differentiate(&mini, miniWeights, t.scheme.Options.Loss); err != nil {
				return err
			}
			t.updates++
			t.update(t.rate * min(1, float64(t.updates)/float64(max(t.Warmup, 1))))
		}
	}
	result.Success += success(episodes)
	result.Malformed += malformed(episodes)
	return nil
}

// describe sets what the batch says about the policy that played it and about
// the frozen reference.
func (t *trainer) describe(b *reweight.Batch) error {
	v := look(t.agent, b)
	logprobs, other := v.floats(), v.floats()
	stats := reweight.Stats{Logprob: logprobs, Entropy: other}
	if err := t.ws.TokenStats(stats, v.logits, v.ids, reweight.DefaultTokenStats); err != nil {
		return err
	}
	b.OldLogprobs, b.Entropy = v.spread(logprobs), v.spread(other)
	b.Values = v.spread(t.agent.Values(v.tape.State, v.rows))

	v = look(t.reference, b)
	stats = reweight.Stats{Logprob: logprobs, LSE: other}
	if err := t.ws.TokenStats(stats, v.logits, v.ids, reweight.DefaultTokenStats); err != nil {
		return err
	}
	for i := range other {
		other[i] = -other[i] // energy
	}
	b.RefLogprobs, b.RefEnergy = v.spread(logprobs), v.spread(other)
	return nil
}

// credit gives the batch its advantages and, for a critic, its returns, and returns the
// weights of the tokens in the loss, nil if all are 1.
func (t *trainer) credit(b *reweight.Batch) (weights []float32, err error) {
	now := *b
	now.Logprobs, now.NewValues = b.OldLogprobs, b.Values // the policy has just played
	step, err := t.scheme.NewStep(&t.ws, &now)
	if err != nil {
		return nil, err
	}
	if err := step.Credit(); err != nil {
		return nil, err
	}
	b.Advantages, b.Returns = step.Advantages, step.Returns
	if t.measured != nil {
		weights := make([]float32, b.Tokens())
		for i := range weights {
			if part := partOf(b, i); part >= 0 {
				weights[i] = t.measured[part]
			}
		}
		return weights, nil
	}
	return step.Weights, nil
}

// evaluate returns the success of the policy on episodes that are kept for that.
func (t *trainer) evaluate(seed int) float64 {
	return success(t.play(t.agent, starts(t.Evaluation, 1, forEvaluation, uint64(seed), 0)))
}

// slice returns the trajectories of one of the minibatches that a batch is cut
// into, and their weights, in the memory of the batch.
func slice(b *reweight.Batch, weights []float32, number, minibatches int) (reweight.Batch, []float32) {
	first := number * b.Trajectories() / minibatches
	end := (number + 1) * b.Trajectories() / minibatches
	from, to := b.SeqOffsets[first], b.SeqOffsets[end]
	cut := func(x []float32) []float32 {
		if x == nil {
			return nil
		}
		return x[from:to]
	}
	part := reweight.Batch{
		Role:        b.Role[from:to],
		TokenIDs:    b.TokenIDs[from:to],
		OldLogprobs: cut(b.OldLogprobs),
		RefLogprobs: cut(b.RefLogprobs),
		Advantages:  cut(b.Advantages),
		Values:      cut(b.Values),
		Returns:     cut(b.Returns),
	}
	for _, offset := range b.SeqOffsets[first : end+1] {
		part.SeqOffsets = append(part.SeqOffsets, offset-from)
	}
	return part, cut(weights)
}

// actions returns the share of action tokens among those of responses.
func actions(roles []reweight.Role) float64 {
	var count [reweight.RoleAction + 1]float64
	for _, role := range roles {
		count[role]++
	}
	return count[reweight.RoleAction] / (count[reweight.RoleReasoning] + count[reweight.RoleAction])
}

// keep returns the weights with 0 in place of those of all groups but the share whose rewards
// vary most; of groups that vary alike, the first are kept. A group has size trajectories.
func keep(b *reweight.Batch, weights []float32, size int, share float64) []float32 {
	if weights == nil {
		weights = slices.Repeat([]float32{1}, b.Tokens())
	}
	type group struct {
		first    int
		variance float64
	}
	var groups []group
	for rewards := range slices.Chunk(b.Rewards, size) {
		var sum, squares float64
		for _, r := range rewards {
			sum, squares = sum+float64(r), squares+float64(r)*float64(r)
		}
		n := float64(size)
		groups = append(groups, group{len(groups) * size, squares/n - sum/n*sum/n})
	}
	slices.SortStableFunc(groups, func(x, y group) int { return cmp.Compare(y.variance, x.variance) })
	for _, g := range groups[int(math.Ceil(share*float64(len(groups)))):] {
		clear(weights[b.SeqOffsets[g.first]:b.SeqOffsets[g.first+size]])
	}
	return weights
}

// fingerprint returns the SHA-256 of parameters.
func fingerprint(parameters []float32) string {
	hash := sha256.New()
	binary.Write(hash, binary.LittleEndian, parameters)
	return hex.EncodeToString(hash.Sum(nil))
}
