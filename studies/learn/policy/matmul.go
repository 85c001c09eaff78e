package policy

// multiply adds the product of a [rows, inner] and b [inner, columns] to
// c [rows, columns]. Each element of c is a sum of its own, from the first product
// to the last, so it does not depend on what else there is to multiply.
//
// Four products between a load and a store of c, of two rows that share the loads
// of b, are by measurement the fastest that plain Go does.
func multiply(c, a, b []float32, inner, columns int) {
	for ; len(c) >= 2*columns; c, a = c[2*columns:], a[2*inner:] {
		multiplyRows(c[:columns], c[columns:][:columns], a[:inner], a[inner:][:inner], b)
	}
	if len(c) > 0 {
		multiplyRow(c[:columns], a[:inner], b)
	}
}

// multiplyRows is multiply for two rows.
func multiplyRows(c0, c1, a0, a1, b []float32) {
	c1 = c1[:len(c0)]
	for ; len(a0) >= 4; a0, a1, b = a0[4:], a1[4:], b[4*len(c0):] {
		x, y := (*[4]float32)(a0), (*[4]float32)(a1)
		x0, x1, x2, x3 := x[0], x[1], x[2], x[3]
		y0, y1, y2, y3 := y[0], y[1], y[2], y[3]
		b0, b1, b2, b3 := b[:len(c0)], b[len(c0):][:len(c0)], b[2*len(c0):][:len(c0)], b[3*len(c0):][:len(c0)]
		for j, z := range b0 {
			sum0, sum1 := c0[j], c1[j]
			sum0 += float32(x0 * z)
			sum1 += float32(y0 * z)
			sum0 += float32(x1 * b1[j])
			sum1 += float32(y1 * b1[j])
			sum0 += float32(x2 * b2[j])
			sum1 += float32(y2 * b2[j])
			sum0 += float32(x3 * b3[j])
			sum1 += float32(y3 * b3[j])
			c0[j], c1[j] = sum0, sum1
		}
	}
	for ; len(a0) > 0; a0, a1, b = a0[1:], a1[1:], b[len(c0):] {
		addScaled(c0, b, a0[0])
		addScaled(c1, b, a1[0])
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
func (t *Tape) addProduct(c, a, b []float32, rows, columns int) {
	const panel = 64 // of n: what fits the nearest caches
	t.transposed = grow(t.transposed, panel*rows)
	for len(a) > 0 {
		n := min(panel, len(a)/rows)
		transpose(t.transposed[:n*rows], a[:n*rows], rows)
		multiply(c, t.transposed[:n*rows], b[:n*columns], n, columns)
		a, b = a[n*rows:], b[n*columns:]
	}
}

// transpose sets dst [columns, rows] to the transpose of src [rows, columns].
func transpose(dst, src []float32, columns int) {
	rows := len(src) / columns
	for i := range rows {
		for j, x := range src[i*columns:][:columns] {
			dst[j*rows+i] = x
		}
	}
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
