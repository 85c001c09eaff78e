package gpu

import (
	"cmp"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/problem"
	"github.com/seed621a2839/reweight/internal/shape"
)

// values are what a kernel makes of two arrays: Values of chains.cuh.
type values struct {
	a, b Ptr
	form uint64 // of package shape
}

// signalOf returns what the signal is made of.
func signalOf(b *Batch, s reweight.Signal) (v values, first string, err error) {
	switch s {
	case reweight.SignalEnergy:
		v, first = values{a: b.RefEnergy, form: shape.Plain}, "RefEnergy"
	case reweight.SignalRefEntropy:
		v, first = values{a: b.RefEntropy, form: shape.Plain}, "RefEntropy"
	case reweight.SignalSurprisal:
		v, first = values{a: b.OldLogprobs, form: shape.Negated}, "OldLogprobs"
	default:
		v, first = values{a: b.OldLogprobs, b: b.RefLogprobs, form: shape.Difference}, "OldLogprobs"
	}
	err = checkArrays(b.Tokens, array{first, v.a, 4})
	if err == nil && v.form == shape.Difference {
		err = checkArrays(b.Tokens, array{"RefLogprobs", v.b, 4})
	}
	return v, first, err
}

// spreadParams are those of actfocus_spread.
type spreadParams struct {
	signal                      values
	role, result, curve, status Ptr
	n                           int64
	eps                         float64
	first                       int64 // the problem.Number of the signal's first array
}

// weightsParams are those of actfocus_weights.
type weightsParams struct {
	dst         Ptr
	signal      values
	role        Ptr
	curve       Ptr // 0: that of mean and sigma
	status      Ptr
	n           int64
	mean, sigma float64
	alpha, beta float32
}

// ActFocus sets the weights of the batch's tokens, as reweight.Workspace.ActFocus does,
// and result, a reweight.ActFocusResult. weights may be an array of the signal. If a
// role is wrong, or the signal of an action token is not finite, all weights, the mean
// and sigma are NaN. It is two launches, the first of one CTA.
func (ws *Workspace) ActFocus(weights, result Ptr, b *Batch, opt reweight.ActFocusOptions) error {
	err := cmp.Or(
		checkLength("Tokens", b.Tokens),
		checkPtr("result", result, 8),
		checkArrays(b.Tokens, array{"weights", weights, 4}, array{"Role", b.Role, 1}),
		ws.cpu.ActFocusWeights(nil, nil, nil, 0, 0, opt),
	)
	if err != nil {
		return err
	}
	signal, first, err := signalOf(b, opt.Signal)
	if err != nil {
		return err
	}
	n := int64(b.Tokens)
	ws.params.spread = spreadParams{signal: signal, role: b.Role, result: result, curve: ws.scratch.curve,
		status: ws.status, n: n,
		eps: opt.Eps, first: int64(problem.Number(first))}
	if err := launch(ws, &ws.params.spread, step{"actfocus_spread", 1}); err != nil {
		return err
	}
	ws.params.weights = weightsParams{dst: weights, signal: signal, role: b.Role, curve: ws.scratch.curve,
		status: ws.status, n: n,
		alpha: float32(opt.Alpha), beta: float32(opt.Beta)}
	return launch(ws, &ws.params.weights, step{"actfocus_weights", passes(b.Tokens)})
}

// ActFocusWeights sets dst[t] of n tokens by role, signal, mean and sigma, as
// reweight.Workspace.ActFocusWeights does. dst may be signal. Where a role is wrong, dst
// is NaN. It is one launch.
func (ws *Workspace) ActFocusWeights(dst, signal, role Ptr, n int, mean, sigma float64,
	opt reweight.ActFocusOptions) error {
	err := cmp.Or(
		checkLength("n", n),
		checkArrays(n, array{"dst", dst, 4}, array{"signal", signal, 4}, array{"role", role, 1}),
		ws.cpu.ActFocusWeights(nil, nil, nil, mean, sigma, opt),
	)
	if err != nil || n == 0 {
		return err
	}
	ws.params.weights = weightsParams{dst: dst, signal: values{a: signal}, role: role, status: ws.status, n: int64(n),
		mean: mean, sigma: sigma,
		alpha: float32(opt.Alpha), beta: float32(opt.Beta)}
	return launch(ws, &ws.params.weights, step{"actfocus_weights", passes(n)})
}
