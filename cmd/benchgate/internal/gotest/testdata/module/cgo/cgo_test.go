package cgo

import "testing"

func BenchmarkTwice(b *testing.B) {
	for i := 0; i < b.N; i++ {
		b.ReportMetric(float64(Twice(i)), "twice")
	}
}
