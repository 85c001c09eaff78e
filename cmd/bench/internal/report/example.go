package report

import (
	"encoding/json"
	"fmt"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/rollout"
	"github.com/seed621a2839/reweight/testdata"
)

// Example returns the longest of the embedded rollouts that reached the goal, with
// the weights and factors that it has in its batch.
func Example() (Rollout, error) {
	var r Rollout
	file, err := rollout.Parse(testdata.FrozenLakeSmall)
	if err != nil {
		return r, err
	}
	defer file.Close()
	b, err := file.Batch()
	if err != nil {
		return r, err
	}
	var words []string
	if err := json.Unmarshal([]byte(file.Metadata()["vocab"]), &words); err != nil {
		return r, err
	}
	var ws reweight.Workspace
	weights, factors := make([]float32, b.Tokens()), make([]float32, b.Tokens())
	if _, err := ws.ActFocus(weights, b, reweight.DefaultActFocus); err != nil {
		return r, err
	}
	if err := ws.AEM(factors, b, reweight.DefaultAEM); err != nil {
		return r, err
	}
	best := 0
	length := func(s int) int64 { return b.SeqOffsets[s+1] - b.SeqOffsets[s] }
	for s, reward := range b.Rewards {
		if reward > b.Rewards[best] || reward == b.Rewards[best] && length(s) > length(best) {
			best = s
		}
	}
	roles := [...]string{reweight.RoleMasked: "masked", reweight.RoleReasoning: "reasoning", reweight.RoleAction: "action"}
	for t := b.SeqOffsets[best]; t < b.SeqOffsets[best+1]; t++ {
		token := Token{Text: words[b.TokenIDs[t]], Role: roles[b.Role[t]], Weight: float64(weights[t])}
		if b.Role[t] != reweight.RoleMasked {
			token.Factor = float64(factors[t])
		}
		r.Tokens = append(r.Tokens, token)
	}
	r.Title = fmt.Sprintf("Rollout %d of the embedded batch: a trained policy on slippery FrozenLake, %d tokens, reward %g.", best, length(best), b.Rewards[best])
	return r, nil
}
