package ptx

func addControl() {
	add("bra", func(s *statement) {
		s.want(1, 1)
		if s.operands[0].kind != word {
			s.fail("the target is not a label")
		}
		s.in.kind = branch
		s.c.jumps = append(s.c.jumps, jump{len(s.c.k.program) - 1, s.operands[0].text, s.line})
	})
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

// together makes the instruction one that the lanes of a warp do together. mask is the
// operand with the mask, -1 if there is none.
func (s *statement) together(mask int, partial bool, run func(w *warp, members []*lane)) {
	s.in.kind = warpSync
	s.in.sync = &syncOp{mask: none, partial: partial, run: run}
	if mask >= 0 {
		s.in.sync.mask = s.src(mask, "u32")
	}
}

func addWarp() {
	add("bar.warp.sync", func(s *statement) {
		s.want(1, 1)
		s.together(0, false, func(w *warp, members []*lane) {
			d := members[0].dev
			d.clock++
			w.time = d.clock
		})
	})
	for _, mode := range []string{"bfly", "idx"} {
		add("shfl.sync."+mode+".b32", func(s *statement) { s.shfl(mode) })
	}
	add("vote.sync.ballot.b32", func(s *statement) {
		s.want(3, 3)
		s.vote("b32", func(votes uint32) uint64 { return uint64(votes) })
	})
	for mode, f := range map[string]func(votes uint32) uint64{
		"all": func(votes uint32) uint64 { return truth(votes == fullMask) },
		"any": func(votes uint32) uint64 { return truth(votes != 0) },
	} {
		add("vote.sync."+mode+".pred", func(s *statement) {
			s.want(3, 3)
			s.vote("pred", f)
		})
	}
	add("match.any.sync.b32", (*statement).matchAny)
}

// shfl compiles shfl d, a, b, c, mask, where d may be d|p: p tells whether the lane
// that b names is in the segment that c makes; if not, the lane gets its own a.
func (s *statement) shfl(mode string) {
	s.want(5, 5)
	to, in := s.operands[0], operand{kind: word, text: "_"}
	if to.kind == pair {
		to, in = to.parts[0], to.parts[1]
	}
	d, p, a, b, c := s.target(to, "b32"), s.target(in, "pred"), s.src(1, "b32"), s.src(2, "u32"), s.src(3, "u32")
	s.together(4, false, func(w *warp, members []*lane) {
		var values [warpSize]uint64
		for i, l := range members {
			values[i] = l.r[a]
		}
		for i, l := range members {
			from, ok := shflSource(mode, i, int(l.r[b]&31), int(l.r[c]))
			l.r[d], l.r[p] = values[from], truth(ok)
		}
	})
}

// shflSource gives the lane from which lane i gets its value.
func shflSource(mode string, i, b, c int) (from int, ok bool) {
	clamp, segment := c&31, c>>8&31
	last := i&segment | clamp&^segment
	if mode == "bfly" {
		from = i ^ b
	} else { // idx
		from = i&segment | b&^segment
	}
	if ok = from <= last; !ok {
		from = i
	}
	return from, ok
}

// vote compiles vote d, a, mask.
func (s *statement) vote(t string, result func(votes uint32) uint64) {
	d := s.dst(0, t)
	a, inverted := s.predicate(1)
	s.together(2, false, func(w *warp, members []*lane) {
		votes := uint32(0)
		for i, l := range members {
			votes |= uint32(l.r[a]^truth(inverted)) << i
		}
		v := result(votes)
		for _, l := range members {
			l.r[d] = v
		}
	})
}

// matchAny compiles match.any d, a, mask: the lanes that have the same a.
func (s *statement) matchAny() {
	s.want(3, 3)
	d, a := s.dst(0, "b32"), s.src(1, "b32")
	s.together(2, true, func(w *warp, members []*lane) {
		var same [warpSize]uint64
		for i, l := range members {
			for _, o := range members {
				if o.r[a] == l.r[a] {
					same[i] |= 1 << (o.thread % warpSize)
				}
			}
		}
		for i, l := range members {
			l.r[d] = same[i]
		}
	})
}
