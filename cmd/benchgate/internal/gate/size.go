package gate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// How long a benchmark is timed in one go. A sample is some blocks, of which the least counts.
const (
	blockTime  = 150 * time.Microsecond // of what grows with the calls: shorter than the time between two interruptions
	blockLimit = 50 * time.Millisecond  // the same, where a fixed cost wants longer blocks
	blocksMost = 10                     // of a fast benchmark
	sampleTime = 30 * time.Millisecond  // a sample has fewer blocks, at least two, rather than take longer
	longBlock  = 100 * time.Millisecond // has one block in a sample
	longRun    = 100 * time.Millisecond // a run that takes longer is not taken three times
	growRun    = 3 * time.Millisecond   // of the look at what more calls change: longer ones are interrupted
	ownProcess = 10 * time.Millisecond  // a benchmark whose block takes longer gets processes of its own
)

const (
	fixedShare = 0.03 // of a block, that a fixed cost may take
	otherSpeed = 1.2  // two lengths that differ so much are no noise
)

// A Benchtime is the value of go test's -benchtime: a time, or a number of calls. The zero
// value leaves the choice to the gate.
type Benchtime struct {
	Time  time.Duration
	Calls int
}

// ParseBenchtime reads a value as go test does.
func ParseBenchtime(s string) (b Benchtime, err error) {
	if n, ok := strings.CutSuffix(s, "x"); ok {
		b.Calls, err = strconv.Atoi(n)
	} else {
		b.Time, err = time.ParseDuration(s)
	}
	if err != nil || b.Calls < 0 || b.Time < 0 || b == (Benchtime{}) {
		return b, fmt.Errorf("%q is neither a time, such as 100ms, nor a number of calls, such as 10000x", s)
	}
	return b, nil
}

// A point is what some calls take.
type point struct {
	calls int
	ns    float64 // that the benchmark timed
	took  float64 // of everything: set-up that is not timed, too
	work  float64 // the same without the start of a process
	own   float64 // the share of it that no other program took the CPU away
}

// perCall is the ns/op that go test would print.
func (p point) perCall() float64 { return p.ns / float64(p.calls) }

// alone is what the benchmark timed without the time that others had the CPU, as far as that
// is known. The time that a call waits for something, as in a sleep, is its own.
func (p point) alone() point {
	p.ns, p.own = p.ns*p.own, 1
	return p
}

// timeCalls times a number of calls. Others may use the machine, so the least of three
// counts, unless they take long.
func timeCalls(b bencher, of runnable, calls int) (least point, err error) {
	begin := time.Now()
	for i := range 3 {
		p, err := timeBlocks(b, of, calls, 1)
		if err != nil {
			return point{}, err
		}
		if i == 0 || p.ns < least.ns {
			least = p
		}
		if took := time.Since(begin); took > 10*longRun || i > 0 && took > longRun {
			break
		}
	}
	return least, nil
}

// timeBlocks times a number of blocks of so many calls, all together. Of several, those that took three times as
// long as most count no more than the others: something interrupted them.
func timeBlocks(b bencher, of runnable, calls, blocks int) (p point, err error) {
	w, counts := b.(*testWorker)
	var before time.Duration
	var threads map[string]threadTime
	if counts {
		before, threads = w.cpuTime(), w.threads()
	}
	results, o, err := runBlocks(b, of, calls, blocks)
	if err != nil {
		return p, err
	}
	others := time.Duration(0)
	if counts {
		others = max(0, min(queued(threads, w.threads()), o.took-(w.cpuTime()-before)))
	}
	var ns []float64
	for _, r := range results {
		ns = append(ns, r.metrics[nanoseconds]*float64(calls))
	}
	slices.Sort(ns)
	most := 3 * ns[len(ns)/2]
	ns = slices.DeleteFunc(ns, func(t float64) bool { return t > most })
	for _, t := range ns {
		p.ns += t * float64(blocks) / float64(len(ns))
	}
	p.calls, p.took = calls*blocks, float64(o.took)
	p.work, p.own = p.took, 1-float64(others)/p.took
	if o.cpu > 0 {
		p.work = max(p.ns, float64(o.cpu))
	}
	return p, nil
}

// size sets how many calls make a block, and how many blocks a sample. at times a number of
// calls.
//
// A benchmark has a fixed cost beside the calls: set-up that it times, goroutines that it
// starts, caches that are cold. go test spreads it over a second of calls. So the slope
// between two numbers of calls counts, and the longer of the two grows until most of its
// time is that of calls. Where the fixed cost is so large that a block cannot be that long,
// samples subtract a shorter block.
func (d *discovery) size(f *function, at func(calls int) (point, error)) error {
	block, limit := float64(blockTime), float64(blockLimit)
	if t := d.Benchtime.Time; t > 0 {
		block, limit = float64(t), max(limit, float64(t))
	}
	var first, last, p point
	var each, fixed float64
	for f.calls = d.Benchtime.Calls; f.calls == 0; last = p {
		next := 8 * last.calls
		switch {
		case last.calls < 2: // a single call has no run before it, as others have
			next = last.calls + 1
		case next > 1e9: // nothing grows with the calls
			f.calls = 1
			continue
		}
		var err error
		if p, err = at(next); err != nil {
			return err
		}
		if p = p.alone(); next == 1 {
			first = p
			continue
		}
		n := float64(p.calls - last.calls)
		each = max((p.ns-last.ns)/n, 0.01)
		all := max((p.work-last.work)/n, each)
		fixed = max(0, p.ns-float64(p.calls)*each)
		want := block
		if d.Benchtime.Time == 0 {
			want = max(block, fixed/fixedShare)
		}
		switch {
		case next == 2 && (p.ns < 1.7*last.ns || p.ns < limit):
		case next == 2:
			f.calls = 1
		case p.work >= 2*last.work && float64(p.calls)*all >= limit:
			f.calls = max(1, int(min(want/each, limit/all)))
		case p.ns >= 2*last.ns && float64(p.calls)*each >= want:
			f.calls = max(1, int(want/each))
		}
	}
	var err error
	if p = first; f.calls != 1 || p.took < float64(longRun) { // a long call is not repeated
		if p, err = at(f.calls); err != nil {
			return err
		}
	}
	took := p.took
	if d.Benchtime == (Benchtime{}) {
		if p, err = d.lengthen(f, p, at); err != nil {
			return err
		}
		took = p.took
		if f.short > 0 {
			took *= 1.5
		}
	}
	f.plan(took)
	return nil
}

