package train

import (
	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/studies/learn/policy"
)

// criticCoef is the coefficient of the critic's loss.
const criticCoef = 0.5

// A learner changes a policy, by the gradient of a loss of package reweight.
type learner struct {
	agent    *policy.Policy
	gradient *policy.Policy
	adam     policy.Adam
	ws       reweight.Workspace
}

func newLearner(agent *policy.Policy) learner {
	return learner{agent: agent, gradient: agent.Zeros(), ws: reweight.Workspace{Workers: 1}}
}

// A view is what a policy computes of a batch: the logits that each response token was
// drawn from.
type view struct {
	tape   *policy.Tape
	rows   []int   // the states that response tokens are drawn from
	ids    []int32 // those tokens
	logits reweight.Logits
	tokens int // of the batch
}

func look(agent *policy.Policy, b *reweight.Batch) view {
	v := view{tape: agent.Forward(b.TokenIDs, b.SeqOffsets), tokens: b.Tokens()}
	for t, role := range b.Role {
		if role != reweight.RoleMasked {
			// An episode begins with an observation, so that t is at least 1.
			v.rows = append(v.rows, t-1)
			v.ids = append(v.ids, b.TokenIDs[t])
		}
	}
	v.logits = reweight.Logits{Vocab: agent.Vocab, F32: agent.Logits(v.tape.State, v.rows)}
	return v
}

// floats returns room for a number of each response token.
func (v *view) floats() []float32 { return make([]float32, len(v.rows)) }

// spread returns a number of each token: src[i] at the i-th response token, 0 elsewhere.
func (v *view) spread(src []float32) []float32 {
	dst := make([]float32, v.tokens)
	for i, row := range v.rows {
		dst[row+1] = src[i]
	}
	return dst
}

// gather returns the numbers of the response tokens, times factor.
func (v *view) gather(src []float32, factor float32) []float32 {
	dst := v.floats()
	for i, row := range v.rows {
		dst[i] = src[row+1] * factor
	}
	return dst
}

// differentiate adds the gradient of the policy's loss and, if the batch has Returns, the
// critic's to l.gradient, and returns the loss. The batch has OldLogprobs, Advantages and, for
// a critic, Values; its Logprobs and NewValues are set here.
func (l *learner) differentiate(b *reweight.Batch, weights []float32, opt reweight.LossOptions) (float64, error) {
	v := look(l.agent, b)
	logprobs, grad := v.floats(), make([]float32, v.tokens)
	stats := reweight.Stats{Logprob: logprobs}
	if err := l.ws.TokenStats(stats, v.logits, v.ids, reweight.DefaultTokenStats); err != nil {
		return 0, err
	}
	b.Logprobs = v.spread(logprobs)
	res, err := l.ws.Loss(grad, weights, b, opt)
	if err != nil {
		return 0, err
	}
	loss := res.Loss
	of := reweight.RowGradientInput{Logprobs: logprobs, Grad: v.gather(grad, 1)}
	if err := l.ws.RowGradient(v.logits, v.logits, v.ids, of, reweight.DefaultRowGradient); err != nil {
		return 0, err
	}
	var gradValues []float32
	if b.Returns != nil {
		b.NewValues = v.spread(l.agent.Values(v.tape.State, v.rows))
		critic, err := l.ws.ValueLoss(grad, b, reweight.DefaultValueLoss)
		if err != nil {
			return 0, err
		}
		loss += criticCoef * critic.Loss
		gradValues = v.gather(grad, criticCoef)
	}
	l.agent.Backward(l.gradient, v.tape, v.rows, v.logits.F32, gradValues)
	return loss, nil
}

// update makes a step along l.gradient.
func (l *learner) update(rate float64) { l.adam.Update(l.agent, l.gradient, rate) }
