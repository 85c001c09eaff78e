//go:build special

package kinds

import "testing"

func BenchmarkTagged(b *testing.B) {}
