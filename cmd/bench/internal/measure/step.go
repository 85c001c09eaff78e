package measure

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/gpu"
	"github.com/seed621a2839/reweight/scheme"
)

// Steps says which training steps to measure.
type Steps struct {
	Tokens, Vocab int // rows of logits, and their length
	Workers       int
	ISA           string      // the name of an instruction set, or cuda
	GPU           *gpu.Device // for cuda
	PPO           bool        // advantages of GAE, whitened; otherwise those of GRPO
	KL            bool        // with an anchor to the reference

	Schemes []scheme.Scheme // in place of ActFocus, AEM and both; nil for those
}

// An Overhead is what a reweighted training step costs over the uniform one.
type Overhead struct {
	Step        string         `json:"step"`       // the scheme: actfocus, aem, actfocus+aem, ...
	Advantages  string         `json:"advantages"` // grpo, ppo or own: those of the scheme
	KL          bool           `json:"kl"`
	ISA         string         `json:"isa"`
	Tokens      int            `json:"tokens"`
	Vocab       int            `json:"vocab"`
	Workers     int            `json:"workers"`
	UniformNs   bench.Estimate `json:"uniform_ns"`   // time of the uniform step
	OverUniform bench.Estimate `json:"over_uniform"` // time of this step over that of the uniform one
	Verdict     string         `json:"verdict"`      // "at most +3.1%"
	Reason      string         `json:"reason"`       // "not decided: at least -0.5%"
	// Null is the uniform step's time over its own, as if it were two steps.
	Null       bench.Estimate `json:"null"`
	ExtraBytes int64          `json:"extra_bytes"`          // on the heap, beyond the uniform step's
	Allocs     uint64         `json:"allocs"`               // per step, in steady state
	AllocBytes uint64         `json:"alloc_bytes"`          // likewise
	PeakBytes  int64          `json:"peak_bytes,omitempty"` // of the process so far; 0 where the system does not tell
}

// FreeLimit is the largest ratio to the time of the uniform step at which a step is
// called free. The papers say that their steps cost nothing; a difference below 2%
// is not noticed in a training run.
const FreeLimit = 1.02

const (
	undecided = "not decided"
	free      = "free within noise"
	refuted   = "the claim does not hold"
)

// verdict says what the ratio of times means for the claim that the step costs
// nothing. A step has a cost only if its ratio is above what the uniform step
// seems to take over itself, and it is free only if the uniform step over itself
// is free too. What is not decided has a bound, the upper end of the interval.
//
// The claim stands alone; the reason says what it rests on.
func verdict(ratio, null bench.Estimate) (claim, reason string) {
	lo, hi := 100*(ratio.Lo-1), 100*(ratio.Hi-1)
	bound, least := fmt.Sprintf("at most %+.1f%%", hi), fmt.Sprintf("%s: at least %+.1f%%", undecided, lo)
	n := min(ratio.N, null.N)
	switch {
	case n < bench.FewestRounds:
		return undecided, fmt.Sprintf("rounds %d, want %d", n, bench.FewestRounds)
	case ratio.Lo > FreeLimit && ratio.Lo > null.Hi:
		return fmt.Sprintf("costs %.1f%%", 100*(ratio.Median-1)), refuted
	case ratio.Lo > FreeLimit:
		return bound, fmt.Sprintf("%s, the null reaches %+.1f%%", least, 100*(null.Hi-1))
	case !(ratio.Hi <= FreeLimit):
		return bound, least
	case ratio.Lo > max(1, null.Hi):
		return fmt.Sprintf("costs under %.0f%%", 100*(FreeLimit-1)), fmt.Sprintf("%.1f%%", 100*(ratio.Median-1))
	case !(null.Hi <= FreeLimit):
		return bound, fmt.Sprintf("%s: the null reaches %+.1f%%", undecided, 100*(null.Hi-1))
	case hi < 0:
		return free, "no slower"
	default:
		return free, bound
	}
}

// FewestTokens is the least number of tokens of a step: the whitened advantage of one alone
// is 0, and rows without a gradient cost less.
const FewestTokens = 2

// FewestOfSchemes is the least number of tokens of a step of schemes, those of a whole
// group: an advantage that compares trajectories would be 0, and rows without a gradient
// cost less.
const FewestOfSchemes = 28

