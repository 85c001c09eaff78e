package kinds_test

import (
	"testing"

	"example.com/user/kinds"
)

func BenchmarkOutside(b *testing.B) {
	for i := 0; i < b.N; i++ {
		kinds.Sum([]float64{1, 2})
	}
}

func BenchmarkBoth(b *testing.B) {}
