package policy

// multiply adds the product of a [.., inner] and b [inner, columns] to c [.., columns].
// Each sum begins with what is in c and goes over inner from the first.
func multiply(c, a, b []float32, inner, columns int) {
	for ; len(c) > 0; c, a = c[columns:], a[inner:] {
		loops.multiplyRow(c[:columns], a, b, inner, 1)
	}
}

// addProduct adds the product of a transposed and b to c, where a is [n, rows],
// b is [n, columns] and c is [rows, columns]. The sums go over n from the first.
func addProduct(c, a, b []float32, rows, columns int) {
	const most = 32 // rows of b at a time, which stay in the first cache
	for n := len(a) / rows; n > 0; n -= most {
		inner := min(n, most)
		for i := range rows {
			loops.multiplyRow(c[i*columns:][:columns], a[i:], b, inner, rows)
		}
		a, b = a[inner*rows:], b[inner*columns:]
	}
}

// multiplyRow adds to each c[j] the sum of a[k*step] b[k*len(c)+j] over k below inner.
func multiplyRow(c, a, b []float32, inner, step int) {
	k := 0
	row := func(k int) []float32 { return b[k*len(c):][:len(c)] }
	for ; k+4 <= inner; k += 4 {
		x0, x1, x2, x3 := a[k*step], a[(k+1)*step], a[(k+2)*step], a[(k+3)*step]
		b0, b1, b2, b3 := row(k), row(k+1), row(k+2), row(k+3)
		for j, sum := range c {
			sum += float32(x0 * b0[j])
			sum += float32(x1 * b1[j])
			sum += float32(x2 * b2[j])
			sum += float32(x3 * b3[j])
			c[j] = sum
		}
	}
	for ; k < inner; k++ {
		x, b := a[k*step], row(k)
		for j, y := range b {
			c[j] += float32(x * y)
		}
	}
}

// transpose returns the transpose [columns, rows] of src [rows, columns].
func transpose(src []float32, columns int) []float32 {
	dst, rows := make([]float32, len(src)), len(src)/columns
	for i := range rows {
		for j, x := range src[i*columns:][:columns] {
			dst[j*rows+i] = x
		}
	}
	return dst
}
