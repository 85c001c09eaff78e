package ptx

import (
	"fmt"
	"slices"
	"strings"
)

const (
	warpSize = 32
	fullMask = 1<<warpSize - 1
)

// A kind of instruction tells what the loop that runs a lane does with it.
type kind uint8

const (
	plain    kind = iota // calls run
	branch               // goes to target
	exit                 // ends the lane
	warpSync             // stops the lane until its warp is here
	ctaSync              // stops the lane until the CTA is here
)

// An operation does what a plain instruction does.
type operation func(l *lane, in *instr)

// A slot is a place in lane.r, of a register or a constant.
type slot uint32

// An instr is an instruction as it runs.
type instr struct {
	run        operation                // plain
	d, x, y, z slot                     // of the destination and the sources, if run wants them here
	together   func(w *warp, in *instr) // warpSync
	predicate  int32                    // its register, or none
	target     int32                    // branch
	negated    bool                     // runs where the predicate is false
	kind       kind
}

// none is the predicate of an instruction that always runs.
const none = -1

// A source says what an instruction was in the text.
type source struct {
	line      int
	text      string
	registers []namedRegister
}

type namedRegister struct {
	name string
	slot slot
}

// Slots of the registers that every kernel has. The others follow.
const (
	slotTid = iota
	slotNtid
	slotCtaid
	slotNctaid
	firstSlot
)

// A kernel is an entry of a module.
type kernel struct {
	name       string
	module     *module
	program    []instr
	sources    []source
	slots      []uint64 // what the registers hold at first: constants
	paramSize  int
	static     sharedLayout
	maxThreads int // .maxntid, or the most there can be
}

// A lane is a thread of the CTA that runs.
type lane struct {
	r      []uint64 // registers; each holds its value in the low bits, with zeros above
	pc     int
	state  state
	thread int // in the CTA
	warp   *warp
	dev    *Device
	kernel *kernel

	copies []asyncCopy // on their way, the oldest first
	groups []int       // ends in copies of the groups that are on their way
}

type state uint8

const (
	ready state = iota
	waiting
	exited
)

// A warp is 32 lanes. time is the number of the last barrier that it passed.
type warp struct {
	lanes []*lane
	time  uint64
	turn  turn // what its last turn came to
}

// unregistered is what a register holds before it is written: a value to stumble over.
const unregistered = 0x7ff7_dead_7fb7_dead

// A fault is what a lane panics with; Launch makes an error of it.
type fault string

func (l *lane) fail(format string, args ...any) {
	l.dev.current = l
	panic(fault(fmt.Sprintf(format, args...)))
}

// random returns the next number of the device's generator, xorshift64*.
func (d *Device) random() uint64 {
	x := d.seed
	x ^= x >> 12
	x ^= x << 25
	x ^= x >> 27
	d.seed = x
	return x * 0x2545f4914f6cdd1d >> 32
}

// shuffle brings what is in order into another one.
func shuffle[T any](d *Device, order []T) {
	for i := len(order) - 1; i > 0; i-- {
		j := int(d.random() * uint64(i+1) >> 32)
		order[i], order[j] = order[j], order[i]
	}
}

// start readies the lanes for a launch.
func (d *Device) start(k *kernel, grid, threads, shared int) {
	d.warps = d.allWarps[:threads/warpSize]
	for _, w := range d.warps {
		for _, l := range w.lanes {
			l.kernel = k
			l.r = slices.Grow(l.r[:0], len(k.slots))[:len(k.slots)]
		}
	}
	d.shared.begin(&k.static, shared)
	d.order = d.order[:0]
	for i := range grid {
		d.order = append(d.order, int32(i))
	}
	shuffle(d, d.order)
}

// runGrid runs the CTAs of a launch, one after the other.
func (d *Device) runGrid(k *kernel, grid, threads int) {
	for _, cta := range d.order {
		d.clock++
		d.ctaStart, d.ctaTime = d.clock, d.clock
		for _, w := range d.warps {
			w.time, w.turn = d.clock, moved
			for _, l := range w.lanes {
				copy(l.r, k.slots)
				l.r[slotTid], l.r[slotNtid] = uint64(l.thread), uint64(threads)
				l.r[slotCtaid], l.r[slotNctaid] = uint64(cta), uint64(grid)
				l.pc, l.state = 0, ready
				l.copies, l.groups = l.copies[:0], l.groups[:0]
			}
		}
		d.runCTA()
	}
}

