package kernels

import (
	"slices"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/raw"
	"github.com/seed621a2839/reweight/reference"
)

// rowKernels are the kernels on rows of logits.
var rowKernels = []Kernel{
	{Name: "token_stats", Doc: "lse, entropy and log-probability of one id per row", DTypes: anyFloat, Rows: true, code: tokenStatsCode, build: tokenStats(1, "lep")},
	{Name: "token_stats_lse", Doc: "lse alone, which gives the energy", DTypes: anyFloat, Rows: true, code: tokenStatsCode, build: tokenStats(1, "l")},
	{Name: "token_stats_lse_logprob", Doc: "lse and log-probability: no entropy", DTypes: anyFloat, Rows: true, code: tokenStatsCode, build: tokenStats(1, "lp")},
	{Name: "token_stats_temperature", Doc: "entropy and log-probability at temperature 0.7", DTypes: anyFloat, Rows: true, code: tokenStatsCode, build: tokenStats(0.7, "ep")},
	{Name: "token_stats_squares", Doc: "lse, entropy, log-probability and log of the sum of squared probabilities", DTypes: anyFloat, Rows: true, code: squaresCode, build: tokenStats(1, "lepq")},
	{Name: "token_stats_squares_temp", Doc: "log of the sum of squared probabilities at temperature 0.7", DTypes: anyFloat, Rows: true, code: squaresCode, build: tokenStats(0.7, "q")},
	{Name: "row_gradient", Doc: "gradient with respect to each logit", DTypes: twoFloats, Rows: true, code: rowGradientCode, build: rowGradient(1, 0, 0)},
	{Name: "row_gradient_bonus", Doc: "gradient with respect to each logit, with an entropy bonus", DTypes: twoFloats, Rows: true, code: rowGradientCode, build: rowGradient(1, 0.01, 0)},
	{Name: "row_gradient_entropy", Doc: "gradient with respect to each logit, with a gradient of each row's entropy", DTypes: twoFloats, Rows: true, code: rowGradientCode, build: rowGradient(1, 0, 0.3)},
	{Name: "row_gradient_temperature", Doc: "gradient with respect to each logit at temperature 0.7", DTypes: twoFloats, Rows: true, code: rowGradientCode, build: rowGradient(0.7, 0, 0)},
}

var (
	tokenStatsCode = code{method: "TokenStats", assembly: []string{"rowBlocks", "blockMax"}, reference: "TokenStats",
		device: "token_stats_f32"}
	squaresCode = code{method: "TokenStats", assembly: tokenStatsCode.assembly, reference: "LogSumSqProbs",
		device: "token_stats_squares_f32"}
	rowGradientCode = code{method: "RowGradient", assembly: []string{"rowGradient"}, reference: "RowGradient",
		device: "row_gradient_f32"}
)

// tokenStats returns a function that builds workloads of TokenStats. outputs says
// which results they compute: see statsOf.
func tokenStats(tau float64, outputs string) func(Spec) (*Case, error) {
	return func(s Spec) (*Case, error) {
		r := s.rand()
		logits, input, wide := s.logits(r)
		ids := make([]int32, s.Rows)
		for i := range ids {
			ids[i] = int32(r.IntN(s.Vocab))
		}
		return s.statsOf(logits, input, wide, ids, tau, outputs), nil
	}
}

// statsOf returns the workload of these rows, which are the same in wide. Of outputs, 'l' is the
// lse, 'e' the entropy, 'p' the log-probability, 'q' the log of the sum of squared probabilities.
func (s Spec) statsOf(logits reweight.Logits, input []byte, wide func() []float64, ids []int32, tau float64,
	outputs string) *Case {
	var dst reweight.Stats
	var outs []output
	var pick []int // which of the reference's four results each output is
	for _, o := range outputs {
		v := array[float32](s, s.Rows)
		switch o {
		case 'l':
			dst.LSE, pick = v, append(pick, 0)
			outs = append(outs, bounded("lse", v, logSumBound(s.Vocab, 1)))
		case 'e':
			dst.Entropy, pick = v, append(pick, 1)
			outs = append(outs, bounded("entropy", v, entropyBound(s.Vocab, tau)))
		case 'p':
			dst.Logprob, pick = v, append(pick, 2)
			outs = append(outs, bounded("logprob", v, logSumBound(s.Vocab, tau)))
		case 'q':
			dst.LogSumSqProbs, pick = v, append(pick, 3)
			outs = append(outs, bounded("log_sum_sq_probs", v, squaresBound(s.Vocab, tau)))
		}
	}
	opt := reweight.TokenStatsOptions{Temperature: tau}
	return &Case{
		Elements: s.Rows * s.Vocab, Bytes: int64(s.Rows) * (int64(s.Vocab)*int64(s.DType.Size()) + 4*int64(len(outs))),
		Input: input, outputs: outs,
		Run: func(impl Runner) error { return impl.TokenStats(dst, logits, ids, opt) },
		Reference: func() {
			lse, h, l, q := reference.TokenStats(wide(), s.Vocab, ids, tau)
			for i, p := range pick {
				copy(outs[i].want, [][]float64{lse, h, l, q}[p])
			}
		},
	}
}

