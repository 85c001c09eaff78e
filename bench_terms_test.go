package reweight

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// BenchmarkTerms reports the median of each kernel's time divided by that of the
// surrogate just before it, on the same tokens and the same instruction set. The
// arrays fit the second cache, and the rounds are short, so that other work on the
// machine meets both alike.
func BenchmarkTerms(b *testing.B) {
	const tokens = 65536
	r := rand.New(rand.NewPCG(1, 2))
	array := func(mean, sigma float64) []float32 {
		x := make([]float32, tokens)
		for i := range x {
			x[i] = float32(mean + float64(sigma*r.NormFloat64()))
		}
		return x
	}
	logprobs, adv, grad, old := array(-2, 1), array(0, 1), array(0, 1), make([]float32, tokens)
	for i, l := range logprobs {
		old[i] = l + float32(0.3*r.NormFloat64())
	}
	role := make([]Role, tokens)
	for i := range role {
		role[i] = Role(r.IntN(3))
	}
	var sums surrogateSums
	var logRatios logRatioSums
	var values valueSums
	var sum laneSum
	kl := func(kernel klKernel) func(ISA) {
		return func(isa ISA) {
			isa.kl(grad, logprobs, old, role, &klConsts{kernel: kernel, scale: 1e-9}, &sum)
		}
	}
	surrogate := func(isa ISA) {
		isa.surrogate(grad, logprobs, old, adv, adv, role, &surrogateConsts{0.8, 1.28, 3, 0.5}, &sums)
	}
	for _, k := range []struct {
		name string
		run  func(ISA)
	}{
		{"logRatios", func(isa ISA) { isa.logRatios(logprobs, old, role, &logRatios) }},
		{"ratios", func(isa ISA) { isa.ratios(grad, logprobs, old, role, &ratioConsts{0.5, 5, 1}, &sum) }},
		{"k1", kl(klK1)}, {"abs", kl(klAbs)}, {"k2", kl(klK2)}, {"k3", kl(klK3)},
		{"valueLoss", func(isa ISA) { isa.valueLoss(grad, logprobs, old, adv, role, &valueConsts{0.2, 0.5}, &values) }},
	} {
		for _, isa := range available {
			b.Run(k.name+"/"+isa.String(), func(b *testing.B) {
				var ratios []float64
				for b.Loop() {
					start := time.Now()
					surrogate(isa)
					middle := time.Now()
					k.run(isa)
					ratios = append(ratios, float64(time.Since(middle))/float64(middle.Sub(start)))
				}
				slices.Sort(ratios)
				b.ReportMetric(ratios[len(ratios)/2], "x_surrogate")
			})
		}
	}
}
