package policy

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Every product is the plain sum, to the bit, and adds to what is there.
func TestMultiply(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 13)
		rows, inner, columns := size.Draw(t, "rows"), rapid.IntRange(1, 150).Draw(t, "inner"), size.Draw(t, "columns")
		a, b, c := uniform(rows*inner, 1), uniform(inner*columns, 2), uniform(rows*columns, 3)
		want := make([]float32, len(c))
		for i := range rows {
			for j := range columns {
				sum := c[i*columns+j]
				for k := range inner {
					sum += float32(a[i*inner+k] * b[k*columns+j])
				}
				want[i*columns+j] = sum
			}
		}

		d := slices.Clone(c)
		addProduct(d, transpose(a, inner), b, rows, columns)
		if !sameBits(d, want) {
			t.Fatalf("addProduct: %v, want %v", d, want)
		}
		multiply(c, a, b, inner, columns)
		if !sameBits(c, want) {
			t.Fatalf("multiply: %v, want %v", c, want)
		}
	})
}
