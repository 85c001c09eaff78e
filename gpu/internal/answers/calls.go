package answers

import (
	"cmp"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/seed621a2839/reweight"
)

// A caller is *reweight.Workspace, or what runs the same methods on a GPU.
type caller interface {
	TokenStats(dst reweight.Stats, logits reweight.Logits, ids []int32, opt reweight.TokenStatsOptions) error
	RowGradient(dst, logits reweight.Logits, ids []int32, of reweight.RowGradientInput,
		opt reweight.RowGradientOptions) error
	MaskedMoments(x []float32, role []reweight.Role, roles reweight.RoleSet, shift float64) (reweight.Moments, error)
	ActFocus(weights []float32, b *reweight.Batch, opt reweight.ActFocusOptions) (reweight.ActFocusResult, error)
	ActFocusWeights(dst, signal []float32, role []reweight.Role, mean, sigma float64,
		opt reweight.ActFocusOptions) error
	SpanMeans(dst, x []float32, offsets []int32) error
	MinMax(lo, hi, x []float32, offsets []int32) error
	ExpScale(dst, x []float32, lo float32, rate float64) error
	Multiply(dst, a, b []float32) error
	Surrogate(grad, logprobs, old, advantages, weights []float32, role []reweight.Role, scale float64,
		opt reweight.LossOptions) (reweight.SurrogateSums, error)
	AEM(factors []float32, b *reweight.Batch, opt reweight.AEMOptions) error
	Loss(grad, weights []float32, b *reweight.Batch, opt reweight.LossOptions) (reweight.LossResult, error)
	GRPO(advantages []float32, b *reweight.Batch, opt reweight.GRPOOptions) error
	GAE(advantages, returns, rewards []float32, b *reweight.Batch, opt reweight.GAEOptions) error
	Whiten(dst, x []float32, role []reweight.Role) error
}

// cpu returns the kernels of the CPU, whose instruction sets all give the same bits.
func cpu() *reweight.Workspace {
	isa, err := reweight.BestISA()
	if err != nil { // what REWEIGHT_ISA says does not concern a GPU
		isa = reweight.Portable
	}
	return &reweight.Workspace{ISA: isa, Workers: 1}
}

// A result is an array that a method writes, or the fields of a struct that it returns; float64 holds the bits of each.
type result struct {
	name string
	x    []float64
}

func floats(name string, x []float32) result {
	r := result{name: name}
	for _, v := range x {
		r.x = append(r.x, float64(v))
	}
	return r
}

// An answer calls a method, on the CPU or on a GPU.
type answer func(c caller) ([]result, error)

// rowAnswer returns the call that tells whether a kernel on rows of logits is right, and whether it is one.
func rowAnswer(kernel string) (answer, bool) {
	name, tempered := strings.CutSuffix(kernel, "_tempered")
	temperature := 1.0
	if tempered {
		temperature = 0.7
	}
	for dtype := range reweight.DTypeF16 + 1 {
		switch name {
		case "token_stats_" + dtype.String():
			return func(c caller) ([]result, error) { return tokenStats(c, dtype, temperature, false) }, true
		case "token_stats_squares_" + dtype.String():
			return func(c caller) ([]result, error) { return tokenStats(c, dtype, temperature, true) }, true
		case "row_gradient_" + dtype.String():
			return func(c caller) ([]result, error) { return rowGradient(c, dtype, temperature) }, true
		}
	}
	return nil, false
}

// methods has the calls that tell whether the other kernels are right, by the method of a workspace. Nothing comes of
// the rest: read_memory and copy_memory only measure. check_layout takes part in each of AEM, GRPO and GAE.
var methods = map[string]answer{
	"ActFocus": actFocus, "ActFocusWeights": actFocusWeights, "AEM": aem, "ExpScale": expScale, "GAE": gae, "GRPO": grpo,
	"Loss": loss, "MaskedMoments": moments, "MinMax": minMax, "Multiply": multiply, "SpanMeans": spanMeans,
	"Surrogate": surrogate, "Whiten": whiten,
}

