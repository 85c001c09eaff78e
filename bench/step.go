package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"

	"github.com/seed621a2839/reweight"
)

// Steps says which training steps to measure.
type Steps struct {
	Tokens, Vocab int // rows of logits, and their length
	Workers       int
	Path          reweight.ISA
	PPO           bool // advantages of GAE, whitened; otherwise those of GRPO
	KL            bool // with an anchor to the reference
}

// An Overhead is what a reweighted training step costs over the uniform one.
type Overhead struct {
	Step        string   `json:"step"`       // actfocus, aem or actfocus+aem
	Advantages  string   `json:"advantages"` // grpo or ppo
	KL          bool     `json:"kl"`
	Path        string   `json:"path"`
	Tokens      int      `json:"tokens"`
	Vocab       int      `json:"vocab"`
	Workers     int      `json:"workers"`
	UniformNs   float64  `json:"uniform_ns"`   // time of the uniform step
	OverUniform float64  `json:"over_uniform"` // ratio of times; its interval is as Estimate's
	Lo          float64  `json:"lo"`
	Hi          float64  `json:"hi"`
	Verdict     string   `json:"verdict"`
	Rounds      int      `json:"rounds"`
	Outliers    int      `json:"outliers"`             // of the rounds' ratios
	Null        Estimate `json:"null"`                 // the uniform step over itself, as if it were two
	ExtraBytes  int64    `json:"extra_bytes"`          // on the heap, beyond the uniform step's
	Allocs      uint64   `json:"allocs"`               // per step, in steady state
	AllocBytes  uint64   `json:"alloc_bytes"`          // likewise
	PeakBytes   int64    `json:"peak_bytes,omitempty"` // of the process so far; 0 where the system does not tell
}

// FreeLimit is how much longer a step may take that is still called free: the
// papers say that theirs cost nothing, and less than this is nothing to a
// training run.
const FreeLimit = 1.02

// FewestRounds is how many rounds an interval at 95% takes. Fewer prove nothing.
const FewestRounds = fewest

// OnlyRounds is the verdict of fewer than FewestRounds.
func OnlyRounds(n int) string {
	return fmt.Sprintf("not decided: rounds %d, want %d", n, FewestRounds)
}

// verdict says what the ratio of times means for the claim that the step costs
// nothing. A cost must be more than what the uniform step may seem to cost over
// itself, and a step is free only where the uniform one would be.
func verdict(ratio, null Estimate) string {
	lo, hi := 100*(ratio.Lo-1), 100*(ratio.Hi-1)
	n := min(ratio.N, null.N)
	switch {
	case n < FewestRounds:
		return OnlyRounds(n)
	case ratio.Lo > FreeLimit && ratio.Lo > null.Hi:
		return fmt.Sprintf("costs %.1f%%: the claim does not hold", 100*(ratio.Median-1))
	case ratio.Lo > FreeLimit:
		return fmt.Sprintf("not decided: between %+.1f%% and %+.1f%%, but the null reaches %+.1f%%", lo, hi, 100*(null.Hi-1))
	case !(ratio.Hi <= FreeLimit):
		return fmt.Sprintf("not decided: between %+.1f%% and %+.1f%%", lo, hi)
	case ratio.Lo > max(1, null.Hi):
		return fmt.Sprintf("costs %.1f%%, less than the %.0f%% that count", 100*(ratio.Median-1), 100*(FreeLimit-1))
	case !(null.Hi <= FreeLimit):
		return fmt.Sprintf("not decided: at most %+.1f%%, but the null reaches %+.1f%%", hi, 100*(null.Hi-1))
	case hi < 0:
		return "free within noise: no slower"
	default:
		return fmt.Sprintf("free within noise: at most %+.1f%%", hi)
	}
}

// FewestTokens is how many a step takes: one alone cannot be whitened.
const FewestTokens = 2

// StepRows returns the tokens of a step whose logits and gradient, four arrays,
// make up StreamBytes, or FewestTokens.
func StepRows(vocab int) int { return max(FewestTokens, (RowsToStream("f32", vocab)+3)/4) }

// A step goes from logits to the loss and its gradient by the logits. The
// uniform step passes over the old policy's logits for its log-probabilities and
// over the current policy's for theirs, takes advantages and the clipped
// surrogate, and passes over the current logits for the gradient. With a KL
// anchor it also passes over the reference's logits for their log-probabilities.
//
// AEM's entropy is one more sum of the old policy's pass. ActFocus's energy is
// a sum of the anchor's pass, and without an anchor it needs a pass of its own.
type step struct {
	ppo, kl       bool
	actFocus, aem bool
}

