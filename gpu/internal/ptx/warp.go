package ptx

func addControl() {
	bra := func(s *statement) {
		s.want(1)
		if s.operands[0].kind != word {
			s.fail("the target is not a label")
		}
		s.in.kind = branch
		s.c.jumps = append(s.c.jumps, jump{len(s.c.k.program) - 1, s.operands[0].text, s.line})
	}
	add("bra", bra)
	add("bra.uni", bra)
	add("ret", func(s *statement) {
		s.want(0)
		s.in.kind = exit
	})
	add("bar.sync", func(s *statement) {
		s.want(1)
		if s.integer(0) != 0 {
			s.fail("the only barrier is 0")
		}
		s.in.kind = ctaSync
	})
}

// together makes the instruction one that the lanes of a warp do together. Its last operand,
// the mask, has to name all of them.
func (s *statement) together(run func(w *warp, in *instr)) {
	mask := len(s.operands) - 1
	if o := s.operands[mask]; o.kind != number {
		s.fail("operand %d, the mask, is not a number", mask+1)
	} else if v, err := parseLiteral(o.text, o.minus, "u32"); err != nil || v != fullMask {
		s.fail("the mask %s does not name all lanes", o.text)
	}
	s.in.kind = warpSync
	s.in.together = run
}

// A gift is what a lane gets of the a of all lanes, and of its own b.
type gift func(a *[warpSize]uint64, lane int, b uint64) uint64

// exchange makes the instruction one that sets d, operand 0, of every lane.
func (s *statement) exchange(d, a string, of gift) {
	s.in.d, s.in.x = s.dst(0, d), s.src(1, a)
	s.together(func(w *warp, in *instr) {
		var values [warpSize]uint64
		for i, l := range w.lanes {
			values[i] = l.r[in.x]
		}
		for i, l := range w.lanes {
			l.r[in.d] = of(&values, i, l.r[in.y])
		}
	})
}

func addWarp() {
	add("bar.warp.sync", func(s *statement) {
		s.want(1)
		s.together(func(w *warp, _ *instr) {
			d := w.lanes[0].dev
			d.clock++
			w.time = d.clock
		})
	})
	addShfl("shfl.sync.bfly.b32", func(a *[warpSize]uint64, lane int, b uint64) uint64 { return a[lane^int(b&31)] })
	addShfl("shfl.sync.idx.b32", func(a *[warpSize]uint64, _ int, b uint64) uint64 { return a[b&31] })
	addVote("vote.sync.ballot.b32", "b32", "pred", ballot)
	addVote("vote.sync.all.pred", "pred", "pred", func(a *[warpSize]uint64, lane int, b uint64) uint64 {
		return truth(ballot(a, lane, b) == fullMask)
	})
	addVote("vote.sync.any.pred", "pred", "pred", func(a *[warpSize]uint64, lane int, b uint64) uint64 {
		return truth(ballot(a, lane, b) != 0)
	})
	// The lanes that have the same a.
	addVote("match.any.sync.b32", "b32", "b32", func(a *[warpSize]uint64, lane int, _ uint64) (same uint64) {
		for i, v := range a {
			same |= truth(v == a[lane]) << i
		}
		return same
	})
}

// addShfl enters shfl d, a, b, 31, mask. 31 stands for the whole warp: smaller segments are
// not supported.
func addShfl(opcode string, of gift) {
	add(opcode, func(s *statement) {
		s.want(5)
		if s.integer(3) != 31 {
			s.fail("a shfl within segments of the warp")
		}
		s.in.y = s.src(2, "u32")
		s.exchange("b32", "b32", of)
	})
}

// addVote enters vote d, a, mask.
func addVote(opcode, d, a string, of gift) {
	add(opcode, func(s *statement) {
		s.want(3)
		s.exchange(d, a, of)
	})
}

// ballot has a bit for each lane, by its predicate.
func ballot(a *[warpSize]uint64, _ int, _ uint64) (votes uint64) {
	for i, v := range a {
		votes |= v << i
	}
	return votes
}
