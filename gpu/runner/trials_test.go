package runner

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"unsafe"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/gpu"
)

// The trials here compare a runner with plain Go, bit for bit: on values, options,
// lengths and aliases that no rollout has, but that callers may pass. Package kernels
// has the workloads of the catalogue.

// A caller has the methods that *reweight.Workspace and Runner share.
type caller interface {
	TokenStats(dst reweight.Stats, logits reweight.Logits, ids []int32, opt reweight.TokenStatsOptions) error
	RowGradient(dst, logits reweight.Logits, ids []int32, logprobs, entropy, grad, gradEntropy []float32, opt reweight.RowGradientOptions) error

	MaskedMoments(x []float32, role []reweight.Role, roles reweight.RoleSet, shift float64) (reweight.Moments, error)
	ActFocusWeights(dst, signal []float32, role []reweight.Role, mean, sigma float64, opt reweight.ActFocusOptions) error
	SpanMeans(dst, x []float32, offsets []int32) error
	MinMax(lo, hi, x []float32, offsets []int32) error
	ExpScale(dst, x []float32, lo float32, rate float64) error
	Multiply(dst, a, b []float32) error
	Surrogate(grad, logprobs, old, advantages, weights []float32, role []reweight.Role, scale float64, opt reweight.LossOptions) (reweight.SurrogateSums, error)

	ActFocus(weights []float32, b *reweight.Batch, opt reweight.ActFocusOptions) (reweight.ActFocusResult, error)
	AEM(factors []float32, b *reweight.Batch, opt reweight.AEMOptions) error
	Loss(grad, weights []float32, b *reweight.Batch, opt reweight.LossOptions) (reweight.LossResult, error)
	GRPO(advantages []float32, b *reweight.Batch, opt reweight.GRPOOptions) error
	GAE(advantages, returns, rewards []float32, b *reweight.Batch, opt reweight.GAEOptions) error
	Whiten(dst, x []float32, role []reweight.Role) error
}

// A trial draws arguments and calls one method. Drawn twice from the same seed, the
// arguments are the same, so that two callers can be compared.
type trial struct {
	method string
	run    func(d *draws, c caller) outcome
}

// An outcome is all that a call returns or writes.
type outcome []any

// spoiled are the methods whose outputs are NaN on the device, all of them, after an
// error that only the device can see.
var spoiled = []string{"ActFocus", "AEM", "Loss", "GRPO", "GAE", "Whiten"}

// compare runs the trial on both callers and says what differs, also on the device after
// an error.
func (tr *trial) compare(seed uint64, r *Runner, cpu *reweight.Workspace) (want outcome, err error) {
	want = tr.run(newDraws(seed), cpu)
	if err := differ(tr.run(newDraws(seed), r), want); err != nil {
		return want, err
	}
	// Those that the host finds are not about an element.
	input, ok := want[0].(*reweight.InputError)
	if !ok || input.Index < 0 || !slices.Contains(spoiled, tr.method) {
		return want, nil
	}
	result := uintptr(unsafe.Pointer(&r.results))
	for _, a := range r.memory.args {
		if !a.output || a.absent || address(a.bytes)-result < unsafe.Sizeof(r.results) {
			continue
		}
		region := &r.memory.regions[a.region]
		b := region.buffer.stage[region.at+int(address(a.bytes)-address(region.bytes)):][:len(a.bytes)]
		for i := 0; i < len(b); i += 4 {
			if x := math.Float32frombits(binary.LittleEndian.Uint32(b[i:])); x == x {
				return want, fmt.Errorf("after %q: element %d of an output of %d is %v, want NaN", input, i/4, len(b)/4, x)
			}
		}
	}
	return want, nil
}

// differ says which parts of two outcomes differ in a bit. Every NaN counts as one.
func differ(got, want outcome) error {
	for i := range want {
		if err := differAt(reflect.ValueOf(got[i]), reflect.ValueOf(want[i])); err != nil {
			return fmt.Errorf("result %d: %w", i, err)
		}
	}
	return nil
}

