package train

import (
	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/studies/learn/policy"
)

// AEMIdle trains as Do does, and returns the share of all groups, over the iterations, that AEM leaves alone: their
// responses differ in entropy by less than its guard.
func (s Settings) AEMIdle(run Run, warm *policy.Policy) (float64, error) {
	t, err := s.trainer(run, warm)
	if err != nil {
		return 0, err
	}
	idle := 0
	for iteration := range t.Iterations {
		begin := starts(t.Groups, t.GroupSize, forTraining, uint64(run.Seed), uint64(iteration))
		b := pack(t.play(t.agent, begin)) // what iterate is about to play
		if err := t.describe(b); err != nil {
			return 0, err
		}
		factors := make([]float32, b.Tokens())
		if err := t.ws.AEM(factors, b, reweight.DefaultAEM); err != nil {
			return 0, err
		}
		idle += unchanged(b, factors, t.GroupSize)
		if err := t.iterate(begin, new(Result)); err != nil {
			return 0, err
		}
	}
	return float64(idle) / float64(t.Iterations*t.Groups), nil
}

// unchanged returns how many of the groups of size trajectories have only factors of 1.
func unchanged(b *reweight.Batch, factors []float32, size int) (groups int) {
	for first := 0; first < b.Trajectories(); first += size {
		same := 1
		for _, f := range factors[b.SeqOffsets[first]:b.SeqOffsets[first+size]] {
			if f != 1 {
				same = 0
			}
		}
		groups += same
	}
	return groups
}
