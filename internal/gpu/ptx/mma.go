package ptx

// mma compiles mma.m16n8k8 {d0, d1, d2, d3}, {a0, a1}, {b0}, {c0, c1, c2, c3}: D = A B
// + C with A of 16 x 8 and B of 8 x 8 bfloat16, C and D of 16 x 8 float32. The four
// lanes 4g to 4g+3 hold rows g (a0) and g+8 (a1) of A, column g of B, and rows g (d0,
// d1) and g+8 (d2, d3) of D; each holds two neighbours.
//
// PTX does not say in which order, or how precisely, a tensor core adds. So each element
// of D may be a sum of one number only; the others must be zeros.
func (s *statement) mma() {
	s.want(4, 4)
	var slots [4][]int
	for i, n := range []int{4, 2, 1, 4} {
		o := s.operands[i]
		if o.kind != list || len(o.parts) != n {
			s.fail("operand %d is not a list of %d", i+1, n)
		}
		for _, p := range o.parts {
			switch i {
			case 0:
				slots[i] = append(slots[i], s.target(p, "f32"))
			case 3:
				slots[i] = append(slots[i], s.slot(p, "f32", false))
			default:
				slots[i] = append(slots[i], s.slot(p, "b32", false))
			}
		}
	}
	d, a, b, c := slots[0], slots[1], slots[2], slots[3]
	s.together(-1, false, func(w *warp, members []*lane) {
		var A [16][8]float32
		var B [8][8]float32
		for i, l := range members {
			group, first := i/4, i%4*2
			for half := range 2 {
				A[group][first+half] = bfloatToFloat(uint16(l.r[a[0]] >> (16 * half)))
				A[group+8][first+half] = bfloatToFloat(uint16(l.r[a[1]] >> (16 * half)))
				B[first+half][group] = bfloatToFloat(uint16(l.r[b[0]] >> (16 * half)))
			}
		}
		for i, l := range members {
			var out [4]uint64
			for e := range out {
				row, column := i/4+e/2*8, i%4*2+e%2
				out[e] = put32(oneTerm(l, f32(l.r[c[e]]), &A[row], &B, column))
			}
			for e, v := range out {
				l.r[d[e]] = v
			}
		}
	})
}

// oneTerm is c + row . B[:, column], where at most one of the numbers is not 0.
func oneTerm(l *lane, c float32, row *[8]float32, B *[8][8]float32, column int) float32 {
	sum, terms := c, 0
	if c != 0 {
		terms++
	}
	for k, x := range row {
		product := x * B[k][column]
		if product != 0 {
			terms++
		}
		sum += product
	}
	if terms > 1 && sum == sum {
		l.fail("mma: an element is a sum of %d numbers, whose rounding is not defined", terms)
	}
	return sum
}
