package gpu_test

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/gpu"
	"github.com/seed621a2839/reweight/internal/must"
	"github.com/seed621a2839/reweight/internal/testgpu"
)

// The tests of the kernels on tokens compare the bits of every output with those of
// package reweight's plain Go. The interpreter sees every access outside of an array,
// so that arrays end where their memory ends; outputs have guards on both sides.

var tokenRounds = flag.Int("token_rounds", 60, "rounds of each test of the kernels on tokens")

// edges are values at the edges of what the kernels do.
var edges = []uint32{
	0, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00001, 0x7f800001, // zeros, infinities, NaN, signalling NaN
	1, 0x807fffff, 0x00800000, 0x7f7fffff, 0xff7fffff, 0x3f800000, 0xbf800000, // subnormal, smallest, largest, 1
	0x41a00000, 0x41a00001, 0x419fffff, 0xc1a00000, 0xc1a00001, 0xc19fffff, // 20
	0x42f00000, 0x42f00001, 0x42efffff, 0xc2fa0000, 0xc2fa0001, 0xc2f9ffff, // bounds of exponents
}

// draws make values of one kind for a whole round.
var draws = []func(r *rand.Rand) float32{
	func(r *rand.Rand) float32 { return float32(3 * r.NormFloat64()) },
	func(r *rand.Rand) float32 { return float32(100 * r.NormFloat64()) },
	func(r *rand.Rand) float32 { return math.Float32frombits(r.Uint32()) },
	func(r *rand.Rand) float32 { return math.Float32frombits(edges[r.IntN(len(edges))]) },
	func(r *rand.Rand) float32 { return math.Float32frombits(edges[r.IntN(2)]) },
	func(r *rand.Rand) float32 {
		if r.IntN(50) == 0 {
			return math.Float32frombits(edges[r.IntN(len(edges))])
		}
		return float32(3 * r.NormFloat64())
	},
	near,
}

// near makes values that differ little from each other.
func near(r *rand.Rand) float32 { return float32(5.3 + 0.01*r.NormFloat64()) }

// finiteDraws make finite values only.
var finiteDraws = []func(r *rand.Rand) float32{draws[0], draws[1], draws[4], near}

// A tokenTest is a device on which kernels and package reweight do the same.
type tokenTest struct {
	*testing.T
	*rand.Rand
	dev  *gpu.Device
	ws   *gpu.Workspace
	cpu  reweight.Workspace
	held []*held // of the round at hand

	aligned bool // whether the arrays of the round at hand are, to 64 bytes
}

// A held is an array on the device.
type held struct {
	base, p gpu.Ptr
	bytes   []byte // what it held at first
	guarded bool   // memory for an output, with guards around it
	written bool   // by a kernel
}

// newTokenTest opens a device. The seed chooses what is drawn.
func newTokenTest(t *testing.T, seed uint64) *tokenTest {
	t.Helper()
	dev := testgpu.Device(t)
	ws := must.Get(dev.NewWorkspace(0, gpu.Size{Tokens: 5000, Trajectories: 300, Spans: 5000}))
	t.Cleanup(func() {
		if err := ws.Close(); err != nil {
			t.Error(err)
		}
	})
	return &tokenTest{T: t, Rand: rand.New(rand.NewPCG(seed, 1)), dev: dev, ws: ws, cpu: reweight.Workspace{ISA: reweight.Portable, Workers: 1}}
}

// rounds calls f with a device again and again, and looks after each call at what it
// must not have changed.
func rounds(t *testing.T, n int, f func(t *tokenTest)) {
	t.Parallel()
	if testing.Short() {
		n = max(1, n/10)
	}
	const perDevice = 20 // rounds on a device, which orders threads in its own way
	for first := 0; first < n && !t.Failed(); first += perDevice {
		t.Run(fmt.Sprint("seed ", first/perDevice), func(t *testing.T) {
			test := newTokenTest(t, uint64(first/perDevice))
			for range min(perDevice, n-first) {
				test.aligned = test.IntN(2) == 0
				f(test)
				test.release()
			}
		})
	}
}

