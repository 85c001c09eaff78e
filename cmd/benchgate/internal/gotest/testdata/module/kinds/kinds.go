// Package kinds has benchmarks of every kind.
package kinds

// Sum is generic.
func Sum[T int | float64](x []T) (sum T) {
	for _, v := range x {
		sum += v
	}
	return sum
}
