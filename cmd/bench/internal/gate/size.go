package gate

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// How long a benchmark is timed in one go. A turn is some blocks, of which the least counts.
const (
	blockTime  = 150 * time.Microsecond // of what grows with the calls: shorter than the time between two interruptions
	blockLimit = 50 * time.Millisecond  // the same, where a fixed cost wants longer blocks
	blocksMost = 10                     // of a fast benchmark
	turnTime   = 30 * time.Millisecond  // a turn has fewer blocks, at least two, rather than take longer
	longBlock  = 100 * time.Millisecond // has one block in a turn
	longRun    = 100 * time.Millisecond // of the look at what more calls change
	ownProcess = 10 * time.Millisecond  // a benchmark whose block takes longer gets processes of its own
)

const (
	fixedShare = 0.03 // of a block, that a fixed cost may take
	otherSpeed = 1.25 // two lengths that differ so much have a note
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
	busy  float64 // the share of it that the process had a CPU
}

// perCall is the ns/op that go test would print.
func (p point) perCall() float64 { return p.ns / float64(p.calls) }

// timeCalls times a number of calls. Others may use the machine, so the least of three
// counts, unless they take long.
func timeCalls(b bencher, l leaf, calls int) (least point, err error) {
	begin := time.Now()
	for i := range 3 {
		results, o, err := runLeaf(b, l, calls, 1)
		if err != nil {
			return point{}, err
		}
		p := point{calls, results[0].metrics[nanoseconds] * float64(calls), float64(o.took), 1}
		if o.cpu > 0 {
			p.busy = min(1, float64(o.cpu)/p.took)
		}
		if i == 0 || p.ns < least.ns {
			least.ns, least.busy = p.ns, p.busy
		}
		if i == 0 || p.took < least.took {
			least.calls, least.took = calls, p.took
		}
		if took := time.Since(begin); took > 10*longRun || i > 0 && took > longRun {
			break
		}
	}
	return least, nil
}

// size sets how many calls make a block, and how many blocks a turn. at times a number of
// calls.
//
// A benchmark has a fixed cost beside the calls: set-up that it times, goroutines that it
// starts, caches that are cold. go test spreads it over a second of calls. So the slope
// between two numbers of calls counts, and the longer of the two grows until most of its
// time is that of calls. Where the fixed cost is so large that a block cannot be that long,
// turns subtract a shorter block.
func (d *discovery) size(f *function, at func(calls int) (point, error)) error {
	block, limit := float64(blockTime), float64(blockLimit)
	if t := d.opt.Benchtime.Time; t > 0 {
		block, limit = float64(t), max(limit, float64(t))
	}
	var last, p point
	var each, fixed float64
	for f.calls = d.opt.Benchtime.Calls; f.calls == 0; last = p {
		next := 8 * last.calls
		switch {
		case last.calls < 2: // a single call has no run before it, as others have
			next = last.calls + 1
		case next > 1e9: // nothing grows with the calls
			f.calls = 1
			continue
		case last.took > 5*limit:
			next = 2 * last.calls
		}
		var err error
		if p, err = at(next); err != nil {
			return err
		}
		if next == 1 {
			continue
		}
		n := float64(p.calls - last.calls)
		each = max((p.ns-last.ns)/n, 0.01)
		all := max((p.took-last.took)/n, each)
		fixed = max(0, p.ns-float64(p.calls)*each)
		want := block
		if d.opt.Benchtime.Time == 0 {
			want = max(block, fixed/fixedShare)
		}
		switch {
		case next == 2 && (p.ns < 1.7*last.ns || p.ns < limit):
		case next == 2:
			f.calls = 1
			p = last
		case p.took >= 1.5*last.took && float64(p.calls)*all >= limit:
			f.calls = max(1, int(min(want/each, limit/all)))
		case p.ns >= 2*last.ns && float64(p.calls)*each >= want:
			f.calls = max(1, int(want/each))
		}
	}
	if f.calls != p.calls {
		var err error
		if p, err = at(f.calls); err != nil {
			return err
		}
	}
	took := p.took
	if d.opt.Benchtime == (Benchtime{}) {
		if f.calls >= 16 && fixed > 2*fixedShare*each*float64(f.calls) {
			f.short = f.calls / 8
			took *= 1.5
		}
		if err := d.otherLength(f, p, each, at); err != nil {
			return err
		}
	}
	f.blocks = int(min(blocksMost, max(2, float64(turnTime)/took)))
	if took > float64(longBlock) {
		f.blocks = 1
	}
	f.cost = time.Duration(4 * float64(f.blocks) * took)
	if took > float64(ownProcess) {
		f.group += "\x00" + f.Benchmark
	}
	return nil
}

// otherLength says so if many more calls take another time each, as where state grows with
// them: go test makes a second of calls.
func (d *discovery) otherLength(f *function, block point, each float64, at func(calls int) (point, error)) error {
	if f.short > 0 {
		return nil
	}
	long := block
	for long.took < float64(longRun) && float64(long.calls)*each < float64(longRun) {
		var err error
		if long, err = at(8 * long.calls); err != nil {
			return err
		}
	}
	a, b := block.perCall(), long.perCall()
	if b*long.busy > otherSpeed*a || b*otherSpeed < a {
		d.notes = append(d.notes, fmt.Sprintf("%s takes %s at %d calls and %s at %d: compared at %d, and -benchtime %dx compares at more",
			f.name(), duration(a), block.calls, duration(b*math.Min(1, long.busy)), long.calls, block.calls, long.calls))
	}
	return nil
}
