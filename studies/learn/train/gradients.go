package train

import (
	"slices"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/diagnose"
	"github.com/seed621a2839/reweight/studies/learn/env"
	"github.com/seed621a2839/reweight/studies/learn/policy"
)

// Parts are those of the tokens of a response in an audit, and Directions the schemes whose weights or factors of single
// tokens are directions in it.
var (
	Parts      = []string{"action", "tags", "reasoning"}
	Directions = []string{"actfocus", ActFocusBySurprisal, "aem"}
)

// Audit trains as Do does, for some iterations, and returns what the answers of new episodes say of the gradient of the
// policy that this gives: groups prompts, of which those without signal are counted and left out.
func (s Settings) Audit(run Run, warm *policy.Policy, iterations, groups int) (prompts []diagnose.AuditPrompt, leftOut int, err error) {
	t, err := s.trainer(run, warm)
	if err != nil {
		return nil, 0, err
	}
	for iteration := range iterations {
		begin := starts(t.Groups, t.GroupSize, forTraining, uint64(run.Seed), uint64(iteration))
		if err := t.iterate(begin, new(Result)); err != nil {
			return nil, 0, err
		}
	}
	for batch := range groups / t.Groups {
		b := pack(t.play(t.agent, starts(t.Groups, t.GroupSize, forAudit, uint64(run.Seed), uint64(batch))))
		if err := t.describe(b); err != nil {
			return nil, 0, err
		}
		weights, err := t.directions(run, b)
		if err != nil {
			return nil, 0, err
		}
		for first := 0; first < b.Trajectories(); first += t.GroupSize {
			rewards := b.Rewards[first : first+t.GroupSize]
			if slices.Min(rewards) == slices.Max(rewards) {
				leftOut++
				continue
			}
			prompt, err := t.prompt(b, weights, first)
			if err != nil {
				return nil, 0, err
			}
			prompts = append(prompts, prompt)
		}
	}
	return prompts, leftOut, nil
}

// partOf returns the number of the part that a token is in, or -1 for one that the agent did not say.
func partOf(b *reweight.Batch, token int) int {
	switch id := b.TokenIDs[token]; {
	case b.Role[token] == reweight.RoleMasked:
		return -1
	case id == env.AnswerStart || id == env.AnswerEnd:
		return 1
	case b.Role[token] == reweight.RoleAction:
		return 0
	}
	return 2
}

// directions returns the weights of the tokens of a batch: 1 in each part by itself, then of each direction.
func (t *trainer) directions(run Run, b *reweight.Batch) ([][]float32, error) {
	weights := make([][]float32, len(Parts)+len(Directions))
	for k := range weights {
		weights[k] = make([]float32, b.Tokens())
	}
	for i := range b.Role {
		if part := partOf(b, i); part >= 0 {
			weights[part][i] = 1
		}
	}
	now := *b
	now.Logprobs, now.NewValues = b.OldLogprobs, b.Values
	for k, name := range Directions {
		of := weights[len(Parts)+k]
		if name == "aem" { // its factors multiply advantages
			if err := t.ws.AEM(of, b, reweight.DefaultAEM); err != nil {
				return nil, err
			}
			continue
		}
		run.Scheme = name
		scheme, err := run.scheme()
		if err != nil {
			return nil, err
		}
		step, err := scheme.NewStep(&t.ws, &now)
		if err != nil {
			return nil, err
		}
		if err := step.Credit(); err != nil {
			return nil, err
		}
		copy(of, step.Weights)
	}
	return weights, nil
}

// prompt returns S and T of the group that begins with a trajectory, by the gradients of all parameters.
func (t *trainer) prompt(b *reweight.Batch, weights [][]float32, first int) (diagnose.AuditPrompt, error) {
	gradients := make([][][]float32, len(weights)) // by direction and answer
	for i := range t.GroupSize {
		of, err := t.gradients(b, weights, first+i)
		if err != nil {
			return diagnose.AuditPrompt{}, err
		}
		for k := range of {
			gradients[k] = append(gradients[k], of[k])
		}
	}
	p := diagnose.AuditPrompt{Answers: t.GroupSize, Tokens: make([]int64, len(Parts))}
	for k := range p.Tokens {
		for _, w := range weights[k][b.SeqOffsets[first]:b.SeqOffsets[first+t.GroupSize]] {
			p.Tokens[k] += int64(w)
		}
	}
	both, alone := coefficients(b.Rewards[first : first+t.GroupSize])
	S, T := square(len(weights)), square(len(weights))
	for r := range weights {
		for s := range r + 1 {
			for i, x := range gradients[r] {
				for j, y := range gradients[s] {
					if i == j {
						T[r][s] += alone[i] * dot(x, y)
					} else {
						S[r][s] += both[i][j] * dot(x, y)
					}
				}
			}
			S[s][r], T[s][r] = S[r][s], T[r][s]
		}
	}
	p.S, p.T = [][][]float64{S}, [][][]float64{T}
	return p, nil
}

// gradients returns, for each of the weights, the gradient of the weighted sum of the log-probabilities of a trajectory.
func (t *trainer) gradients(b *reweight.Batch, weights [][]float32, trajectory int) ([][]float32, error) {
	one, _ := slice(b, nil, trajectory, b.Trajectories())
	v := look(t.agent, &one)
	logprobs := v.floats()
	if err := t.ws.TokenStats(reweight.Stats{Logprob: logprobs}, v.logits, v.ids, reweight.DefaultTokenStats); err != nil {
		return nil, err
	}
	rows := reweight.Logits{Vocab: v.logits.Vocab, F32: make([]float32, len(v.logits.F32))}
	var all [][]float32
	for k := range weights {
		_, of := slice(b, weights[k], trajectory, b.Trajectories())
		in := reweight.RowGradientInput{Logprobs: logprobs, Grad: v.gather(of, 1)}
		if err := t.ws.RowGradient(rows, v.logits, v.ids, in, reweight.DefaultRowGradient); err != nil {
			return nil, err
		}
		gradient := t.agent.Zeros()
		t.agent.Backward(gradient, v.tape, v.rows, rows.F32, nil)
		all = append(all, gradient.Parameters)
	}
	return all, nil
}

// coefficients returns what inner products of the gradients of two answers count in S, and of one in T: both means over
// answers. See docs/audit.md.
func coefficients(rewards []float32) (both [][]float64, alone []float64) {
	n, total, squares := float64(len(rewards)), 0.0, 0.0
	for _, r := range rewards {
		total += float64(r)
	}
	for _, r := range rewards {
		squares += (float64(r) - total/n) * (float64(r) - total/n)
	}
	both, alone = square(len(rewards)), make([]float64, len(rewards))
	for i, x := range rewards {
		x := float64(x)
		a := x - (total-x)/(n-1)
		alone[i] = a * a / n
		for j, y := range rewards {
			if i == j {
				continue
			}
			y := float64(y)
			others := (total - x - y) / (n - 2)
			dx, dy, db := x-total/n, y-total/n, others-total/n
			variance := ((squares-dx*dx-dy*dy)/(n-2) - db*db) / (n - 3)
			both[i][j] = ((x-others)*(y-others) - variance) / (n * (n - 1))
		}
	}
	return both, alone
}

func square(n int) [][]float64 {
	m := make([][]float64, n)
	for i := range m {
		m[i] = make([]float64, n)
	}
	return m
}

func dot(x, y []float32) (sum float64) {
	for i := range x {
		sum += float64(x[i]) * float64(y[i])
	}
	return sum
}
