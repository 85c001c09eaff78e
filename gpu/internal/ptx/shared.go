package ptx

import "fmt"

// A sharedMemory is the shared memory of the one CTA that runs. Each byte has two
// records, of its last store and of its last loads. A record is a time and a thread:
//
//	time<<16 | flags | thread
//
// The time is the number of barriers that the device had seen when the warp of the
// thread last passed one (lane.warp.time). What a thread did is ordered before what
// another one does now if a barrier of both lies between: for threads of one warp if
// the record is older than the warp's time, for others if it is older than the CTA's.
// A record from before the CTA began means that the byte is undefined.
type sharedMemory struct {
	data   []byte
	stores []uint64
	loads  []uint64
}

const (
	timeShift  = 16
	threadMask = 1<<10 - 1 // a CTA has at most 1,024 threads

	pendingFlag = 1 << 15 // stores: by cp.async, and nobody has waited for it
	warpFlag    = 1 << 14 // loads: by several lanes of the warp of the thread
	severalFlag = 1 << 13 // loads: by several warps
)

// outsideRecord, in stores, is that of a byte between two variables.
const outsideRecord = ^uint64(0)

// A sharedLayout says where the static variables of shared memory lie. There is a gap
// between two of them, and between the last one and the dynamic memory.
type sharedLayout struct {
	variables []extent
	size      int // without the gaps
}

// An extent is a variable's place.
type extent struct{ from, to int }

const (
	sharedGap = 16

	// dynamicAlignment is that of the dynamic shared memory, which follows the static.
	dynamicAlignment = 16
)

// place finds room for a variable.
func (s *sharedLayout) place(size, align int) uint64 {
	from := alignUp(s.end(), align)
	s.variables = append(s.variables, extent{from, from + size})
	s.size = alignUp(s.size, align) + size
	return uint64(from)
}

// end is where what follows the variables may begin.
func (s *sharedLayout) end() int {
	if len(s.variables) == 0 {
		return 0
	}
	return alignUp(s.variables[len(s.variables)-1].to+sharedGap, dynamicAlignment)
}

// begin makes room for static variables and for dynamic bytes.
func (s *sharedMemory) begin(static *sharedLayout, dynamic int) {
	size := static.end() + dynamic
	if cap(s.data) < size {
		s.data = make([]byte, size)
		s.stores = make([]uint64, size)
		s.loads = make([]uint64, size)
	}
	s.data, s.stores, s.loads = s.data[:size], s.stores[:size], s.loads[:size]
	clear(s.stores)
	for i := range s.stores[:static.end()] {
		s.stores[i] = outsideRecord
	}
	for _, v := range static.variables {
		clear(s.stores[v.from:v.to])
	}
}

// now is the record of what the lane does now.
func (l *lane) now() uint64 { return l.warp.time<<timeShift | uint64(l.thread) }

// ordered says whether what a record tells is over for this lane. The record is not
// pending.
func (l *lane) ordered(record uint64) bool {
	time, thread := record>>timeShift, int(record&threadMask)
	switch {
	case record&severalFlag != 0:
		return time < l.dev.ctaTime
	case thread == l.thread && record&warpFlag == 0:
		return true
	case thread/warpSize == l.thread/warpSize:
		return time < l.warp.time
	}
	return time < l.dev.ctaTime
}

// loadShared returns the n bytes at a, and notes that the lane has loaded them.
func (l *lane) loadShared(a, n uint64) []byte {
	s := &l.dev.shared
	b := l.bounded(shared, s.data, a, n)
	now, start := l.now(), l.dev.ctaStart
	stores, loads := s.stores[a:a+n], s.loads[a:a+n]
	for i, record := range stores {
		if record>>timeShift < start {
			l.undefined(shared, a+uint64(i))
		}
		if record&pendingFlag != 0 {
			l.pending(a+uint64(i), "loaded", record)
		}
		if !l.ordered(record) {
			l.race(a+uint64(i), "loaded", "stored", record)
		}
		loads[i] = l.loadedToo(loads[i], now)
	}
	return b
}

