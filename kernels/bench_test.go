package kernels

import (
	"testing"

	"github.com/seed621a2839/reweight/internal/test/must"
)

// BenchmarkKernels times every kernel in every format with every instruction set, on inputs
// that stay in a cache:
//
//	go test -run '^$' -bench 'Kernels/token_stats/f32' ./kernels
func BenchmarkKernels(b *testing.B) {
	const tokens, rows, vocab = 16384, 2, 32768
	for _, k := range All() {
		b.Run(k.Name, func(b *testing.B) {
			for _, dtype := range k.DTypes {
				b.Run(dtype.String(), func(b *testing.B) {
					for _, impl := range k.On(Implementations()) {
						b.Run(impl.Name, func(b *testing.B) {
							s := Spec{Rows: tokens, DType: dtype}
							if k.Rows {
								s.Rows, s.Vocab = rows, vocab
							}
							c := must.Get(k.New(s))
							r := impl.New(1)
							for b.Loop() {
								must.Do(c.Run(r))
							}
							report(b, c)
						})
					}
				})
			}
		})
	}
}

// report adds MB/s of what one run must move, and the time of an element. It is no part of the benchmark's function,
// whose frame on the stack is then what it was: where that lies moves times by 5%.
//
//go:noinline
func report(b *testing.B, c *Case) {
	b.SetBytes(c.Bytes)
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(c.Elements), "ns/element")
}