const vocab = 4500 // more than a kernel holds of a row at a time, and no multiple of anything

// logits returns rows that take every way through a kernel: an id for each is returned too.
func logits(dtype reweight.DType) (l reweight.Logits, ids []int32) {
	r := rand.New(rand.NewPCG(1, 2))
	inf := float32(math.Inf(1))
	normal := func() float32 { return float32(3 * r.NormFloat64()) }
	rows := []func(i int) float32{
		func(i int) float32 { return normal() },
		func(i int) float32 { return float32(i/500*9) - 30 + normal() }, // the largest so far grows on and on
		func(i int) float32 { // masked, the first chunk as a whole
			if i < 2100 || i%3 == 0 {
				return -inf
			}
			return 50 + normal()
		},
		func(i int) float32 { // most far below the first
			if i == 0 {
				return 20
			}
			return -90 + 8*normal()
		},
		func(i int) float32 { return 1.25 },                       // flat
		func(i int) float32 { return -float32(i) / 8 },            // the largest first, the last far below it
		func(i int) float32 { return float32(i*i%9973)/512 - 40 }, // as good as no order; the chosen id is any
		func(i int) float32 { // the last of all is the largest, and nothing else is near
			if i == vocab-1 {
				return 300
			}
			return -normal()
		},
		func(i int) float32 { // a NaN
			if i == 4321 {
				return float32(math.NaN())
			}
			return normal()
		},
		func(i int) float32 { // too large for float32 in units of log 2
			if i%1000 == 999 {
				return 60000
			}
			return 1e6 * normal()
		},
	}
	l.Vocab = vocab
	for q, row := range rows {
		ids = append(ids, int32(q*731%vocab))
		for i := range vocab {
			switch x := row(i); dtype {
			case reweight.DTypeF32:
				l.F32 = append(l.F32, x)
			case reweight.DTypeBF16:
				l.BF16 = append(l.BF16, reweight.ToBF16(x))
			default:
				l.F16 = append(l.F16, toF16(x))
			}
		}
	}
	return l, ids
}

// toF16 returns a float16 near x: its fraction is cut.
func toF16(x float32) reweight.F16 {
	bits := math.Float32bits(x)
	sign, rest := uint16(bits>>16&0x8000), bits&0x7fffffff
	switch {
	case x != x:
		return reweight.F16(0x7e00)
	case rest >= 0x47800000: // 65,536: too large
		return reweight.F16(sign | 0x7c00)
	case rest < 0x38800000: // 2^-14: too small
		return reweight.F16(sign)
	}
	return reweight.F16(sign | uint16((rest-0x38000000)>>13))
}

func tokenStats(c caller, dtype reweight.DType, temperature float64, squares bool) ([]result, error) {
	l, ids := logits(dtype)
	n := len(ids)
	s := reweight.Stats{Entropy: make([]float32, n), Logprob: make([]float32, n)}
	if temperature == 1 {
		s.LSE = make([]float32, n)
	}
	if squares {
		s.LogSumSqProbs = make([]float32, n)
	}
	err := c.TokenStats(s, l, ids, reweight.TokenStatsOptions{Temperature: temperature})
	return []result{floats("LSE", s.LSE), floats("Entropy", s.Entropy), floats("Logprob", s.Logprob),
		floats("LogSumSqProbs", s.LogSumSqProbs)}, err
}

