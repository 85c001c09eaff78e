package rollout

import (
	"fmt"

	"github.com/seed621a2839/reweight"
)

// Derive computes the arrays that b lacks from its logits, at temperature 1:
//
//	RefEnergy, RefLogprobs   from RefLogits
//	Entropy, OldLogprobs     from OldLogits
//	Logprobs                 from Logits
//
// Log-probabilities also need TokenIDs. Arrays that b has stay as they are, and
// so do those that cannot be derived (see Require). Logits that nothing is
// derived from are not read. After an error b is unchanged.
func Derive(ws *reweight.Workspace, b *reweight.Batch) error {
	derived := *b
	hasIDs := len(b.TokenIDs) != 0
	for _, d := range [...]struct {
		name    string
		logits  reweight.Logits
		lse     *[]float32
		entropy *[]float32
		logprob *[]float32
	}{
		{"ref_logits", b.RefLogits, &derived.RefEnergy, nil, &derived.RefLogprobs},
		{"old_logits", b.OldLogits, nil, &derived.Entropy, &derived.OldLogprobs},
		{"logits", b.Logits, nil, nil, &derived.Logprobs},
	} {
		rows := d.logits.Rows()
		if rows == 0 {
			continue
		}
		need := func(array *[]float32) []float32 {
			if array == nil || len(*array) != 0 {
				return nil
			}
			*array = make([]float32, rows)
			return *array
		}
		dst := reweight.Stats{LSE: need(d.lse), Entropy: need(d.entropy)}
		if hasIDs {
			dst.Logprob = need(d.logprob)
		}
		if dst.LSE == nil && dst.Entropy == nil && dst.Logprob == nil {
			continue
		}
		if err := ws.TokenStats(dst, d.logits, b.TokenIDs, reweight.DefaultTokenStats); err != nil {
			return fmt.Errorf("rollout: deriving from %q: %w", d.name, err)
		}
		for i, lse := range dst.LSE { // which is RefEnergy
			dst.LSE[i] = -lse
		}
	}
	*b = derived
	return nil
}