func differAt(got, want reflect.Value) error {
	if !got.IsValid() || !want.IsValid() { // an error that is nil
		if got.IsValid() != want.IsValid() {
			return fmt.Errorf("%v, want %v", got, want)
		}
		return nil
	}
	if err, ok := want.Interface().(error); ok {
		var g, w *reweight.InputError
		gotErr, _ := got.Interface().(error)
		if !errors.As(gotErr, &g) || !errors.As(err, &w) || *g != *w {
			return fmt.Errorf("error %q, want %q", gotErr, err)
		}
		return nil
	}
	if got.Type() != want.Type() {
		return fmt.Errorf("%v, want %v", got, want)
	}
	switch want.Kind() {
	case reflect.Slice:
		for i := range want.Len() {
			if err := differAt(got.Index(i), want.Index(i)); err != nil {
				return fmt.Errorf("element %d of %d: %w", i, want.Len(), err)
			}
		}
	case reflect.Struct:
		for i := range want.NumField() {
			if err := differAt(got.Field(i), want.Field(i)); err != nil {
				return fmt.Errorf("%s: %w", want.Type().Field(i).Name, err)
			}
		}
	case reflect.Float32, reflect.Float64:
		g, w := got.Float(), want.Float()
		if math.Float64bits(g) != math.Float64bits(w) && !(g != g && w != w) {
			return fmt.Errorf("%x, want %x", g, w)
		}
	default:
		if !got.Equal(want) {
			return fmt.Errorf("%v, want %v", got, want)
		}
	}
	return nil
}

// draws draws arguments.
type draws struct {
	*rand.Rand
	seed  uint64
	value func(r *rand.Rand) float32 // of one kind for a whole trial
	wrong bool                       // one argument may still be one that is an error
	even  bool                       // arrays begin at multiples of 16 bytes
}

// edges are values at the edges of what the kernels do.
var edges = []uint32{
	0, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00001, 0x7f800001, 0xffbfffff, // zeros, infinities, NaN, signalling NaN
	1, 0x807fffff, 0x00800000, 0x7f7fffff, 0xff7fffff, 0x3f800000, 0xbf800000, // subnormal, smallest, largest, 1
	0x41a00000, 0x41a00001, 0x419fffff, 0xc1a00000, 0xc1a00001, 0xc19fffff, // 20
	0x42f00000, 0x42f00001, 0x42efffff, 0xc2fa0000, 0xc2fa0001, 0xc2f9ffff, // 120, -125
}

func normal(r *rand.Rand) float32 { return float32(3 * r.NormFloat64()) }
func edge(r *rand.Rand) float32   { return math.Float32frombits(edges[r.IntN(len(edges))]) }

var kindsOfValues = []func(r *rand.Rand) float32{
	normal,
	normal,
	func(r *rand.Rand) float32 { return float32(100 * r.NormFloat64()) },
	func(r *rand.Rand) float32 { return math.Float32frombits(r.Uint32()) },
	edge,
	func(r *rand.Rand) float32 { return math.Float32frombits(uint32(r.IntN(2)) << 31) },
	func(r *rand.Rand) float32 {
		if r.IntN(50) == 0 {
			return edge(r)
		}
		return normal(r)
	},
}

func newDraws(seed uint64) *draws {
	r := rand.New(rand.NewPCG(seed, 10))
	return &draws{r, seed, kindsOfValues[r.IntN(len(kindsOfValues))], r.IntN(3) == 0, r.IntN(2) == 0}
}

// err reports whether the argument at hand is to be wrong. Only one of a call is: of
// two, the CPU and the GPU may name another one.
func (d *draws) err() bool {
	if !d.wrong || d.IntN(2) > 0 {
		return false
	}
	d.wrong = false
	return true
}

// array returns n elements that begin at any address that their size allows.
func array[E any](d *draws, n int) []E {
	x := make([]E, n+16) // the heap aligns what has 16 bytes or more
	if d.even {
		return x[:n:n]
	}
	return x[d.IntN(16):][:n:n]
}

