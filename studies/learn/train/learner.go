package train

import (
	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/studies/learn/policy"
)

// A learner changes a policy, by the gradient of a loss of package reweight.
type learner struct {
	agent *policy.Policy
	adam  policy.Adam
	ws    reweight.Workspace

	gradient *policy.Policy
	tape     *policy.Tape
	rows     []int     // the states that response tokens are drawn from
	ids      []int32   // those tokens
	logits   []float32 // [rows, Vocab], then the gradient with respect to them
	logprobs []float32 // [rows]
	slope    []float32 // [rows] gradient with respect to logprobs

	newLogprobs, grad []float32 // [T]
}

// look computes the logits that each response token of the batch was drawn from,
// by the given policy, and leaves them in l.logits.
func (l *learner) look(agent *policy.Policy, b *reweight.Batch) {
	l.rows, l.ids = l.rows[:0], l.ids[:0]
	for t, role := range b.Role {
		if role != reweight.RoleMasked {
			// An episode begins with an observation, so that t is at least 1.
			l.rows = append(l.rows, t-1)
			l.ids = append(l.ids, b.TokenIDs[t])
		}
	}
	l.tape = agent.Forward(b.TokenIDs, b.SeqOffsets)
	l.logits = agent.Logits(l.tape.State, l.rows)
}

// spread returns dst with n elements: src[i] at the i-th response token, 0 elsewhere.
func (l *learner) spread(dst, src []float32, n int) []float32 {
	dst = resized(dst, n)
	clear(dst)
	for i, row := range l.rows {
		dst[row+1] = src[i]
	}
	return dst
}

// gather returns dst with an element for each response token t: src[t] times factor.
func (l *learner) gather(dst, src []float32, factor float32) []float32 {
	dst = resized(dst, len(l.rows))
	for i, row := range l.rows {
		dst[i] = src[row+1] * factor
	}
	return dst
}

// An objective is what a step of the learner makes smaller.
type objective struct {
	loss       reweight.LossOptions
	critic     reweight.ValueLossOptions
	criticCoef float64 // of the critic's loss; 0 for none
}

// differentiate adds the gradient of the objective on a batch to l.gradient. The
// batch has OldLogprobs, Advantages and, for a critic, Values and Returns; its
// Logprobs and NewValues are set here. It returns the policy's loss and the critic's.
func (l *learner) differentiate(b *reweight.Batch, weights []float32, o objective) (loss reweight.LossResult, critic reweight.ValueLossResult, err error) {
	n := b.Tokens()
	l.look(l.agent, b)
	logits := reweight.Logits{Vocab: l.agent.Vocab, F32: l.logits}
	l.logprobs = resized(l.logprobs, len(l.rows))
	l.grad = resized(l.grad, n)
	tau := reweight.DefaultTokenStats
	if err = l.ws.TokenStats(reweight.Stats{Logprob: l.logprobs}, logits, l.ids, tau); err != nil {
		return loss, critic, err
	}
	l.newLogprobs = l.spread(l.newLogprobs, l.logprobs, n)
	b.Logprobs = l.newLogprobs
	loss, err = l.ws.Loss(l.grad, weights, b, o.loss)
	if err != nil {
		return loss, critic, err
	}
	l.slope = l.gather(l.slope, l.grad, 1)
	err = l.ws.RowGradient(logits, logits, l.ids, reweight.RowGradientInput{Logprobs: l.logprobs, Grad: l.slope}, reweight.DefaultRowGradient)
	if err != nil {
		return loss, critic, err
	}
	var slopes []float32
	if o.criticCoef != 0 {
		b.NewValues = l.spread(nil, l.agent.Values(l.tape.State, l.rows), n)
		if critic, err = l.ws.ValueLoss(l.grad, b, o.critic); err != nil {
			return loss, critic, err
		}
		slopes = l.gather(nil, l.grad, float32(o.criticCoef))
	}
	l.agent.Backward(l.gradient, l.tape, l.rows, l.logits, slopes)
	return loss, critic, nil
}

// update makes a step along l.gradient, which is zero afterwards.
func (l *learner) update(rate float64) { l.adam.Update(l.agent, l.gradient, rate) }