// plan sets how many blocks make a sample, of which each takes so long.
func (f *function) plan(took float64) {
	f.blocks = int(min(blocksMost, max(2, float64(sampleTime)/took)))
	if took > float64(longBlock) {
		f.blocks = 1
	}
	f.cost = time.Duration(4 * float64(f.blocks) * took)
	f.group = packageOf(f.group)
	if took > float64(ownProcess) {
		f.alone()
	}
}

// alone gives the function processes of its own.
func (f *function) alone() { f.group = packageOf(f.group) + "\x00" + f.Benchmark }

// lengthen makes a block longer while a call takes less in one that is eight times as long,
// measured in turns, because a machine may be faster from one moment to the next.
func (d *discovery) lengthen(f *function, short point, at func(calls int) (point, error)) (point, error) {
	for (f.calls > 1 || 8*short.took < float64(blockLimit)) && f.calls < 1e8 {
		long, err := at(8 * f.calls)
		for range 2 {
			var p point
			for _, least := range [...]*point{&short, &long} {
				if err == nil && long.took < float64(longRun) {
					if p, err = at(least.calls); err == nil && p.ns < least.ns {
						*least = p
					}
				}
			}
		}
		if err != nil || long.ns < 2*short.ns && f.calls == 1 { // nothing grows with the calls
			return short, err
		}
		n := float64(long.calls - short.calls)
		each := max((long.ns-short.ns)/n, 0.01)
		all := max((long.took-short.took)/n, each)
		fixed := short.ns - each*float64(short.calls)
		if fixed < 2*fixedShare*short.ns {
			break
		}
		if most := int(float64(blockLimit) / all); most < long.calls { // as long as it may be
			f.calls = max(f.calls, most)
			if fixed > 2*fixedShare*each*float64(f.calls) && f.calls >= 16 {
				f.short = f.calls / 8
			}
			return at(f.calls)
		}
		f.calls, short = long.calls, long
	}
	return short, nil
}

// grow makes blocks longer while many more calls take another time each in a version, as where
// state grows with them: go test makes a second of calls. Of the lengths that take the time of
// many calls it takes the shortest, because a pair lasts as long as its blocks. at times a number
// of calls, and blocks some blocks of so many.
func (d *discovery) grow(f *function, at func(calls int) (point, error),
	blocks func(calls, n int) (point, error)) error {
	differ := func(few, many point) int { // surely, whatever others did: 1 if many calls are slower, -1 if faster
		enough := otherSpeed
		if many.own < 0.95 { // it came back to caches that others had filled
			enough = 1.5
		}
		switch {
		case many.alone().perCall() > enough*few.perCall():
			return 1
		case few.alone().perCall() > enough*many.perCall():
			return -1
		}
		return 0
	}
	calls := f.calls
	block, err := at(calls)
	for err == nil {
		long := block
		more := f.calls != calls && 8*block.took < float64(blockLimit) // after a growth, look for another
		for err == nil && differ(block, long) == 0 && (more || long.ns < float64(growRun) &&
			long.took < float64(longRun)) && long.calls < 1e8 {
			long, err = at(8 * long.calls)
			more = false
		}
		if err != nil || long.took < 2*block.took { // nothing grows with the calls, or set-up is most of it
			break
		}
		// The least of short blocks is of the best moment of a busy machine, and a long one has all kinds of
		// moments. So it counts what blocks of both lengths take at about the same time, most of nine times.
		grown := func(short int) bool {
			votes, most := map[int]int{}, 0
			for n := 0; most < 5 && most+9-n >= 5 && err == nil; n++ {
				var few, many point
				if few, err = blocks(short, 8); err == nil {
					many, err = blocks(long.calls, 1)
				}
				votes[differ(few, many)]++
				most = max(votes[1], votes[-1])
			}
			return most == 5
		}
		short := block.calls
		for short < long.calls && grown(short) {
			short *= 2
		}
		if err != nil || short == block.calls {
			break
		}
		if f.calls = short; short < long.calls {
			long, err = at(short)
		}
		block = long
		f.plan(block.took)
	}
	if f.calls != calls {
		d.note("%s takes another time for a call if there are more than %d: compared at %d, and -benchtime sets another length",
			f.name(), calls, f.calls)
	}
	return err
}
