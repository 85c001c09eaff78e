package reweight

import (
	"flag"
	"math"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
)

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
				for old := worst.Load(); e > math.Float64frombits(old) && !worst.CompareAndSwap(old, math.Float64bits(e)); old = worst.Load() {
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
	for _, m := range regexp.MustCompile(`(?m)^VECTOR\((\w+), (0x[0-9a-f]{8})\)`).FindAllStringSubmatch(string(header), -1) {
		if bits[m[1]], err = strconv.ParseUint(m[2], 0, 32); err != nil {
			t.Error(err)
		}
	}
	for name, want := range map[string]float32{
		"exp2C1": exp2C1, "exp2C2": exp2C2, "exp2C3": exp2C3, "exp2C4": exp2C4, "exp2C5": exp2C5,
		"twiceC1": 2 * exp2C1, "twiceC2": 2 * exp2C2, "twiceC3": 2 * exp2C3, "twiceC4": 2 * exp2C4, "twiceC5": 2 * exp2C5,
		"magic": magic, "magic126": magic + 126, "minY": minY, "maxY": maxY, "log2E32": log2E32,
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
