package rollout

// Stand-ins until the functions of these names are there.

import "github.com/seed621a2839/reweight"

const (
	missingLogprob = -9999
	maxLogprob     = 1e-6
)

type entropyEstimate struct {
	entropy []float32
	width   float64
	most    int
}

func entropyFromTop(top [][]candidate, role []reweight.Role, vocab int) (entropyEstimate, error) {
	return entropyEstimate{entropy: make([]float32, len(role))}, nil
}

func entropyFromSurprisal(old []float32, role []reweight.Role) []float32 { return old }

func (r *record) tokens() int { return max(len(r.Role), len(r.mask)) }

func deriveRoles(r *record, opt *Options) error {
	for _, m := range r.mask {
		role := reweight.RoleMasked
		if m {
			role = reweight.RoleReasoning
		}
		r.Role = append(r.Role, role)
	}
	return nil
}

func deriveSpans(r *record) {
	id := int32(-1)
	for t, role := range r.Role {
		if role == reweight.RoleMasked {
			r.SpanIDs = append(r.SpanIDs, -1)
			continue
		}
		if t == 0 || r.Role[t-1] == reweight.RoleMasked {
			id++
		}
		r.SpanIDs = append(r.SpanIDs, id)
	}
}

func promptKey(r *record) string { return r.prompt }