func (d *draws) floats(n int) []float32 {
	x := array[float32](d, n)
	for i := range x {
		x[i] = d.value(d.Rand)
	}
	return x
}

// output returns memory with junk.
func (d *draws) output(n int) []float32 {
	x := array[float32](d, n)
	for i := range x {
		x[i] = 0x1.8p9
	}
	return x
}

// one returns one of x, and to is a number of 0 to n.
func one[E any](d *draws, x ...E) E { return x[d.IntN(len(x))] }
func (d *draws) to(n int) int       { return d.IntN(n + 1) }

// tokens draws a length: any, or near the end of a group or a block.
func (d *draws) tokens() int {
	switch d.IntN(6) {
	case 0:
		return d.IntN(9000)
	case 1:
		return one(d, 1024, 2048, 4096) + d.IntN(40) - 20
	}
	return d.IntN(300)
}

// wholeGroups returns a length that ends at or right behind the last token of a group:
// each of those up to the second time that the sums of groups are read ahead, in turn.
func (d *draws) wholeGroups() int { return 128*int(d.seed/2%67) + d.IntN(2) }

// mostTokens is the most that a trial has.
const mostTokens = 13000

// leaveNaN makes the workspace large enough for all trials and leaves NaN in its scratch
// memory for the sums of groups, before the first trial of a runner. What a kernel reads
// there beyond its own sums then shows.
func leaveNaN(d *draws, c caller) {
	r, ok := c.(*Runner)
	if !ok || d.seed > 1 {
		return
	}
	x := make([]float32, mostTokens)
	role := make([]reweight.Role, mostTokens)
	for i := range x {
		x[i], role[i] = float32(math.NaN()), reweight.RoleAction
	}
	if err := r.ensure(gpu.Size{Tokens: mostTokens, Trajectories: 400, Spans: mostTokens}); err == nil {
		_, err = r.Surrogate(x, x, x, x, nil, role, 1, reweight.DefaultLoss)
	}
}

func (d *draws) roles(n int) []reweight.Role {
	role := array[reweight.Role](d, n)
	most := d.to(2) // often no actions, or nothing but masked tokens
	for i := range role {
		role[i] = reweight.Role(d.to(max(most, 1)))
		if most == 0 && d.IntN(100) > 0 {
			role[i] = reweight.RoleMasked
		}
	}
	if n > 0 && d.err() {
		role[d.IntN(n)] = reweight.Role(3 + d.IntN(253))
	}
	return role
}

// ranges cuts size elements, from any on, into ranges, empty ones too.
func (d *draws) ranges(size int) []int32 {
	long := one(d, 4, 40, 40, 2000)
	offsets := []int32{int32(d.to(min(size, 40)))}
	for at := int(offsets[0]); at < size && len(offsets) < 400; {
		at = min(size, at+d.IntN(long+1))
		offsets = append(offsets, int32(at))
	}
	if len(offsets) > 1 && d.err() {
		switch i := d.IntN(len(offsets)); d.IntN(3) {
		case 0:
			offsets[0] = -1
		case 1:
			offsets[i] = offsets[max(i-1, 0)] - 1
		case 2:
			offsets[len(offsets)-1] = int32(size + 1)
		}
	}
	placed := array[int32](d, len(offsets))
	copy(placed, offsets)
	return placed
}

// number returns x, or another number that is as right, or one that may be an error.
func (d *draws) number(x float64) float64 {
	switch {
	case d.IntN(8) == 0 && d.err():
		return one(d, -1, -1e30, 1e39, math.NaN(), math.Inf(-1))
	case d.IntN(8) == 0:
		return one(d, 0, 1, 0.5, d.Float64(), 1e-30, 1e-40)
	}
	return x
}

