package kernels

var (
	anyFloat = []string{"f32", "bf16", "f16"}
	float    = []string{"f32"}
)

// catalogue lists every kernel. Operations are counted from the formula as the
// kernels evaluate it: 2^y by a polynomial of degree 5 is 10 for the fused
// multiply-adds, 3 to split y and 2 to scale.
var catalogue = [...]Kernel{
	{Name: "token_stats", Doc: "lse, entropy and log-probability of one id per row", Types: anyFloat, Rows: true, Ops: 22, build: tokenStats(1, "lep")},
	{Name: "token_stats_lse", Doc: "lse alone: the energy", Types: anyFloat, Rows: true, Ops: 20, build: tokenStats(1, "l")},
	{Name: "token_stats_lse_logprob", Doc: "lse and log-probability: no entropy", Types: anyFloat, Rows: true, Ops: 20, build: tokenStats(1, "lp")},
	{Name: "token_stats_temperature", Doc: "entropy and log-probability at temperature 0.7", Types: anyFloat, Rows: true, Ops: 24, build: tokenStats(0.7, "ep")},
	{Name: "row_gradient", Doc: "gradient by each logit", Types: []string{"f32", "bf16"}, Rows: true, Ops: 22, build: rowGradient(1, 0)},
	{Name: "row_gradient_bonus", Doc: "gradient by each logit with an entropy bonus", Types: []string{"f32", "bf16"}, Rows: true, Ops: 22, build: rowGradient(1, 0.01)},
	{Name: "row_gradient_temperature", Doc: "gradient by each logit at temperature 0.7", Types: []string{"f32", "bf16"}, Rows: true, Ops: 24, build: rowGradient(0.7, 0)},
	{Name: "masked_moments", Doc: "count, sum and sum of squares of the tokens of some roles", Types: float, Ops: 4, build: maskedMoments},
	{Name: "actfocus_weights", Doc: "ActFocus token weights", Types: float, Ops: 22, build: actFocusWeights},
	{Name: "span_means", Doc: "mean over each span", Types: float, Ops: 1, build: spanMeans},
	{Name: "min_max", Doc: "extremes of each group", Types: float, Ops: 2, build: minMax},
	{Name: "exp_scale", Doc: "exponential, divided by its mean", Types: float, Ops: 21, build: expScale},
	{Name: "multiply", Doc: "product of two arrays", Types: float, Ops: 1, build: multiply},
	{Name: "surrogate", Doc: "weighted clipped surrogate, its sums and its gradient", Types: float, Ops: 30, build: surrogate},
}