// runCTA runs the warps by turns until all lanes have exited. Some run far ahead of the
// others.
func (d *Device) runCTA() {
	d.turns = append(d.turns[:0], d.warps...)
	for {
		shuffle(d, d.turns)
		progress, live, atBarrier := false, 0, 0
		for _, w := range d.turns {
			for on := 1 << (2 * (d.random() & 7)); w.turn == moved && on > 0; on-- { // the others wait
				w.turn = d.runWarp(w)
			}
			switch w.turn {
			case moved:
				progress = true
				live++
			case atCTABarrier:
				live++
				atBarrier++
			case stuck:
				live++
			}
		}
		switch {
		case live == 0:
			return
		case atBarrier == live:
			d.passBarrier()
		case !progress:
			d.deadlock()
		}
	}
}

// What runWarp says of a warp.
type turn uint8

const (
	moved turn = iota
	atCTABarrier
	stuck
	ended
)

// runWarp runs each lane of the warp up to where it stops, and then lets them go on together
// if they have met.
func (d *Device) runWarp(w *warp) turn {
	for i := range d.laneOrder {
		d.laneOrder[i] = uint8(i)
	}
	shuffle(d, d.laneOrder[:])
	for _, i := range d.laneOrder {
		if l := w.lanes[i]; l.state == ready {
			d.current = l
			l.runOn()
		}
	}
	return d.meet(w)
}

// runOn runs the lane up to its end or to the next synchronising instruction.
func (l *lane) runOn() {
	program, r := l.kernel.program, l.r
	for pc, steps := l.pc, 0; ; steps++ {
		in := &program[pc]
		if in.predicate >= 0 && (r[in.predicate] != 0) == in.negated {
			pc++
			continue
		}
		l.pc = pc // for messages
		switch in.kind {
		case plain:
			in.run(l, in)
			pc++
		case branch:
			pc = int(in.target)
			if l.dev.steps+int64(steps) > l.dev.mostSteps {
				l.fail("more than %d instructions: the loop has no end", l.dev.options.Steps)
			}
		case exit:
			l.state = exited
			l.dev.steps += int64(steps)
			return
		default:
			l.state = waiting
			l.dev.steps += int64(steps)
			return
		}
	}
}

// meet lets the lanes of a warp go on if all of them wait at one instruction. If they do
// not, nothing can free them any more.
func (d *Device) meet(w *warp) turn {
	i := slices.IndexFunc(w.lanes, func(l *lane) bool { return l.state == waiting })
	if i < 0 {
		return ended
	}
	first := w.lanes[i]
	for i, l := range w.lanes {
		switch {
		case l.state == exited:
			first.fail("lane %d of this warp has exited", i)
		case l.pc != first.pc:
			return stuck
		}
	}
	in := &first.kernel.program[first.pc]
	if in.kind == ctaSync {
		return atCTABarrier
	}
	d.current = first
	in.together(w, in)
	for _, l := range w.lanes {
		l.pc++
		l.state = ready
	}
	return moved
}

// passBarrier lets all lanes go on from the barrier of the CTA.
func (d *Device) passBarrier() {
	d.clock++
	d.ctaTime = d.clock
	for _, w := range d.warps {
		w.time = d.clock
		if w.turn == atCTABarrier {
			w.turn = moved
		}
		for _, l := range w.lanes {
			if l.state == waiting {
				l.pc++
				l.state = ready
			}
		}
	}
}

// deadlock fails, naming where the lanes wait.
func (d *Device) deadlock() {
	var b strings.Builder
	b.WriteString("deadlock:")
	var last *lane
	for _, w := range d.warps {
		for from := 0; from < warpSize; {
			l := w.lanes[from]
			to := from + 1
			for to < warpSize && w.lanes[to].state == l.state && w.lanes[to].pc == l.pc {
				to++
			}
			fmt.Fprintf(&b, "\n\tthreads %d to %d ", l.thread, w.lanes[to-1].thread)
			if l.state == exited {
				b.WriteString("have exited")
			} else {
				s := &l.kernel.sources[l.pc]
				fmt.Fprintf(&b, "wait at line %d `%s`", s.line, s.text)
				last = l
			}
			from = to
		}
	}
	last.fail("%s", b.String())
}

// describe makes an error of a fault of the current lane.
func (d *Device) describe(k *kernel, f fault) error {
	l := d.current
	s := &k.sources[l.pc]
	var b strings.Builder
	for i, r := range s.registers {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s = %#x", r.name, l.r[r.slot])
	}
	return fmt.Errorf("ptx: kernel %s, CTA %d, thread %d, line %d of %s: `%s`: %s (%s)",
		k.name, l.r[slotCtaid], l.thread, s.line, k.module.name, s.text, string(f), b.String())
}