func (st step) name() string {
	switch {
	case st.actFocus && st.aem:
		return "actfocus+aem"
	case st.actFocus:
		return "actfocus"
	case st.aem:
		return "aem"
	}
	return "uniform"
}

// variants returns the uniform step twice, for the noise, and its reweighted
// forms.
func (q Steps) variants() []step {
	uniform := step{ppo: q.PPO, kl: q.KL}
	all := []step{uniform, uniform, uniform, uniform, uniform}
	all[2].actFocus = true
	all[3].aem = true
	all[4].actFocus, all[4].aem = true, true
	return all
}

// Overheads measures the reweighted steps, each in turn with the uniform step.
// The differences are small and the steps long, so it takes several times the
// sampler's budget. Where ctx ends it, they are those of the rounds so far, or
// none, with the error.
func (s Sampler) Overheads(ctx context.Context, q Steps) ([]Overhead, error) {
	runtime.GC() // or the peak of memory would be that of two inputs
	in := newStepInput(q.Tokens, q.Vocab)
	// What a step allocates and holds does not depend on the vocabulary.
	small := newStepInput(q.Tokens, min(q.Vocab, 64))
	const uniform, again = 0, 1
	steps := q.variants()
	fns := make([]func() error, len(steps))
	objects, bytes, held := make([]uint64, len(steps)), make([]uint64, len(steps)), make([]uint64, len(steps))
	var pairs [][2]int
	for i, st := range steps {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		fns[i] = in.start(st, q.Path, q.Workers)
		if err := fns[i](); err != nil {
			return nil, err
		}
		var err error
		if objects[i], bytes[i], err = Allocs(small.start(st, q.Path, q.Workers)); err != nil {
			return nil, err
		}
		if _, held[i], err = leastHeap(func() error { return small.start(st, q.Path, q.Workers)() }); err != nil {
			return nil, err
		}
		if i > again {
			pairs = append(pairs, [2]int{i, uniform})
		}
	}
	s.Budget *= 6
	samples, err := s.sample(ctx, pairs, fns)
	if err != nil && (ctx.Err() == nil || samples.Rounds() == 0) {
		return nil, err
	}
	null := samples.Ratio(again, uniform)
	peak, _ := PeakMemory()
	advantages := "grpo"
	if q.PPO {
		advantages = "ppo"
	}
	var overheads []Overhead
	for _, p := range pairs {
		i := p[0]
		ratio := samples.Ratio(i, uniform)
		overheads = append(overheads, Overhead{
			Step: steps[i].name(), Advantages: advantages, KL: q.KL, Path: q.Path.String(), Tokens: q.Tokens, Vocab: q.Vocab, Workers: q.Workers,
			UniformNs: samples.Median(uniform).Median, OverUniform: ratio.Median, Lo: ratio.Lo, Hi: ratio.Hi,
			Verdict: verdict(ratio, null), Rounds: ratio.N, Outliers: ratio.Outliers, Null: null,
			ExtraBytes: int64(held[i]) - int64(held[uniform]), Allocs: objects[i], AllocBytes: bytes[i], PeakBytes: peak,
		})
	}
	return overheads, err
}

// A stepInput is what all steps share: rollouts, logits and the memory for the
// gradient.
type stepInput struct {
	batch    reweight.Batch
	rewards  []float32 // by token, for GAE
	gradient reweight.Logits
}

