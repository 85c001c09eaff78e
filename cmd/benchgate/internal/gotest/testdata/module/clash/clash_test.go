package other

import . "testing"

func BenchmarkClash(*B) {}
