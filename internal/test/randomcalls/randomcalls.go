// Package randomcalls draws arguments for the methods that *reweight.Workspace shares with what
// runs the same kernels elsewhere, so that tests compare the two bit for bit: on values,
// options and aliases that no rollout has, but that callers may pass. The lengths of slices
// always fit: what runs the kernels by addresses cannot see them. Package kernels has the
// workloads of the catalogue.
package randomcalls

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"unsafe"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/kernels"
)

// A Caller has the methods that *reweight.Workspace and runners share.
type Caller interface {
	kernels.Runner

	ActFocus(weights []float32, b *reweight.Batch, opt reweight.ActFocusOptions) (reweight.ActFocusResult, error)
	AEM(factors []float32, b *reweight.Batch, opt reweight.AEMOptions) error
	Loss(grad, weights []float32, b *reweight.Batch, opt reweight.LossOptions) (reweight.LossResult, error)
	GRPO(advantages []float32, b *reweight.Batch, opt reweight.GRPOOptions) error
	GAE(advantages, returns, rewards []float32, b *reweight.Batch, opt reweight.GAEOptions) error
	Whiten(dst, x []float32, role []reweight.Role) error
}

// A Trial draws arguments and calls one method. Drawn twice from the same seed, the
// arguments are the same, so that two callers can be compared.
type Trial struct {
	Method string
	Run    func(d *Draws, c Caller) Outcome
}

// All returns the trials, one for each method of a Caller.
func All() []Trial { return slices.Concat(trials, trialsOnRows, trialsOnBatches) }

// An Outcome is all that a call returns or writes; the error comes first.
type Outcome []any

// Differ says which parts of two outcomes differ in a bit. Every NaN counts as one.
func Differ(got, want Outcome) error {
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
		if sameBytes(got, want) || sameFloats(got.Interface(), want.Interface()) {
			return nil // far sooner than by reflection
		}
		if got.Len() != want.Len() {
			return fmt.Errorf("%d elements, want %d", got.Len(), want.Len())
		}
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
		if g, ok := got.Interface().(reweight.BF16); ok {
			return differAt(reflect.ValueOf(g.Float32()), reflect.ValueOf(want.Interface().(reweight.BF16).Float32()))
		}
		if !got.Equal(want) {
			return fmt.Errorf("%v, want %v", got, want)
		}
	}
	return nil
}

// sameBytes reports whether two slices have the same memory's contents.
func sameBytes(got, want reflect.Value) bool {
	memory := func(v reflect.Value) []byte {
		return unsafe.Slice((*byte)(v.UnsafePointer()), v.Len()*int(v.Type().Elem().Size()))
	}
	return bytes.Equal(memory(got), memory(want))
}

// sameFloats reports whether both are slices of float32 with the same bits.
func sameFloats(got, want any) bool {
	g, ok := got.([]float32)
	w, also := want.([]float32)
	return ok && also && slices.EqualFunc(g, w, func(a, b float32) bool {
		return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b
	})
}

