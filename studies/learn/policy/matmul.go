package policy

func multiply(c, a, b []float32, inner, columns int) {
	for ; len(c) > 0; c, a = c[columns:], a[inner:] {
		multiplyRow(c[:columns], a[:inner], b)
	}
}

// multiplyRow is multiply for one row.
func multiplyRow(c, a, b []float32) {
	for ; len(a) >= 4; a, b = a[4:], b[4*len(c):] {
		x0, x1, x2, x3 := a[0], a[1], a[2], a[3]
		b0, b1, b2, b3 := b[:len(c)], b[len(c):][:len(c)], b[2*len(c):][:len(c)], b[3*len(c):][:len(c)]
		for j, sum := range c {
			sum += float32(x0 * b0[j])
			sum += float32(x1 * b1[j])
			sum += float32(x2 * b2[j])
			sum += float32(x3 * b3[j])
			c[j] = sum
		}
	}
	for ; len(a) > 0; a, b = a[1:], b[len(c):] {
		addScaled(c, b, a[0])
	}
}

// addProduct adds the product of a transposed and b to c, where a is [n, rows],
// b is [n, columns] and c is [rows, columns]. The sums go over n from the first.
func addProduct(c, a, b []float32, rows, columns int) {
	multiply(c, transpose(a, rows), b, len(a)/rows, columns)
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

// add adds src to dst, element by element.
func add(dst, src []float32) {
	src = src[:len(dst)]
	for i, x := range src {
		dst[i] += x
	}
}

// addScaled adds scale times src to dst, element by element.
func addScaled(dst, src []float32, scale float32) {
	src = src[:len(dst)]
	for i, x := range src {
		dst[i] += float32(scale * x)
	}
}
