package reweight

import (
	"flag"
	"math"
	"math/big"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"
)

// bigLog returns log x to about 200 bits: x = 2^e (1+f)/(1-f) and its series.
func bigLog(x float64) *big.Float {
	const prec = 240
	atanh := func(num, den *big.Float) *big.Float { // of num/den
		s := new(big.Float).SetPrec(prec).Quo(num, den)
		z := new(big.Float).SetPrec(prec).Mul(s, s)
		sum, term := new(big.Float).SetPrec(prec), new(big.Float).SetPrec(prec).Set(s)
		for k := int64(1); term.Sign() != 0 && term.MantExp(nil) > -prec; k += 2 {
			sum.Add(sum, new(big.Float).SetPrec(prec).Quo(term, new(big.Float).SetInt64(k)))
			term.Mul(term, z)
		}
		return sum.Mul(sum, big.NewFloat(2))
	}
	m, e := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m, e = 2*m, e-1
	}
	bm, one := new(big.Float).SetPrec(prec).SetFloat64(m), big.NewFloat(1)
	r := atanh(new(big.Float).SetPrec(prec).Sub(bm, one), new(big.Float).SetPrec(prec).Add(bm, one))
	ln2 := atanh(big.NewFloat(1), big.NewFloat(3))
	return r.Add(r, new(big.Float).SetPrec(prec).Mul(ln2, new(big.Float).SetInt64(int64(e))))
}

// bigExp returns e^x to about 200 bits, for |x| < 1000.
func bigExp(x float64) *big.Float {
	const prec = 300
	r := new(big.Float).SetPrec(prec).SetFloat64(math.Ldexp(x, -20))
	sum, term := big.NewFloat(1).SetPrec(prec), big.NewFloat(1).SetPrec(prec)
	for k := int64(1); k < 60 && term.Sign() != 0; k++ {
		term.Mul(term, r)
		term.Quo(term, new(big.Float).SetInt64(k))
		sum.Add(sum, term)
	}
	for range 20 {
		sum.Mul(sum, sum)
	}
	return sum
}

// ulps returns |got - want| in units in the last place of want as a float64.
func ulps(got float64, want *big.Float) float64 {
	w, _ := want.Float64()
	d := new(big.Float).SetPrec(300).Sub(new(big.Float).SetFloat64(got), want)
	f, _ := d.Float64()
	return math.Abs(f) / (math.Nextafter(math.Abs(w), math.Inf(1)) - math.Abs(w))
}

func TestLog64(t *testing.T) {
	for _, x := range []float64{1, math.E, 2, 0.5, math.Sqrt2, math.Nextafter(1, 2), math.Nextafter(1, 0), 5e-324,
		math.MaxFloat64, 151936} {
		if u := ulps(log64(x), bigLog(x)); u > 1 && x != 1 {
			t.Errorf("log64(%v) is off by %.2f ulp", x, u)
		}
	}
	if log64(1) != 0 {
		t.Errorf("log64(1) = %v, want 0", log64(1))
	}
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.Float64Range(1e-300, 1e300).Draw(t, "x")
		if rapid.Bool().Draw(t, "near 1") {
			x = rapid.Float64Range(0.5, 2).Draw(t, "x")
		}
		if x == 1 {
			return
		}
		if u := ulps(log64(x), bigLog(x)); u > 1 {
			t.Fatalf("log64(%v) is off by %.2f ulp", x, u)
		}
	})
}

func TestExp64(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.Float64Range(-700, 700).Draw(t, "x")
		if u := ulps(exp64(x), bigExp(x)); u > 1 {
			t.Fatalf("exp64(%v) is off by %.2f ulp", x, u)
		}
	})
	for _, c := range []struct{ x, want float64 }{{0, 1}, {math.Inf(-1), 0}, {math.Inf(1), math.Inf(1)}, {-800, 0},
		{800, math.Inf(1)}} {
		if got := exp64(c.x); got != c.want {
			t.Errorf("exp64(%v) = %v, want %v", c.x, got, c.want)
		}
	}
	if !math.IsNaN(exp64(math.NaN())) {
		t.Error("exp64(NaN) is not NaN")
	}
}

func TestK3(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.Float64Range(-20, 20).Draw(t, "x")
		if rapid.Bool().Draw(t, "small") {
			x = rapid.Float64Range(1e-9, 1e-3).Draw(t, "x")
		}
		if math.Abs(x) < 1e-9 { // too small for bigExp's bits
			x = 1e-9
		}
		want := bigExp(x)
		want.Sub(want, big.NewFloat(1)).Sub(want, new(big.Float).SetFloat64(x))
		w, _ := want.Float64()
		if got := k3(x); math.Abs(got-w) > 4e-15*w {
			t.Fatalf("k3(%v) = %v, want %v", x, got, w)
		}
	})
}

