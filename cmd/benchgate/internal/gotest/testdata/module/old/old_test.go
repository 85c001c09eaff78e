package old

import "testing"

func BenchmarkOld(b *testing.B) { b.ReportMetric(Revision, "revision") }