func rowGradient(c caller, dtype reweight.DType, temperature float64) ([]result, error) {
	l, ids := logits(dtype)
	n := len(ids)
	of := reweight.RowGradientInput{Logprobs: make([]float32, n), Entropy: make([]float32, n),
		Grad: []float32{1, -0.5, 2, 0.25, -3, 1, 0.1, 1e-3, -20, 0.75}}
	err := cpu().TokenStats(reweight.Stats{Logprob: of.Logprobs, Entropy: of.Entropy}, l, ids,
		reweight.TokenStatsOptions{Temperature: temperature})
	var all []result
	for _, given := range []bool{false, true} {
		if given {
			of.LSE = make([]float32, n)
			err = cmp.Or(err, cpu().TokenStats(reweight.Stats{LSE: of.LSE}, l, ids, reweight.DefaultTokenStats))
			for i := range of.LSE { // of the logits at the temperature: any number will do
				of.LSE[i] /= float32(temperature)
			}
		}
		dst := reweight.Logits{Vocab: l.Vocab, F32: make([]float32, len(l.F32)),
			BF16: make([]reweight.BF16, len(l.BF16))}
		if dtype == reweight.DTypeF32 {
			dst.BF16 = nil
		} else {
			dst.F32 = nil
		}
		err = cmp.Or(err, c.RowGradient(dst, l, ids, of,
			reweight.RowGradientOptions{Temperature: temperature, EntropyBonus: 0.01}))
		r := floats("the gradient", dst.F32)
		for _, v := range dst.BF16 {
			r.x = append(r.x, float64(v.Float32()))
		}
		all = append(all, r)
	}
	return all, err
}

// tokens is how many tokens the arrays have: more than two groups of the one summation order.
const tokens = 331

// values returns numbers of a kind of its own for each seed, whose exponents differ.
func values(seed uint64) []float32 {
	r := rand.New(rand.NewPCG(seed, 3))
	x := make([]float32, tokens)
	for i := range x {
		x[i] = float32(r.NormFloat64() * math.Exp(r.NormFloat64()))
	}
	return x
}

// batch returns five trajectories of two groups, with three responses each; one is long.
func batch() *reweight.Batch {
	b := &reweight.Batch{SeqOffsets: []int64{0, 40, 81, 100, 290, tokens}, GroupIDs: []int32{0, 1, 0, 1, 1},
		Rewards: []float32{1, 0, 0.25, -2, 3}, RefEnergy: values(1), Entropy: values(2), OldLogprobs: values(3),
		Logprobs: values(4), RefLogprobs: values(5), Advantages: values(6), Values: values(7)}
	for s, begin := range b.SeqOffsets[:5] {
		n := int(b.SeqOffsets[s+1] - begin)
		for i := range n {
			part, role, span := 9*i/n, reweight.RoleMasked, int32(-1)
			if part%3 > 0 {
				role, span = reweight.Role(part%3), int32(3*s+part/3)
			}
			b.Role, b.SpanIDs = append(b.Role, role), append(b.SpanIDs, span)
		}
	}
	for i := range b.Entropy {
		b.Entropy[i] = float32(math.Abs(float64(b.Entropy[i])))
		b.OldLogprobs[i] = b.Logprobs[i] + b.OldLogprobs[i]/8
		if i%50 == 7 { // beyond the bounds of the ratio
			b.OldLogprobs[i] -= 30
		}
	}
	return b
}

// offsets are those of ranges of several lengths, of 0 too.
var offsets = []int32{0, 1, 9, 9, 26, 58, 190, tokens}

func multiply(c caller) ([]result, error) {
	dst, a, b := make([]float32, tokens), values(1), values(2)
	inf := float32(math.Inf(1))
	copy(a, []float32{0, inf, inf, 1e-30, 1e30, float32(math.Copysign(0, -1)), 1e-45})
	copy(b, []float32{-1, 0, -1, 1e-12, 1e30, 3, 0.5})
	err := c.Multiply(dst, a, b)
	return []result{floats("the product", dst)}, err
}

func moments(c caller) ([]result, error) {
	m, err := c.MaskedMoments(values(1), batch().Role, reweight.Responses, 0.125)
	return []result{{"the moments", []float64{float64(m.N), m.Sum, m.Squares}}}, err
}

