package reweight

import "testing"

func BenchmarkZZ(b *testing.B) {
	x := normal(65536, 1)
	for i := range x {
		x[i] = x[i] * 0.1
	}
	w, o := normal(65536, 2), make([]float32, 65536)
	adv, role := normal(65536, 3), make([]uint8, 65536)
	for i := range role {
		role[i] = 1
		w[i] = x[i] + w[i]*0.03
	}
	off := make([]int32, 129)
	for i := range off {
		off[i] = int32(i * 512)
	}
	off8 := make([]int32, 8193)
	for i := range off8 {
		off8[i] = int32(i * 8)
	}
	sums := make([]float64, 128)
	lo, hi := make([]float32, 8192), make([]float32, 8192)
	for _, p := range []ISA{AVX2, AVX512} {
		run := func(name string, f func()) {
			b.Run(name+"/"+p.String(), func(b *testing.B) {
				for b.Loop() {
					f()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/65536, "ns/el")
			})
		}
		run("span", func() { p.spanSums(sums, x, off) })
		run("minmax", func() { p.minMax(lo, hi, x, off8) })
		var s laneSum
		run("exp", func() { p.expScale(o, x, -1, -0.7, &s) })
		run("scale", func() { p.scale(o, 0.9999) })
		var q surrogateSums
		c := surrogateConsts{0.8, 1.28, 3, 1}
		run("surrogate", func() { p.surrogate(o, x, w, adv, adv, role, &c, &q) })
	}
}