// StepRows returns the tokens of a step whose logits and gradient, four arrays,
// make up StreamBytes together, and at least FewestTokens.
func StepRows(vocab int) int {
	return max(FewestTokens, (RowsToStream(reweight.DTypeF32, vocab, StreamBytes)+3)/4)
}

// A step goes from logits to the loss and its gradient with respect to the logits. The
// uniform step passes over the old policy's logits for its log-probabilities and
// over the current policy's for theirs, takes advantages and the clipped
// surrogate, and passes over the current logits for the gradient. With a KL
// anchor it also passes over the reference's logits for their log-probabilities.
//
// AEM's entropy is one more sum of the old policy's pass. ActFocus's energy is
// a sum of the anchor's pass, and without an anchor it needs a pass of its own.
//
// The scheme computes all that follows the passes over the old and the current logits.
// What it reads besides is in the batch, or a sum of these passes.
type step struct {
	name    string // of the scheme, without the advantages of PPO
	scheme  scheme.Scheme
	reads   []string // of the scheme
	ppo, kl bool
}

func (q Steps) step(name string) step {
	st := step{name: name, ppo: q.PPO, kl: q.KL}
	if q.PPO {
		name += "+gae"
	}
	st.scheme = scheme.MustParse(name)
	st.scheme.Options.OffPolicyMask.Delta = 0.1 // which has no default, as DRO's Beta
	if st.scheme.Options.Loss.Policy == (reweight.DRO{}) {
		st.scheme.Options.Loss.Policy = reweight.DRO{Beta: 0.1}
	}
	st.reads = st.scheme.Reads()
	return st
}

// variants returns the uniform step twice, for the noise, and its reweighted
// forms, or the schemes.
func (q Steps) variants() []step {
	all := []step{q.step("uniform"), q.step("uniform")}
	for _, s := range q.Schemes {
		all = append(all, q.step(s.Name))
	}
	if q.Schemes == nil {
		all = append(all, q.step("actfocus"), q.step("aem"), q.step("actfocus+aem"))
	}
	return all
}

// Overheads measures the reweighted steps, each in turn with the uniform step.
// The differences are small and the steps long, so it takes several times the
// sampler's budget. If ctx ends, the results are those of the rounds so far, or
// none, and the error is that of ctx.
func Overheads(ctx context.Context, s bench.Sampler, q Steps) ([]Overhead, error) {
	s.Budget *= 6
	if q.GPU != nil {
		return overheadsOnGPU(ctx, s, q)
	}
	isa, err := reweight.ParseISA(q.ISA)
	if err != nil {
		return nil, err
	}
	runtime.GC() // so that an earlier input is not part of the peak of memory
	in := newStepInput(q.Tokens, q.Vocab).withLogits()
	// What a step allocates and holds does not depend on the vocabulary.
	small := newStepInput(q.Tokens, min(q.Vocab, 64)).withLogits()
	overheads, err := q.measure(ctx, s, func(st step) (do func() error, c cost, err error) {
		do, c.calls = in.start(st, isa, q.Workers), 1
		if err := do(); err != nil {
			return nil, c, err
		}
		if c.objects, c.bytes, err = bench.Allocs(small.start(st, isa, q.Workers)); err != nil {
			return nil, c, err
		}
		// One worker: others hold nothing, but the start of a goroutine may allocate.
		_, c.held, err = bench.FirstAllocs(func() error { return small.start(st, isa, 1)() })
		return do, c, err
	})
	peak, _ := bench.PeakMemory()
	for i := range overheads {
		overheads[i].PeakBytes = peak
	}
	return overheads, err
}

// The first two of the variants are uniform steps, the others reweighted.
const uniform, uniformAgain, reweighted = 0, 1, 2

// A cost is what a step takes besides time.
type cost struct {
	calls          float64 // of the step, in a call of the function that is timed
	objects, bytes uint64  // that it allocates on the heap, in steady state
	held           uint64  // bytes that it keeps, on the heap or on the GPU
}

