package kernels

import "github.com/seed621a2839/reweight"

var (
	anyFloat  = []reweight.DType{reweight.DTypeF32, reweight.DTypeBF16, reweight.DTypeF16}
	twoFloats = []reweight.DType{reweight.DTypeF32, reweight.DTypeBF16}
	float     = []reweight.DType{reweight.DTypeF32}
)

// catalogue lists every kernel. Operations are counted from the formula as the
// kernels evaluate it: 2^y by a polynomial of degree 5 is 10 for the fused
// multiply-adds, 3 to split y and 2 to scale.
var catalogue = [...]Kernel{
	{Name: "token_stats", Doc: "lse, entropy and log-probability of one id per row", DTypes: anyFloat, Rows: true, Ops: 22, build: tokenStats(1, "lep")},
	{Name: "token_stats_lse", Doc: "lse alone: the energy", DTypes: anyFloat, Rows: true, Ops: 20, build: tokenStats(1, "l")},
	{Name: "token_stats_lse_logprob", Doc: "lse and log-probability: no entropy", DTypes: anyFloat, Rows: true, Ops: 20, build: tokenStats(1, "lp")},
	{Name: "token_stats_temperature", Doc: "entropy and log-probability at temperature 0.7", DTypes: anyFloat, Rows: true, Ops: 24, build: tokenStats(0.7, "ep")},
	{Name: "row_gradient", Doc: "gradient by each logit", DTypes: twoFloats, Rows: true, Ops: 22, build: rowGradient(1, 0)},
	{Name: "row_gradient_bonus", Doc: "gradient by each logit with an entropy bonus", DTypes: twoFloats, Rows: true, Ops: 22, build: rowGradient(1, 0.01)},
	{Name: "row_gradient_temperature", Doc: "gradient by each logit at temperature 0.7", DTypes: twoFloats, Rows: true, Ops: 24, build: rowGradient(0.7, 0)},
	{Name: "masked_moments", Doc: "count, sum and sum of squares of the tokens of some roles", DTypes: float, Ops: 4, build: maskedMoments},
	{Name: "actfocus_weights", Doc: "ActFocus token weights", DTypes: float, Ops: 22, build: actFocusWeights},
	{Name: "span_means", Doc: "mean over each span", DTypes: float, Ops: 1, build: spanMeans},
	{Name: "min_max", Doc: "extremes of each group", DTypes: float, Ops: 2, build: minMax},
	{Name: "exp_scale", Doc: "exponential, divided by its mean", DTypes: float, Ops: 21, build: expScale},
	{Name: "multiply", Doc: "product of two arrays", DTypes: float, Ops: 1, build: multiply},
	{Name: "surrogate", Doc: "weighted clipped surrogate, its sums and its gradient", DTypes: float, Ops: 30, build: surrogate},
}
