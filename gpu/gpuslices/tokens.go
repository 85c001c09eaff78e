package gpuslices

import (
	"github.com/seed621a2839/reweight"
)

// MaskedMoments is that of *reweight.Workspace.
func (r *Runner) MaskedMoments(x []float32, role []reweight.Role, roles reweight.RoleSet,
	shift float64) (reweight.Moments, error) {
	m := r.begin()
	res, v, p := out(m, r.results.moments[:]), in(m, x), in(m, role)
	err := r.run(func() error { return r.ws.MaskedMoments(*res, *v, *p, len(x), roles, shift) })
	return r.results.moments[0], err
}

// ActFocusWeights is that of *reweight.Workspace.
func (r *Runner) ActFocusWeights(dst, signal []float32, role []reweight.Role, mean, sigma float64,
	opt reweight.ActFocusOptions) error {
	m := r.begin()
	d, x, p := out(m, dst), in(m, signal), in(m, role)
	return r.run(func() error { return r.ws.ActFocusWeights(*d, *x, *p, len(dst), mean, sigma, opt) })
}

// SpanMeans is that of *reweight.Workspace.
func (r *Runner) SpanMeans(dst, x []float32, offsets []int32) error {
	m := r.begin()
	d, v, o := out(m, dst), in(m, x), in(m, offsets)
	return r.run(func() error { return r.ws.SpanMeans(*d, *v, *o, len(dst), len(x)) })
}

// MinMax is that of *reweight.Workspace.
func (r *Runner) MinMax(lo, hi, x []float32, offsets []int32) error {
	m := r.begin()
	l, h, v, o := out(m, lo), out(m, hi), in(m, x), in(m, offsets)
	return r.run(func() error { return r.ws.MinMax(*l, *h, *v, *o, len(lo), len(x)) })
}

// ExpScale is that of *reweight.Workspace.
func (r *Runner) ExpScale(dst, x []float32, lo float32, rate float64) error {
	m := r.begin()
	d, v := out(m, dst), in(m, x)
	return r.run(func() error { return r.ws.ExpScale(*d, *v, len(x), lo, rate) })
}

// Multiply is that of *reweight.Workspace.
func (r *Runner) Multiply(dst, a, b []float32) error {
	m := r.begin()
	d, x, y := out(m, dst), in(m, a), in(m, b)
	return r.run(func() error { return r.ws.Multiply(*d, *x, *y, len(dst)) })
}

// Surrogate is that of *reweight.Workspace.
func (r *Runner) Surrogate(grad, logprobs, old, advantages, weights []float32, role []reweight.Role, scale float64,
	opt reweight.LossOptions) (reweight.SurrogateSums, error) {
	m := r.begin()
	m.size.Tokens = len(role)
	res, g, l, o := out(m, r.results.surrogate[:]), out(m, grad), in(m, logprobs), in(m, old)
	a, w, p := in(m, advantages), in(m, weights), in(m, role)
	err := r.run(func() error {
		return r.ws.Surrogate(*g, *res, *l, *o, *a, *w, *p, len(role), scale, opt)
	})
	return r.results.surrogate[0], err
}

// Whiten is that of *reweight.Workspace.
func (r *Runner) Whiten(dst, x []float32, role []reweight.Role) error {
	m := r.begin()
	d, v, p := out(m, dst), in(m, x), in(m, role)
	return r.run(func() error { return r.ws.Whiten(*d, *v, *p, len(role)) })
}