func actFocus(c caller) (all []result, err error) {
	for _, signal := range []reweight.Signal{reweight.SignalEnergy, reweight.SignalSurprisal, reweight.SignalLogRatio} {
		w, opt := make([]float32, tokens), reweight.DefaultActFocus
		opt.Signal = signal
		r, failed := c.ActFocus(w, batch(), opt)
		err = cmp.Or(err, failed)
		all = append(all, floats("the weights", w),
			result{"the result", []float64{float64(r.Actions), r.Mean, r.Sigma}})
	}
	return all, err
}

func actFocusWeights(c caller) ([]result, error) {
	w := make([]float32, tokens)
	err := c.ActFocusWeights(w, values(1), batch().Role, 0.25, 0.04, reweight.DefaultActFocus)
	return []result{floats("the weights", w)}, err
}

func whiten(c caller) ([]result, error) {
	dst := make([]float32, tokens)
	err := c.Whiten(dst, values(1), batch().Role)
	return []result{floats("the whitened array", dst)}, err
}

func spanMeans(c caller) ([]result, error) {
	dst := make([]float32, len(offsets)-1)
	err := c.SpanMeans(dst, values(1), offsets)
	return []result{floats("the means", dst)}, err
}

func minMax(c caller) ([]result, error) {
	x, lo, hi := values(1), make([]float32, len(offsets)-1), make([]float32, len(offsets)-1)
	x[30] = float32(math.NaN())
	err := c.MinMax(lo, hi, x, offsets)
	return []result{floats("the least", lo), floats("the largest", hi)}, err
}

func expScale(c caller) ([]result, error) {
	dst, x := make([]float32, tokens), batch().Entropy
	err := c.ExpScale(dst, x, 0, 3)
	return []result{floats("the exponentials", dst)}, err
}

func aem(c caller) (all []result, err error) {
	for _, scope := range []reweight.Scope{reweight.ScopeGroup, reweight.ScopeTrajectory, reweight.ScopeBatch} {
		f, opt := make([]float32, tokens), reweight.DefaultAEM
		opt.Scope = scope
		err = cmp.Or(err, c.AEM(f, batch(), opt))
		all = append(all, floats("the factors", f))
	}
	return all, err
}

func grpo(c caller) ([]result, error) {
	a := make([]float32, tokens)
	err := c.GRPO(a, batch(), reweight.DefaultGRPO)
	return []result{floats("the advantages", a)}, err
}

func gae(c caller) ([]result, error) {
	a, returns := make([]float32, tokens), make([]float32, tokens)
	err := c.GAE(a, returns, values(9), batch(), reweight.GAEOptions{Gamma: 0.99, Lambda: 0.9})
	return []result{floats("the advantages", a), floats("the returns", returns)}, err
}

func surrogate(c caller) ([]result, error) {
	b, grad := batch(), make([]float32, tokens)
	s, err := c.Surrogate(grad, b.Logprobs, b.OldLogprobs, b.Advantages, weights(), b.Role, 0.75, reweight.DefaultLoss)
	return []result{floats("the gradient", grad),
		{"the sums", []float64{float64(s.Tokens), float64(s.Clipped), s.Loss, s.LogRatio}}}, err
}

// weights are those of tokens, above 0.
func weights() []float32 {
	w := values(8)
	for i := range w {
		w[i] = float32(math.Abs(float64(w[i]))) + 0.125
	}
	return w
}

func loss(c caller) (all []result, err error) {
	for _, aggregation := range []reweight.Aggregation{reweight.TokenMean, reweight.SeqMeanTokenSum,
		reweight.SeqMeanTokenMean, reweight.SeqMeanTokenSumNorm} {
		b, grad, opt := batch(), make([]float32, tokens), reweight.DefaultLoss
		opt.Aggregation = aggregation
		r, failed := c.Loss(grad, weights(), b, opt)
		err = cmp.Or(err, failed)
		all = append(all, floats("the gradient", grad), result{"the result",
			[]float64{r.Loss, float64(r.Tokens), r.WeightSum, r.ClipFraction, r.MeanLogRatio, r.KL, r.KLLoss}})
	}
	return all, err
}