// loadedToo adds the lane's load to a record of loads.
func (l *lane) loadedToo(record, now uint64) uint64 {
	if record == now || l.ordered(record) {
		return now
	}
	if record&severalFlag == 0 && int(record&threadMask)/warpSize == l.thread/warpSize {
		return now | warpFlag
	}
	return max(record>>timeShift, now>>timeShift)<<timeShift | severalFlag
}

// storeShared returns the n bytes at a to be written, and notes who writes them.
func (l *lane) storeShared(a, n, flag uint64) []byte {
	s := &l.dev.shared
	b := l.bounded(shared, s.data, a, n)
	now, start := l.now()|flag, l.dev.ctaStart
	stores, loads := s.stores[a:a+n], s.loads[a:a+n]
	for i, record := range stores {
		if record>>timeShift >= start {
			if record&pendingFlag != 0 {
				l.pending(a+uint64(i), "stored", record)
			}
			if !l.ordered(record) {
				l.race(a+uint64(i), "stored", "stored", record)
			}
		}
		if r := loads[i]; r>>timeShift >= start && !l.ordered(r) {
			l.race(a+uint64(i), "stored", "loaded", r)
		}
		stores[i] = now
	}
	return b
}

// pending fails for a byte that nobody may touch now.
func (l *lane) pending(a uint64, this string, record uint64) {
	if record == outsideRecord {
		l.fail("the byte at shared address %#x is %s, but lies between two variables", a, this)
	}
	l.fail("the byte at shared address %#x is %s, but the cp.async of thread %d that brings it has not been waited for", a, this, record&threadMask)
}

func (l *lane) race(a uint64, this, that string, record uint64) {
	who := fmt.Sprintf("thread %d", record&threadMask)
	switch {
	case record&severalFlag != 0:
		who = "several warps"
	case record&warpFlag != 0:
		who = fmt.Sprintf("several lanes of warp %d", record&threadMask/warpSize)
	}
	l.fail("race: the byte at shared address %#x is %s here, and was %s by %s with no barrier between", a, this, that, who)
}

// ---------------------------------------------------------------- cp.async

// asyncBytes are those of a cp.async.
const asyncBytes = 16

// An asyncCopy is a cp.async on its way.
type asyncCopy struct {
	to, from uint64
	count    uint64 // of the bytes that come from memory; the others are 0
	read     bool   // data and written are there
	data     [asyncBytes]byte
	written  [asyncBytes]byte
}

// copyAsync begins a copy of count bytes, and of zeros behind them.
func (l *lane) copyAsync(to, from, count uint64) {
	if count > asyncBytes {
		l.fail("cp.async copies %d of %d bytes", count, asyncBytes)
	}
	l.aligned(shared, to, asyncBytes)
	l.aligned(global, from, asyncBytes)
	c := asyncCopy{to: to, from: from, count: count}
	if c.count > 0 {
		l.copySource(&c)
		c.read = l.dev.random()&1 == 0
	}
	l.storeShared(to, asyncBytes, pendingFlag)
	l.copies = append(l.copies, c)
}

// copySource takes the bytes that the copy is to bring.
func (l *lane) copySource(c *asyncCopy) {
	r, at := l.region(c.from, c.count)
	copy(c.data[:c.count], r.data[at:])
	copy(c.written[:c.count], r.written[at:])
}

// waitGroups waits until at most n groups are on their way.
func (l *lane) waitGroups(n int) {
	if len(l.groups) <= n {
		return
	}
	done := len(l.groups) - n
	end := l.groups[done-1]
	l.arrive(end)
	l.groups = l.groups[:copy(l.groups, l.groups[done:])]
	for i := range l.groups {
		l.groups[i] -= end
	}
}

// arrive lets the first n copies come.
func (l *lane) arrive(n int) {
	s, now := &l.dev.shared, l.now()
	for i := range l.copies[:n] {
		c := &l.copies[i]
		if c.count > 0 && !c.read {
			l.copySource(c)
		}
		copy(s.data[c.to:c.to+asyncBytes], c.data[:])
		for j := range uint64(asyncBytes) {
			if j < c.count && c.written[j] == 0 {
				s.stores[c.to+j] = 0 // undefined as its source
			} else {
				s.stores[c.to+j] = now
			}
		}
	}
	l.copies = l.copies[:copy(l.copies, l.copies[n:])]
}