// measure measures the variants in turn. start returns a function that does a step.
func (q Steps) measure(ctx context.Context, s bench.Sampler,
	start func(st step) (func() error, cost, error)) ([]Overhead, error) {
	var fns []func() error
	var costs []cost
	for _, st := range q.variants() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		do, c, err := start(st)
		if err != nil {
			return nil, err
		}
		fns, costs = append(fns, do), append(costs, c)
	}
	samples, err := s.Sample(ctx, fns...)
	if err != nil && (ctx.Err() == nil || samples.Rounds() == 0) {
		return nil, err
	}
	return q.overheads(samples, costs), err
}

// overheads returns what the times and the costs of the variants say.
func (q Steps) overheads(samples bench.Samples, costs []cost) (overheads []Overhead) {
	for i, c := range costs {
		perCall(samples[i], c.calls)
	}
	null := samples.Ratio(uniformAgain, uniform)
	advantages := "grpo"
	if q.PPO {
		advantages = "ppo"
	}
	for i, st := range q.variants()[reweighted:] {
		i += reweighted
		ratio := samples.Ratio(i, uniform)
		claim, reason := verdict(ratio, null)
		if q.Schemes != nil && reason == refuted { // nobody claims that other schemes are free
			reason = fmt.Sprintf("more than %.0f%%", 100*(FreeLimit-1))
		}
		from := advantages
		if !q.PPO && st.scheme.OwnAdvantages() {
			from = "own"
		}
		overheads = append(overheads, Overhead{
			Step: st.name, Advantages: from, KL: q.KL, ISA: q.ISA, Tokens: q.Tokens, Vocab: q.Vocab, Workers: q.Workers,
			UniformNs: samples.Median(uniform), OverUniform: ratio, Verdict: claim, Reason: reason, Null: null,
			ExtraBytes: int64(costs[i].held) - int64(costs[uniform].held), Allocs: costs[i].objects,
			AllocBytes: costs[i].bytes,
		})
	}
	return overheads
}

// A stepInput is what all steps share: rollouts, logits and the memory for the
// gradient.
type stepInput struct {
	batch    reweight.Batch
	rewards  []float32 // by token, for GAE
	rollout  []float32 // log-probabilities of the engine, near those of the old policy
	gradient reweight.Logits
	vocab    int

	// The rows of logits of two kinds of responses, each row twice behind itself.
	sharp, flat []float32
}

// newStepInput makes rollouts of two responses of four tokens, the third of
// them the action; four rollouts, two successes and two failures, make a group. The
// current policy is the old one: at the first update no token is clipped, and every
// row has a gradient.
func newStepInput(tokens, vocab int) *stepInput {
	r := rand.New(rand.NewPCG(1, 2))
	b := reweight.Batch{Role: make([]reweight.Role, tokens), SpanIDs: make([]int32, tokens),
		TokenIDs: make([]int32, tokens), Values: make([]float32, tokens)}
	rewards := make([]float32, tokens)
	for t := range tokens {
		b.Role[t] = reweight.RoleReasoning
		if t%4 == 2 {
			b.Role[t] = reweight.RoleAction
		}
		b.SpanIDs[t] = int32(t / 4)
		b.TokenIDs[t] = int32(r.IntN(vocab))
		b.Values[t] = r.Float32()
		if t%4 == 0 {
			b.Anchors = append(b.Anchors, int32(t/4%2))
			b.SpanRewards = append(b.SpanRewards, r.Float32())
		}
		if t%8 == 0 {
			s := t / 8
			b.SeqOffsets = append(b.SeqOffsets, int64(t))
			// An incomplete group belongs to the last.
			b.GroupIDs = append(b.GroupIDs, int32(max(0, min(s/4, (tokens+7)/32-1))))
			b.Rewards = append(b.Rewards, float32(1-s%2)*float32(2+s%4)) // one of four is the best
			rewards[min(t+7, tokens-1)] = b.Rewards[s]
		}
	}
	b.SeqOffsets = append(b.SeqOffsets, int64(tokens))
	// Every row is one of two random rows, rotated: drawing them all would take
	// longer than the measurement. Every other response has the sharper row, and
	// so has the first of the first two rollouts of a group and the second of the
	// others, because AEM needs responses that differ in their entropy, and GTPO
	// successes and failures that do at the same place.
	sharp := make([]float32, vocab)
	flat := make([]float32, vocab)
	for v := range sharp {
		x := r.NormFloat64()
		sharp[v], flat[v] = float32(3*x), float32(2*x)
	}
	return &stepInput{batch: b, rewards: rewards, vocab: vocab, sharp: append(sharp, sharp...),
		flat: append(flat, flat...)}
}

