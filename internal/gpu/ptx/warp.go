package ptx

func addControl() {
	bra := func(s *statement) {
		s.want(1, 1)
		if s.operands[0].kind != word {
			s.fail("the target is not a label")
		}
		s.in.kind = branch
		s.c.jumps = append(s.c.jumps, jump{len(s.c.k.program) - 1, s.operands[0].text, s.line})
	}
	add("bra", bra)
	add("bra.uni", bra)
	add("ret", func(s *statement) {
		s.want(0, 0)
		s.in.kind = exit
	})
	add("bar.sync", func(s *statement) {
		s.want(1, 1)
		if s.integer(0) != 0 {
			s.fail("the only barrier is 0")
		}
		s.in.kind = ctaSync
	})
}

// together makes the instruction one that the lanes of a warp do together. Operand mask,
// the last one, has to name all of them.
func (s *statement) together(mask int, run func(w *warp)) {
	s.want(mask+1, mask+1)
	if o := s.operands[mask]; o.kind != number {
		s.fail("operand %d, the mask, is not a number", mask+1)
	} else if v, err := parseLiteral(o.text, o.minus, "u32"); err != nil || v != fullMask {
		s.fail("the mask %s does not name all lanes", o.text)
	}
	s.in.kind = warpSync
	s.in.together = run
}

func addWarp() {
	add("bar.warp.sync", func(s *statement) {
		s.together(0, func(w *warp) {
			d := w.lanes[0].dev
			d.clock++
			w.time = d.clock
		})
	})
	add("shfl.sync.bfly.b32", func(s *statement) { s.shfl(func(lane, b int) int { return lane ^ b }) })
	add("shfl.sync.idx.b32", func(s *statement) { s.shfl(func(_, b int) int { return b }) })
	add("vote.sync.ballot.b32", func(s *statement) {
		s.vote("b32", func(votes uint32) uint64 { return uint64(votes) })
	})
	add("vote.sync.all.pred", func(s *statement) {
		s.vote("pred", func(votes uint32) uint64 { return truth(votes == fullMask) })
	})
	add("vote.sync.any.pred", func(s *statement) {
		s.vote("pred", func(votes uint32) uint64 { return truth(votes != 0) })
	})
	add("match.any.sync.b32", (*statement).matchAny)
}

// shfl compiles shfl d, a, b, 31, mask: a lane gets the a of the lane that from gives for it
// and its b. 31 stands for the whole warp: smaller segments are not supported.
func (s *statement) shfl(from func(lane, b int) int) {
	s.want(5, 5)
	if s.integer(3) != 31 {
		s.fail("a shfl within segments of the warp")
	}
	d, a, b := s.dst(0, "b32"), s.src(1, "b32"), s.src(2, "u32")
	s.together(4, func(w *warp) {
		var values [warpSize]uint64
		for i, l := range w.lanes {
			values[i] = l.r[a]
		}
		for i, l := range w.lanes {
			l.r[d] = values[from(i, int(l.r[b]&31))]
		}
	})
}

// vote compiles vote d, a, mask.
func (s *statement) vote(t string, result func(votes uint32) uint64) {
	s.want(3, 3)
	d, a := s.dst(0, t), s.src(1, "pred")
	s.together(2, func(w *warp) {
		votes := uint32(0)
		for i, l := range w.lanes {
			votes |= uint32(l.r[a]) << i
		}
		v := result(votes)
		for _, l := range w.lanes {
			l.r[d] = v
		}
	})
}

// matchAny compiles match.any d, a, mask: the lanes that have the same a.
func (s *statement) matchAny() {
	s.want(3, 3)
	d, a := s.dst(0, "b32"), s.src(1, "b32")
	s.together(2, func(w *warp) {
		var same [warpSize]uint64
		for i, l := range w.lanes {
			for j, o := range w.lanes {
				same[i] |= truth(o.r[a] == l.r[a]) << j
			}
		}
		for i, l := range w.lanes {
			l.r[d] = same[i]
		}
	})
}
