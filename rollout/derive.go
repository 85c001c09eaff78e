package rollout

import (
	"errors"
	"fmt"
	"slices"

	"github.com/seed621a2839/reweight"
)

// Derive computes, of the named arrays, those that b lacks and that can be derived
// from its logits, at temperature 1. Names are the names of the tensors, and
// reweight.Batch.Arrays says which array is derived from which logits: for example
// ref_energy from ref_logits. Log-probabilities also need token_ids.
//
// Arrays that b has stay as they are. Arrays that cannot be derived stay absent,
// without an error (see Require). Logits that nothing is derived from are not read.
// The derived arrays are newly allocated. After an error b is unchanged.
func Derive(ws *reweight.Workspace, b *reweight.Batch, names ...string) error {
	derived := *b
	arrays := derived.Arrays()
	room := int64(maxCopied)
	for _, source := range arrays {
		logits, ok := source.Data.(*reweight.Logits)
		if !ok || logits.Rows() == 0 {
			continue
		}
		var dst reweight.Stats
		for _, a := range arrays {
			if a.From != source.Name || a.Len() != 0 || !slices.Contains(names, a.Name) {
				continue
			}
			if a.Statistic == reweight.StatisticLogprob && len(b.TokenIDs) == 0 {
				continue
			}
			if room -= 4 * int64(logits.Rows()); room < 0 {
				return fmt.Errorf("deriving %q of %d tokens: the derived arrays would take more than %d bytes", a.Name,
					logits.Rows(), maxCopied)
			}
			array := make([]float32, logits.Rows())
			*a.Data.(*[]float32) = array
			switch a.Statistic {
			case reweight.StatisticEnergy:
				dst.LSE = array // negated below
			case reweight.StatisticEntropy:
				dst.Entropy = array
			case reweight.StatisticLogprob:
				dst.Logprob = array
			}
		}
		if dst.LSE == nil && dst.Entropy == nil && dst.Logprob == nil {
			continue
		}
		if err := ws.TokenStats(dst, *logits, b.TokenIDs, reweight.DefaultTokenStats); err != nil {
			// ids is the argument of TokenStats that b.TokenIDs is passed as.
			if input, ok := errors.AsType[*reweight.InputError](err); ok && input.Arg == "ids" {
				err = &reweight.InputError{Arg: "TokenIDs", Index: input.Index, Problem: input.Problem}
			}
			return fmt.Errorf("deriving from %q: %w", source.Name, err)
		}
		for i, lse := range dst.LSE {
			dst.LSE[i] = -lse
		}
	}
	*b = derived
	return nil
}
