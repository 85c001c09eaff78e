package reweight

import (
	"cmp"
	"math"
)

// whitenEps is added to the variance (verl, masked_whiten).
const whitenEps = 1e-8

// Whiten sets dst[t] = (x[t] - mean) / sqrt(var + 1e-8) for response tokens and
// 0 for masked ones, with the mean and the variance (n-1) over response tokens
// (verl, masked_whiten). A single response token gets 0. dst, x and role have
// the same length; dst may be x. A response token that is not finite is an
// error, and dst is not written.
func (ws *Workspace) Whiten(dst, x []float32, role []Role) error {
	isa, err := ws.ISA.resolve()
	err = cmp.Or(err, checkLens(len(role), "token", array{"dst", dst}, array{"x", x}), checkRoles("role", role))
	if err != nil {
		return err
	}
	n, mean, squares := ws.spread(isa, x, role, Responses)
	if squares != squares {
		return notFiniteResponse("x", x, role)
	}
	f := whitening(n, squares)
	for t, r := range role {
		w := 0.0
		if r != RoleMasked {
			w = (float64(x[t]) - mean) * f
		}
		dst[t] = float32(w)
	}
	return nil
}

// whitenOutcomes sets advantages to the numbers of the trajectories, whitened over the response
// tokens of the batch.
func (ws *Workspace) whitenOutcomes(advantages []float32, b *Batch, relative []float64) {
	count := take[int](ws, len(relative))
	n, total := 0, 0.0
	for q, a := range relative {
		count[q] = b.responses(q)
		n += count[q]
		total += float64(float64(count[q]) * a)
	}
	mean, squares := total/float64(max(n, 1)), 0.0
	for q, a := range relative {
		d := a - mean
		squares += float64(float64(count[q]) * float64(d*d))
	}
	f := whitening(n, squares)
	for q, a := range relative {
		b.fill(advantages, q, float32((a-mean)*f), 0)
	}
}

// whitening returns what n deviations whose squares have that sum are multiplied by. Of
// fewer than two, all are 0.
func whitening(n int, squares float64) float64 {
	return 1 / math.Sqrt(squares/float64(max(n-1, 1))+whitenEps)
}