// array copies x to device memory: in half of the rounds to any address that its
// elements allow, in the other half to one that is a multiple of 64. It ends where its
// memory ends, and in front of it nothing is set.
func array[E any](t *tokenTest, x []E) gpu.Ptr {
	t.Helper()
	if len(x) == 0 {
		return 0
	}
	var e E
	return t.hold(bytesOf(x), t.IntN(8)*int(unsafe.Sizeof(e)), false)
}

// output returns memory for n elements that a kernel is to fill.
func output[E any](t *tokenTest, n int) gpu.Ptr {
	t.Helper()
	var e E
	return t.hold(make([]byte, n*int(unsafe.Sizeof(e))), t.IntN(8)*int(unsafe.Sizeof(e)), true)
}

// overwrite returns p, an array of the round that a kernel is to fill.
func (t *tokenTest) overwrite(p gpu.Ptr) gpu.Ptr {
	for _, h := range t.held {
		if h.p == p {
			h.written = true
		}
	}
	return p
}

func (t *tokenTest) hold(bytes []byte, before int, guarded bool) gpu.Ptr {
	t.Helper()
	h := &held{bytes: slices.Clone(bytes), guarded: guarded, written: guarded}
	if t.aligned {
		before = 0
	}
	behind := 0
	if guarded {
		before, behind = before+margin, margin
	}
	var err error
	if h.base, err = t.dev.Alloc(max(1, before+len(bytes)+behind)); err != nil {
		t.Fatal(err)
	}
	h.p = h.base + gpu.Ptr(before)
	t.held = append(t.held, h)
	t.upload(h.p, h.bytes)
	if guarded {
		t.upload(h.p-margin, guards)
		t.upload(h.p+gpu.Ptr(len(bytes)), guards)
	}
	return h.p
}

var guards = slices.Repeat([]byte{filling}, margin)

func (t *tokenTest) upload(p gpu.Ptr, bytes []byte) {
	t.Helper()
	must.Do(gpu.Upload(t.dev, p, bytes, 0))
}

// read returns n elements from p on.
func readArray[E any](t *tokenTest, p gpu.Ptr, n int) []E {
	t.Helper()
	x := make([]E, n)
	if n == 0 {
		return x
	}
	must.Do(gpu.Download(t.dev, x, p, 0))
	return x
}

// release frees the arrays of a round. Inputs and guards must be as they were.
func (t *tokenTest) release() {
	t.Helper()
	for _, h := range t.held {
		if !h.written && !slices.Equal(readArray[byte](t, h.p, len(h.bytes)), h.bytes) {
			t.Errorf("an input of %d bytes has changed", len(h.bytes))
		}
		if h.guarded && !slices.Equal(readArray[byte](t, h.p-margin, margin), guards) {
			t.Errorf("something is written in front of an output of %d bytes", len(h.bytes))
		}
		if h.guarded && !slices.Equal(readArray[byte](t, h.p+gpu.Ptr(len(h.bytes)), margin), guards) {
			t.Errorf("something is written behind an output of %d bytes", len(h.bytes))
		}
		must.Do(t.dev.Free(h.base))
	}
	t.held = t.held[:0]
}

// check wants the error of the device to be that of the CPU.
func (t *tokenTest) check(what string, queued, want error) {
	t.Helper()
	if queued != nil {
		t.Fatalf("%s: %v, want no error before the device is asked", what, queued)
	}
	err := t.ws.Check()
	if fmt.Sprint(err) != fmt.Sprint(want) {
		t.Fatalf("%s: error %v, want %v", what, err, want)
	}
	var input *reweight.InputError
	if err != nil && !errors.As(err, &input) {
		t.Fatalf("%s: %v is no *InputError", what, err)
	}
}

