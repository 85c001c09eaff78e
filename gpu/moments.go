package gpu

import (
	"cmp"

	"github.com/seed621a2839/reweight"
)

// momentsParams are those of masked_moments.
type momentsParams struct {
	x, role, result, status Ptr
	n                       int64
	shift                   float64
	roles                   uint64
}

// MaskedMoments sums x - shift and its square over the tokens, of n, whose role is in
// roles, into result, a reweight.Moments. If a role is wrong, the sums are NaN. It is
// one launch, of one CTA: in a sum of float64 in a given order no addition can begin
// before the one before it is done.
func (ws *Workspace) MaskedMoments(result, x, role Ptr, n int, roles reweight.RoleSet, shift float64) error {
	_, err := ws.cpu.MaskedMoments(nil, nil, roles, shift)
	err = cmp.Or(
		checkLength("n", n),
		checkPtr("result", result, 8),
		checkArrays(n, array{"x", x, 4}, array{"role", role, 1}),
		err,
	)
	if err != nil {
		return err
	}
	ws.params.moments = momentsParams{x: x, role: role, result: result, status: ws.status, n: int64(n), shift: shift,
		roles: uint64(roles)}
	return launch(ws, &ws.params.moments, step{"masked_moments", 1})
}
