package train

import (
	"slices"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/must"
)

// The minibatches of a batch are valid batches, and one after another they are
// the batch.
func TestSlice(t *testing.T) {
	for _, algorithm := range Algorithms {
		tr, b := played(t, algorithm)
		weights := slices.Clone(b.Entropy) // any numbers
		for minibatches := 1; minibatches <= b.Trajectories(); minibatches++ {
			all := reweight.Batch{SeqOffsets: []int64{0}}
			var allWeights []float32
			for number := range minibatches {
				part, partWeights := slice(b, weights, number, minibatches)
				must.Do(part.Validate())
				if few := b.Trajectories() / minibatches; part.Trajectories() < few || part.Trajectories() > few+1 {
					t.Errorf("part %d of %d has %d of %d trajectories", number, minibatches, part.Trajectories(), b.Trajectories())
				}
				for _, offset := range part.SeqOffsets[1:] {
					all.SeqOffsets = append(all.SeqOffsets, int64(len(all.Role))+offset)
				}
				all.Role = append(all.Role, part.Role...)
				all.TokenIDs = append(all.TokenIDs, part.TokenIDs...)
				all.OldLogprobs = append(all.OldLogprobs, part.OldLogprobs...)
				all.RefLogprobs = append(all.RefLogprobs, part.RefLogprobs...)
				all.Advantages = append(all.Advantages, part.Advantages...)
				all.Values = append(all.Values, part.Values...)
				all.Returns = append(all.Returns, part.Returns...)
				allWeights = append(allWeights, partWeights...)
				if _, none := slice(b, nil, number, minibatches); none != nil {
					t.Error("a part has weights, the batch has none")
				}
			}
			if !slices.Equal(all.SeqOffsets, b.SeqOffsets) || !slices.Equal(all.Role, b.Role) || !slices.Equal(all.TokenIDs, b.TokenIDs) ||
				!slices.Equal(all.OldLogprobs, b.OldLogprobs) || !slices.Equal(all.RefLogprobs, b.RefLogprobs) ||
				!slices.Equal(all.Advantages, b.Advantages) || !slices.Equal(all.Values, b.Values) ||
				!slices.Equal(all.Returns, b.Returns) || !slices.Equal(allWeights, weights) {
				t.Errorf("%s: %d minibatches are not the batch", algorithm, minibatches)
			}
		}
		if tr.algorithm == "ppo" && len(b.Returns) == 0 || slices.Equal(b.OldLogprobs, b.RefLogprobs) {
			t.Error("the batch lacks something")
		}
	}
}
