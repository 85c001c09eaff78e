package gpu

import "cmp"

// whitenSpreadParams are those of whiten_spread.
type whitenSpreadParams struct {
	x, role, scale, status Ptr
	n                      int64
}

// whitenParams are those of whiten.
type whitenParams struct {
	dst, x, role, scale Ptr
	n                   int64
}

// Whiten gives the values x of the response tokens, of n tokens, mean 0 and variance 1,
// as reweight.Workspace.Whiten does. dst may be x. If a response token is not finite, or
// if a role is wrong, all of dst is NaN. It is two launches, the first of one CTA.
func (ws *Workspace) Whiten(dst, x, role Ptr, n int) error {
	err := cmp.Or(
		checkLength("n", n),
		checkArrays(n, array{"dst", dst, 4}, array{"x", x, 4}, array{"role", role, 1}),
	)
	if err != nil {
		return err
	}
	ws.params.whitenBy = whitenSpreadParams{x: x, role: role, scale: ws.scratch.scale, status: ws.status, n: int64(n)}
	if err := launch(ws, &ws.params.whitenBy, step{"whiten_spread", 1}); err != nil {
		return err
	}
	ws.params.whiten = whitenParams{dst: dst, x: x, role: role, scale: ws.scratch.scale, n: int64(n)}
	return launch(ws, &ws.params.whiten, step{"whiten", passes(n)})
}