// row returns the logits of token t.
func (in *stepInput) row(t int) []float32 {
	row, turn := in.flat, 97*t%in.vocab
	if (t/4+t/16)%2 == 0 {
		row = in.sharp
	}
	return row[turn : turn+in.vocab]
}

// withLogits fills in the logits and makes memory for the gradient.
func (in *stepInput) withLogits() *stepInput {
	n := in.batch.Tokens() * in.vocab
	logits := func() reweight.Logits {
		l := reweight.Logits{Vocab: in.vocab, F32: make([]float32, 0, n)}
		for t := range in.batch.Tokens() {
			l.F32 = append(l.F32, in.row(t)...)
		}
		return l
	}
	b := &in.batch
	b.OldLogits, b.Logits, b.RefLogits = logits(), logits(), logits()
	in.gradient = reweight.Logits{Vocab: in.vocab, F32: make([]float32, n)}
	r := rand.New(rand.NewPCG(3, 4))
	in.rollout = make([]float32, b.Tokens())
	for t, id := range b.TokenIDs {
		sum := 0.0
		for _, x := range in.row(t) {
			sum += math.Exp(float64(x))
		}
		in.rollout[t] = in.row(t)[id] - float32(math.Log(sum)+0.1*r.NormFloat64())
	}
	return in
}

// start allocates what the step needs and returns the step.
func (in *stepInput) start(st step, isa reweight.ISA, workers int) func() error {
	b := in.batch
	floats := func() []float32 { return make([]float32, len(b.Role)) }
	ws := &reweight.Workspace{ISA: isa, Workers: workers}
	b.OldLogprobs, b.Logprobs = floats(), floats()
	b.TokenRewards, b.Returns, b.NewValues = in.rewards, in.rewards, b.Values
	if slices.Contains(st.reads, "rollout_logprobs") {
		b.RolloutLogprobs = in.rollout
	}
	if slices.Contains(st.reads, "teacher_logprobs") {
		b.TeacherLogprobs = in.rollout
	}
	if slices.Contains(st.reads, "reward_parts") {
		b.RewardParts = slices.Concat(b.Rewards, b.Rewards) // two of each trajectory
	}
	for _, a := range b.Arrays() { // what the step computes, and what may have any values
		reads := slices.Contains(st.reads, a.Name) || st.kl && a.Name == "ref_logprobs"
		if array, ok := a.Data.(*[]float32); ok && reads && a.Per == reweight.PerToken && *array == nil {
			*array = floats()
		}
	}
	s, err := st.scheme.NewStep(ws, &b)
	return func() error {
		if err != nil {
			return err
		}
		if err := stats(ws, &b); err != nil {
			return err
		}
		if _, err := s.Run(); err != nil {
			return err
		}
		return ws.RowGradient(in.gradient, b.Logits, b.TokenIDs,
			reweight.RowGradientInput{Logprobs: b.Logprobs, Grad: s.Grad}, reweight.DefaultRowGradient)
	}
}

// stats passes over the logits.
func stats(ws *reweight.Workspace, b *reweight.Batch) error {
	old := reweight.Stats{Logprob: b.OldLogprobs, Entropy: b.Entropy, LogSumSqProbs: b.SumSqProbs}
	if err := ws.TokenStats(old, b.OldLogits, b.TokenIDs, reweight.DefaultTokenStats); err != nil {
		return err
	}
	for t, log := range b.SumSqProbs {
		b.SumSqProbs[t] = float32(math.Exp(float64(log)))
	}
	if b.RefLogprobs != nil || b.RefEnergy != nil {
		ref := reweight.Stats{LSE: b.RefEnergy, Logprob: b.RefLogprobs}
		if err := ws.TokenStats(ref, b.RefLogits, b.TokenIDs, reweight.DefaultTokenStats); err != nil {
			return err
		}
		for t, lse := range b.RefEnergy {
			b.RefEnergy[t] = -lse
		}
	}
	return ws.TokenStats(reweight.Stats{Logprob: b.Logprobs}, b.Logits, b.TokenIDs, reweight.DefaultTokenStats)
}