func sameDouble(a, b float64) bool {
	return math.Float64bits(a) == math.Float64bits(b) || a != a && b != b
}

// same wants n floats at p to have the bits of want.
func (t *tokenTest) same(what string, p gpu.Ptr, want []float32) {
	t.Helper()
	for i, v := range readArray[float32](t, p, len(want)) {
		if !same(v, want[i]) {
			t.Fatalf("%s: element %d of %d is %x, want %x", what, i, len(want), v, want[i])
		}
	}
}

// allNaN wants n floats at p to be NaN.
func (t *tokenTest) allNaN(what string, p gpu.Ptr, n int) {
	t.Helper()
	want := make([]float32, n)
	for i := range want {
		want[i] = float32(math.NaN())
	}
	t.same(what, p, want)
}

func (t *tokenTest) floats(n int, draw func(r *rand.Rand) float32) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = draw(t.Rand)
	}
	return x
}

// draw returns one of the kinds of values.
func (t *tokenTest) draw() func(r *rand.Rand) float32 { return pickOne(t, draws...) }

func pickOne[E any](t *tokenTest, x ...E) E { return x[t.IntN(len(x))] }

// n draws a number of tokens: mostly a few, or near the end of a group or of what a CTA
// stages at a time.
func (t *tokenTest) n() int {
	switch t.IntN(8) {
	case 0:
		return 1 + t.IntN(5000)
	case 1, 2:
		return pickOne(t, 16, 128, 1024, 2048, 4096) + t.IntN(40) - 15
	case 3:
		return 1 + t.IntN(3)
	}
	return 1 + t.IntN(300)
}

// roles are those of tokens, in any mix.
func (t *tokenTest) roles(n int) []reweight.Role {
	role := make([]reweight.Role, n)
	masked, action := pickOne(t, 0, 0.1, 0.5, 0.95, 1), pickOne(t, 0, 0.1, 0.5, 1)
	for i := range role {
		switch {
		case t.Float64() < masked:
		case t.Float64() < action:
			role[i] = reweight.RoleAction
		default:
			role[i] = reweight.RoleReasoning
		}
	}
	return role
}

// spoilRole makes a role wrong, sometimes.
func (t *tokenTest) spoilRole(role []reweight.Role) {
	if t.IntN(6) == 0 {
		role[t.IntN(len(role))] = reweight.Role(3 + t.IntN(253))
	}
}

func TestMultiplyBits(t *testing.T) {
	rounds(t, *tokenRounds, func(t *tokenTest) {
		a, b := t.floats(t.n(), t.draw()), t.floats(5000, t.draw())
		b = b[:len(a)]
		want := make([]float32, len(a))
		must.Do(t.cpu.Multiply(want, a, b))
		pa, pb := array(t, a), array(t, b)
		dst := []func() gpu.Ptr{
			func() gpu.Ptr { return output[float32](t, len(a)) },
			func() gpu.Ptr { return t.overwrite(pa) },
			func() gpu.Ptr { return t.overwrite(pb) },
		}[t.IntN(3)]()
		t.check("Multiply", t.ws.Multiply(dst, pa, pb, len(a)), nil)
		t.same("product", dst, want)
	})
}

func (t *tokenTest) sameMoments(p gpu.Ptr, want reweight.Moments) {
	t.Helper()
	got := readArray[reweight.Moments](t, p, 1)[0]
	if got.N != want.N || !sameDouble(got.Sum, want.Sum) || !sameDouble(got.Squares, want.Squares) {
		t.Fatalf("moments %+v, want %+v", got, want)
	}
}