// newStepInput makes rollouts of two responses of four tokens, the third of
// them the action; two rollouts of different rewards make a group. The current
// policy is the old one: at the first update no token is clipped, and every
// row has a gradient.
func newStepInput(tokens, vocab int) *stepInput {
	r := rand.New(rand.NewPCG(1, 2))
	b := reweight.Batch{Role: make([]uint8, tokens), SpanIDs: make([]int32, tokens), TokenIDs: make([]int32, tokens), Values: make([]float32, tokens)}
	rewards := make([]float32, tokens)
	for t := range tokens {
		b.Role[t] = reweight.RoleReasoning
		if t%4 == 2 {
			b.Role[t] = reweight.RoleAction
		}
		b.SpanIDs[t] = int32(t / 4)
		b.TokenIDs[t] = int32(r.IntN(vocab))
		b.Values[t] = r.Float32()
		if t%8 == 0 {
			s := t / 8
			b.SeqOffsets = append(b.SeqOffsets, int64(t))
			b.GroupIDs = append(b.GroupIDs, int32(s/2))
			b.Rewards = append(b.Rewards, float32(1+s%2))
			rewards[min(t+7, tokens-1)] = b.Rewards[s]
		}
	}
	b.SeqOffsets = append(b.SeqOffsets, int64(tokens))
	// Rows are one another's, turned: drawing them all would take longer than
	// the measurement. Every other response is surer, or AEM would see no
	// difference between them.
	sharp := make([]float32, vocab)
	flat := make([]float32, vocab)
	for v := range sharp {
		x := r.NormFloat64()
		sharp[v], flat[v] = float32(3*x), float32(2*x)
	}
	logits := func() reweight.Logits {
		l := reweight.Logits{Vocab: vocab, F32: make([]float32, tokens*vocab)}
		for t := range tokens {
			row, turn := flat, 97*t%vocab
			if t/4%2 == 0 {
				row = sharp
			}
			n := copy(l.F32[t*vocab:], row[turn:])
			copy(l.F32[t*vocab+n:(t+1)*vocab], row[:turn])
		}
		return l
	}
	b.OldLogits, b.Logits, b.RefLogits = logits(), logits(), logits()
	return &stepInput{batch: b, rewards: rewards, gradient: reweight.Logits{Vocab: vocab, F32: make([]float32, tokens*vocab)}}
}

// start allocates what the step needs and returns the step.
func (in *stepInput) start(st step, path reweight.ISA, workers int) func() error {
	b := in.batch
	floats := func() []float32 { return make([]float32, len(b.Role)) }
	ws := &reweight.Workspace{Path: path, Workers: workers}
	b.OldLogprobs, b.Logprobs, b.Advantages = floats(), floats(), floats()
	grad := floats()
	var weights, factors []float32
	if st.kl {
		b.RefLogprobs = floats()
	}
	if st.actFocus {
		b.RefEnergy = floats()
		weights = b.RefEnergy // in place
	}
	if st.aem {
		b.Entropy = floats()
		factors = b.Entropy // in place
	}
	return func() error { return st.do(ws, &b, in.rewards, grad, weights, factors, in.gradient) }
}

// do does the step.
func (st step) do(ws *reweight.Workspace, b *reweight.Batch, rewards, grad, weights, factors []float32, gradient reweight.Logits) error {
	old := reweight.Stats{Logprob: b.OldLogprobs, Entropy: b.Entropy}
	if err := ws.TokenStats(old, b.OldLogits, b.TokenIDs, reweight.DefaultTokenStats); err != nil {
		return err
	}
	if st.kl || st.actFocus {
		ref := reweight.Stats{LSE: b.RefEnergy, Logprob: b.RefLogprobs}
		if err := ws.TokenStats(ref, b.RefLogits, b.TokenIDs, reweight.DefaultTokenStats); err != nil {
			return err
		}
		for t, lse := range b.RefEnergy {
			b.RefEnergy[t] = -lse
		}
	}
	if err := ws.TokenStats(reweight.Stats{Logprob: b.Logprobs}, b.Logits, b.TokenIDs, reweight.DefaultTokenStats); err != nil {
		return err
	}
	if st.ppo {
		if err := ws.GAE(b.Advantages, nil, rewards, b, reweight.DefaultGAE); err != nil {
			return err
		}
		if err := ws.Whiten(b.Advantages, b.Advantages, b.Role); err != nil {
			return err
		}
	} else if err := ws.GRPO(b.Advantages, b, reweight.DefaultGRPO); err != nil {
		return err
	}
	if st.aem {
		if err := ws.AEM(factors, b, reweight.DefaultAEM); err != nil {
			return err
		}
		if err := ws.Multiply(b.Advantages, b.Advantages, factors); err != nil {
			return err
		}
	}
	if st.actFocus {
		if _, err := ws.ActFocus(weights, b, reweight.DefaultActFocus); err != nil {
			return err
		}
	}
	if _, err := ws.Loss(grad, weights, b, reweight.DefaultLoss); err != nil {
		return err
	}
	return ws.RowGradient(gradient, b.Logits, b.TokenIDs, b.Logprobs, nil, grad, reweight.DefaultRowGradient)
}