var trials = []trial{
	{"Multiply", func(d *draws, c caller) outcome {
		a := d.floats(d.tokens())
		b := d.floats(len(a))
		dst := one(d, d.output(len(a)), a, b)
		if d.err() {
			b = b[:len(b)/2]
		}
		return outcome{c.Multiply(dst, a, b), dst}
	}},
	{"MaskedMoments", func(d *draws, c caller) outcome {
		x := d.floats(d.tokens())
		shift := float64(d.value(d.Rand))
		if shift-shift != 0 {
			shift = 1.5
		}
		m, err := c.MaskedMoments(x, d.roles(len(x)), reweight.RoleSet(d.Uint32()), d.number(shift))
		return outcome{err, m}
	}},
	{"ActFocusWeights", func(d *draws, c caller) outcome {
		x := d.floats(d.tokens())
		dst := one(d, d.output(len(x)), x)
		opt := reweight.ActFocusOptions{Alpha: d.number(d.Float64()), Beta: d.number(d.Float64())}
		return outcome{c.ActFocusWeights(dst, x, d.roles(len(x)), d.number(0.3), d.number(2.5), opt), dst}
	}},
	{"SpanMeans", func(d *draws, c caller) outcome {
		x := d.floats(d.tokens())
		offsets := d.ranges(len(x))
		dst := d.output(len(offsets) - 1)
		return outcome{c.SpanMeans(dst, x, offsets), dst}
	}},
	{"MinMax", func(d *draws, c caller) outcome {
		x := d.floats(d.tokens())
		offsets := d.ranges(len(x))
		lo, hi := d.output(len(offsets)-1), d.output(len(offsets)-1)
		return outcome{c.MinMax(lo, hi, x, offsets), lo, hi}
	}},
	{"ExpScale", func(d *draws, c caller) outcome {
		x := d.floats(d.tokens())
		dst := one(d, d.output(len(x)), x)
		return outcome{c.ExpScale(dst, x, d.value(d.Rand), d.number(one(d, 1, 0.1, 30))), dst}
	}},
	{"Surrogate", func(d *draws, c caller) outcome {
		leaveNaN(d, c)
		n := d.tokens()
		if d.IntN(4) > 0 {
			n = d.wholeGroups()
		}
		role := d.roles(n)
		if n > 0 && role[n-1] == reweight.RoleMasked {
			role[n-1] = reweight.RoleAction // a group of one token is not to be empty
		}
		logprobs, old := d.logprobs(n)
		advantages, weights := d.floats(n), d.weights(n)
		grad := one(d, d.output(n), logprobs, old, advantages)
		q, err := c.Surrogate(grad, logprobs, old, advantages, weights, role, d.number(0.5), d.lossOptions())
		return outcome{err, q, grad}
	}},
}

// logprobs returns log-probabilities of two policies: most ratios are not far from 1,
// some are at the clamp, and some are of any two values.
func (d *draws) logprobs(n int) (now, old []float32) {
	now, old = d.floats(n), d.floats(n)
	for i := range old {
		if d.IntN(10) > 0 {
			old[i] = now[i] - float32(d.IntN(2))*one[float32](d, 0, 0.2, -0.2, 0.28, 20, -20, 20.000002, -20.000002) - float32(d.IntN(2))*float32(0.1*d.NormFloat64())
		}
	}
	return now, old
}

func (d *draws) weights(n int) []float32 {
	switch d.IntN(4) {
	case 0:
		return nil
	case 1:
		w := d.output(n)
		for i := range w {
			w[i] = d.Float32()
		}
		return w
	}
	return d.floats(n)
}

func (d *draws) lossOptions() reweight.LossOptions {
	opt := reweight.DefaultLoss
	if d.IntN(2) == 0 {
		opt = reweight.LossOptions{ClipLow: one(d, 0, 0.2, 1), ClipHigh: one(d, 0, 0.28, 1e30), DualClip: one(d, 0, 3, 1.0000001)}
	}
	if d.IntN(2) == 0 {
		opt.ClipLow, opt.ClipHigh = d.number(opt.ClipLow), d.number(opt.ClipHigh)
	} else if d.err() {
		opt.DualClip = one(d, 1, -1, 0.5, 1e39, math.NaN())
	}
	opt.Aggregation = reweight.Aggregation(d.IntN(4))
	opt.NormLength = one(d, 0, 0, 1, 100)
	return opt
}
