package reweight

import (
	"flag"
	"math"
	"runtime"
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