func TestMaskedMomentsBits(t *testing.T) {
	rounds(t, *tokenRounds, func(t *tokenTest) {
		x := t.floats(t.n(), t.draw())
		role := t.roles(len(x))
		t.spoilRole(role)
		roles, shift := reweight.RoleSet(t.Uint32()), pickOne(t, 0, t.NormFloat64(), 1e30)
		want, err := t.cpu.MaskedMoments(x, role, roles, shift)
		if err != nil {
			want = reweight.Moments{Sum: math.NaN(), Squares: math.NaN()}
		}
		result := output[reweight.Moments](t, 1)
		t.check("MaskedMoments", t.ws.MaskedMoments(result, array(t, x), array(t, role), len(x), roles, shift), err)
		t.sameMoments(result, want)
	})
}

func TestWhitenBits(t *testing.T) {
	rounds(t, *tokenRounds, func(t *tokenTest) {
		draw := t.draw()
		if t.IntN(2) == 0 {
			draw = pickOne(t, finiteDraws...)
		}
		x := t.floats(t.n(), draw)
		role := t.roles(len(x))
		t.spoilRole(role)
		want := make([]float32, len(x))
		err := t.cpu.Whiten(want, x, role)
		px := array(t, x)
		dst := px
		if t.IntN(2) == 0 {
			dst = output[float32](t, len(x))
		}
		t.check("Whiten", t.ws.Whiten(t.overwrite(dst), px, array(t, role), len(x)), err)
		if err != nil {
			t.allNaN("white values", dst, len(x))
		} else {
			t.same("white values", dst, want)
		}
	})
}

// actFocusOptions are any that are right.
func (t *tokenTest) actFocusOptions() reweight.ActFocusOptions {
	if t.IntN(3) == 0 {
		return reweight.DefaultActFocus
	}
	return reweight.ActFocusOptions{Alpha: t.Float64(), Beta: pickOne(t, 0, t.Float64(), 1e30), Eps: pickOne(t, 0, 1e-8, t.Float64(), 1e38)}
}

func TestActFocusWeightsBits(t *testing.T) {
	rounds(t, *tokenRounds, func(t *tokenTest) {
		x := t.floats(t.n(), t.draw())
		role := t.roles(len(x))
		mean, sigma := pickOne(t, 0, t.NormFloat64(), 1e30, float64(x[0])), pickOne(t, 0, t.Float64(), 1e-40, 1e30)
		if mean-mean != 0 {
			mean = 1
		}
		opt := t.actFocusOptions()
		want := make([]float32, len(x))
		must.Do(t.cpu.ActFocusWeights(want, x, role, mean, sigma, opt))
		t.spoilRole(role)
		err := t.cpu.ActFocusWeights(make([]float32, len(x)), x, role, mean, sigma, opt)
		for i, r := range role {
			if r > reweight.RoleAction {
				want[i] = float32(math.NaN())
			}
		}
		px := array(t, x)
		dst := px
		if t.IntN(2) == 0 {
			dst = output[float32](t, len(x))
		}
		t.check("ActFocusWeights", t.ws.ActFocusWeights(t.overwrite(dst), px, array(t, role), len(x), mean, sigma, opt), err)
		t.same("weights", dst, want)
	})
}

func TestActFocusBits(t *testing.T) {
	rounds(t, 2**tokenRounds, func(t *tokenTest) {
		draw, n := t.draw(), t.n()
		if t.IntN(2) == 0 {
			draw = pickOne(t, finiteDraws...)
		}
		t.actFocus(t.floats(n, draw), t.actFocusOptions(), draw)
	})
}

// TestActFocusOfAlmostOneValue: where all values but one are alike, the rounding error of
// their mean shows in sigma.
func TestActFocusOfAlmostOneValue(t *testing.T) {
	rounds(t, *tokenRounds/2, func(t *tokenTest) {
		x := make([]float32, 2000+t.IntN(3000))
		x[0] = near(t.Rand)
		for i := range x {
			x[i] = x[0]
		}
		x[t.IntN(len(x))] = math.Nextafter32(x[0], 0)
		t.actFocus(x, reweight.ActFocusOptions{Alpha: 0.1, Beta: 0.5}, near)
	})
}

