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
		Name: "masked_moments", Doc: "count, sum and sum of squares of the tokens of some roles", DTypes: float,
		build: maskedMoments,
		code: code{method: "MaskedMoments", assembly: []string{"maskedMoments"}, reference: "MaskedMoments",
			device: "moments"},
	},
	{
		Name: "actfocus_weights", Doc: "ActFocus token weights", DTypes: float, build: actFocusWeights,
		code: code{method: "ActFocusWeights", assembly: []string{"actFocusWeights"}, reference: "ActFocusWeight",
			device: "actfocus"},
	},
	{
		Name: "span_means", Doc: "mean over each span", DTypes: float, build: spanMeans,
		code: code{method: "SpanMeans", assembly: []string{"spanSums"}, reference: "SpanMeans", device: "spans"},
	},
	{
		Name: "min_max", Doc: "extremes of each group", DTypes: float, build: minMax,
		code: code{method: "MinMax", assembly: []string{"minMax"}, reference: "MinMax", device: "spans"},
	},
	{
		Name: "exp_scale", Doc: "exponential, divided by its mean", DTypes: float, build: expScale,
		code: code{method: "ExpScale", assembly: []string{"expScale", "scale"}, reference: "ExpScale", device: "spans"},
	},
	{
		Name: "multiply", Doc: "product of two arrays", DTypes: float, build: multiply,
		code: code{method: "Multiply", assembly: []string{"multiply"}, reference: "Multiply", device: "multiply"},
	},
	{
		Name: "surrogate", Doc: "weighted clipped surrogate, its sums and its gradient", DTypes: float,
		build: policyLoss(reweight.DefaultLoss, ppoTerms),
		code:  code{method: "Surrogate", assembly: []string{"surrogate"}, reference: "Surrogate", device: "surrogate"},
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
	return &Case{
		Elements: s.Rows, Bytes: int64(s.Rows) * 5, Input: raw.Bytes(x), outputs: []output{out},
		Run: func(impl Runner) error {
			m, err := impl.MaskedMoments(x, role, reweight.Responses, shift)
			got[0], got[1], got[2] = float64(m.N), m.Sum, m.Squares
			return err
		},
		Reference: func() {
			n, sum, squares := reference.MaskedMoments(referenceRole, wide, shift, reference.RoleReasoning,
				reference.RoleAction)
			magnitudes := 0.0
			for t, v := range wide {
				if role[t] != reweight.RoleMasked {
					magnitudes += math.Abs(v - shift)
				}
			}
			copy(out.want, []float64{float64(n), sum, squares})
			copy(out.terms, []float64{float64(n), magnitudes, squares})
		},
	}, nil
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
	return &Case{
		Elements: s.Rows, Bytes: int64(s.Rows) * 9, Input: raw.Bytes(x), outputs: []output{out},
		Run: func(impl Runner) error { return impl.ActFocusWeights(w, x, role, mean, sigma, opt) },
		Reference: func() {
			for t, v := range wide {
				out.want[t] = reference.ActFocusWeight(reference.Role(role[t]), v, mean, sigma, opt.Alpha, opt.Beta)
			}
		},
	}, nil
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
	return &Case{
		Elements: s.Rows, Bytes: int64(4*s.Rows + 8*len(off)), Input: raw.Bytes(x), outputs: []output{out},
		Run:       func(impl Runner) error { return impl.SpanMeans(means, x, off) },
		Reference: func() { copy(out.want, reference.SpanMeans(wide, off)) },
	}, nil
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
	least, most := f32("lo", lo), f32("hi", hi)
	return &Case{
		Elements: s.Rows, Bytes: int64(4*s.Rows + 12*len(off)), Input: raw.Bytes(x), outputs: []output{least, most},
		Run: func(impl Runner) error { return impl.MinMax(lo, hi, x, off) },
		Reference: func() {
			for g := range lo {
				least.want[g], most.want[g] = reference.MinMax(wide[off[g]:off[g+1]])
			}
		},
	}, nil
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
	// The exponent is at most 1 nat and is rounded 3 times. Its error and the error of 2^y
	// count twice: in the element, and in the sum that it is divided by. The sum has 7
	// roundings in a group, and the factor has 2.
	out.rel = (2*3+7+2)*0x1p-24 + 2*1.57e-7
	return &Case{
		Elements: s.Rows, Bytes: int64(s.Rows) * 8, Input: raw.Bytes(x), outputs: []output{out},
		Run: func(impl Runner) error { return impl.ExpScale(dst, x, lo, rate) },
		Reference: func() {
			// The kernel keeps the exponent between -125 and 120, in powers of 2.
			inRange := make([]float64, len(wide))
			for i, v := range wide {
				inRange[i] = max(float64(lo)-120*math.Ln2/rate, min(float64(lo)+125*math.Ln2/rate, v))
			}
			copy(out.want, reference.ExpScale(inRange, float64(lo), rate))
		},
	}, nil
}

func multiply(s Spec) (*Case, error) {
	r := s.rand()
	x, wide := s.tokens(r)
	w := array[float32](s, s.Rows)
	Random.fill(w, r)
	dst := array[float32](s, s.Rows)
	out := f32("product", dst)
	return &Case{
		Elements: s.Rows, Bytes: int64(s.Rows) * 12, Input: raw.Bytes(x), outputs: []output{out},
		Run: func(impl Runner) error { return impl.Multiply(dst, x, w) },
		Reference: func() {
			for i, v := range reference.Multiply(wide, reference.Floats(w)) {
				out.want[i] = float64(float32(v)) // the kernel rounds once, so there is no other error
			}
		},
	}, nil
}
