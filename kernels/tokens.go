package kernels

import (
	"math"
	"math/rand/v2"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/raw"
	"github.com/seed621a2839/reweight/reference"
)

// tokenKernels are the kernels on arrays of tokens.
var tokenKernels = []Kernel{
	{
		Name: "masked_moments", Doc: "count, sum and sum of squares of the tokens of some roles", DTypes: float, build: maskedMoments,
		code: code{method: "MaskedMoments", twins: []string{"maskedMoments"}, reference: "MaskedMoments", device: "moments"},
	},
	{
		Name: "actfocus_weights", Doc: "ActFocus token weights", DTypes: float, build: actFocusWeights,
		code: code{method: "ActFocusWeights", twins: []string{"actFocusWeights"}, reference: "ActFocusWeight", device: "actfocus"},
	},
	{
		Name: "span_means", Doc: "mean over each span", DTypes: float, build: spanMeans,
		code: code{method: "SpanMeans", twins: []string{"spanSums"}, reference: "SpanMeans", device: "spans"},
	},
	{
		Name: "min_max", Doc: "extremes of each group", DTypes: float, build: minMax,
		code: code{method: "MinMax", twins: []string{"minMax"}, reference: "MinMax", device: "spans"},
	},
	{
		Name: "exp_scale", Doc: "exponential, divided by its mean", DTypes: float, build: expScale,
		code: code{method: "ExpScale", twins: []string{"expScale", "scale"}, reference: "ExpScale", device: "spans"},
	},
	{
		Name: "multiply", Doc: "product of two arrays", DTypes: float, build: multiply,
		code: code{method: "Multiply", twins: []string{"multiply"}, reference: "Multiply", device: "multiply"},
	},
	{
		Name: "surrogate", Doc: "weighted clipped surrogate, its sums and its gradient", DTypes: float, build: surrogate,
		code: code{method: "Surrogate", twins: []string{"surrogate"}, reference: "Surrogate", device: "surrogate"},
	},
}

// tokens returns n float32 of the family, and the same as float64.
func (s Spec) tokens(r *rand.Rand) ([]float32, []float64) {
	x := array[float32](s, s.Rows)
	s.Family.fill(x, r)
	return x, reference.Floats(x)
}

func maskedMoments(s Spec) (*Case, error) {
	r := s.rand()
	x, wide := s.tokens(r)
	role := s.roles(r)
	referenceRole := reference.Roles(role)
	const shift = 1.5
	got := make([]float64, 3)
	out := sums("count, sum and sum of squares", got)
	// Roundings in float64, of the kernel and of the reference.
	out.abs = (float64(s.Rows)/16 + float64(s.Rows)/256 + 300) * 0x1p-53
	c := &Case{Elements: s.Rows, Bytes: int64(s.Rows) * 5, input: raw.Bytes(x), outputs: []output{out}}
	c.run = func(impl Runner) error {
		m, err := impl.MaskedMoments(x, role, reweight.Responses, shift)
		got[0], got[1], got[2] = float64(m.N), m.Sum, m.Squares
		return err
	}
	c.reference = func() {
		want, terms := c.outputs[0].want, c.outputs[0].terms
		n, sum, squares := reference.MaskedMoments(referenceRole, wide, shift, reference.RoleReasoning, reference.RoleAction)
		want[0], want[1], want[2] = float64(n), sum, squares
		terms[1] = 0
		for t, v := range wide {
			if role[t] != reweight.RoleMasked {
				terms[1] += math.Abs(v - shift)
			}
		}
		terms[0], terms[2] = want[0], want[2]
	}
	return c, nil
}

func actFocusWeights(s Spec) (*Case, error) {
	r := s.rand()
	x, wide := s.tokens(r)
	role := s.roles(r)
	mean, sigma := 0.3, 2.5
	if s.Family == Offset {
		mean = 10000.3
	}
	w := array[float32](s, s.Rows)
	opt := reweight.DefaultActFocus
	out := f32("weight", w)
	out.ulps = 2
	c := &Case{Elements: s.Rows, Bytes: int64(s.Rows) * 9, input: raw.Bytes(x), outputs: []output{out}}
	c.run = func(impl Runner) error { return impl.ActFocusWeights(w, x, role, mean, sigma, opt) }
	c.reference = func() {
		for t, v := range wide {
			c.outputs[0].want[t] = reference.ActFocusWeight(reference.Role(role[t]), v, mean, sigma, opt.Alpha, opt.Beta)
		}
	}
	return c, nil
}

func spanMeans(s Spec) (*Case, error) {
	r := s.rand()
	x, wide := s.tokens(r)
	size := 512
	switch s.Seed % 3 {
	case 1:
		size = 64
	case 2: // some longer than a block
		size = 1500
	}
	off := s.cut(size, r)
	means := array[float32](s, len(off)-1)
	out := f32("mean", means)
	var largest float64 // the sums' errors are relative to it
	for _, v := range wide {
		if a := math.Abs(v); a-a == 0 {
			largest = max(largest, a)
		}
	}
	out.abs = 15 * 0x1p-24 * largest // 7 roundings in a group, 7 in a block, and less than one for float64
	c := &Case{Elements: s.Rows, Bytes: int64(4*s.Rows + 8*len(off)), input: raw.Bytes(x), outputs: []output{out}}
	c.run = func(impl Runner) error { return impl.SpanMeans(means, x, off) }
	c.reference = func() { copy(c.outputs[0].want, reference.SpanMeans(wide, off)) }
	return c, nil
}