// actFocus compares the weights of a signal made of x, and of values of draw if it needs
// two arrays.
func (t *tokenTest) actFocus(x []float32, opt reweight.ActFocusOptions, draw func(r *rand.Rand) float32) {
	t.Helper()
	n := len(x)
	b := reweight.Batch{Role: t.roles(n)}
	// What masked and reasoning tokens have does not matter.
	for i, r := range b.Role {
		if r != reweight.RoleAction && t.IntN(3) == 0 {
			x[i] = float32(math.Inf(t.IntN(2)*2 - 1))
		}
	}
	opt.Signal = reweight.Signal(t.IntN(4))
	var d gpu.Batch
	inputs := []gpu.Ptr{0}
	switch opt.Signal {
	case reweight.SignalEnergy:
		b.RefEnergy, d.RefEnergy = x, array(t, x)
		inputs = append(inputs, d.RefEnergy)
	case reweight.SignalRefEntropy:
		b.RefEntropy, d.RefEntropy = x, array(t, x)
		inputs = append(inputs, d.RefEntropy)
	case reweight.SignalLogRatio:
		b.RefLogprobs = t.floats(n, pickOne(t, draw, draws[0]))
		d.RefLogprobs = array(t, b.RefLogprobs)
		inputs = append(inputs, d.RefLogprobs)
		fallthrough
	default:
		b.OldLogprobs, d.OldLogprobs = x, array(t, x)
		inputs = append(inputs, d.OldLogprobs)
	}
	t.spoilRole(b.Role)
	d.Tokens, d.Role = n, array(t, b.Role)
	want := make([]float32, n)
	wantResult, err := t.cpu.ActFocus(want, &b, opt)
	weights := pickOne(t, inputs...)
	if weights == 0 {
		weights = output[float32](t, n)
	}
	result := output[reweight.ActFocusResult](t, 1)
	t.check("ActFocus", t.ws.ActFocus(t.overwrite(weights), result, &d, opt), err)
	got := readArray[reweight.ActFocusResult](t, result, 1)[0]
	if err != nil {
		wantResult = reweight.ActFocusResult{Mean: math.NaN(), Sigma: math.NaN()}
		t.allNaN("weights", weights, n)
	} else {
		t.same("weights", weights, want)
	}
	if got.Actions != wantResult.Actions || !sameDouble(got.Mean, wantResult.Mean) || !sameDouble(got.Sigma, wantResult.Sigma) {
		t.Fatalf("%v: %+v, want %+v", opt.Signal, got, wantResult)
	}
}

