package reweight

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

// lossKernels are the loops of policyLoss, by name.
var lossKernels = map[lossKernel]string{lossSequence: "sequence", lossCISPO: "CISPO", lossSAPO: "SAPO", lossDPPO: "DPPO"}

// lossConsts draws constants of every kernel: those of a loss half the time, and else
// anything.
func (t twin) lossConsts() lossConsts {
	q := lossConsts{scale: 0.5, lo: 0.2, hi: 0.28, cap: 3, value: [2]float32{0.8, 1.2}, slope: [2]float32{0, 1.1}}
	q.rate, q.height = [2]float32{-log2E32, -1.05 * log2E32}, [2]float32{4, 4 / 1.05}
	if t.IntN(2) == 0 {
		q.lo, q.hi, q.linear, q.slope = 0, 5, [2]float32{0.7, 1.3}, [2]float32{0.7, 1.3}
	}
	if t.IntN(2) == 0 {
		for _, x := range []*float32{&q.scale, &q.lo, &q.hi, &q.cap} {
			*x = t.draw(t.Rand)
		}
		for _, x := range []*[2]float32{&q.value, &q.linear, &q.slope, &q.rate, &q.height} {
			*x = [2]float32(t.floats(2))
		}
	}
	for _, x := range []*float32{&q.lo, &q.hi, &q.cap} { // limits are numbers: the options are checked
		if *x != *x {
			*x = 1
		}
	}
	q.clips = [2]int32{int32(t.IntN(2)), int32(t.IntN(2))}
	q.tokenRatio = int32(t.IntN(2))
	return q
}

func TestTwinsOnPolicyLoss(t *testing.T) {
	for kernel, name := range lossKernels {
		t.Run(name, func(t *testing.T) {
			twins(t, func(t twin) {
				for range trials {
					logprobs := t.floats(t.n())
					n := len(logprobs)
					old := t.floats(n)
					near := []float32{0, 0.2, -0.2, 20, -20, 20.000002, -20.000002, 50, -50}
					for i := range old { // most ratios not far from 1, some at the clamp and beyond
						if t.IntN(10) > 0 {
							logprobs[i] = -max(logprobs[i], -logprobs[i]) // mostly at most 0, as they are
							old[i] = logprobs[i] - near[t.IntN(len(near))]*float32(t.IntN(2)) - float32(t.IntN(2))*float32(0.1*t.NormFloat64())
						}
					}
					adv, weights, role := t.floats(n), t.floats(n), t.roles(n)
					for i, r := range role { // what stands at masked tokens does not matter
						if r == RoleMasked && t.IntN(2) == 0 {
							nan := float32(math.NaN())
							logprobs[i], old[i], adv[i], weights[i] = nan, nan, nan, nan
						}
					}
					if t.IntN(3) == 0 {
						weights = nil
					}
					q := t.lossConsts()
					want := make([]float32, n)
					wantSums := surrogateSums{tokens: 5, clipped: 9, loss: laneSum{total: [lanes]float64{3: 0.1}}, logRatio: laneSum{total: [lanes]float64{8: 7}}}
					start := wantSums
					Portable.policyLoss(kernel, want, logprobs, old, adv, weights, role, &q, &wantSums)
					for alias, in := range [][]float32{nil, logprobs, old, adv, weights} {
						if alias > 0 && in == nil {
							continue // no weights
						}
						inputs := [][]float32{t.floats(n), slices.Clone(logprobs), slices.Clone(old), slices.Clone(adv), slices.Clone(weights)}
						got, gotSums := inputs[alias], start
						t.scramble()
						t.isa.policyLoss(kernel, got, inputs[1], inputs[2], inputs[3], inputs[4], role, &q, &gotSums)
						what := fmt.Sprintf("gradient in array %d", alias)
						t.same(what, got, want)
						t.sameSum("loss", &gotSums.loss, &wantSums.loss)
						t.sameSum("log-ratio", &gotSums.logRatio, &wantSums.logRatio)
						if gotSums.tokens != wantSums.tokens || gotSums.clipped != wantSums.clipped {
							t.Fatalf("%d tokens, %d clipped, want %d, %d", gotSums.tokens, gotSums.clipped, wantSums.tokens, wantSums.clipped)
						}
					}
				}
			})
		})
	}
}