// bounded returns an output of float32 whose error is at most bound before it is
// rounded.
func bounded(name string, got []float32, bound float64) output {
	out := f32(name, got)
	out.bound = func(int) float64 { return bound }
	return out
}

// rowGradient returns a function that builds workloads of RowGradient. The gradients of
// the rows' entropies have the standard deviation ofEntropy.
func rowGradient(tau, bonus, ofEntropy float64) func(Spec) (*Case, error) {
	return func(s Spec) (*Case, error) {
		r := s.rand()
		logits, input, wide := s.logits(r)
		ids := make([]int32, s.Rows)
		grad := make([]float32, s.Rows)
		for i := range ids {
			ids[i] = int32(r.IntN(s.Vocab))
			grad[i] = float32(r.NormFloat64())
		}
		var gradEntropy []float32
		if ofEntropy != 0 {
			for range s.Rows {
				gradEntropy = append(gradEntropy, float32(r.NormFloat64()*ofEntropy))
			}
		}
		return s.gradientOf(logits, input, wide, ids, grad, gradEntropy, tau, bonus)
	}
}

// gradientOf returns the workload of these rows, which are the same in wide: the gradient
// with respect to each logit, written to other memory than the logits.
func (s Spec) gradientOf(
	logits reweight.Logits, input []byte, wide func() []float64, ids []int32, grad, gradEntropy []float32, tau,
	bonus float64,
) (*Case, error) {
	bonuses := slices.Repeat([]float64{bonus}, s.Rows)
	for i, g := range gradEntropy {
		bonuses[i] -= float64(g)
	}
	l, h := make([]float32, s.Rows), make([]float32, s.Rows)
	var ws reweight.Workspace
	if err := ws.TokenStats(reweight.Stats{Entropy: h, Logprob: l}, logits, ids,
		reweight.TokenStatsOptions{Temperature: tau}); err != nil {
		return nil, err
	}
	n := s.Rows * s.Vocab
	dst := reweight.Logits{Vocab: s.Vocab}
	out := output{name: "gradient", elements: n, half: 0x1p-24}
	out.bound = func(i int) float64 { return gradientBound(s.Vocab, tau, float64(grad[i/s.Vocab]), bonuses[i/s.Vocab]) }
	if s.DType == reweight.DTypeBF16 {
		dst.BF16 = array[reweight.BF16](s, n)
		out.memory = raw.Bytes(dst.BF16)
		out.got = func(i int) float64 { return float64(dst.BF16[i].Float32()) }
		out.half = 0x1p-8
	} else {
		dst.F32 = array[float32](s, n)
		out.memory = raw.Bytes(dst.F32)
		out.got = func(i int) float64 { return float64(dst.F32[i]) }
	}
	opt := reweight.RowGradientOptions{Temperature: tau, EntropyBonus: bonus}
	c := &Case{
		Elements: n, Bytes: 2 * int64(n) * int64(s.DType.Size()), Input: input, outputs: []output{out},
		Run: func(impl Runner) error {
			of := reweight.RowGradientInput{Logprobs: l, Entropy: h, Grad: grad, GradEntropy: gradEntropy}
			return impl.RowGradient(dst, logits, ids, of, opt)
		},
	}
	c.Reference = func() {
		x := wide()
		want := slices.Grow(c.outputs[0].want[:0], n)
		for i := range s.Rows {
			want = append(want, reference.RowGradient(x[i*s.Vocab:(i+1)*s.Vocab], ids[i], tau, float64(grad[i]),
				bonuses[i])...)
		}
		c.outputs[0].want = want
	}
	return c, nil
}