// TestTokenArguments: what the host can see is an error before anything is queued.
func TestTokenArguments(t *testing.T) {
	ws := newTokenTest(t, 0).ws
	const p = 4096 // an address; nothing is there
	b := gpu.Batch{Tokens: 10, Trajectories: 2, Role: p, SeqOffsets: p, Logprobs: p, OldLogprobs: p, RefLogprobs: p, Advantages: p, RefEnergy: p}
	with := func(change func(b *gpu.Batch)) *gpu.Batch {
		c := b
		change(&c)
		return &c
	}
	focus := func(signal reweight.Signal) reweight.ActFocusOptions {
		return reweight.ActFocusOptions{Beta: 1, Signal: signal}
	}
	loss := reweight.DefaultLoss
	byTrajectory := loss
	byTrajectory.Aggregation = reweight.SeqMeanTokenSum
	noClip := loss
	noClip.ClipLow = 2
	for _, c := range []struct {
		err  error
		want string
	}{
		{ws.Multiply(p, p, p, -1), "n is -1, want at least 0"},
		{ws.Multiply(p, p+2, p, 1), "a is 0x1002, want a multiple of 4, the size of its elements"},
		{ws.MaskedMoments(0, p, p, 1, 0, 0), "result is 0, want an address in device memory"},
		{ws.MaskedMoments(p+4, p, p, 1, 0, 0), "result is 0x1004, want a multiple of 8, the size of its elements"},
		{ws.MaskedMoments(p, 0, p, 1, 0, 0), "x is 0, want an address in device memory"},
		{ws.MaskedMoments(p, p, p, 1, 0, math.Inf(1)), "shift is +Inf, want a finite number"},
		{ws.ActFocusWeights(p, p, 0, 1, 0, 0, focus(0)), "role is 0, want an address in device memory"},
		{ws.ActFocusWeights(p, p, p, 1, 0, -1, focus(0)), "sigma is -1, want 0 to 3.4e38"},
		{ws.ActFocusWeights(p, p, p, 1, 0, 0, reweight.ActFocusOptions{Alpha: 2}), "Alpha is 2, want 0 to 1"},
		{ws.ActFocus(p, p, &b, reweight.ActFocusOptions{}), "Alpha is 0 like Beta, want one that is not 0, as in DefaultActFocus"},
		{ws.ActFocus(p, 0, &b, focus(0)), "result is 0, want an address in device memory"},
		{ws.ActFocus(p, p, with(func(b *gpu.Batch) { b.Tokens = -1 }), focus(0)), "Tokens is -1, want at least 0"},
		{ws.ActFocus(p, p, &b, focus(reweight.SignalRefEntropy)), "RefEntropy is 0, want an address in device memory"},
		{ws.ActFocus(p, p, with(func(b *gpu.Batch) { b.RefLogprobs = 0 }), focus(reweight.SignalLogRatio)), "RefLogprobs is 0, want an address in device memory"},
		{ws.ActFocus(p, p, &b, focus(9)), "Signal is 9, want 0 to 3: one of [energy ref_entropy surprisal log_ratio]"},
		{ws.Whiten(0, p, p, 1), "dst is 0, want an address in device memory"},
		{ws.Surrogate(p, p, p, p, p, 0, p, 5001, 1, loss), "n is 5001, want 0 to 5000, for which the workspace was made"},
		{ws.Surrogate(p, p, p, p, p, p+1, p, 1, 1, loss), "weights is 0x1001, want a multiple of 4, the size of its elements"},
		{ws.Surrogate(p, p, p, p, p, 0, p, 1, math.NaN(), loss), "scale is NaN, want a number that float32 can hold"},
		{ws.Loss(p, p, p, with(func(b *gpu.Batch) { b.Tokens = 5001 }), loss), "Tokens is 5001, want 0 to 5000, for which the workspace was made"},
		{ws.Loss(p, p, p, with(func(b *gpu.Batch) { b.Advantages = 0 }), loss), "Advantages is 0, want an address in device memory"},
		{ws.Loss(p, p, p, with(func(b *gpu.Batch) { b.RefLogprobs = p + 1 }), loss), "RefLogprobs is 0x1001, want a multiple of 4, the size of its elements"},
		{ws.Loss(p, p, p, with(func(b *gpu.Batch) { b.Trajectories = 0 }), byTrajectory), "Trajectories is 0, want at least 1"},
		{ws.Loss(p, p, p, with(func(b *gpu.Batch) { b.Trajectories = 301 }), byTrajectory), "Trajectories is 301, want 0 to 300, for which the workspace was made"},
		{ws.Loss(p, p, p, with(func(b *gpu.Batch) { b.SeqOffsets = 0 }), byTrajectory), "SeqOffsets is 0, want an address in device memory"},
		{ws.Loss(p, p, p, &b, noClip), "ClipLow is 2, want 0 to 1"},
	} {
		var input *reweight.InputError
		if !errors.As(c.err, &input) || input.Error() != "reweight: "+c.want {
			t.Errorf("%v, want %s", c.err, c.want)
		}
	}
	if err := ws.Check(); err != nil {
		t.Errorf("the device says %v", err)
	}
}