// Draws draws the arguments of a trial.
type Draws struct {
	*rand.Rand
	seed   uint64
	device bool
	value  func(r *rand.Rand) float32 // of one kind for a whole trial
	wrong  bool                       // one argument may still be one that is an error
	even   bool                       // arrays begin at multiples of 16 bytes
	arrays Outcome                    // see Arrays
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

// New returns what draws from the seed. For a device, it also draws what package gpu has
// and package reweight has not: an index of the rows that are wanted, and workspaces with
// too few places for spans.
func New(seed uint64, device bool) *Draws {
	r := rand.New(rand.NewPCG(seed, 10))
	return &Draws{Rand: r, seed: seed, device: device, value: kindsOfValues[r.IntN(len(kindsOfValues))],
		wrong: r.IntN(3) == 0, even: r.IntN(2) == 0}
}

// Arrays returns the arrays that were drawn, and what lies around them in memory.
// Nothing but the outputs of a call may differ after it.
func (d *Draws) Arrays() Outcome { return d.arrays }

// err reports whether the argument at hand is to be wrong. Only one of a call is: of
// two, callers may name another one.
func (d *Draws) err() bool {
	if !d.wrong || d.IntN(2) > 0 {
		return false
	}
	d.wrong = false
	return true
}

// array returns n elements that begin at any address that their size allows. Some have
// other elements behind them, and some end where their memory does.
func array[E any](d *Draws, n int) []E {
	first, behind := 0, 16 // the heap aligns what has 16 bytes or more
	if !d.even {
		first, behind = d.IntN(16), 0
	}
	x := make([]E, first+n+behind)
	d.arrays = append(d.arrays, x)
	return x[first:][:n:n]
}

func (d *Draws) floats(n int) []float32 {
	x := array[float32](d, n)
	for i := range x {
		x[i] = d.value(d.Rand)
	}
	return x
}

// output returns memory with junk.
func (d *Draws) output(n int) []float32 {
	x := array[float32](d, n)
	for i := range x {
		x[i] = 0x1.8p9
	}
	return x
}

// one returns one of x, and to is a number of 0 to n.
func one[E any](d *Draws, x ...E) E { return x[d.IntN(len(x))] }
func (d *Draws) to(n int) int       { return d.IntN(n + 1) }

// tokens draws a length: any, or near the end of a group or a block.
func (d *Draws) tokens() int {
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
func (d *Draws) wholeGroups() int { return 128*int(d.seed/2%67) + d.IntN(2) }

func (d *Draws) roles(n int) []reweight.Role {
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
func (d *Draws) ranges(size int) []int32 {
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

// number returns x, or another number that is as right. CheckOptions has those that are wrong.
func (d *Draws) number(x float64) float64 {
	if d.IntN(8) == 0 {
		return one(d, 0, 1, 0.5, d.Float64(), 1e-30, 1e-40)
	}
	return x
}

var trials = []Trial{
	{"Multiply", func(d *Draws, c Caller) Outcome {
		a := d.floats(d.tokens())
		b := d.floats(len(a))
		dst := one(d, d.output(len(a)), a, b)
		return Outcome{c.Multiply(dst, a, b), dst}
	}},
	{"MaskedMoments", func(d *Draws, c Caller) Outcome {
		x := d.floats(d.tokens())
		shift := float64(d.value(d.Rand))
		if shift-shift != 0 {
			shift = 1.5
		}
		m, err := c.MaskedMoments(x, d.roles(len(x)), reweight.RoleSet(d.Uint32()), d.number(shift))
		return Outcome{err, m}
	}},
	{"ActFocusWeights", func(d *Draws, c Caller) Outcome {
		x := d.floats(d.tokens())
		dst := one(d, d.output(len(x)), x)
		opt := reweight.ActFocusOptions{Alpha: d.number(d.Float64()), Beta: d.number(d.Float64())}
		return Outcome{c.ActFocusWeights(dst, x, d.roles(len(x)), d.number(0.3), d.number(2.5), opt), dst}
	}},
	{"SpanMeans", func(d *Draws, c Caller) Outcome {
		x := d.floats(d.tokens())
		offsets := d.ranges(len(x))
		dst := d.output(len(offsets) - 1)
		return Outcome{c.SpanMeans(dst, x, offsets), dst}
	}},
	{"MinMax", func(d *Draws, c Caller) Outcome {
		x := d.floats(d.tokens())
		offsets := d.ranges(len(x))
		lo, hi := d.output(len(offsets)-1), d.output(len(offsets)-1)
		return Outcome{c.MinMax(lo, hi, x, offsets), lo, hi}
	}},
	{"ExpScale", func(d *Draws, c Caller) Outcome {
		x := d.floats(max(1, d.tokens()))
		dst := one(d, d.output(len(x)), x)
		return Outcome{c.ExpScale(dst, x, d.value(d.Rand), d.number(one(d, 1, 0.1, 30))), dst}
	}},
	{"Surrogate", func(d *Draws, c Caller) Outcome {
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
		opt, scale := d.lossOptions(), d.number(0.5)
		if opt.Policy.Traits().Unweighted && !d.err() {
			weights = nil
		}
		if !opt.Policy.Traits().AnyValues {
			for _, x := range [][]float32{logprobs, old, advantages, weights} {
				for i, v := range x {
					if v-v != 0 && d.IntN(200) > 0 { // an error, or masked
						x[i] = 1
					}
				}
			}
		}
		q, err := c.Surrogate(grad, logprobs, old, advantages, weights, role, scale, opt)
		return Outcome{err, q, grad}
	}},
}

// logprobs returns log-probabilities of two policies: most ratios are not far from 1,
// some are at the clamp, and some are of any two values.
func (d *Draws) logprobs(n int) (now, old []float32) {
	now, old = d.floats(n), d.floats(n)
	for i := range old {
		if d.IntN(10) > 0 {
			old[i] = now[i] - float32(d.IntN(2))*one[float32](d, 0, 0.2, -0.2, 0.28, 20, -20, 20.000002, -20.000002) -
				float32(d.IntN(2))*float32(0.1*d.NormFloat64())
		}
	}
	return now, old
}

func (d *Draws) weights(n int) []float32 {
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

// lossOptions are any; for a device, those of PPO.
func (d *Draws) lossOptions() reweight.LossOptions {
	if !d.device && d.IntN(3) > 0 {
		return d.policyOptions()
	}
	p := reweight.DefaultLoss.Policy.(reweight.PPO)
	if d.IntN(2) == 0 {
		p = reweight.PPO{ClipLow: one(d, 0, 0.2, 1), ClipHigh: one(d, 0, 0.28, 1e30), DualClip: one(d, 0, 3, 1.0000001)}
	}
	if d.IntN(2) == 0 {
		p.ClipLow, p.ClipHigh = d.number(p.ClipLow), d.number(p.ClipHigh)
	}
	if p.ClipLow == 0 && p.ClipHigh == 0 {
		p.ClipHigh = 0.28
	}
	return reweight.LossOptions{Policy: p, Aggregation: reweight.Aggregation(d.IntN(4)),
		NormLength: one(d, 0, 0, 1, 100)}
}
