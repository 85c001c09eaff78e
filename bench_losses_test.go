package reweight

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// BenchmarkPolicyLoss runs each kernel of policyLoss and the surrogate in turn on the same
// 65,536 tokens, which stay in the L2 cache. x_surrogate is the median of the ratios of
// neighbouring times, and x_least the ratio of the least times: both stand on a loaded
// machine. ns/token is the kernel's least time.
func BenchmarkPolicyLoss(b *testing.B) {
	const n = 1 << 16
	r := rand.New(rand.NewPCG(1, 2))
	logprobs, old, adv, weights, grad := make([]float32, n), make([]float32, n), make([]float32, n), make([]float32, n), make([]float32, n)
	role := make([]Role, n)
	for i := range role {
		old[i] = float32(-r.ExpFloat64())
		logprobs[i] = old[i] + float32(0.1*r.NormFloat64())
		adv[i], weights[i] = float32(r.NormFloat64()), r.Float32()
		role[i] = Role(r.IntN(3))
	}
	surrogate := surrogateConsts{lo: 0.8, hi: 1.28, dual: 3, scale: 1}
	q := lossConsts{scale: 1, lo: 0.2, hi: 0.28, cap: 3, value: [2]float32{1.1, 0.9}, slope: [2]float32{1.1, 0.9}}
	q.rate, q.height = [2]float32{-log2E32, -1.05 * log2E32}, [2]float32{4, 4 / 1.05}
	cispo, tokenRatio := q, q
	cispo.lo, cispo.hi, tokenRatio.tokenRatio = 0, 5, 1
	for _, isa := range available {
		for _, c := range []struct {
			name   string
			kernel lossKernel
			q      *lossConsts
		}{
			{"sequence", lossSequence, &q}, {"sequence_ratio", lossSequence, &tokenRatio},
			{"CISPO", lossCISPO, &cispo}, {"SAPO", lossSAPO, &q}, {"DPPO", lossDPPO, &q},
		} {
			b.Run(isa.String()+"/"+c.name, func(b *testing.B) {
				var sums surrogateSums
				var ratios, times []float64
				base := 1e9
				for b.Loop() {
					start := time.Now()
					isa.surrogate(grad, logprobs, old, adv, weights, role, &surrogate, &sums)
					middle := time.Now()
					isa.policyLoss(c.kernel, grad, logprobs, old, adv, weights, role, c.q, &sums)
					base = min(base, float64(middle.Sub(start))/n)
					took := time.Since(middle)
					ratios = append(ratios, float64(took)/float64(middle.Sub(start)))
					times = append(times, float64(took)/n)
				}
				slices.Sort(ratios)
				slices.Sort(times)
				b.ReportMetric(ratios[len(ratios)/2], "x_surrogate")
				b.ReportMetric(times[0], "ns/token")
				b.ReportMetric(times[0]/base, "x_least")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