// exactFMA rounds x*y + z once, by way of exact arithmetic.
func exactFMA(x, y, z float32) float32 {
	b := func(f float32) *big.Float { return new(big.Float).SetPrec(2000).SetFloat64(float64(f)) }
	p := b(x)
	p.Mul(p, b(y)).Add(p, b(z))
	f, _ := p.Float32()
	return f
}

func TestFMA32(t *testing.T) {
	check := func(t interface{ Fatalf(string, ...any) }, x, y, z float32) {
		if got, want := fma32(x, y, z), exactFMA(x, y, z); got != want {
			t.Fatalf("fma32(%x, %x, %x) = %x, want %x", x, y, z, got, want)
		}
	}
	// Sums that sit on or next to a midpoint of two float32, normal or not,
	// where rounding twice goes wrong.
	for _, z := range []float32{1, -1, 1 + 0x1p-23, 0x1p-126, 0x1p-127, 0x1.8p-130, -0x1p-140} {
		ulp := math.Nextafter32(z, 2*z) - z
		for _, side := range []float32{0, 0x1p-23, -0x1p-23} {
			check(t, ulp, 0.5*(1+side), z)
			check(t, -ulp, 0.5*(1+side), z)
			check(t, ulp*0.5, 0x1p-60, math.Nextafter32(z, 0))
		}
	}
	for _, tiny := range []float32{0x1p-60, -0x1p-60} { // z + midpoint + tiny, as x*y + z with x*y = 2^-24 + tiny
		x, y := float32(0x1p-12), float32(0x1p-12)
		if tiny > 0 {
			y = math.Nextafter32(y, 1)
		} else {
			y = math.Nextafter32(y, 0)
		}
		check(t, x, y, 1)
		check(t, x, y, 1+0x1p-23)
	}
	any32 := rapid.Custom(func(t *rapid.T) float32 {
		f := math.Float32frombits(rapid.Uint32().Draw(t, "bits"))
		if f-f != 0 {
			return 0
		}
		return f
	})
	rapid.Check(t, func(t *rapid.T) {
		x, y := any32.Draw(t, "x"), any32.Draw(t, "y")
		z := any32.Draw(t, "z")
		if rapid.Bool().Draw(t, "tie") { // z so that the product meets half of its last place
			z = float32(math.Ldexp(float64(z-z+1),
				int(math.Floor(math.Log2(math.Abs(float64(x)*float64(y))+1e-300)))+24))
		}
		check(t, x, y, z)
	})
	inf := float32(math.Inf(1))
	for _, c := range [][3]float32{{inf, 1, 0}, {1, 1, -inf}, {inf, 0, 1}, {inf, 1, -inf}} {
		got, want := fma32(c[0], c[1], c[2]), float32(math.FMA(float64(c[0]), float64(c[1]), float64(c[2])))
		if got != want && !(got != got && want != want) {
			t.Errorf("fma32%v = %v, want %v", c, got, want)
		}
	}
}

// TestExp2 samples float32 over the whole range; the bound is exp2's contract.
func TestExp2(t *testing.T) {
	worst := 0.0
	for y := float32(minY); y <= maxY; y += 0x1.3p-10 {
		worst = max(worst, math.Abs(float64(exp2(y))/math.Exp2(float64(y))-1))
	}
	if worst > 1.57e-7 {
		t.Errorf("relative error %.3g, want at most 1.57e-7", worst)
	}
	if exp2(0) != 1 || exp2(-125) != 0x1p-125 || exp2(3) != 8 {
		t.Error("2^0, 2^-125 and 2^3 are not exact")
	}
	if y := exp2(float32(math.NaN())); y == y {
		t.Errorf("exp2(NaN) = %v", y)
	}
}

func TestFormats(t *testing.T) {
	for u := range 1 << 16 {
		b := BF16(u)
		f := b.Float32()
		if back := ToBF16(f); f == f && back != b || f != f && back.Float32() == back.Float32() {
			t.Fatalf("bfloat16 %#x goes to %v and back to %#x", u, f, uint16(back))
		}
		h := F16(u).Float32()
		exp, frac := u>>10&31, float64(u&1023)
		want := math.Ldexp(1024+frac, exp-25)
		if exp == 0 {
			want = math.Ldexp(frac, -24)
		}
		if exp == 31 {
			want = math.Inf(1)
		}
		if u>>15 == 1 {
			want = -want
		}
		if nan := exp == 31 && frac != 0; nan != (h != h) || !nan && float64(h) != want {
			t.Fatalf("float16 %#x = %v, want %v", u, h, want)
		}
	}
	for _, c := range []struct {
		f    float32
		want BF16
	}{{1 + 0x1p-8, 0x3f80}, {1 + 0x1.8p-7, 0x3f82}, {1 + 0x1p-8 + 0x1p-20, 0x3f81}, {math.MaxFloat32, 0x7f80},
		{float32(math.Copysign(0, -1)), 0x8000}} {
		if got := ToBF16(c.f); got != c.want {
			t.Errorf("ToBF16(%x) = %#x, want %#x", c.f, uint16(got), uint16(c.want))
		}
	}
}