func minMax(s Spec) (*Case, error) {
	r := s.rand()
	x, wide := s.tokens(r)
	size := 8
	if s.Seed%4 == 3 { // some longer than any vector
		size = 400
	}
	off := s.cut(size, r)
	lo, hi := array[float32](s, len(off)-1), array[float32](s, len(off)-1)
	c := &Case{Elements: s.Rows, Bytes: int64(4*s.Rows + 12*len(off)), input: raw.Bytes(x), outputs: []output{f32("lo", lo), f32("hi", hi)}}
	c.run = func(impl Runner) error { return impl.MinMax(lo, hi, x, off) }
	c.reference = func() {
		for g := range lo {
			c.outputs[0].want[g], c.outputs[1].want[g] = reference.MinMax(wide[off[g]:off[g+1]])
		}
	}
	return c, nil
}

func expScale(s Spec) (*Case, error) {
	r := s.rand()
	x, wide := s.tokens(r)
	lo, hi := float32(math.Inf(1)), float32(math.Inf(-1))
	for _, v := range x {
		if v-v == 0 {
			lo, hi = min(lo, v), max(hi, v)
		}
	}
	if lo > hi {
		lo, hi = 0, 0
	}
	rate := 1.0
	if hi > lo {
		rate = 1 / float64(hi-lo)
	}
	dst := array[float32](s, s.Rows)
	out := f32("factor", dst)
	// The exponent is at most 1 nat and is rounded 3 times. Its error and that of 2^y
	// count twice: in the element, and in the sum that it is divided by. The sum has 7
	// roundings in a group, and the factor has 2.
	out.rel = (2*3+7+2)*0x1p-24 + 2*1.57e-7
	c := &Case{Elements: s.Rows, Bytes: int64(s.Rows) * 8, input: raw.Bytes(x), outputs: []output{out}}
	c.run = func(impl Runner) error { return impl.ExpScale(dst, x, lo, rate) }
	c.reference = func() {
		// The kernel keeps the exponent between -125 and 120, in powers of 2.
		inRange := make([]float64, len(wide))
		for i, v := range wide {
			inRange[i] = max(float64(lo)-120*math.Ln2/rate, min(float64(lo)+125*math.Ln2/rate, v))
		}
		copy(c.outputs[0].want, reference.ExpScale(inRange, float64(lo), rate))
	}
	return c, nil
}

func multiply(s Spec) (*Case, error) {
	r := s.rand()
	x, wide := s.tokens(r)
	w := array[float32](s, s.Rows)
	Random.fill(w, r)
	dst := array[float32](s, s.Rows)
	c := &Case{Elements: s.Rows, Bytes: int64(s.Rows) * 12, input: raw.Bytes(x), outputs: []output{f32("product", dst)}}
	c.run = func(impl Runner) error { return impl.Multiply(dst, x, w) }
	c.reference = func() {
		for i, v := range reference.Multiply(wide, reference.Floats(w)) {
			c.outputs[0].want[i] = float64(float32(v)) // the kernel rounds once, so there is no other error
		}
	}
	return c, nil
}

func surrogate(s Spec) (*Case, error) {
	r := s.rand()
	logprobs, _ := s.tokens(r)
	role := s.roles(r)
	n := s.Rows
	old, adv, w := array[float32](s, n), array[float32](s, n), array[float32](s, n)
	opt, bound := reweight.DefaultLoss, []float64{0.8, 1.28, 3}
	for t := range old {
		d := 0.3 * r.NormFloat64()
		if r.IntN(40) == 0 {
			d *= 100 // beyond the clamp
		}
		for _, b := range bound { // float32 may fall on the other side of a clip
			if math.Abs(math.Exp(d)-b) < 1e-2 || s.Family == Offset {
				d = 0
			}
		}
		old[t] = logprobs[t] - float32(d)
		adv[t] = float32(r.NormFloat64())
		w[t] = r.Float32() + 0.1
	}
	grad, totals := array[float32](s, n), make([]float64, 4)
	out := f32("gradient", grad)
	out.abs, out.rel = 1e-30, 4e-6
	total := sums("tokens, clipped, loss and log-ratio", totals)
	// A log-ratio is at most 20 nats: its rounding costs 20*2^-24 and that of log2(e)
	// costs 20*1.34e-8. Then come 2^y, and 9 roundings of products and in a group.
	total.abs = (20+9)*0x1p-24 + 20*1.34e-8 + 1.57e-7
	c := &Case{Elements: n, Bytes: int64(n) * 21, input: raw.Bytes(logprobs), outputs: []output{out, total}}
	c.run = func(impl Runner) error {
		q, err := impl.Surrogate(grad, logprobs, old, adv, w, role, 0.5, opt)
		totals[0], totals[1], totals[2], totals[3] = float64(q.Tokens), float64(q.Clipped), q.Loss, q.LogRatio
		return err
	}
	c.reference = func() {
		g, sum, terms := c.outputs[0].want, c.outputs[1].want, c.outputs[1].terms
		clear(sum)
		clear(terms)
		for t := range g {
			g[t] = 0
			if role[t] == reweight.RoleMasked {
				continue
			}
			// The kernel's ratio is that of the difference in float32.
			d := float64(logprobs[t] - old[t])
			l, dl, clipped := reference.Surrogate(d, 0, float64(adv[t]), opt.ClipLow, opt.ClipHigh, opt.DualClip)
			sum[0]++
			if clipped {
				sum[1]++
			}
			d = max(-20, min(20, d))
			sum[2] += float64(w[t]) * l
			sum[3] += d
			terms[2] += math.Abs(float64(w[t]) * l)
			terms[3] += math.Abs(d)
			g[t] = 0.5 * float64(w[t]) * dl
		}
		terms[0], terms[1] = sum[0], sum[1]
	}
	return c, nil
}
