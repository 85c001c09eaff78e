package policy

import (
	"math"
	"testing"
)

// one returns a function of slices as one of numbers.
func one(f func(x []float32)) func(x float32) float32 {
	x := make([]float32, 1)
	return func(y float32) float32 {
		x[0] = y
		f(x)
		return x[0]
	}
}

var (
	sigmoid = one(func(x []float32) { addSigmoid(x, []float32{0}) })
	tanh    = one(tanhs)
)

// The largest errors are those that the comments state, in units in the last
// place of the float32 nearest to the true value.
func TestActivation(t *testing.T) {
	const stride = 3001 // of the bits of float32
	for _, c := range []struct {
		name   string
		got    func(float32) float32
		want   func(float64) float64
		limits [2]float32 // of x, beyond which the result is constant
		most   float64
	}{
		{"exp", exp, math.Exp, [2]float32{-87, 87}, 1.1},
		{"sigmoid", sigmoid, func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }, [2]float32{-87, 87}, 2.6},
		{"tanh", tanh, math.Tanh, [2]float32{-10, 10}, 2.6},
	} {
		var worst float64
		var at float32
		for bits := uint64(0); bits < 1<<32; bits += stride {
			x := math.Float32frombits(uint32(bits))
			if !(c.limits[0] <= x && x <= c.limits[1]) {
				continue
			}
			want := c.want(float64(x))
			ulp := float64(math.Nextafter32(float32(math.Abs(want)), 2e38)) - float64(float32(math.Abs(want)))
			if e := math.Abs(float64(c.got(x))-want) / ulp; e > worst {
				worst, at = e, x
			}
		}
		t.Logf("%s: error at most %.3f ulp, at %v", c.name, worst, at)
		if !(worst < c.most) {
			t.Errorf("%s: error %v ulp at %v, want less than %v", c.name, worst, at, c.most)
		}
		if x := c.got(float32(math.NaN())); x == x {
			t.Errorf("%s(NaN) = %v", c.name, x)
		}
	}

	inf := float32(math.Inf(1))
	for _, c := range []struct {
		got  func(float32) float32
		x    float32
		want float32
	}{
		{exp, -inf, 0}, {exp, -88, 0}, {exp, 0, 1},
		{sigmoid, -inf, 0}, {sigmoid, -88, 0}, {sigmoid, 0, 0.5}, {sigmoid, 88, 1}, {sigmoid, inf, 1},
		{tanh, -inf, -1}, {tanh, -11, -1}, {tanh, 0, 0}, {tanh, 11, 1}, {tanh, inf, 1},
	} {
		if got := c.got(c.x); got != c.want {
			t.Errorf("f(%v) = %v, want %v", c.x, got, c.want)
		}
	}
}