var exhaustive = flag.Bool("exhaustive", false, "try every float32, not a sample: a minute or two")

// TestExp2Everywhere compares 2^y with float64 on every instruction set, for every
// float32 y in range (one in 4,099 without -exhaustive), and each instruction set
// with the portable one bit for bit:
//
//	go test -run TestExp2Everywhere -exhaustive -v .
func TestExp2Everywhere(t *testing.T) {
	const batch = 1 << 16
	step := uint32(4099)
	if *exhaustive {
		step = 1
	}
	type span struct{ from, to uint32 } // bits of the values of one sign
	var worst, tried atomic.Uint64      // the worst error, as float64 bits
	run := func(s span) {
		x, got := make([]float32, 0, batch), make([]float32, batch)
		want := make([]float32, batch)
		flush := func() {
			for i, y := range x {
				want[i] = exp2(y)
				e := math.Abs(float64(want[i])/math.Exp2(float64(y)) - 1)
				for old := worst.Load(); e > math.Float64frombits(old) &&
					!worst.CompareAndSwap(old, math.Float64bits(e)); old = worst.Load() {
				}
			}
			for _, isa := range AvailableISAs() {
				var sum laneSum
				isa.expScale(got[:len(x)], x, 0, 1, &sum)
				if err := sameBits(got[:len(x)], want); err != nil {
					t.Errorf("%v: after %v: %v", isa, x[0], err)
					return
				}
			}
			tried.Add(uint64(len(x)))
			x = x[:0]
		}
		for b := s.from; b < s.to; b += step {
			if x = append(x, math.Float32frombits(b)); len(x) == batch {
				flush()
			}
		}
		flush()
	}
	var spans []span
	const sign, cut = 1 << 31, 1 << 24
	for b := uint32(0); b <= math.Float32bits(maxY); b += cut {
		spans = append(spans, span{b, min(b+cut, math.Float32bits(maxY)+1)})
	}
	for b := uint32(sign); b <= math.Float32bits(minY); b += cut {
		spans = append(spans, span{b, min(b+cut, math.Float32bits(minY)+1)})
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := next.Add(1) - 1; int(i) < len(spans); i = next.Add(1) - 1 {
				run(spans[i])
			}
		})
	}
	wg.Wait()
	e := math.Float64frombits(worst.Load())
	t.Logf("%d values, largest relative error %.4g", tried.Load(), e)
	if e > 1.57e-7 {
		t.Errorf("relative error %.4g, want at most 1.57e-7", e)
	}
}

// TestConstantsAMD64 holds the float32 constants of exp2_amd64.h against those that
// the portable kernels have.
func TestConstantsAMD64(t *testing.T) {
	header, err := os.ReadFile("exp2_amd64.h")
	if err != nil {
		t.Fatal(err)
	}
	bits := map[string]uint64{}
	for _, m := range regexp.MustCompile(`(?m)^VECTOR\((\w+), (0x[0-9a-f]{8})\)`).FindAllStringSubmatch(
		string(header), -1) {
		if bits[m[1]], err = strconv.ParseUint(m[2], 0, 32); err != nil {
			t.Error(err)
		}
	}
	for name, want := range map[string]float32{
		"exp2C1": exp2C1, "exp2C2": exp2C2, "exp2C3": exp2C3, "exp2C4": exp2C4, "exp2C5": exp2C5,
		"twiceC1": 2 * exp2C1, "twiceC2": 2 * exp2C2, "twiceC3": 2 * exp2C3, "twiceC4": 2 * exp2C4, "twiceC5": 2 * exp2C5,
		"magic": magic, "magic126": magic + 126, "minY": minY, "maxY": maxY, "log2E32": log2E32, "squaresFrom": squaresFrom,
		"one": 1, "two": 2,
		"posInf": float32(math.Inf(1)), "negInf": float32(math.Inf(-1)),
		"minLogRatio": -20, "maxLogRatio": 20, "signBit": float32(math.Copysign(0, -1)),
	} {
		if got, ok := bits[name]; !ok || uint32(got) != math.Float32bits(want) {
			t.Errorf("exp2_amd64.h has %#x for %s, want %#x", got, name, math.Float32bits(want))
		}
		delete(bits, name)
	}
	for name := range bits {
		t.Errorf("exp2_amd64.h has %s, which this test does not know", name)
	}
}
