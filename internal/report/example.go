package report

import (
	"encoding/json"
	"fmt"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/show"
	"github.com/seed621a2839/reweight/rollout"
	"github.com/seed621a2839/reweight/testdata"
)

// Example returns the longest of the embedded rollouts that reached the goal, with
// the weights and factors that it has in its batch.
func Example() (show.Page, error) {
	var p show.Page
	file, err := rollout.Parse(testdata.FrozenLakeSmall)
	if err != nil {
		return p, err
	}
	defer file.Close()
	b, err := file.Batch()
	if err != nil {
		return p, err
	}
	var words []string
	if err := json.Unmarshal([]byte(file.Metadata()["vocab"]), &words); err != nil {
		return p, err
	}
	credit, err := show.NewCredit(b, reweight.SignalEnergy)
	if err != nil {
		return p, err
	}
	best := 0
	length := func(s int) int64 { return b.SeqOffsets[s+1] - b.SeqOffsets[s] }
	for s, reward := range b.Rewards {
		if reward > b.Rewards[best] || reward == b.Rewards[best] && length(s) > length(best) {
			best = s
		}
	}
	from, to := b.SeqOffsets[best], b.SeqOffsets[best+1]
	var texts []string
	for _, id := range b.TokenIDs[from:to] {
		texts = append(texts, words[id])
	}
	r := show.NewTrajectory(b, credit, from, to, texts)
	r.Title = fmt.Sprintf("Rollout %d of the embedded batch: a trained policy on slippery FrozenLake, %d tokens, reward %g.", best, length(best), b.Rewards[best])
	p.Trajectories = []show.Trajectory{r}
	return p, nil
}
